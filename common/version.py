"""The version of this software, as statements, evidence and models name it. Pure."""

from typing import Final

__version__: Final = "0.2.0"
