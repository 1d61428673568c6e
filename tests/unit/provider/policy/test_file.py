"""A policy is what its file says now; what cannot be read allows nothing, and is told once."""

import errno
import os
from pathlib import Path

import pytest
from facts import facts
from local_federation import permissive_policy

from dpspca.common.errors import InvalidParameterError, RefusedError
from dpspca.provider.policy.file import CurrentPolicy, read_policy
from dpspca.provider.policy.rules import UnreadablePolicyError

POLICY = permissive_policy("row-replace-one")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path / "policy.toml"


def test_a_missing_policy_is_reported_as_missing(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidParameterError, match=facts("policy.toml", os.strerror(errno.ENOENT), "`dpspca policy suggest`")
    ):
        read_policy(tmp_path / "policy.toml")


def test_a_policy_that_is_not_text_is_refused(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidParameterError, match=facts(path, "UTF-8")):
        read_policy(path)


def test_a_policy_is_read_once_for_as_long_as_its_file_stays(path: Path) -> None:
    current = CurrentPolicy(path)
    assert current.get() is current.get()
    assert current.get().rules("cohort")


@pytest.mark.parametrize("mended", ["", "gone", "[data_sets." + "a." * 3000 + "b]"])
def test_an_unreadable_policy_allows_nothing_until_it_is_corrected(
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
    assert caplog.text.count("is allowed until the policy is corrected") == 1
    path.write_text(POLICY)
    assert current.get().rules("cohort")


def test_a_table_that_cannot_be_read_closes_its_own_data_set(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    both = permissive_policy("row-replace-one", "cohort", "labs")
    broken = both.replace('unit = "row-replace-one"', 'unit = "row"', 1)
    path.write_text(broken)
    current = CurrentPolicy(path)  # also at a start
    for _ in range(2):
        assert current.get().rules("labs")
        with pytest.raises(UnreadablePolicyError, match=facts("'cohort'")):
            current.get().rules("cohort")
        with pytest.raises(RefusedError, match=facts("'other'")):
            current.get().rules("other")
    assert caplog.text.count("Nothing on cohort is allowed until the policy is corrected") == 1
    path.write_text(both)
    assert current.get().rules("cohort")
    path.write_text(both + "[data_sets.cohort]")
    for name in ("cohort", "labs", "other"):
        with pytest.raises(UnreadablePolicyError):
            current.get().rules(name)


def test_an_unreadable_policy_keeps_a_provider_from_starting(path: Path) -> None:
    for text in ("nonsense", permissive_policy().replace("analysts", "analyst")):
        path.write_text(text)
        with pytest.raises(InvalidParameterError):
            CurrentPolicy(path)


def test_a_policy_that_is_taken_away_allows_nothing(path: Path) -> None:
    current = CurrentPolicy(path)
    current.get()
    path.unlink()
    with pytest.raises(UnreadablePolicyError):
        current.get().rules("cohort")
    assert current._stamp() is None


def test_a_policy_that_cannot_even_be_looked_at_allows_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "policy.toml").write_text(POLICY)
    current = CurrentPolicy(folder / "policy.toml")
    folder.rename(tmp_path / "moved")
    folder.write_text("no folder")
    with pytest.raises(UnreadablePolicyError):
        current.get().rules("cohort")
