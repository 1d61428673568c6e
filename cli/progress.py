"""Follows a job at the coordinator: who answered, who dropped out and why, and what it came to.

What the coordinator tells is printed as a stranger's word; what providers spent is worked out here, from the job.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import typer

from dpspca.client import report
from dpspca.client.files import save_model
from dpspca.client.jobs import JobStatus, spent
from dpspca.common.model import Model
from dpspca.common.spec import JobSpec, check
from dpspca.common.statement import rounded_up

from . import output
from .tally import Standing, standing_of


class Follower:
    """Tells the states of a job as they come, each answer and each loss once."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._start = monotonic()
        self._told: set[object] = set()
        self._status: JobStatus | None = None

    def follow(self, status: JobStatus, show: output.Show) -> None:
        """Tell what is new; what the job's own end gives as its reason is told there, and not here as well.

        So a loss is told when the job has gone on without whom it lost: until then it may be the reason of its end.
        """
        self._status = status
        went_on = status.answered if status.state == "running" else -1
        for each in status.participants:
            survived = status.is_final or each.asked <= went_on
            if each.reason and survived and each.reason not in status.reason and self._is_new(each.name):
                typer.echo(output.printable(f"{each.name} dropped out: {each.reason}"), err=True)
        if self._is_new(status.answered or status.state):
            show(standing_of(self._spec, status, monotonic() - self._start))

    def line(self, now: Standing) -> str:
        """Say in a line who answered, and how the job stands."""
        if self._status is None or not now.done:
            return output.printable(f"{now.done} of {now.total}  {now.name}")
        who = [each.name for each in self._status.participants if each.answered >= now.done]
        return output.printable(
            f"{now.done} of {now.total}  {now.name}: {', '.join(who)} answered; {output.so_far(now)}"
        )

    def _is_new(self, fact: object) -> bool:
        known = fact in self._told
        self._told.add(fact)
        return not known


@contextmanager
def following(spec: JobSpec, *, quiet: bool) -> Iterator[Callable[[JobStatus], None]]:
    """Show a job's states: a bar on a terminal, a line an answer elsewhere."""
    follower = Follower(spec)
    with output.display(quiet=quiet, first="waiting", line=follower.line) as show:
        yield lambda status: None if quiet else follower.follow(status, show)


def participants(spec: JobSpec, status: JobStatus) -> list[dict[str, Any]]:
    """Say of every provider what it was asked, and what it spent at most."""
    return [
        {
            "name": each.name,
            "asked": each.asked,
            "answered": each.answered,
            "epsilon_at_most": spent(spec, each.asked),
            "reason": each.reason,
        }
        for each in status.participants
    ]


def print_participants(facts: list[dict[str, Any]]) -> None:
    """Print the same as a table."""
    output.print_table(
        ("provider", "asked", "answered", "epsilon at most", "dropped out"),
        (
            (
                each["name"],
                str(each["asked"]),
                str(each["answered"]),
                rounded_up(each["epsilon_at_most"], 4),
                each["reason"],
            )
            for each in facts
        ),
    )


class Shelf:
    """Where a model and its plots are put; tried before the job, so that nothing is paid for that cannot be kept.

    A model that is there may have been paid for as well, and stays unless it may be replaced.
    """

    def __init__(self, model: Path, plots: Path | None, *, replace: bool) -> None:
        self._model = model
        self._replace = replace
        self._folder = output.Folder(model.parent, [model.name])
        self._plots = output.Folder(plots, output.PLOTS) if plots else None
        self._require_room("Name another file with --out, or replace it with --force.")

    def put(self, spec: JobSpec, status: JobStatus, model: Model) -> dict[str, Any]:
        """Write the files, and give all there is to say about a job that is done."""
        again = f"The coordinator still has the model: `dpspca jobs result {status.name} --out` another file."
        self._require_room(again)
        files = {"model": self._folder.write(self._model.name, lambda path: save_model(model, path), again)}
        drawn, notes = self._plots.write_plots(model) if self._plots else ({}, [])
        return {
            "job": status.name,
            "data_set": status.data_set,
            "participants": participants(spec, status),
            "model": report.to_dict(model),
            "files": files | drawn,
            "notes": [*_missing(spec, status, model), *notes],
        }

    def _require_room(self, remedy: str) -> None:
        check(self._replace or not self._model.exists(), f"{self._model} is there already.", remedy)


def _missing(spec: JobSpec, status: JobStatus, model: Model) -> Iterator[str]:
    """Say why what was asked for is not told."""
    left = [each.name for each in status.participants if each.reason and each.answered]
    if spec.explained_variance and model.explained_variance is None and left:
        yield f"What the components explain is not told: {', '.join(left)} left before it was known."


def print_result(facts: dict[str, Any]) -> None:
    """Print what a job came to: components, who took part at what price, the statement, and the files."""
    output.print_components(facts["model"])
    print_participants(facts["participants"])
    notes = map(output.printable, facts["notes"])
    output.say("\n".join(["", facts["model"]["statement"]["text"], "", *notes, "Written:"]))
    for path in facts["files"].values():
        typer.echo(path)
