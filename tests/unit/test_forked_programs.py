"""A forked program differs from a started one only in speed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from forked_command import forked_command

DPSPCA = [sys.executable, "-m", "dpspca"]
WAITS = "from dpspca.cli import main\nimport time\nprint('up', flush=True)\ntime.sleep(600)"


@pytest.mark.slow
@pytest.mark.parametrize("variables", [None, {**os.environ, "MPLBACKEND": "svg"}], ids=["forked", "started"])
def test_a_fork_has_its_own_arguments_folder_streams_and_exit_code(
    variables: dict[str, str] | None, tmp_path: Path
) -> None:
    words = [*DPSPCA, "model", "show", "none.dpspca"]
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)  # noqa: S603  # ours
    assert (done.returncode, done.stdout) == (2, "")
    assert "none.dpspca" in done.stderr
    done = subprocess.run([*DPSPCA, "--version"], env=variables, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603  # ours
    assert done.stdout.startswith("dpspca ")


@pytest.mark.skipif(sys.platform != "linux", reason="programs are forked on Linux alone")
def test_a_fork_is_a_child_with_its_own_command_line_and_group(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WAITS, "a word"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, process_group=0) as process:  # noqa: S603  # ours
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        assert [int(number) for number in stat[1:3]] == [os.getpid(), process.pid]
        assert Path(f"/proc/{process.pid}/cwd").resolve() == tmp_path
        assert b"a word" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="programs are forked on Linux alone")
def test_a_command_for_scripts_ends_as_its_fork_does(tmp_path: Path) -> None:
    with forked_command() as folder:
        words = [folder / "dpspca", "demo", "--rows", "8000", "--out", "made"]
        done = subprocess.run([words[0], "--nonsense"], cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603  # ours
        assert (done.returncode, "--nonsense" in done.stderr) == (2, True)
        with subprocess.Popen(words, cwd=tmp_path, umask=0o077, stderr=subprocess.PIPE) as demo:  # noqa: S603  # ours
            assert demo.stderr
            assert demo.stderr.readline().startswith(b"0 of ")
            demo.send_signal(signal.SIGTERM)
            assert demo.stderr.read().endswith(b"Interrupted.\n")
        assert demo.returncode == 130
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700
