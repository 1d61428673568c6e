# ruff: noqa: INP001  # a script
"""Write the software bill of materials of the daemons: every package of the lock file, as CycloneDX JSON.

    python deploy/sbom.py [--lock FILE] [--out FILE]

It lists name, version and the SHA-256 of each file from which a package may be installed. That is enough to verify an
installation, or to look for packages with known vulnerabilities. The same lock file gives the same bytes.
"""

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
LOCK: Final = ROOT / "requirements-run.lock"

_PINNED: Final = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?==(?P<version>[^\s;\\]+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def components(lock: str) -> Iterator[dict[str, Any]]:
    """Yield the packages of a lock file, in its order."""
    for entry in re.split(r"\n(?=[^\s#])", re.sub(r"^#.*\n", "", lock.strip(), flags=re.MULTILINE)):
        pinned = _PINNED.match(entry)
        if pinned is None:
            raise ValueError(f"This entry of the lock file pins no version: {entry[:80]!r}")
        name, version = pinned["name"], pinned["version"]
        yield _component("library", name, version) | {
            "hashes": [{"alg": "SHA-256", "content": each} for each in _HASH.findall(entry)]
        }


def bill(lock: str) -> dict[str, Any]:
    """Return the bill of materials."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component("application", about["name"], about["version"])},
        "components": list(components(lock)),
    }


def _component(kind: str, name: str, version: str) -> dict[str, Any]:
    package = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"
    return {"type": kind, "bom-ref": package, "name": name, "version": version, "purl": package}


def main() -> None:
    """Write the bill of materials to a file or to standard output."""
    parser = argparse.ArgumentParser(description="Write the bill of materials of a lock file as CycloneDX JSON.")
    parser.add_argument("--lock", type=Path, default=LOCK, help="lock file to read")
    parser.add_argument("--out", type=Path, help="file to write; default: standard output")
    arguments = parser.parse_args()
    text = json.dumps(bill(arguments.lock.read_text(encoding="utf-8")), indent=2) + "\n"
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
