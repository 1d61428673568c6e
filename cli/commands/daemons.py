"""The commands that run the two daemons: `dpspca coordinator start` and `dpspca provider start`."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import typer

from dpspca.cli.arguments import DAEMON_CODES, EXIT_CODES, AsJson, DaemonSettingsFile
from dpspca.cli.render import logs, print_table, print_text, to_json
from dpspca.client import coordinator_report
from dpspca.client.clock import now
from dpspca.client.demo import PARENT_VARIABLE
from dpspca.client.enrolment import mail_of, mailbox_folder
from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.names import Role
from dpspca.common.storage import (
    Address,
    CoordinatorSettings,
    DatabaseUrl,
    EventStream,
    ProviderSettings,
    posix,
    read_settings,
    require_own,
)
from dpspca.common.text import printable
from dpspca.common.transport import (
    CertificateMail,
    CertificateRenewer,
    MailFolder,
    MetricsPage,
    ServiceManager,
    catch_up,
    rpc,
)
from dpspca.common.trust import CurrentIdentity, Identity, Reply, RevocationList, owner_of, peer_of, require_role
from dpspca.common.trust import identity as identities
from dpspca.provider import events as provider_events
from dpspca.provider import reload as provider_reload
from dpspca.provider.connection import Daemon, names_warning
from dpspca.provider.data import DataSet
from dpspca.provider.jobs import ProviderSetup
from dpspca.provider.ledger import PeerReceipts, ledger_paths
from dpspca.provider.metrics import ProviderMetrics
from dpspca.provider.startup import approvals_of, data_sets_of, open_ledger, scratch_of
from dpspca.server import events as coordinator_events
from dpspca.server import reload as coordinator_reload
from dpspca.server.coordinator import Coordinator
from dpspca.server.journal import Journal, PostgresJournal, SqliteJournal
from dpspca.server.mailbox import MailboxServer

coordinator = typer.Typer(
    name="coordinator",
    no_args_is_help=True,
    help="Run the coordinator, which carries queries and sums but sees no rows.",
)
provider = typer.Typer(
    name="provider", no_args_is_help=True, help="Run a provider, which answers queries about its data."
)

RECEIPTS_FILE: Final = "peers"
"""Name of the file beside the ledger in which a provider keeps other providers' receipts."""
PARENT_CHECK_SECONDS: Final = 1.0
"""Seconds between two checks that the process which started a daemon still runs."""

_log = logging.getLogger(__name__)


@coordinator.command("start", epilog=DAEMON_CODES)
def _start_coordinator(
    config: DaemonSettingsFile,
    *,
    log_format: logs.LogForm = logs.Form.HUMAN,
    log_level: logs.LogLevel = logs.Level.INFO,
) -> None:
    """Run the coordinator until SIGTERM or SIGINT."""
    with logs.logging_to_stderr(log_format, log_level):
        _run_coordinator(config)


@coordinator.command("show", epilog=EXIT_CODES)
def _show_coordinator(config: DaemonSettingsFile, *, as_json: AsJson = False) -> None:
    """Show who is connected to a coordinator, which other parties it knows, its jobs, and certificates.

    Run it on the coordinator's machine. It lists providers that are connected, were in a job, or were seen since the
    coordinator started; analysts who run a command now or submitted a job; and parties that used the mailbox. It says
    which certificates were revoked. At the authority, `dpspca study show` lists all parties.
    """
    facts = asyncio.run(coordinator_report.facts(config))
    if as_json:
        typer.echo(to_json(facts))
        return
    state = "serves" if facts["serving"] else f"does not serve. {facts['problem']}"
    print_text(printable(f"{facts['coordinator']} at {facts['address']} {state}"))
    for each in facts["certificates"]:
        print_text(printable(f"{each['what']}: valid until {each['until']}, for {each['days_left']} more days."))
    print_table(
        ("role", "party", "connection", "offers", "jobs", "certificate until"),
        (
            (
                each["role"],
                each["name"],
                each["connection"],
                ", ".join(each["data_sets"]),
                str(each["jobs"]),
                each["certificate_until"] or "",
            )
            for each in facts["parties"]
        ),
    )
    print_table(
        ("job", "analyst", "data set", "state", "answered", "submitted"),
        (
            (
                each["job"][:12],
                each["analyst"],
                each["data_set"],
                each["state"],
                f"{each['answered']} of {each['queries']}",
                each["submitted"],
            )
            for each in facts["jobs"]
        ),
    )


