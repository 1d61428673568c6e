"""Paths in settings: where they lead, and which stand for several files."""

from pathlib import Path
from typing import Annotated, TypeAlias

from dpspca.common.decoding import By, Filled

FilePath: TypeAlias = Annotated[Path, By(lambda text, source: source.locate(text), Filled)]
"""A path as settings give it. An empty one would be the folder of the file."""


def located(folder: Path, text: str) -> Path:
    """Take a path from the folder of the settings. A tilde stands for a home folder."""
    try:
        return folder / Path(text).expanduser()
    except RuntimeError:  # a user whose home is not known
        return folder / text


def is_pattern(path: Path) -> bool:
    """Tell whether a path stands for all files whose names match it. A file with such a name stands for itself."""
    return any(mark in path.name for mark in "*?[") and not path.exists()
