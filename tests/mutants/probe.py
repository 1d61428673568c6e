"""Run in a copy of the project: its package is the one that tests load, and that programs load which tests start."""

import subprocess
import sys
from pathlib import Path

import dpspca


def test_the_package_is_that_of_this_folder() -> None:
    asked = [sys.executable, "-c", "import dpspca; print(dpspca.__file__)"]
    for file in (dpspca.__file__, subprocess.check_output(asked, text=True)):  # noqa: S603  # ourselves
        assert Path.cwd() in Path(file).parents
