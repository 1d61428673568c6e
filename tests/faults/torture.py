"""Kill and stop real daemons at random while jobs run, and reckon up: ``make torture``.

The same seed draws the same blows and the same jobs; how they meet is up to the machine. What is wrong leaves with
exit code 1, and its folder behind.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from secrets import randbelow

from torment import torture


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="how often a daemon is killed or stopped")
    parser.add_argument("--seed", type=int, default=randbelow(10**6), help="left out: any")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    return parser.parse_args()


def main() -> int:
    """Torture, and print what came of it."""
    told = _arguments()
    folder = Path(tempfile.mkdtemp(prefix=f"torture-{told.seed}-"))
    sys.stderr.write(f"seed {told.seed}, in {folder}\n")
    begun = time.monotonic()
    record = asyncio.run(torture(folder, told.seed, told.kills))
    report = {"seed": told.seed, "seconds": round(time.monotonic() - begun), **record.summary()}
    lines = [json.dumps(report)] if told.json else [f"{name}: {value}" for name, value in report.items()]
    sys.stdout.write("\n".join([*lines, ""]))
    if report["problems"]:
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
