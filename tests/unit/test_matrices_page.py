"""The examples in docs/matrices.md run as shown and give the results shown."""

import re
from pathlib import Path

import numpy as np
import pytest

from dpspca.client.matrices import Singular
from dpspca.common.results import Model

PAGE = Path(__file__).parents[2] / "docs" / "matrices.md"


@pytest.mark.slow
def test_the_examples_run_in_order() -> None:
    """The noise is random. In 12 runs no eigenvalue or singular value was off by more than 7 %, no group wrong."""
    names: dict[str, object] = {}
    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL):
        exec(compile(example, str(PAGE), "exec"), names)  # noqa: S102  # our own text
    model, found, groups = names["model"], names["found"], names["groups"]
    assert isinstance(model, Model)
    assert isinstance(found, Singular)
    assert model.explained_variance is not None
    assert np.abs(model.explained_variance / [600, 400] - 1).max() < 0.3
    assert abs(np.mean((model.components[1] > 0) == groups) - 0.5) > 0.45
    assert np.abs(found.values[:2] / 3000 - 1).max() < 0.3
