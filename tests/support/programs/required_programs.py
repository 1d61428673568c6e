"""Programs without which a run of tests is refused, so that no skipped test hides a claim.

Tests skip if a program that they use is missing. DPSPCA_REQUIRED lists those that must be there; ``.ci/run`` sets it.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

VARIABLE: Final = "DPSPCA_REQUIRED"


def require_programs(environment: Mapping[str, str]) -> None:
    """Refuse a run of tests if a required program is not installed."""
    places = [environment.get("PATH", ""), "/usr/sbin", *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
    named = environment.get(VARIABLE, "").split()
    if absent := [name for name in named if shutil.which(name, path=":".join(places)) is None]:
        raise pytest.UsageError(
            f"{VARIABLE} names programs that are not installed: {', '.join(absent)}. Install them, or take them out of "
            "it: then their tests skip."
        )
