"""Compares a job with the terms that providers state: what each refuses, where they differ, and a job that fits."""

from .differences import Difference, differences
from .fitting import Change, Fit, fit
from .rules import refusals

__all__ = [
    "Change",
    "Difference",
    "Fit",
    "differences",
    "fit",
    "refusals",
]
