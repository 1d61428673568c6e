"""Commands that run the two daemons until they are told to stop."""

import asyncio
import logging
import signal
from typing import Any

import typer

from dpspca.common.errors import InvalidParameterError
from dpspca.common.transport.config import CoordinatorConfig, ProviderConfig, read_config
from dpspca.common.transport.identity import CurrentIdentity, CurrentRevocations
from dpspca.provider.daemon import Daemon, Settings
from dpspca.provider.sources import read_rows
from dpspca.server.service import Coordinator

from . import logs
from .flags import DAEMON_CODES, ConfigFile, now

coordinator = typer.Typer(
    name="coordinator", no_args_is_help=True, help="The coordinator: carries questions and sums, sees no row."
)
provider = typer.Typer(name="provider", no_args_is_help=True, help="The provider: answers beside the data.")

_log = logging.getLogger(__name__)


@coordinator.command("start", epilog=DAEMON_CODES)
def _start_coordinator(
    config: ConfigFile,
    *,
    log_format: logs.LogForm = logs.Form.HUMAN,
    log_level: logs.LogLevel = logs.Level.INFO,
) -> None:
    """Run the coordinator until it is told to stop."""
    logs.configure(log_format, log_level)
    settings = read_config(CoordinatorConfig, config)
    current = CurrentIdentity(settings.identity)
    revoked = CurrentRevocations(settings.revocations, current.get().authority_pem)

    async def serve() -> None:
        running = Coordinator(current.get, revoked.get, now)
        await _listen(running, settings.listen)
        try:
            await _until_told_to_stop()
        finally:
            await running.stop()
            _log.info("stopped")

    asyncio.run(serve())


@provider.command("start", epilog=DAEMON_CODES)
def _start_provider(
    config: ConfigFile,
    *,
    log_format: logs.LogForm = logs.Form.HUMAN,
    log_level: logs.LogLevel = logs.Level.INFO,
) -> None:
    """Run the provider until it is told to stop. Rows are read and checked before anything else."""
    logs.configure(log_format, log_level)
    settings = read_config(ProviderConfig, config)
    current = CurrentIdentity(settings.identity)
    revoked = CurrentRevocations(settings.revocations, current.get().authority_pem)
    rows = {name: read_rows(path) for name, path in settings.data_sets.items()}

    async def serve() -> None:
        _log.info("%s offers %s to %s", current.get().name, ", ".join(sorted(rows)) or "nothing", settings.coordinator)
        daemon = Daemon(Settings(settings.coordinator, current.get, revoked.get, now, rows))
        try:
            await _until_told_to_stop(asyncio.create_task(daemon.run()))
        finally:
            _log.info("stopped")

    asyncio.run(serve())


async def _listen(running: Coordinator, address: str) -> None:
    try:
        await running.start(address)
    except RuntimeError:
        raise InvalidParameterError(
            f"Nobody can listen on {address}.", "Choose an address of this machine, and a port that is free."
        ) from None
    _log.info("listening on %s", running.address)


async def _until_told_to_stop(*running: "asyncio.Task[Any]") -> None:
    """Wait for SIGTERM or SIGINT, or for a task that ends by itself; then end the tasks."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    waiting = asyncio.create_task(told.wait())
    await asyncio.wait({waiting, *running}, return_when=asyncio.FIRST_COMPLETED)
    for task in (waiting, *running):
        task.cancel()
    results = await asyncio.gather(waiting, *running, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, asyncio.CancelledError):
            raise result
