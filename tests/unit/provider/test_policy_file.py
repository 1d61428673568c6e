"""A policy is what its file says now; what cannot be read allows nothing, and is told once."""

from pathlib import Path

import pytest
from town import lax_policy

from dpspca.common.errors import InvalidParameterError, RefusedError
from dpspca.provider.policy_file import CurrentPolicy, read_policy

POLICY = lax_policy("row-replace-one")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path / "policy.toml"


def test_a_policy_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="cannot be read: No such file"):
        read_policy(tmp_path / "policy.toml")


def test_a_policy_that_is_no_text_is_refused(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidParameterError, match="not text in UTF-8"):
        read_policy(path)


def test_a_policy_is_read_once_for_as_long_as_its_file_stays(path: Path) -> None:
    current = CurrentPolicy(path)
    assert current.get() is current.get()
    assert current.get().rules("cohort")


@pytest.mark.parametrize("mended", ["", "gone", "[data_sets." + "a." * 3000 + "b]"])
def test_a_policy_that_goes_bad_allows_nothing_until_it_is_mended(
    path: Path, mended: str, caplog: pytest.LogCaptureFixture
) -> None:
    current = CurrentPolicy(path)
    if mended == "gone":
        path.unlink()
    else:
        path.write_text(mended or "nonsense")
    for _ in range(3):
        with pytest.raises(RefusedError):
            current.get().rules("cohort")
    assert caplog.text.count("Nothing is allowed until the policy is mended") == 1
    path.write_text(POLICY)
    assert current.get().rules("cohort")
