"""What plants privacy bugs (``make mutants``, part of ``make nightly``) refuses bugs that can no longer be planted."""

import os
import runpy
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fork_server import ForkServers

HERE = Path(__file__).parent
RUNNER = SimpleNamespace(**runpy.run_path(str(HERE / "run.py")))
MUTANTS = RUNNER.read()

pytestmark = pytest.mark.skipif(not (RUNNER.ROOT / "src").is_dir(), reason="the sources are not part of the wheel")

HARMLESS = """
[[mutants]]
name = "harmless"
gives_away = "Nothing: a comment."
file = "common/privacy/units.py"
find = 'class PrivacyUnit(StrEnum):'
replace = 'class PrivacyUnit(StrEnum):  # harmless'
tests = ["tests/unit/common/privacy/test_units.py::test_no_two_units_say_the_same"]
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[ForkServers]:
    with RUNNER.fork_servers() as started:
        yield started


def written(folder: Path, text: str) -> Path:
    path = folder / "list.toml"
    path.write_text(text, encoding="utf-8")
    return path


def judged(folder: Path, text: str, *words: str) -> int:
    code: int = RUNNER.main(["--lists", str(written(folder, text)), *words])
    return code


@pytest.mark.slow
def test_every_mutant_can_still_be_planted_and_names_tests_that_exist() -> None:
    assert len(MUTANTS) >= 45
    RUNNER.check(MUTANTS)


def test_a_commit_chooses_some_mutants_and_another_one_others() -> None:
    first, second = ([each.name for each in RUNNER.chosen(MUTANTS, [], 6, 40 * letter)] for letter in "ab")
    assert 25 < len(first) < 120
    assert first != second
    assert len(RUNNER.chosen(MUTANTS, [], 10**9, "a")) == 1


def test_every_mutant_says_in_a_sentence_what_it_reveals() -> None:
    for mutant in MUTANTS:
        assert mutant.gives_away.endswith("."), mutant.name
        assert " " in mutant.gives_away, mutant.name


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("(StrEnum):'", "(IntEnum):'", "occurs 0 times"),
        ("class PrivacyUnit(StrEnum):'", "PrivacyUnit'", "times in common/privacy/units.py"),
        ("test_no_two_units_say_the_same", "test_that_nobody_wrote", "there is no test"),
        ("tests/unit/common/privacy/test_units.py", "tests/nowhere.py", "there is no file"),
    ],
)
def test_a_mutant_that_rotted_is_refused(
    before: str, after: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judged(tmp_path, HARMLESS.replace(before, after, 1), "--check") == 2
    assert said in capsys.readouterr().err


SOURCE = '''
def price(step):
    """What a step costs.

    In mu.
    """
    if step.free:  # a count
        return 0.0
    return max(
        step.sensitivity,  # of one row
        0.5,
    )
'''


@pytest.mark.parametrize(
    ("find", "replace", "planted"),
    [
        ("    if step.free:\n        return 0.0\n", "    pass\n", "    pass\n"),
        ("max(step.sensitivity, 0.5,)", "step.sensitivity", "    return step.sensitivity\n"),
        (
            "def price(step):\n    if step.free:",
            "def price(step):\n    if True:",
            "def price(step):\n    if True:  # a count\n",
        ),
        ("        return 0.0", "        log(step)\n        return 0.0", "        log(step)\n        return 0.0\n"),
        ("  return 0.0", "  log(step)\n  return 0.0", "        log(step)\n        return 0.0\n"),
    ],
)
def test_code_is_found_whatever_comments_docstrings_and_line_breaks_say(find: str, replace: str, planted: str) -> None:
    mutant = RUNNER.Mutant("x", "Something.", "x.py", find, replace, ("t",))
    assert planted in mutant.planted_in(SOURCE)


@pytest.mark.parametrize("find", ["return 0", "step.fre", "a count", "What a step costs.", "# of one row", ""])
def test_parts_of_words_comments_and_docstrings_are_not_code(find: str) -> None:
    assert RUNNER.places(SOURCE, find) == []


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
def test_a_mutant_that_cannot_even_be_loaded_is_not_taken_for_killed(tmp_path: Path, servers: ForkServers) -> None:
    broken = HARMLESS.replace("class PrivacyUnit(StrEnum):  # harmless", "class PrivacyUnit((")
    (mutant,) = RUNNER.read([written(tmp_path, broken)])
    assert RUNNER.tried(mutant, servers).outcome == "broken"


@pytest.mark.nightly
def test_a_mutant_that_a_test_notices_is_killed(tmp_path: Path, servers: ForkServers) -> None:
    alike = HARMLESS.replace("class PrivacyUnit(StrEnum):'", "return _NEIGHBOURS[self]'")
    alike = alike.replace("class PrivacyUnit(StrEnum):  # harmless", 'return "all"')
    (mutant,) = RUNNER.read([written(tmp_path, alike)])
    assert RUNNER.tried(mutant, servers).outcome == "killed"


def test_at_most_one_in_twenty_may_survive_with_an_explanation() -> None:
    assert sum(bool(mutant.survives) for mutant in MUTANTS) <= 0.05 * len(MUTANTS)


# --- Runs in forks ----------------------------------------------------------------------------------------------------

HANGS = """
import subprocess, time
from pathlib import Path

def test_hangs():
    Path("started").write_text(str(subprocess.Popen(["sleep", "1000"]).pid))
    time.sleep(1000)
"""


def run(servers: ForkServers, folder: Path, test: str, seconds: float = 60) -> tuple[int | None, str]:
    (folder / "test_it.py").write_text(test, encoding="utf-8")
    return servers.run(folder, ["-p", "no:cacheprovider", "test_it.py"], RUNNER.variables(), seconds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("test", "code"),
    [
        ("def test_it(): pass", 0),
        ("def test_it(): assert not __file__", 1),
        ("def test_it(:", 2),
        ("import nowhere", 2),
        ("", 5),
        ("import os, signal\ndef test_it(): os.kill(os.getpid(), signal.SIGKILL)", -9),
    ],
)
def test_a_fork_ends_as_pytest_does(test: str, code: int, tmp_path: Path, servers: ForkServers) -> None:
    ended, said = run(servers, tmp_path, test)
    assert ended == code
    assert f"rootdir: {tmp_path}" in said


@pytest.mark.slow
def test_what_hangs_is_ended_with_what_it_started(tmp_path: Path, servers: ForkServers) -> None:
    assert run(servers, tmp_path, HANGS, 5)[0] is None
    started = int((tmp_path / "started").read_text())
    for _ in range(100):  # whoever adopts it may take a moment to see its end
        try:
            os.kill(started, 0)
        except ProcessLookupError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("it goes on")
    assert run(servers, tmp_path, "def test_it(): pass")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("code", [None, -9, 2])
def test_what_does_not_end_with_a_verdict_is_broken(code: int | None, tmp_path: Path) -> None:
    (mutant,) = RUNNER.read([written(tmp_path, HARMLESS)])
    ends: Any = SimpleNamespace(run=lambda *_: (code, ""))
    assert RUNNER.tried(mutant, ends).outcome == "broken"


@pytest.mark.slow
def test_the_package_of_a_copy_is_the_one_that_is_tested(servers: ForkServers) -> None:
    with RUNNER.copied() as copy:
        assert RUNNER.ended(copy, [RUNNER.PROBE], servers)[0] == RUNNER.PASSED
        assert servers.run(copy, [RUNNER.PROBE], RUNNER.variables(), 60)[0] != RUNNER.PASSED
