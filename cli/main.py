"""Entry point of the `dpspca` command: what holds before and around every command, the loading of it included."""

import io
import os
import sys
from contextlib import suppress
from typing import Final, NoReturn

from dpspca.common.transport.memory import forbid_core_dumps

USAGE_ERROR: Final = 2
INTERRUPTED: Final = 130

MISSING = (
    "The dpspca command needs typer and rich, which are not installed. Install them with: pip install 'dpspca[cli]'"
)


def main() -> None:
    """Run the command and leave the process with its exit code."""
    _write_what_the_terminal_can()
    # Daemons hold rows and keys; of the other commands some do, and to the rest it costs nothing.
    forbid_core_dumps()
    # What gRPC writes of connections and ports is of no use to an operator: what matters of it is told in our words.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        _load_and_run()
    except KeyboardInterrupt:
        _leave("Interrupted.", INTERRUPTED)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # typer notices an interrupt too, but says nothing
            _leave("Interrupted.", INTERRUPTED)
        raise
    except OSError as problem:
        # The commands speak for their files; what is left is mostly standard output.
        _discard_output()
        _leave(
            f"Reading or writing failed: {problem.strerror or problem}. "
            "Check where the output goes, and that there is room for it.",
            USAGE_ERROR,
        )


def _load_and_run() -> None:
    try:
        from .app import run  # noqa: PLC0415  # it needs the packages of an extra
    except ImportError as problem:
        if (problem.name or "").partition(".")[0] not in {"typer", "rich"}:
            raise
        _leave(MISSING, USAGE_ERROR)
    run()


def _write_what_the_terminal_can() -> None:
    """Replace letters that the terminal's encoding lacks: a result without its ± is better than none."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _discard_output() -> None:
    """Send what could not be written to nowhere, or Python would try once more, and fail, when it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave(message: str, code: int) -> NoReturn:
    with suppress(OSError):
        sys.stderr.write(message + "\n")
    raise SystemExit(code) from None


if __name__ == "__main__":
    main()
