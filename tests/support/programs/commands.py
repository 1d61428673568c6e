"""Commands that run in the test's own process, because starting a process for each takes most of a second."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dpspca.cli.main import main


@dataclass
class Ended:
    """Output and exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def facts(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        read: dict[str, Any] = json.loads(self.out)
        return read

    @property
    def error_line(self) -> str:
        """Return the one line that a failed command wrote to standard error. Its exit code must be 2."""
        assert (self.code, self.out) == (2, ""), self.err
        (line,) = self.err.splitlines()
        return line

    @property
    def failed_checks(self) -> list[str]:
        """Return the failed checks of ``dpspca doctor``."""
        assert self.code == 1
        return [line for line in self.out.splitlines() if line.startswith("FAILED")]


def commands_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Return a function that runs a command in a folder, as the program would."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("sys.excepthook", sys.excepthook)  # typer puts another in its place

    def run_here(*words: object) -> Ended:
        monkeypatch.setattr("sys.argv", ["dpspca", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        written = capfd.readouterr()
        return Ended(int(ended.value.code or 0), written.out, written.err)

    return run_here
