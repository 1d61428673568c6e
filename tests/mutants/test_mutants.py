"""Every planted privacy bug is noticed, and whoever plants them notices when one can no longer be planted."""

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

HERE = Path(__file__).parent
RUNNER = SimpleNamespace(**runpy.run_path(str(HERE / "run.py")))
MUTANTS = RUNNER.read()

pytestmark = pytest.mark.skipif(not (RUNNER.ROOT / "src").is_dir(), reason="the sources are not part of the wheel")

HARMLESS = """
[[mutants]]
name = "harmless"
gives_away = "Nothing: a word of a sentence."
file = "common/privacy/units.py"
find = 'Which two data sets count as neighbours.'
replace = 'Which two data sets are neighbours.'
tests = ["tests/unit/common/privacy/test_units.py::test_no_two_units_say_the_same"]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "list.toml"
    path.write_text(text, encoding="utf-8")
    return path


def judged(folder: Path, text: str, *words: str) -> int:
    code: int = RUNNER.main(["--lists", str(written(folder, text)), *words])
    return code


def test_every_mutant_can_still_be_planted_and_names_tests_that_exist() -> None:
    assert len(MUTANTS) >= 45
    RUNNER.check(MUTANTS)


def test_every_mutant_says_in_a_sentence_what_it_gives_away() -> None:
    for mutant in MUTANTS:
        assert mutant.gives_away.endswith("."), mutant.name
        assert " " in mutant.gives_away, mutant.name


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("count as neighbours", "are not there", "occurs 0 times"),
        ("Which two data sets count as neighbours.", "PrivacyUnit", "times in common/privacy/units.py"),
        ("test_no_two_units_say_the_same", "test_that_nobody_wrote", "there is no test"),
        ("tests/unit/common/privacy/test_units.py", "tests/nowhere.py", "there is no file"),
    ],
)
def test_a_mutant_that_rotted_is_refused(
    before: str, after: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judged(tmp_path, HARMLESS.replace(before, after, 1), "--check") == 2
    assert said in capsys.readouterr().err


def test_two_mutants_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(tmp_path, HARMLESS * 2, "--check") == 2
    assert "one name" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_survivor_is_reported_and_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (RUNNER.ROOT / "common/privacy/units.py").read_bytes()
    assert judged(tmp_path, HARMLESS) == 1
    assert "survived" in capsys.readouterr().out
    assert (RUNNER.ROOT / "common/privacy/units.py").read_bytes() == before


@pytest.mark.nightly
def test_a_mutant_that_cannot_even_be_loaded_is_not_taken_for_killed(tmp_path: Path) -> None:
    broken = HARMLESS.replace("'Which two data sets are neighbours.'", '\'"""(\'')
    (mutant,) = RUNNER.read([written(tmp_path, broken)])
    assert RUNNER.tried(mutant).outcome == "broken"


@pytest.mark.nightly
def test_without_a_mutant_all_these_tests_pass_in_a_copy() -> None:
    RUNNER.require_clean(MUTANTS)


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_noticed(mutant: Any) -> None:
    found = RUNNER.tried(mutant)
    assert found.outcome == ("survived" if mutant.survives else "killed"), f"{mutant.gives_away}\n{found.said}"


def test_at_most_one_in_twenty_may_survive_with_an_explanation() -> None:
    assert sum(bool(mutant.survives) for mutant in MUTANTS) <= 0.05 * len(MUTANTS)
