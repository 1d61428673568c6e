"""Sends messages to the workers of a cluster, and logs failures for the steward."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from dpspca.common.errors import InvalidDataError, RefusedError
from dpspca.common.version import __version__
from dpspca.provider.data import Cluster

from .messages import Task, WorkerReply, read_reply, version_of, write

Of = TypeVar("Of")

_ERROR_OF_PYTHON: Final = re.compile(r"[A-Z]\w*Error: ")
_LONGEST: Final = 300


class EngineError(RefusedError):
    """The cluster did not do a pass over the rows. The steward finds the reason in the log.

    Its text is the same for all reasons: what a worker says may depend on where rows are.
    """

    code = "no-engine"

    def __init__(self) -> None:
        super().__init__(
            "The provider's cluster did not compute this answer.",
            "The provider's operator finds the reason in its log. Then ask again.",
        )


class ClusterProblemError(InvalidDataError):
    """A fault of a cluster, or of the files that its workers read, for the steward alone."""


def ask(cluster: Cluster, tasks: Iterable[tuple[Task, bytes]]) -> Iterator[tuple[WorkerReply, memoryview]]:
    """Have workers do tasks. Give their replies in any order, or raise what one of them reports."""
    for message in cluster.run([write(task, content) for task, content in tasks]):
        theirs = version_of(message)
        if theirs != __version__:
            raise ClusterProblemError(
                f"A worker of {cluster.name} has dpspca {theirs}, and this provider has {__version__}.",
                "Install the same version on all of them.",
            )
        reply, content = read_reply(message)
        if reply.problem is not None:
            raise ClusterProblemError(f"{cluster.name}: {reply.problem.what}", reply.problem.remedy)
        yield reply, content


def reason(problem: BaseException) -> str:
    """Return the line of a library's error that says most: that of an error of Python in a worker, or else the first.

    A worker's own work never raises (``worker.work``), so what is left is about processes, packages and connections.
    """
    found = list[str]()
    at: BaseException | None = problem
    while at is not None:
        found += [line.strip() for line in str(at).splitlines() if line.strip()] or [type(at).__name__]
        at = at.__cause__
    of_python = [line for line in found if _ERROR_OF_PYTHON.match(line)]
    return (of_python or found)[0].rstrip(".:")[:_LONGEST]


def grouped(parts: Sequence[Of], groups: int) -> list[Sequence[Of]]:
    """Divide parts into at most this number of groups, of nearly equal size."""
    return [parts[place::groups] for place in range(min(groups, len(parts)))]
