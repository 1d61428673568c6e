"""A job as its file holds it: with the data set, the providers and the dictionary that the file names."""

from dataclasses import dataclass, replace
from pathlib import Path

from dpspca.common.dictionary import Dictionary
from dpspca.common.job import AutoCentering, Centering, JobSpec
from dpspca.common.plan import Plan

from .described_jobs import attached


@dataclass(frozen=True, slots=True)
class JobFile:
    """The content of a job's file: a job and, if the file names them, the data set and the providers."""

    plan: Plan
    data_set: str | None = None
    providers: tuple[str, ...] | None = None
    dictionary: Dictionary | None = None
    """The job's dictionary, if its file is known."""
    dictionary_file: Path | None = None
    """That file."""
    centering: AutoCentering | None = None
    """How to choose the centring, if the file leaves it open. The plan's was chosen for the providers in the file."""

    def for_providers(self, count: int | None) -> JobSpec:
        """Return the job with its centring chosen for so many providers, if the file leaves that open."""
        if self.centering is None:
            return self.spec
        bare = replace(self.spec, centering=Centering.NONE, mean_bound=None, public_mean=None, centering_reason=None)
        return self.centering.chosen(bare, providers=count)

    @property
    def public_bound(self) -> float | None:
        """The norm bound that follows from the dictionary, if its file is known."""
        return None if self.dictionary is None else attached(self.spec, self.dictionary).norm_bound()

    @property
    def spec(self) -> JobSpec:
        """The job."""
        return self.plan.spec
