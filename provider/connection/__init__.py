"""The provider's connection to the coordinator: dial out, greet, answer, reconnect."""

from .daemon import Daemon
from .greeting import names_warning

__all__ = [
    "Daemon",
    "names_warning",
]
