"""A local web page for stewards, analysts and operators: it shows what the commands show, and decides about jobs."""

from .command import dashboard

__all__ = ["dashboard"]
