"""Models in files: written whole or not at all, read without executing anything."""

import os
import tempfile
from pathlib import Path

from dpspca.common.model import Model


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model; a file of that name is replaced in one step, and stays as it was if anything fails."""
    target = Path(path)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=target.name, delete=False) as draft:
        try:
            draft.write(model.to_bytes())
            draft.flush()
            os.fsync(draft.fileno())
            Path(draft.name).replace(target)
        except BaseException:
            Path(draft.name).unlink(missing_ok=True)
            raise


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model; anything that is not one is refused."""
    return Model.from_bytes(Path(path).read_bytes())
