"""A span that contradicts its data set is reported by every check, and no daemon starts with it."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from commands import Ended, commands_in
from facts import a_line_names, facts

from dpspca.client.matrices import dilation
from dpspca.common.errors import InvalidDataError
from dpspca.common.job import Span
from dpspca.common.storage.settings import ProviderSettings, read_settings
from dpspca.provider.data.checked.preparation import CheckedRows
from dpspca.provider.startup import data_sets_of

SETTINGS = """
coordinator = "127.0.0.1:1"
identity = "identity"
revocations = "revoked.pem"
policy = "policy.toml"
[data_sets]
ratings = "ratings.npz"
[spans]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    share = dilation(np.ones((3, 4)), 2, 7)
    scipy.sparse.save_npz(tmp_path / "ratings.npz", scipy.sparse.csr_matrix(share))
    return tmp_path


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], folder: Path) -> Callable[..., Ended]:
    return commands_in(folder, monkeypatch, capfd)


def write(folder: Path, span: str, name: str = "ratings") -> Path:
    path = folder / "provider.toml"
    path.write_text(f"{SETTINGS}{name} = {span}\n")
    return path


def test_a_data_set_is_offered_with_its_span(folder: Path, here: Callable[..., Ended]) -> None:
    settings = read_settings(ProviderSettings, write(folder, "{ start = 2, rows = 3, of = 7 }"))
    rows = data_sets_of(settings)["ratings"]
    assert isinstance(rows, CheckedRows)
    assert rows.span == Span(2, 3, 7)
    assert a_line_names(here("doctor", "--config", "provider.toml").out, "ok", "ratings", 3, 7)


@pytest.mark.parametrize(
    ("span", "why"),
    [
        ("{ start = 1, rows = 3, of = 7 }", ("1 to 3", "4 columns")),
        ("{ start = 2, rows = 3, of = 11 }", ("11 columns", "11 rows")),
    ],
)
def test_a_span_that_contradicts_the_data_is_refused_at_start(
    span: str, why: object, folder: Path, here: Callable[..., Ended]
) -> None:
    settings = read_settings(ProviderSettings, write(folder, span))
    with pytest.raises(InvalidDataError, match=facts("ratings.npz", why)) as caught:
        data_sets_of(settings)
    assert "ratings.npz" in str(caught.value)
    assert any(re.search(facts(why), line) for line in here("doctor", "--config", "provider.toml").failed_checks)


@pytest.mark.parametrize(
    ("span", "name", "why"),
    [
        ("{ start = 5, rows = 3, of = 7 }", "ratings", "3 rows from row 5 on end at row 7"),
        ("{ start = 2, rows = 3, of = 7 }", "cohort", "spans names 'cohort', which is no data set"),
    ],
)
def test_config_check_reports_an_impossible_span_without_the_data(
    span: str, name: str, why: str, folder: Path, here: Callable[..., Ended]
) -> None:
    write(folder, span, name)
    assert why in here("config", "check", "provider.toml").out
