"""Commands of the offline authority, and of a party's own identity."""

from pathlib import Path
from typing import Annotated

import typer

from dpspca.common.transport import identity as identities
from dpspca.common.transport.authority import PARTY_DAYS, Authority, Entry
from dpspca.common.transport.identity import Identity
from dpspca.common.transport.names import PartyName

from .flags import EXIT_CODES, AsJson, now
from .output import tell, write_file
from .reading import reading

ca = typer.Typer(
    name="ca", no_args_is_help=True, help="The federation's authority: offline, on the operator's machine."
)
identity = typer.Typer(name="identity", no_args_is_help=True, help="A party's own key and certificate.")

Folder = Annotated[Path, typer.Argument(help="Its folder, readable by its owner alone.", show_default=False)]
RequestFile = Annotated[Path, typer.Option("--out", help="Where to write the request.", show_default=False)]


@ca.command("init", epilog=EXIT_CODES)
def _init(
    folder: Folder,
    federation: Annotated[str, typer.Argument(help="What the federation is called.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Make a new authority. Keep its folder offline: whoever holds it can be anybody."""
    made = Authority.init(folder, federation, now)
    facts = {"federation": made.federation, "folder": str(folder)}
    tell(facts, f"The authority of {made.federation} is in {folder}.", as_json=as_json)


@ca.command("sign", epilog=EXIT_CODES)
def _sign(  # noqa: PLR0913  # a command's flags are its parameters
    folder: Folder,
    request: Annotated[Path, typer.Argument(help="A request from `dpspca identity request`.")],
    *,
    out: Annotated[Path, typer.Option(help="Where to write the certificate.", show_default=False)],
    days: Annotated[int, typer.Option(help="How long it holds.")] = PARTY_DAYS,
    expected: Annotated[str | None, typer.Option(help="Refuse any other party: dpspca://FEDERATION/ROLE/NAME.")] = None,
    as_json: AsJson = False,
) -> None:
    """Sign a party's request, and say whom it is for."""
    authority = Authority.open(folder, now)
    name = PartyName.parse(expected) if expected else None
    with reading(request, "a request from `dpspca identity request`"):
        signed = authority.sign(request.read_bytes(), days=days, expected=name)
    write_file(out, signed + authority.certificate_pem)
    entry = authority.list()[-1]
    tell({"file": str(out)} | _facts(entry), f"{out}: {entry.name}", as_json=as_json)


@ca.command("revoke", epilog=EXIT_CODES)
def _revoke(
    folder: Folder,
    which: Annotated[str, typer.Argument(help="A serial number, or a party's name.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Withdraw certificates; distribute the new list to every daemon."""
    revoked = Authority.open(folder, now).revoke(which)
    lines = [f"revoked {entry.serial} of {entry.name}" for entry in revoked]
    tell({"revoked": [_facts(entry) for entry in revoked]}, *lines, as_json=as_json)


@ca.command("list", epilog=EXIT_CODES)
def _list(folder: Folder, *, as_json: AsJson = False) -> None:
    """List every certificate that was signed."""
    entries = Authority.open(folder, now).list()
    lines = [f"{entry.serial}  {_state(entry):16}  {entry.name}" for entry in entries]
    tell({"certificates": [_facts(entry) for entry in entries]}, *lines, as_json=as_json)


@ca.command("publish", epilog=EXIT_CODES)
def _publish(
    folder: Folder,
    *,
    out: Annotated[Path, typer.Option(help="Where to write the list.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Write a fresh revocation list. It holds for 30 days; without one in force nobody is believed."""
    write_file(out, Authority.open(folder, now).revocation_list())
    tell({"file": str(out)}, str(out), as_json=as_json)


@identity.command("request", epilog=EXIT_CODES)
def _request(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="dpspca://FEDERATION/ROLE/NAME")],
    *,
    out: RequestFile,
    as_json: AsJson = False,
) -> None:
    """Make a key, which stays here, and a request to hand to the operator."""
    party = PartyName.parse(name)
    write_file(out, identities.request(folder, party))
    tell({"file": str(out), "name": party.uri}, str(out), as_json=as_json)


@identity.command("renew", epilog=EXIT_CODES)
def _renew(folder: Folder, *, out: RequestFile, as_json: AsJson = False) -> None:
    """Make a new key and a request for it. The old ones stay in use until the new certificate is installed."""
    write_file(out, identities.renew_request(folder))
    tell({"file": str(out), "name": Identity.load(folder).name.uri}, str(out), as_json=as_json)


@identity.command("install", epilog=EXIT_CODES)
def _install(
    folder: Folder,
    certificate: Annotated[Path, typer.Argument(help="What `dpspca ca sign` wrote: certificate and authority.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Install the certificate that the operator signed."""
    with reading(certificate, "what `dpspca ca sign` wrote"):
        own, mark, authority = certificate.read_bytes().partition(b"-----END CERTIFICATE-----\n")
        installed = identities.install(folder, own + mark, authority)
    _tell_identity(installed, as_json=as_json)


@identity.command("show", epilog=EXIT_CODES)
def _show(folder: Folder, *, as_json: AsJson = False) -> None:
    """Say whose identity is in a folder, and until when it holds."""
    _tell_identity(Identity.load(folder), as_json=as_json)


def _tell_identity(shown: Identity, *, as_json: bool) -> None:
    until = shown.not_after
    tell({"name": shown.name.uri, "until": until.isoformat()}, f"{shown.name} until {until:%Y-%m-%d}", as_json=as_json)


def _facts(entry: Entry) -> dict[str, str | None]:
    return {
        "serial": entry.serial,
        "name": entry.name.uri,
        "until": entry.until.isoformat(),
        "revoked": entry.revoked.isoformat() if entry.revoked else None,
    }


def _state(entry: Entry) -> str:
    return "revoked" if entry.revoked else f"until {entry.until:%Y-%m-%d}"
