"""Differentially private sparse principal component analysis for data that may not leave home."""

__version__ = "0.1.0"
