"""How ill a universe is: the chances of all that goes wrong in it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weather:
    """Chances, each of one message, one step or one universe."""

    loss: float = 0.0
    """That a connection breaks at a message, which is lost."""
    half_open: float = 0.0
    """That one side does not notice a break."""
    twice: float = 0.0
    """That a query is delivered twice."""
    meddling: float = 0.0
    """That a message, of either side, is lost alone, comes again later, or out of its order."""
    partition: float = 0.0
    """That a provider or an analyst is cut off from the coordinator once, for up to some minutes."""
    death: float = 0.0
    """That a party dies before or after a step of its ledger or journal."""
    slowest: float = 1.0
    """Seconds that a message may take."""
    skew: float = 0.0
    """Seconds by which a clock may be wrong."""
    disks: float = 0.0
    """That a universe has disks: ledgers and the journal are files of SQLite's, not memory that outlasts processes."""
    dark: float = 0.0
    """That a party dies at a step of its disk, in the midst of a write."""
    fault: float = 0.0
    """That a disk refuses from a step on, once or for a while: it is full, or broken."""
    jobs: int = 1
    """How many jobs there are at most."""
    scarce: float = 0.0
    """That a provider's budget may not do for all of them."""
    cancelled: float = 0.0
    """That an analyst cancels a job, at some moment."""
    again: float = 0.0
    """That an analyst submits a job once more, at some moment."""
    hang_up: float = 0.0
    """That an analyst leaves in the middle of a call."""


FAIR = Weather(jobs=3)
ILL = Weather(
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
WORST = Weather(
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
