"""Entry point of the `dpspca` command: everything that happens before and around a command, including its import."""

import gc
import io
import os
import sys
from contextlib import suppress
from typing import Final, NoReturn

from dpspca.common.storage import forbid_core_dumps

USAGE_ERROR: Final = 2
INTERRUPTED: Final = 130


def main() -> None:
    """Run the command and end the process with its exit code."""
    _replace_unsupported_characters()
    # Daemons and some other commands hold rows and keys. For the rest this costs nothing.
    forbid_core_dumps()
    # gRPC's own log lines about connections and ports do not help an operator. Our messages report what matters.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        _load_and_run()
    except KeyboardInterrupt:
        _exit_with("Interrupted.", INTERRUPTED)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # typer handles an interrupt too, but prints nothing
            _exit_with("Interrupted.", INTERRUPTED)
        raise
    except OSError as problem:
        # Commands report errors of their own files. What remains is mostly about standard output.
        _discard_output()
        _exit_with(
            f"Reading or writing failed: {problem.strerror or problem}. "
            "Check where the output goes, and that there is room for it.",
            USAGE_ERROR,
        )


def _load_and_run() -> None:
    gc.disable()  # loaded modules stay, and looking for garbage in them takes a tenth of the time
    from .app import run  # noqa: PLC0415  # loading takes a second, and an interrupt of it is handled above

    gc.freeze()
    gc.enable()
    run()


def _replace_unsupported_characters() -> None:
    """Replace characters that the terminal's encoding lacks: a result without its ± is better than none."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _discard_output() -> None:
    """Redirect standard output to the null device. Otherwise Python would try to write again at its end, and fail."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _exit_with(message: str, code: int) -> NoReturn:
    with suppress(OSError):
        sys.stderr.write(message + "\n")
    raise SystemExit(code) from None


if __name__ == "__main__":
    main()
