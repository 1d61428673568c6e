"""One coroutine a file: it yields a query, receives the noisy aggregate and returns a model."""

from . import catalogue
from .catalogue import CATALOGUE, Method, choices
from .options import Kind, Option
from .row_steps import AUTO
from .theory import for_job

__all__ = [
    "AUTO",
    "CATALOGUE",
    "Kind",
    "Method",
    "Option",
    "catalogue",
    "choices",
    "for_job",
]
