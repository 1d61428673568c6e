"""One digest of the installed software, so that two installations can be compared."""

from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable


@cache
def installed_digest() -> str:
    """Return the SHA-256 of a list of all files of this package, each with its own SHA-256, sorted by path.

    The list is what ``sha256sum`` prints for these paths. Hidden files and what Python compiled are left out, so an
    installed wheel and a clone of the same release have the same digest. It is computed once in a process.
    """
    found = sorted(_files(files("dpspca"), ""))
    return sha256("".join(f"{digest}  {path}\n" for path, digest in found).encode()).hexdigest()


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for each in folder.iterdir():
        if each.name.startswith(".") or each.name == "__pycache__":
            continue
        if each.is_dir():
            yield from _files(each, f"{path}{each.name}/")
        else:
            yield f"{path}{each.name}", sha256(each.read_bytes()).hexdigest()
