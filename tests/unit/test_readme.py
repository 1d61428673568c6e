"""The examples in the README run as shown."""

import re
from pathlib import Path

import pytest

from dpspca import DPSPCA, Model

README = Path(__file__).parents[2] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_errors_that_it_names_are_of_one_row_of_the_page() -> None:
    text = " ".join(README.read_text(encoding="utf-8").split())
    ((default, published, oracle),) = re.findall(
        r"the default are off by (\S+),.*? published method is off by (\S+)\. .*? right columns is off by (\S+)\.", text
    )
    page = (README.parent / "docs" / "accuracy.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| P: .*, epsilon 1 \| (\S+) \| (\S+) \| \S+ \| (\S+) \|$", page, re.MULTILINE)
    assert [float(oracle), float(default)] == [float(each) for each in row[:2]]
    assert float(published) == round(float(row[2]), 2)


def test_the_readme_has_examples() -> None:
    assert len(EXAMPLES) == 2


def test_the_examples_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for example in EXAMPLES:
        exec(compile(example, str(README), "exec"), names)  # noqa: S102  # our own text
    assert "(1, 1e-06)-differentially private" in capsys.readouterr().out
    pca, model = names["pca"], names["model"]
    assert isinstance(pca, DPSPCA)
    assert isinstance(model, Model)
    # The noise is random. In 500 runs neither missed one of these columns.
    assert {0, 1, 2, 3} <= set(pca.support_)
    assert {0, 1, 2, 3} <= set(model.support)
