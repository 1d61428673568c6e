"""Replaces files that running daemons read."""

import secrets
from pathlib import Path


def put(path: Path, content: str | bytes) -> None:
    """Replace a file as stewards are told to, by renaming another over it: at no moment is only half of it there."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    draft.write_bytes(content.encode() if isinstance(content, str) else content)
    draft.replace(path)
