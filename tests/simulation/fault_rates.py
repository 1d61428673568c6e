"""The probabilities of all simulated faults."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Probabilities per message, per step or per run, and limits."""

    loss: float = 0.0
    """A connection breaks at a message, which is lost."""
    half_open: float = 0.0
    """One side does not notice that a connection broke."""
    twice: float = 0.0
    """A query is delivered twice."""
    meddling: float = 0.0
    """A single message is lost, repeated later, or delivered out of order."""
    partition: float = 0.0
    """A provider or an analyst is cut off from the coordinator once, for up to some minutes."""
    death: float = 0.0
    """A party crashes right before or after a step of its ledger or journal."""
    slowest: float = 1.0
    """Longest delay of a message, in seconds."""
    skew: float = 0.0
    """Largest error of a clock, in seconds."""
    disks: float = 0.0
    """The run has disks: ledgers and the journal are SQLite files, not memory that outlasts processes."""
    dark: float = 0.0
    """A party crashes at a step of its disk, in the middle of a write."""
    fault: float = 0.0
    """A disk refuses steps because it is full or broken, once or for a while."""
    jobs: int = 1
    """Largest number of jobs."""
    scarce: float = 0.0
    """A provider's budget may be too small for all jobs."""
    cancelled: float = 0.0
    """An analyst cancels a job at some time."""
    again: float = 0.0
    """An analyst submits a job a second time."""
    hang_up: float = 0.0
    """An analyst cancels a call before it returns."""


NO_FAULTS = FaultRates(jobs=3)
SOME_FAULTS = FaultRates(
    loss=0.01,
    half_open=0.3,
    twice=0.1,
    meddling=0.003,
    partition=0.05,
    death=0.02,
    slowest=2.0,
    skew=100.0,
    disks=0.25,
    dark=0.002,
    fault=0.002,
    jobs=3,
    scarce=0.3,
    cancelled=0.1,
    again=0.2,
    hang_up=0.1,
)
MANY_FAULTS = FaultRates(
    loss=0.04,
    half_open=0.5,
    twice=0.3,
    meddling=0.005,
    partition=0.1,
    death=0.03,
    slowest=5.0,
    skew=250.0,
    disks=0.25,
    dark=0.004,
    fault=0.002,
    jobs=3,
    scarce=0.3,
    cancelled=0.1,
    again=0.3,
    hang_up=0.1,
)
