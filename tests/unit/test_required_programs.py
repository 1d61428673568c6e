"""In CI no test skips because a program is missing: the run is refused."""

import os
import re
from pathlib import Path

import pytest
from facts import facts
from required_programs import VARIABLE, require_programs

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "run"
PROGRAMS = {"chromium", "initdb", "mariadbd", "plink2", "systemd-analyze", "tc", "tinyproxy"}
"""What tests skip without, and a package of Debian has."""


def test_a_run_without_a_required_program_is_refused() -> None:
    path = {"PATH": os.environ["PATH"]}
    require_programs(path)
    require_programs({**path, VARIABLE: "sh  env"})
    with pytest.raises(pytest.UsageError, match=facts("no-such-program", VARIABLE)):
        require_programs({**path, VARIABLE: "sh no-such-program"})


@pytest.mark.skipif(not SCRIPT.exists(), reason="the script is not part of the wheel")
def test_the_script_of_ci_requires_and_installs_what_tests_use() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    (named,) = re.findall(rf'export {VARIABLE}="\$\{{{VARIABLE}-([^}}]*)\}}"', text)
    assert set(named.split()) == PROGRAMS
    assert set(re.findall(r"^missing (\S+)", text, re.MULTILINE)) >= PROGRAMS
