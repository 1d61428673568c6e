"""The `dpspca dashboard` command."""

import asyncio
import socket
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dpspca.cli.arguments import AnySettings, AsJson
from dpspca.cli.render import to_json
from dpspca.common.errors import InvalidParameterError, MissingExtraError
from dpspca.common.storage import read_any_settings

if TYPE_CHECKING:
    from .guard import Guard

LOOPBACK: Final = "127.0.0.1"
SHUTDOWN_SECONDS: Final = 1
_WAITING_CALLS: Final = 64


def dashboard(
    config: AnySettings,
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port on this machine. 0: a free one, which the command prints.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Show a party's own jobs, budgets and connections in a browser on this machine, until interrupted.

    With a provider's settings, it shows data sets, budgets and what left, and a steward can approve waiting jobs. With
    an analyst's settings, it shows jobs and results; with a coordinator's, parties and connections. Only this machine
    can connect. Open the printed address in your browser; it works once.
    """
    _require_extra()
    read_any_settings(config)  # say now what is wrong with the settings
    from .guard import Guard  # noqa: PLC0415  # needs the extra

    listening = _listen(port)
    guard = Guard.draw(f"{LOOPBACK}:{listening.getsockname()[1]}")
    typer.echo(to_json({"address": guard.entrance}) if as_json else f"Open this address, once: {guard.entrance}")
    asyncio.run(_serve(config, guard, listening))


def _require_extra() -> None:
    for package in ("starlette", "uvicorn", "jinja2"):
        try:
            import_module(package)
        except ImportError:
            raise MissingExtraError(
                f"The dashboard needs {package}, which is not installed.",
                f"Install it with: pip install {package}. Or in a clone of dpspca: pip install '.[web]'",
            ) from None


def _listen(port: int) -> socket.socket:
    """Listen on this machine's own address, where no other machine can connect."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.bind((LOOPBACK, port))
        listening.listen(_WAITING_CALLS)
    except OSError as problem:
        listening.close()
        raise InvalidParameterError(
            f"Port {port} cannot be used: {problem.strerror}.", "Choose another with --port, or leave it out."
        ) from None
    return listening


async def _serve(config: Path, guard: "Guard", listening: socket.socket) -> None:
    import uvicorn  # noqa: PLC0415  # needs the extra

    from .app import application  # noqa: PLC0415

    async with application(config, guard) as app:
        settings = uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            h11_max_incomplete_event_size=2**14,
        )
        await uvicorn.Server(settings).serve([listening])
