"""Commands that run the two daemons until they are told to stop."""

import asyncio
import logging
import os
import resource
import signal
from functools import partial
from pathlib import Path
from typing import Any, Final

import typer

from dpspca.common.errors import InvalidDataError
from dpspca.common.transport import rpc
from dpspca.common.transport.config import CoordinatorConfig, DatabaseUrl, ProviderConfig, read_config
from dpspca.common.transport.identity import CurrentIdentity, CurrentRevocations
from dpspca.common.transport.names import Role
from dpspca.common.transport.trust import peer_of, require_role
from dpspca.provider.arrivals import Arrivals, DataSet
from dpspca.provider.daemon import Daemon
from dpspca.provider.docket import Settings
from dpspca.provider.entries import WAY_OUT
from dpspca.provider.greeting import remark
from dpspca.provider.matrix_shard import declared
from dpspca.provider.peers import PeerReceipts
from dpspca.provider.policy_file import CurrentPolicy
from dpspca.provider.preparation import CheckedRows
from dpspca.provider.sources import read_arriving, read_protected
from dpspca.provider.sqlite_ledger import SqliteLedger
from dpspca.server.analysts import RESULT_BYTES
from dpspca.server.journal import Journal
from dpspca.server.postgres_journal import PostgresJournal
from dpspca.server.service import Coordinator
from dpspca.server.sqlite_journal import SqliteJournal

from . import logs
from .flags import DAEMON_CODES, PARENT, OwnSettings, now, require_own

coordinator = typer.Typer(
    name="coordinator", no_args_is_help=True, help="The coordinator: carries questions and sums, sees no row."
)
provider = typer.Typer(name="provider", no_args_is_help=True, help="The provider: answers beside the data.")

LEDGER: Final = "ledger/ledger.db"
"""A provider's ledger beside its settings, where these name no other."""
LEDGER_HEAD: Final = "ledger-head"
"""The ledger's second path in the identity's folder, likewise: not where the ledger is, for one loss takes both."""
PEERS: Final = "peers"
"""What a provider keeps for others, beside its ledger."""
UNUSABLE: Final = (
    "has a row that is no row of finite numbers, or names nobody; such a row counts as one of zeros. "
    "`dpspca doctor` says how many there are."
)
JOURNAL: Final = "journal.db"
"""The coordinator's journal beside its settings, where these name no other."""

LOOK: Final = 1.0
"""Seconds between two looks for the process that a daemon was started for."""

_log = logging.getLogger(__name__)


@coordinator.command("start", epilog=DAEMON_CODES)
def _start_coordinator(
    config: OwnSettings,
    *,
    log_format: logs.LogForm = logs.Form.HUMAN,
    log_level: logs.LogLevel = logs.Level.INFO,
) -> None:
    """Run the coordinator until it is told to stop."""
    with logs.logging_to_stderr(log_format, log_level):
        _coordinate(config)


def _coordinate(config: Path) -> None:
    require_own(CoordinatorConfig, config)
    settings = read_config(CoordinatorConfig, config)
    current, revoked = _own(settings, Role.COORDINATOR)
    journal = _journal(settings, config)
    _allow_files(4 * rpc.MAX_CONNECTIONS)  # a caller's socket, the two that lead to gRPC, and all else

    async def serve() -> None:
        running = Coordinator(current.get, revoked.get, now, result_bytes=_room(settings), journal=journal)
        await running.start(settings.listen)
        _log.info("listening on %s", running.address)
        try:
            await _until_told_to_stop(asyncio.create_task(running.run()))
        finally:
            await running.stop()
            _log.info("stopped")

    asyncio.run(serve())


@provider.command("start", epilog=DAEMON_CODES)
def _start_provider(
    config: OwnSettings,
    *,
    log_format: logs.LogForm = logs.Form.HUMAN,
    log_level: logs.LogLevel = logs.Level.INFO,
) -> None:
    """Run the provider until it is told to stop. Rows are read and checked before anything else."""
    with logs.logging_to_stderr(log_format, log_level):
        _provide(config)


