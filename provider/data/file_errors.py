"""The files of a data set, and errors in reading them, which name the file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dpspca.common.errors import DpspcaError, InvalidDataError, MissingExtraError
from dpspca.common.storage import is_pattern

from .files import TemporarilyUnreadableError, files_of, is_zarr, misnamed
from .memory import ScratchError

_WRITE_AGAIN: Final = {
    ".npy": "Write it again, whole, with numpy.save and without pickles.",
    ".npz": "Write it again, whole, with scipy.sparse.save_npz, or with numpy.savez and without pickles.",
}
_DECRYPT: Final = "Write it again without encryption of its own, on a disk that is encrypted."


def is_several(path: Path) -> bool:
    """Tell whether a path stands for several files: it is a folder, or a pattern."""
    return (path.is_dir() and not is_zarr(path)) or is_pattern(path)


def files_at(path: Path) -> list[Path]:
    """List the files of a data set in the order of their rows."""
    return list(files_of(path, partitioned=True)) if is_several(path) else [path]


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
        if "decrypt" in str(problem).lower():  # of pyarrow, about a Parquet file or some of its columns
            raise InvalidDataError(f"{path} is encrypted.", _DECRYPT) from None
        if (other := misnamed(path)) is not None:
            raise InvalidDataError(f"{path}: {other.what}", other.remedy) from None
        ending = path.suffix.lower()
        raise InvalidDataError(
            f"{path} cannot be read{f' as {ending}' if ending else ''}: it is damaged, incomplete, or something else "
            "than its ending says.",
            _WRITE_AGAIN.get(ending, "Copy it again, or write it again, whole."),
        ) from None