def _run_coordinator(config: Path) -> None:
    posix.require()
    require_own(CoordinatorSettings, config)
    settings = read_settings(CoordinatorSettings, config)
    mail = _mail(settings, config)
    identity = _identity(settings, Role.COORDINATOR, mail)
    events = EventStream(settings.events, coordinator_events.EVENTS, identity.get().name, now)
    current = coordinator_reload.CurrentSettings(config, settings, identity, events)
    _require_trusted(identity, current.revocations)
    keeper = CertificateRenewer(mail, identity.get, current.revocations, now, events)
    journal = _journal(settings, config)
    _raise_file_limit(4 * rpc.MAX_CONNECTIONS)  # for each: the client's socket, two towards gRPC, and the rest

    async def reload(running: Coordinator) -> str | None:
        problem = await current.reload(running)
        keeper.follow(_mail(current.settings, config))
        return problem

    async def serve() -> None:
        running = Coordinator(
            identity.get, current.revocations, now, result_bytes=current.result_bytes, journal=journal, events=events
        )
        running.reload_problem = lambda: current.problem
        with suppress(DpspcaError):  # `_mailbox` says what is wrong
            await asyncio.to_thread(_note_enrolled, settings, config, running)
        await running.start(settings.listen)
        _log.info("listening on %s", running.address)
        events("started", address=running.address)
        try:
            async with (
                _metrics_page(settings.metrics, running.metrics.text),
                _mailbox(settings, config, identity.get()),
            ):
                status = f"Listening on {running.address}."
                await _until_stopped(running.run(), keeper.run(), lambda: reload(running), status)
        finally:
            await running.stop()
            _log.info("stopped")
            events("stopped")
            events.end()

    asyncio.run(serve())


def _note_enrolled(settings: CoordinatorSettings, config: Path, running: Coordinator) -> None:
    """Note the certificates that providers got through the mailbox: of one that never connects, it says why."""
    if settings.mailbox is None:
        return
    key, me = identities.mailbox_key(settings.identity), Identity.load(settings.identity)
    for slot, reply in MailFolder(mailbox_folder(settings, config)).replies():
        owner = owner_of(slot, key, me.name.federation)
        if owner:
            with suppress(DpspcaError):  # anybody may leave anything in their own slot
                running.note_certificate(Reply.from_bytes(reply).certificate_pem, owner)


@provider.command("start", epilog=DAEMON_CODES)
def _start_provider(
    config: DaemonSettingsFile,
    *,
    log_format: logs.LogForm = logs.Form.HUMAN,
    log_level: logs.LogLevel = logs.Level.INFO,
) -> None:
    """Run the provider until SIGTERM or SIGINT. It reads and checks all rows before it connects."""
    with logs.logging_to_stderr(log_format, log_level):
        posix.require()
        _run_provider(config)


def _run_provider(config: Path) -> None:
    require_own(ProviderSettings, config)
    settings = read_settings(ProviderSettings, config)
    mail = _mail(settings, config)
    identity = _identity(settings, Role.PROVIDER, mail)
    events = EventStream(settings.events, provider_events.EVENTS, identity.get().name, now)
    current = provider_reload.CurrentSettings(config, settings, identity, events)
    _require_trusted(identity, current.revocations)
    keeper = CertificateRenewer(mail, identity.get, current.revocations, now, events)
    rows = data_sets_of(settings, scratch := scratch_of(settings, config))
    _log_names(settings, rows)

    async def serve(setup: ProviderSetup) -> None:
        events("started", data_sets=sorted(rows))
        _log.info("%s offers %s to %s", identity.get().name, ", ".join(sorted(rows)), settings.route)
        daemon = Daemon(setup)

        async def reload() -> str | None:
            problem = await current.reload(setup, daemon, scratch)
            keeper.follow(_mail(current.settings, config))
            return problem

        metrics = ProviderMetrics(setup, daemon.connected.is_set, lambda: current.failed)
        try:
            async with _metrics_page(settings.metrics, metrics.text):
                await _until_stopped(daemon.run(), keeper.run(), reload, f"Offers data to {settings.coordinator}.")
        finally:
            _log.info("stopped")

    with open_ledger(settings, config) as ledger:
        current.note(None)
        ledger.observer = partial(provider_events.emit_fact, events)
        setup = ProviderSetup(
            settings.route,
            identity.get,
            current.revocations,
            now,
            rows,
            current.policy,
            ledger,
            peers=PeerReceipts(ledger_paths(settings, config)[0].parent / RECEIPTS_FILE),
            dictionaries=settings.dictionaries,
            events=events,
            memory=scratch.memory,
            places=settings.answers_at_once,
            approvals=approvals_of(settings, config, ledger, identity.get, current.policy, now, events),
        )
        asyncio.run(serve(setup))
    events("stopped")
    events.end()


def _log_names(settings: ProviderSettings, rows: Mapping[str, DataSet]) -> None:
    """Say how analysts will find the rows: by dictionaries, or by names of columns."""
    if warning := names_warning({name: each.names for name, each in rows.items()}):
        _log.warning("%s", warning)
    for name, held in sorted(settings.dictionaries.items()):
        _log.info("The rows of '%s' are prepared with the dictionary %s.", name, held.dictionary.digest())


