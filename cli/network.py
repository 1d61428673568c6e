"""Commands of the federation: the offline authority, identities, the two daemons, and running a job."""

import asyncio
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from dpspca.client.federation import AsyncFederation
from dpspca.client.files import save_model
from dpspca.common.errors import InvalidDataError
from dpspca.common.spec import JobSpec
from dpspca.common.transport import identity as identities
from dpspca.common.transport.authority import Authority
from dpspca.common.transport.config import AnalystConfig, CoordinatorConfig, ProviderConfig, read_config
from dpspca.common.transport.identity import CurrentIdentity, CurrentRevocations, Identity
from dpspca.common.transport.names import PartyName
from dpspca.provider.daemon import Daemon, Settings
from dpspca.provider.sources import read_rows
from dpspca.server.service import Coordinator

ca = typer.Typer(
    name="ca", no_args_is_help=True, help="The federation's authority: offline, on the operator's machine."
)
identity = typer.Typer(name="identity", no_args_is_help=True, help="A party's own key and certificate.")
coordinator = typer.Typer(
    name="coordinator", no_args_is_help=True, help="The coordinator: carries questions and sums, sees no row."
)
provider = typer.Typer(name="provider", no_args_is_help=True, help="The provider: answers beside the data.")

Folder = Annotated[Path, typer.Argument(help="Its folder, readable by its owner alone.", show_default=False)]
Settings_ = Annotated[Path, typer.Option("--config", help="Settings in TOML.", show_default=False)]


def _now() -> datetime:
    return datetime.now(UTC)


@ca.command("init")
def _init(folder: Folder, federation: Annotated[str, typer.Argument(help="What the federation is called.")]) -> None:
    """Make a new authority. Keep its folder offline: whoever holds it can be anybody."""
    authority = Authority.init(folder, federation, _now)
    authority.revocation_list()
    typer.echo(f"The authority of {authority.federation} is in {folder}.")


@ca.command("sign")
def _sign(
    folder: Folder,
    request: Annotated[Path, typer.Argument(help="A request from `dpspca identity request`.")],
    out: Annotated[Path, typer.Option(help="Where to write the certificate.")],
    *,
    days: Annotated[int, typer.Option(help="How long it holds.")] = 30,
    expected: Annotated[str | None, typer.Option(help="Refuse any other party: dpspca://FEDERATION/ROLE/NAME.")] = None,
) -> None:
    """Sign a party's request, and say whom it is for."""
    authority = Authority.open(folder, _now)
    name = PartyName.parse(expected) if expected else None
    out.write_bytes(authority.sign(_read(request), days=days, expected=name) + authority.certificate_pem)
    typer.echo(f"{out}: {authority.list()[-1].name}")


@ca.command("revoke")
def _revoke(folder: Folder, which: Annotated[str, typer.Argument(help="A serial number, or a party's name.")]) -> None:
    """Withdraw certificates; distribute the new list to every daemon."""
    for entry in Authority.open(folder, _now).revoke(which):
        typer.echo(f"revoked {entry.serial} of {entry.name}")


@ca.command("list")
def _list(folder: Folder) -> None:
    """List every certificate that was signed."""
    for entry in Authority.open(folder, _now).list():
        state = "revoked" if entry.revoked else f"until {entry.until:%Y-%m-%d}"
        typer.echo(f"{entry.serial}  {state:16}  {entry.name}")


@ca.command("publish")
def _publish(folder: Folder, out: Annotated[Path, typer.Option(help="Where to write the list.")]) -> None:
    """Write a fresh revocation list. It holds for 30 days; without one in force nobody is believed."""
    out.write_bytes(Authority.open(folder, _now).revocation_list())
    typer.echo(str(out))


@identity.command("request")
def _request(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="dpspca://FEDERATION/ROLE/NAME")],
    out: Annotated[Path, typer.Option(help="Where to write the request.")],
) -> None:
    """Make a key, which stays here, and a request to hand to the operator."""
    out.write_bytes(identities.request(folder, PartyName.parse(name)))
    typer.echo(str(out))


@identity.command("install")
def _install(
    folder: Folder,
    certificate: Annotated[Path, typer.Argument(help="What `dpspca ca sign` wrote: certificate and authority.")],
) -> None:
    """Install the certificate that the operator signed."""
    own, mark, authority = _read(certificate).partition(b"-----END CERTIFICATE-----\n")
    installed = identities.install(folder, own + mark, authority)
    typer.echo(f"{installed.name} until {installed.not_after:%Y-%m-%d}")


@coordinator.command("start")
def _start_coordinator(config: Settings_) -> None:
    """Run the coordinator until it is told to stop."""
    settings = read_config(CoordinatorConfig, config)
    current = CurrentIdentity(settings.identity)
    revoked = CurrentRevocations(settings.revocations, current.get().authority_pem)

    async def serve() -> None:
        running = Coordinator(current.get, revoked.get, _now)
        await running.start(settings.listen)
        typer.echo(f"listening on {running.address}", err=True)
        try:
            await _until_told_to_stop()
        finally:
            await running.stop()

    asyncio.run(serve())


@provider.command("start")
def _start_provider(config: Settings_) -> None:
    """Run the provider until it is told to stop. Rows are read and checked before anything else."""
    settings = read_config(ProviderConfig, config)
    current = CurrentIdentity(settings.identity)
    revoked = CurrentRevocations(settings.revocations, current.get().authority_pem)
    rows = {name: read_rows(path) for name, path in settings.data_sets.items()}

    async def serve() -> None:
        daemon = Daemon(Settings(settings.coordinator, current.get, revoked.get, _now, rows))
        running = asyncio.create_task(daemon.run())
        await _until_told_to_stop(running)

    asyncio.run(serve())


def run(
    job: Annotated[Path, typer.Argument(help="The job as JSON: see `dpspca plan`.", show_default=False)],
    config: Settings_,
    data_set: Annotated[str, typer.Option(help="The name under which providers offer their rows.")],
    provider: Annotated[list[str], typer.Option(help="A provider to ask; give the option once for each.")],
    *,
    out: Annotated[Path, typer.Option(help="Where to write the model.")] = Path("model.dpspca"),
) -> None:
    """Sign a job, have it run by the federation, and write its model."""
    settings = read_config(AnalystConfig, config)
    spec = JobSpec.from_json(_read(job))
    asyncio.run(_run(settings.coordinator, Identity.load(settings.identity), spec, data_set, provider, out))


async def _run(  # noqa: PLR0913, PLR0917  # one job's whole description
    address: str, who: Identity, spec: JobSpec, data_set: str, providers: list[str], out: Path
) -> None:
    async with AsyncFederation(address, who) as federation:
        job = await federation.submit(spec, data_set, providers)
        typer.echo(f"job {job.name}", err=True)
        async for state in job.watch():
            typer.echo(f"{state.answered} of {state.questions}  {state.step or state.state}", err=True)
        model = await job.result()
    save_model(model, out)
    typer.echo(model.statement.text)
    typer.echo(str(out))


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


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise InvalidDataError(f"{path} cannot be read: {problem.strerror}.", "Give the path of a file.") from None