def _provide(config: Path) -> None:
    require_own(ProviderConfig, config)
    settings = read_config(ProviderConfig, config)
    current, revoked = _own(settings, Role.PROVIDER)
    policy = CurrentPolicy(settings.policy)
    rows = data_sets_of(settings)

    if unsaid := remark({name: each.names for name, each in rows.items()}):
        _log.warning("%s", unsaid)
    peers = PeerReceipts(ledger_paths(settings, config)[0].parent / PEERS)

    async def serve() -> None:
        _log.info("%s offers %s to %s", current.get().name, ", ".join(sorted(rows)), settings.coordinator)
        told = Settings(settings.coordinator, current.get, revoked.get, now, rows, policy.get, ledger, peers=peers)
        daemon = Daemon(told)
        try:
            await _until_told_to_stop(asyncio.create_task(daemon.run()))
        finally:
            _log.info("stopped")

    with open_ledger(settings, config) as ledger:
        asyncio.run(serve())


def _allow_files(most: int) -> None:
    """Let so many files and sockets be open, or as many as the system allows: many begin at a thousand."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def data_sets_of(settings: ProviderConfig) -> dict[str, DataSet]:
    """Read all data sets, and of those whose rows arrive what is there."""
    arriving = {name: arriving_data_set(settings, name) for name in settings.arriving or {}}
    return {name: read_data_set(settings, name) for name in settings.data_sets} | arriving


def read_data_set(settings: ProviderConfig, name: str) -> CheckedRows:
    """Read rows, and whose they are, and hold a span against them, where that is told."""
    file, span = settings.data_sets[name], (settings.spans or {}).get(name)
    persons, row_entries = (settings.persons or {}).get(name), (settings.row_entries or {}).get(name)
    rows = read_protected(file, persons=persons, row_entries=row_entries)
    if rows.unusable is not None:
        _log.warning("The data set '%s' %s", name, UNUSABLE)
    try:
        return rows if span is None else declared(rows, span)
    except InvalidDataError as problem:
        raise InvalidDataError(f"{file}, which has a span: {problem.what}", problem.remedy) from None


def arriving_data_set(settings: ProviderConfig, name: str) -> Arrivals:
    """Count the rows that are there of a data set whose rows arrive."""
    read = partial(read_arriving, row_entries=(settings.row_entries or {}).get(name))
    return Arrivals(name, (settings.arriving or {})[name], read=read)


def open_ledger(settings: ProviderConfig, config: Path) -> SqliteLedger:
    """Open a provider's ledger as its one writer."""
    ledger = SqliteLedger(*ledger_paths(settings, config))
    if ledger.quarantine:
        _log.error("The ledger is in quarantine, and every job is refused: %s %s", ledger.quarantine, WAY_OUT)
    return ledger


def ledger_paths(settings: ProviderConfig, config: Path) -> tuple[Path, Path]:
    """Say where a provider's ledger is, and its second path."""
    return settings.ledger or config.parent / LEDGER, settings.ledger_head or settings.identity / LEDGER_HEAD


def _journal(settings: CoordinatorConfig, config: Path) -> Journal:
    place = settings.journal or config.parent / JOURNAL
    return PostgresJournal(place) if isinstance(place, DatabaseUrl) else SqliteJournal(place)


def _room(settings: CoordinatorConfig) -> int:
    """Give how many bytes of results are kept."""
    return RESULT_BYTES if settings.result_mebibytes is None else settings.result_mebibytes * 2**20


def _own(settings: CoordinatorConfig | ProviderConfig, role: Role) -> tuple[CurrentIdentity, CurrentRevocations]:
    """Read who we are, and refuse to start as somebody whom nobody would believe."""
    current = CurrentIdentity(settings.identity)
    me = current.get()
    require_role(me.name, role)
    revoked = CurrentRevocations(settings.revocations, me.authority_pem)
    peer_of(me.certificate_pem, me.authority_pem, now(), revoked.get())
    return current, revoked


async def _orphaned() -> None:
    """Wait until the process that we were started for is gone, if we were started for one."""
    parent = os.environ.get(PARENT)
    while parent is None or str(os.getppid()) == parent:  # noqa: ASYNC110  # nobody tells of it
        await asyncio.sleep(LOOK)


async def _until_told_to_stop(*running: "asyncio.Task[Any]") -> None:
    """Wait for SIGTERM or SIGINT, or for a task that ends by itself; then end the tasks."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    every = [asyncio.create_task(told.wait()), asyncio.create_task(_orphaned()), *running]
    await asyncio.wait(every, return_when=asyncio.FIRST_COMPLETED)
    for task in every:
        task.cancel()
    results = await asyncio.gather(*every, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, asyncio.CancelledError):
            raise result
