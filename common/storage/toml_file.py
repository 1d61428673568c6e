"""Reads a file of text or TOML as it is. An error names the file and what to do."""

from pathlib import Path
from typing import Any

from dpspca.common.decoding import parse_toml
from dpspca.common.errors import InvalidParameterError


def read_text(path: Path) -> str:
    """Read a file of text in UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as problem:
        raise InvalidParameterError(f"{path} cannot be read: {problem.strerror}.", "Give the path of a file.") from None
    except UnicodeDecodeError:
        raise InvalidParameterError(f"{path} is not text in UTF-8.", "Save it as that, or give another file.") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of settings as it is, unchecked."""
    return parse_toml(read_text(path), str(path))
