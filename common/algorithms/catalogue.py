"""Every algorithm by name: the one list that the gate, the coordinator and the clients consult."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from dpspca.common.errors import InvalidParameterError
from dpspca.common.plan import Step
from dpspca.common.protocol import Algorithm
from dpspca.common.spec import JobSpec

from . import dps_pca


@dataclass(frozen=True, slots=True)
class Entry:
    """``plan`` says what will be asked and at what price; ``run`` asks it."""

    plan: Callable[[JobSpec], tuple[Step, ...]]
    run: Callable[[JobSpec], Algorithm]
    summary: str


CATALOGUE: Final = MappingProxyType(
    {
        "dps-pca": Entry(
            dps_pca.plan, dps_pca.run, "truncated noisy power loop for sparse components (Ge et al. 2018)"
        ),
    }
)


def find(name: str) -> Entry:
    """Look an algorithm up."""
    if name not in CATALOGUE:
        known = ", ".join(CATALOGUE)
        raise InvalidParameterError(f"There is no algorithm {name!r}.", f"Choose one of: {known}.")
    return CATALOGUE[name]


def plan(spec: JobSpec) -> tuple[Step, ...]:
    """Plan a job by its algorithm's own rule. Every party to a job asks several times; the answer is remembered."""
    return _planned(spec.to_json())


@lru_cache(64)
def _planned(spec: str) -> tuple[Step, ...]:
    read = JobSpec.from_json(spec)
    return find(read.algorithm).plan(read)
