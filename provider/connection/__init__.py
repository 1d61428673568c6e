"""The daemon's connection to the coordinator: dials out, greets, answers, reconnects."""

from .daemon import Daemon
from .greeting import remark

__all__ = [
    "Daemon",
    "remark",
]
