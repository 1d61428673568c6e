"""The units in deploy/systemd are hardened, and what they start is what the program offers."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from local_federation import Enrolment

from dpspca.common.errors import UnsafeFileError
from dpspca.common.names import Role
from dpspca.common.storage import posix
from dpspca.common.trust.identity import Identity

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
DAEMONS = [unit for unit in UNITS if "@" not in unit.name]
RENEWAL = FOLDER / "dpspca-renew@.service"
MOST_EXPOSED = 2.0
TOOL = shutil.which("systemd-analyze")

needs_tool = pytest.mark.skipif(TOOL is None, reason="systemd-analyze is not installed (Debian's package systemd)")


def analyze(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    assert TOOL
    environment = os.environ | {"SYSTEMD_COLORS": "0", "SYSTEMD_EMOJI": "0"}
    return subprocess.run([TOOL, *words], capture_output=True, text=True, check=False, env=environment)  # noqa: S603  # Debian's own


def told(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)


def test_there_is_a_unit_for_each_daemon() -> None:
    assert [unit.name for unit in DAEMONS] == ["dpspca-coordinator.service", "dpspca-provider.service"]
    assert [*DAEMONS, RENEWAL] == UNITS


@needs_tool
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_exposure_of_a_unit_is_at_most_two(unit: Path) -> None:
    done = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}", "--no-pager", unit)
    assert done.returncode == 0, done.stdout + done.stderr
    (level,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert float(level) <= MOST_EXPOSED
    assert f"exposure at {level}" in (FOLDER / "README.md").read_text(encoding="utf-8").replace("\n", " ")


@needs_tool
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_no_mistake_in_a_unit(unit: Path, tmp_path: Path) -> None:
    here = tmp_path / unit.name
    here.write_text(unit.read_text(encoding="utf-8").replace("/opt/dpspca/bin/dpspca", sys.executable))
    done = analyze("verify", "--man=no", here)
    wrong = [line for line in done.stderr.splitlines() if unit.name in line]
    assert not wrong


@pytest.mark.parametrize("unit", DAEMONS, ids=lambda unit: unit.stem)
def test_a_unit_starts_what_the_program_offers(unit: Path) -> None:
    (command,) = told(unit, "ExecStart")
    _, role, *words = shlex.split(command)
    assert unit.stem == f"dpspca-{role}"
    assert told(unit, "StateDirectory") == [unit.stem]
    done = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-m", "dpspca", role, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"/etc/dpspca/{role}.toml" in done.stderr  # all words are known, and the file is missing


def test_the_timer_runs_a_command_that_the_program_offers() -> None:
    (command,) = told(RENEWAL, "ExecStart")
    _, *words = shlex.split(command.replace("%i", "provider"))
    done = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-m", "dpspca", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "/etc/dpspca/joined/provider.toml" in done.stderr  # all words are known, and the file is missing
    assert (FOLDER / "dpspca-renew@.timer").is_file()


def test_the_units_set_what_the_image_sets_for_memory() -> None:
    (line,) = re.findall(
        r"^ENV (MALLOC_ARENA_MAX=.*)$", (FOLDER.parent / "Dockerfile").read_text("utf-8"), re.MULTILINE
    )
    assert [told(unit, "Environment") for unit in UNITS] == [[line]] * 3


def test_a_credential_of_the_service_manager_counts_as_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer versions of systemd keep credentials as root's, with an access list that shows as the group's rights."""
    Enrolment.create(tmp_path).identity(Role.PROVIDER, "north")
    folder = tmp_path / "provider-north"
    (folder / "identity.pem").chmod(0o440)
    folder.chmod(0o550)
    with pytest.raises(UnsafeFileError):
        Identity.load(folder)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    assert Identity.load(folder).name.name == "north"
    (folder / "identity.pem").chmod(0o444)
    with pytest.raises(UnsafeFileError):
        Identity.load(folder)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (folder / "identity.pem").chmod(0o440)
    with pytest.raises(UnsafeFileError):
        Identity.load(folder)
    monkeypatch.setattr(posix, "CREDENTIALS", tmp_path)  # for commands that a person runs as the service's user
    assert Identity.load(folder).name.name == "north"
    folder.chmod(0o700)


@pytest.mark.slow
def test_the_journal_gets_priorities_and_no_times() -> None:
    script = (
        "import logging\nfrom dpspca.cli.render import logs\n"
        "with logs.logging_to_stderr(logs.Form.JOURNAL, logs.Level.DEBUG):\n"
        "    log = logging.getLogger('dpspca.x')\n"
        "    log.info('one'); log.warning('two\\nlines'); log.error('three'); log.debug('four')\n"
        "    try: 1 / 0\n    except ZeroDivisionError: log.exception('five')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603  # our own program
    lines = done.stderr.splitlines()
    assert lines[0] == "<6>one"
    assert lines[1].startswith("<4>two")
    assert lines[2:4] == ["<3>three", "<7>four"]
    assert len(lines) == 5
    assert lines[4].startswith("<3>five")
    assert "ZeroDivisionError" in lines[4]
