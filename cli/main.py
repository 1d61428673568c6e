"""Entry point of the `dpspca` command; all it does is say how to install what the command needs, if that is missing."""

import sys

USAGE_ERROR = 2

MISSING = (
    "The dpspca command needs typer and rich, which are not installed. Install them with: pip install 'dpspca[cli]'\n"
)


def main() -> None:
    """Run the command and leave the process with its exit code."""
    try:
        from .app import run  # noqa: PLC0415  # it needs the packages of an extra
    except ImportError as problem:
        if (problem.name or "").partition(".")[0] not in {"typer", "rich"}:
            raise
        sys.stderr.write(MISSING)
        raise SystemExit(USAGE_ERROR) from None
    run()


if __name__ == "__main__":
    main()
