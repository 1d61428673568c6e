"""Compares a job with the terms that providers state: what each refuses, where they differ, and a job that fits."""

from .differences import Difference, differences
from .fitting import Change, Fit, admitted, fit, may_be_smaller, sized
from .rules import refusals

__all__ = [
    "Change",
    "Difference",
    "Fit",
    "admitted",
    "differences",
    "fit",
    "may_be_smaller",
    "refusals",
    "sized",
]
