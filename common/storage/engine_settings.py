"""The tables ``[engines.NAME]`` in a provider's settings: which cluster computes the sums over a data set's rows."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final

from dpspca.common.decoding import Filled, Rule, between

from .paths import FilePath

_MOST_SECONDS: Final = 7 * 24 * 3600
_MOST_TASKS: Final = 2**16
_SCHEDULER: Final = re.compile(r"(tls|tcp)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}")
_HERE: Final = re.compile(r"tcp://(127\.[0-9.]+|localhost|\[::1\]):[0-9]+")
"""A scheduler that no other machine can reach, and no message to it leaves this one."""
_LOCAL_MASTER: Final = re.compile(r"local(\[[^]]*\]|-cluster\[[^]]*\])?")


class EngineKind(StrEnum):
    """Clusters that compute sums over rows that the provider does not read itself."""

    DASK = "dask"
    SPARK = "spark"


KEYS_OF_KIND: Final[Mapping[EngineKind, tuple[frozenset[str], frozenset[str]]]] = {
    EngineKind.DASK: (frozenset({"scheduler"}), frozenset({"ca", "cert", "key"})),
    EngineKind.SPARK: (frozenset({"master"}), frozenset({"secret", "conf"})),
}
"""For each kind, the required keys and the optional ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSettings:
    """A cluster: what it is, how it is reached and protected, and how long a pass over the rows may take.

    What workers send are exact sums, without noise. So a connection that leaves the machine has to be encrypted.
    """

    engine: EngineKind
    scheduler: (
        Annotated[
            str,
            Rule(
                "Give the address of the scheduler, as in tls://scheduler.example:8786.",
                lambda text: _SCHEDULER.fullmatch(text) is not None,
            ),
        ]
        | None
    ) = None
    """Of Dask: where the scheduler listens."""
    ca: FilePath | None = None
    """Of Dask: the file with the certificate of the authority that the cluster trusts."""
    cert: FilePath | None = None
    key: FilePath | None = None
    """Of Dask: this provider's own certificate for the cluster, and its key."""
    master: Filled | None = None
    """Of Spark: the master, as in spark://master.example:7077 or k8s://https://...."""
    secret: FilePath | None = None
    """Of Spark: the file with the secret that all processes of the cluster share."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Of Spark: further configuration."""
    seconds: Annotated[int, between(1, _MOST_SECONDS)] = 3600
    """How long a pass over all rows may take. After that it is given up."""
    tasks: Annotated[int, between(1, _MOST_TASKS)] | None = None
    """In how many tasks a pass is divided, at most. By default four for each processor of the cluster."""

    @classmethod
    def cross_checks(cls, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Find keys that the kind of cluster lacks or does not have, and connections in the clear."""
        if "engine" not in values:
            return
        kind = values["engine"]
        needed, allowed = KEYS_OF_KIND[kind]
        given = {key for both in KEYS_OF_KIND.values() for part in both for key in part if values.get(key)}
        if missing := sorted(needed - given):
            yield f"The engine {kind} lacks {missing[0]}.", f"Add {missing[0]}."
        if stray := sorted(given - needed - allowed):
            yield f"The engine {kind} has {', '.join(stray)}.", f"It may have {', '.join(sorted(needed | allowed))}."
        yield from PROTECTION_OF_KIND[kind](values, given)


def _of_dask(values: Mapping[str, Any], given: set[str]) -> Iterator[tuple[str, str]]:
    scheduler, files = values.get("scheduler") or "", {"ca", "cert", "key"}
    if scheduler.startswith("tls://") and not files <= given:
        yield (
            f"The scheduler {scheduler} needs {', '.join(sorted(files - given))}.",
            "Name the files of the authority, of this provider's certificate and of its key.",
        )
    if scheduler.startswith("tcp://") and not _HERE.fullmatch(scheduler):
        yield (
            f"The scheduler {scheduler} is reached without encryption, and workers send sums without noise.",
            "Use tls:// with ca, cert and key.",
        )


def _of_spark(values: Mapping[str, Any], _: set[str]) -> Iterator[tuple[str, str]]:
    master = values.get("master") or ""
    if master and not _LOCAL_MASTER.fullmatch(master) and not values.get("secret"):
        yield (
            f"The master {master:.120} needs secret, because workers send sums without noise.",
            "Name a file with the secret that all processes of the cluster share.",
        )
    own = {key for key in values.get("conf") or {} if _is_protection(key)}
    if own:
        yield f"conf has {', '.join(sorted(own))}.", "Remove it: it follows from secret."


PROTECTION_OF_KIND: Final[Mapping[EngineKind, Callable[[Mapping[str, Any], set[str]], Iterator[tuple[str, str]]]]] = {
    EngineKind.DASK: _of_dask,
    EngineKind.SPARK: _of_spark,
}
"""For each kind, what finds connections in the clear in its values and the keys that are given."""


def _is_protection(key: str) -> bool:
    """Tell whether a key of Spark's configuration decides how connections are protected."""
    return key.lower().startswith(("spark.authenticate", "spark.network.crypto", "spark.network.sasl"))
