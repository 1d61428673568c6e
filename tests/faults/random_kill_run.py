"""Kill and stop real daemons at random while jobs run, then check the invariants: ``make random-kills``.

Equal seeds give equal kills and equal jobs, but their timing depends on the machine. If an invariant is violated, the
exit code is 1 and the folder is kept.
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

from random_kills import run_with_kills


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="how often a daemon is killed or stopped")
    parser.add_argument("--seed", type=int, default=randbelow(10**6), help="left out: any")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    return parser.parse_args()


def main() -> int:
    """Run, and print the result."""
    arguments = _arguments()
    folder = Path(tempfile.mkdtemp(prefix=f"random-kills-{arguments.seed}-"))
    sys.stderr.write(f"seed {arguments.seed}, in {folder}\n")
    begun = time.monotonic()
    record = asyncio.run(run_with_kills(folder, arguments.seed, arguments.kills))
    report = {"seed": arguments.seed, "seconds": round(time.monotonic() - begun), **record.summary()}
    lines = [json.dumps(report)] if arguments.json else [f"{name}: {value}" for name, value in report.items()]
    sys.stdout.write("\n".join([*lines, ""]))
    if report["problems"]:
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
