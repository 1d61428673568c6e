"""Errors in reading files, which name the file, and which paths stand for several files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpspca.common.errors import DpspcaError, InvalidDataError, MissingExtraError
from dpspca.common.storage import is_pattern

from .files import TemporarilyUnreadableError, is_zarr
from .memory import ScratchError


def is_several(path: Path) -> bool:
    """Tell whether a path stands for several files: it is a folder, or a pattern."""
    return (path.is_dir() and not is_zarr(path)) or is_pattern(path)


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn every error in reading a file into one that names the file."""
    try:
        yield
    except ScratchError:
        raise
    except (MissingExtraError, TemporarilyUnreadableError) as problem:
        raise type(problem)(f"{path}: {problem.what}", problem.remedy) from None
    except DpspcaError as problem:
        raise InvalidDataError(f"{path}: {problem.what}", problem.remedy) from None
    except MemoryError:
        raise TemporarilyUnreadableError(
            f"{path} takes more memory than there is.", "Divide it, or write it again if it is not that large."
        ) from None
    except Exception as problem:  # noqa: BLE001  # errors of zlib, of the tokenizer, and others
        if isinstance(problem, OSError) and problem.errno is not None:  # of the system, not of a library
            raise TemporarilyUnreadableError(f"{path} cannot be read: {problem.strerror}.", "Check its path.") from None
        raise InvalidDataError(
            f"{path} does not hold a table of numbers.",
            "Write it again, whole: .npy with numpy.save and without pickles, .npz with scipy.sparse.save_npz.",
        ) from None
