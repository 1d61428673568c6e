"""Save and load models. A file is written completely or not at all, and loading never executes code."""

import os
import secrets
from pathlib import Path
from typing import Final

from dpspca.common.errors import CorruptModelError, InvalidDataError, InvalidTypeError
from dpspca.common.results import Model
from dpspca.common.storage import located

_NEW: Final = 0o666  # less what the umask takes away, as for any new file
_PERMISSIONS: Final = 0o777


class MissingModelError(InvalidDataError, FileNotFoundError):
    """There is no model file at this path."""

    code = "missing-model"


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model to a file. An existing file is replaced in one step, and stays as it was if anything fails.

    A new file gets the permissions that the umask allows. A file that is replaced keeps its permissions.
    """
    if not isinstance(model, Model):
        raise InvalidTypeError(
            f"model is a {type(model).__name__}, not a Model.",
            "Pass the model_ of a fitted estimator, or what simulate returned.",
        )
    target = located(Path(), os.fspath(path))
    draft = target.parent / f".dpspca-{secrets.token_hex(8)}"
    descriptor = _open_new(draft, target)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123  # the descriptor is open already
            _keep_permissions(descriptor, target)
            file.write(model.to_bytes())
            file.flush()
            os.fsync(descriptor)
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model from a file. Raise ``CorruptModelError`` if the file is not a model.

    If there is no such file, the error is a ``MissingModelError``, which is a ``FileNotFoundError`` too.
    """
    try:
        return Model.from_bytes(located(Path(), os.fspath(path)).read_bytes())
    except FileNotFoundError:
        raise MissingModelError(
            f"There is no model file {os.fspath(path)}.",
            "Give the path of a file that save_model or `dpspca run` wrote.",
        ) from None
    except CorruptModelError as problem:
        raise CorruptModelError(f"{os.fspath(path)}: {problem.what}", problem.remedy) from None


def _open_new(draft: Path, target: Path) -> int:
    """Create the draft file. Errors name the target, because the caller does not know of the draft."""
    try:
        return os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _NEW)
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidDataError(
            f"{target.name} cannot be saved: there is no folder {target.parent}.",
            "Create the folder, or choose another one.",
        ) from None
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(target)) from None


def _keep_permissions(descriptor: int, target: Path) -> None:
    if target.exists() and hasattr(os, "fchmod"):
        os.fchmod(descriptor, target.stat().st_mode & _PERMISSIONS)