@asynccontextmanager
async def _metrics_page(address: Address | None, text: Callable[[], str]) -> AsyncIterator[None]:
    """Serve metrics while the daemon runs, if its settings name an address for them."""
    if address is None:
        yield
        return
    page = MetricsPage(text)
    try:
        await page.start(address.host, address.port)
    except OSError as problem:
        raise InvalidParameterError(
            f"Metrics cannot be served on {address}: {problem.strerror or problem}.", "Choose another address."
        ) from None
    _log.info("metrics on http://%s/metrics", page.address)
    try:
        yield
    finally:
        await page.stop()


@asynccontextmanager
async def _mailbox(settings: CoordinatorSettings, config: Path, me: Identity) -> AsyncIterator[None]:
    """Offer the mailbox while the coordinator runs, if its settings name an address for it."""
    if settings.mailbox is None:
        yield
        return
    key = identities.mailbox_key(settings.identity)
    server = MailboxServer(MailFolder(mailbox_folder(settings, config)), key, me.authority_pem)
    await server.start(settings.mailbox)
    _log.info("mailbox on %s", server.address)
    try:
        yield
    finally:
        await server.stop()


def _raise_file_limit(most: int) -> None:
    """Raise the limit on open files and sockets to ``most``, or as far as the system allows. It is often a thousand."""
    import resource  # noqa: PLC0415  # not on every system

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _journal(settings: CoordinatorSettings, config: Path) -> Journal:
    location = coordinator_report.journal_location(settings, config)
    return PostgresJournal(location) if isinstance(location, DatabaseUrl) else SqliteJournal(location)


def _identity(
    settings: CoordinatorSettings | ProviderSettings, role: Role, mail: CertificateMail | None
) -> CurrentIdentity:
    """Read the daemon's identity. Refuse one of another role.

    A daemon that was off for long first looks into the mailbox for a new certificate and list.
    """
    identity = CurrentIdentity(settings.identity)
    require_role(identity.get().name, role)
    if mail is not None:
        catch_up(mail, identity.get(), now())
    return identity


def _require_trusted(identity: CurrentIdentity, revocations: Callable[[], RevocationList]) -> None:
    """Refuse an identity that other parties would not trust."""
    me = identity.get()
    peer_of(me.certificate_pem, me.authority_pem, now(), revocations())


def _mail(settings: CoordinatorSettings | ProviderSettings, config: Path) -> CertificateMail | None:
    """Return the daemon's part of the mailbox, if its settings name one."""
    return None if settings.mailbox is None else mail_of(settings, config)


async def _parent_ended() -> None:
    """Wait until the parent process named in the environment is gone. If none is named, wait for ever."""
    parent = os.environ.get(PARENT_VARIABLE)
    while parent is None or str(os.getppid()) == parent:  # noqa: ASYNC110  # there is no event to wait for
        await asyncio.sleep(PARENT_CHECK_SECONDS)


Reload: TypeAlias = Callable[[], Awaitable[str | None]]
"""Reads the settings again. It returns what is wrong with them, if earlier ones stay in force."""


async def _reload_on_signal(reload: Reload, manager: ServiceManager, status: str) -> None:
    """Reload whenever SIGHUP comes. If it comes during a reload, reload once more. The status says if one failed."""
    signalled = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, signalled.set)
    manager.ready(status)
    while True:
        await signalled.wait()
        signalled.clear()
        manager.reloading()
        try:
            problem = await reload()
        except Exception as bug:  # noqa: BLE001  # the daemon goes on with what is in force
            _log.exception("Reloading failed because of a bug.")
            problem = f"a bug ({type(bug).__name__})."
        manager.ready(status if problem is None else f"{status} Earlier settings are in force: {problem}")


async def _until_stopped(
    running: Coroutine[Any, Any, None],
    keeping: Coroutine[Any, Any, None],
    reload: Reload,
    status: str,
) -> None:
    """Run a daemon until SIGTERM, SIGINT, the end of the parent process or its own end. Reload it on SIGHUP.

    ``keeping`` renews its certificate meanwhile.
    """
    signalled, manager = asyncio.Event(), ServiceManager()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.set)
    works = signalled.wait(), _parent_ended(), running, keeping, manager.keep_alive()
    every = [asyncio.create_task(work) for work in (*works, _reload_on_signal(reload, manager, status))]
    await asyncio.wait(every, return_when=asyncio.FIRST_COMPLETED)
    manager.stopping()
    for task in every:
        task.cancel()
    results = await asyncio.gather(*every, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, asyncio.CancelledError):
            raise result
