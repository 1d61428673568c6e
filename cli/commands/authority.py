"""The `dpspca ca` commands of the offline authority, and the `dpspca identity` commands of a party."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from dpspca.cli.arguments import EXIT_CODES, AsJson, fingerprint, read_fingerprint
from dpspca.cli.render import Folder, print_output
from dpspca.client.clock import now
from dpspca.client.input_files import reading
from dpspca.common.errors import require_trust
from dpspca.common.names import PartyName
from dpspca.common.trust import (
    IDENTITY_FILE,
    MAX_PEM_BYTES,
    PARTY_DAYS,
    REQUEST_HEADER,
    Authority,
    Identity,
    IndexEntry,
    read_certificate,
)
from dpspca.common.trust import identity as identities

ca = typer.Typer(
    name="ca", no_args_is_help=True, help="Run the federation's certificate authority, offline, as its operator."
)
identity = typer.Typer(name="identity", no_args_is_help=True, help="Manage a party's own key and certificate.")

AuthorityFolder = Annotated[
    Path,
    typer.Argument(
        metavar="AUTHORITY", help="The authority's folder. Only its owner may have access.", show_default=False
    ),
]
PartyFolder = Annotated[
    Path,
    typer.Argument(
        metavar="IDENTITY", help="The party's identity folder. Only its owner may have access.", show_default=False
    ),
]
RequestFile = Annotated[Path, typer.Option("--out", help="File to write the request to.", show_default=False)]


@ca.command("init", epilog=EXIT_CODES)
def _init(
    folder: AuthorityFolder,
    federation: Annotated[str, typer.Argument(help="The federation's name.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Create a new authority. Keep its folder offline: whoever has it can impersonate any party."""
    made = Authority.init(folder, federation, now)
    facts = {"federation": made.federation, "folder": str(folder), "authority": fingerprint(made.certificate_pem)}
    lines = [f"The authority of {made.federation} is in {folder}.", f"authority {facts['authority']}"]
    print_output(facts, *lines, as_json=as_json)


@ca.command("show", epilog=EXIT_CODES)
def _show_authority(folder: AuthorityFolder, *, as_json: AsJson = False) -> None:
    """Show the federation and the fingerprint of an authority. Each party compares the fingerprint at installation."""
    opened = Authority.open(folder, now)
    facts = {"federation": opened.federation, "authority": fingerprint(opened.certificate_pem)}
    print_output(facts, f"The authority of {opened.federation}.", f"authority {facts['authority']}", as_json=as_json)


@ca.command("sign", epilog=EXIT_CODES)
def _sign(  # noqa: PLR0913  # a command's flags are its parameters
    folder: AuthorityFolder,
    request: Annotated[Path, typer.Argument(help="A request from `dpspca identity request`.")],
    *,
    out: Annotated[Path, typer.Option(help="File to write the certificate to.", show_default=False)],
    days: Annotated[int, typer.Option(help="Days that the certificate is valid, at most 90.")] = PARTY_DAYS,
    expected: Annotated[
        str | None, typer.Option(help="Refuse a request of any party but this: dpspca://FEDERATION/ROLE/NAME.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Sign a party's request and show the party's name. A party enrols once; its own key signs requests to renew."""
    authority = Authority.open(folder, now)
    name = PartyName.parse(expected) if expected else None

    with reading(request, "a request from `dpspca identity request`"):
        content = _read_request(request)
        if REQUEST_HEADER not in content:
            raise ValueError
    before = authority.list()
    whole = _make_and_write(out, lambda: authority.sign(content, days=days, expected=name) + authority.certificate_pem)
    made = f"{read_certificate(whole.removesuffix(authority.certificate_pem)).serial_number:x}"
    entry = next(each for each in authority.list() if each.serial == made)
    earlier = [each for each in before if each.name == entry.name and each.serial != made]
    others = [each.serial for each in earlier if not each.revoked and each.until > now()]
    again = any(each.serial == made for each in before)
    facts = {"file": str(out)} | _certificate_facts(entry) | {"others": others, "signed_before": again}
    print_output(facts, f"{out}: {entry.name}", as_json=as_json)
    for note in _signing_notes(entry, earlier, others, again=again):
        typer.echo(note, err=True)


def _signing_notes(
    entry: IndexEntry, earlier: Sequence[IndexEntry], others: Sequence[str], *, again: bool
) -> Iterator[str]:
    """Yield what the operator should know: this or an earlier request was signed, or certificates were revoked."""
    if again:
        yield f"This request was signed before. The certificate is the same and ends on {entry.until:%Y-%m-%d}."
    if others:
        yield (
            f"This renews {entry.name}. Its earlier certificates stay valid until they end. When the new one is "
            f"installed, revoke the earlier ones with `dpspca ca revoke`: {', '.join(others)}."
        )
    elif earlier and not earlier[-1].revoked:
        yield f"This renews {entry.name}, whose last certificate ended on {earlier[-1].until:%Y-%m-%d}."
    elif earlier:
        yield (
            f"{entry.name} had certificates before. The last was revoked on {earlier[-1].revoked:%Y-%m-%d}. If you are "
            "not sure who made this request, revoke its certificate with `dpspca ca revoke`."
        )


def _read_request(path: Path) -> bytes:
    """Read a file up to the longest size of a request. Raise ValueError if it is not a regular file."""
    if path.exists() and not path.is_file():
        raise ValueError
    with path.open("rb") as file:
        return file.read(MAX_PEM_BYTES)


@ca.command("revoke", epilog=EXIT_CODES)
def _revoke(
    folder: AuthorityFolder,
    which: Annotated[str, typer.Argument(help="A serial number or a party's whole name.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Revoke certificates. Then run `dpspca ca publish` and give the new list to every daemon."""
    revoked = Authority.open(folder, now).revoke(which)
    lines = [f"revoked {entry.serial} of {entry.name}" for entry in revoked]
    print_output({"revoked": [_certificate_facts(entry) for entry in revoked]}, *lines, as_json=as_json)


@ca.command("list", epilog=EXIT_CODES)
def _list(folder: AuthorityFolder, *, as_json: AsJson = False) -> None:
    """List every certificate that was signed."""
    entries = Authority.open(folder, now).list()
    lines = [f"{entry.serial}  {_state(entry):16}  {entry.name}" for entry in entries]
    print_output({"certificates": [_certificate_facts(entry) for entry in entries]}, *lines, as_json=as_json)


@ca.command("publish", epilog=EXIT_CODES)
def _publish(
    folder: AuthorityFolder,
    *,
    out: Annotated[Path, typer.Option(help="File to write the list to.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Write a fresh revocation list. It is valid for 30 days. Daemons trust nobody without a valid list."""
    _make_and_write(out, Authority.open(folder, now).revocation_list)
    print_output({"file": str(out)}, str(out), as_json=as_json)


@identity.command("request", epilog=EXIT_CODES)
def _request(
    folder: PartyFolder,
    name: Annotated[
        str, typer.Argument(help="dpspca://FEDERATION/ROLE/NAME, where ROLE is coordinator, provider or analyst.")
    ],
    *,
    out: RequestFile,
    as_json: AsJson = False,
) -> None:
    """Create a key, which stays on this machine, and a request for the authority's operator to sign."""
    party = PartyName.parse(name)
    _make_and_write(out, lambda: identities.request(folder, party))
    print_output({"file": str(out), "name": party.uri}, str(out), as_json=as_json)


@identity.command("renew", epilog=EXIT_CODES)
def _renew(folder: PartyFolder, *, out: RequestFile, as_json: AsJson = False) -> None:
    """Create a new key and a request for it. The old key stays in use until the new certificate is installed."""
    _make_and_write(out, lambda: identities.renew_request(folder))
    print_output({"file": str(out), "name": Identity.load(folder).name.uri}, str(out), as_json=as_json)


@identity.command("install", epilog=EXIT_CODES)
def _install(
    folder: PartyFolder,
    certificate: Annotated[Path, typer.Argument(help="The file that `dpspca ca sign` wrote.")],
    *,
    authority: Annotated[
        str | None,
        typer.Option(
            metavar="FINGERPRINT",
            help="Refuse the certificate of any authority but this. Give the fingerprint that `dpspca ca show` prints, "
            "received in another way than the certificate.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Install the certificate that the operator signed. From then on the authority that comes with it is trusted."""
    expected = None if authority is None else read_fingerprint(authority)
    known = (folder / IDENTITY_FILE).exists()
    with reading(certificate, "what `dpspca ca sign` wrote"):
        own, mark, brought = certificate.read_bytes().partition(b"-----END CERTIFICATE-----\n")
        if expected:
            _require_authority(brought, expected)
        installed = identities.install(folder, own + mark, brought)
    _print_identity(installed, as_json=as_json)
    if not (expected or known):
        typer.echo(
            "Compare the authority's fingerprint with the one that the operator gives you, in another way than the "
            "certificate came. If somebody else signed the certificate, they could impersonate any party.",
            err=True,
        )


@identity.command("show", epilog=EXIT_CODES)
def _show(folder: PartyFolder, *, as_json: AsJson = False) -> None:
    """Show the party of an identity folder, how long its certificate is valid, and its authority's fingerprint."""
    _print_identity(Identity.load(folder), as_json=as_json)


def _make_and_write(out: Path, make: Callable[[], bytes]) -> bytes:
    """Check that a file can be written, then make its content and write it: no key is made or signed in vain."""
    folder = Folder(out.parent, [out.name])
    content = make()
    folder.write(out.name, lambda path: path.write_bytes(content))
    return content


def _print_identity(shown: Identity, *, as_json: bool) -> None:
    since, until = read_certificate(shown.certificate_pem).not_valid_before_utc, shown.not_after
    facts = {
        "name": shown.name.uri,
        "since": since.isoformat(),
        "until": until.isoformat(),
        "in_force": since <= now() < until,
        "authority": fingerprint(shown.authority_pem),
    }
    print_output(facts, f"{shown.name} {_validity(since, until)}", f"authority {facts['authority']}", as_json=as_json)


def _validity(since: datetime, until: datetime) -> str:
    """Return when a certificate is valid, and what to do if it is not valid now."""
    if now() < since:
        return f"NOT YET VALID: it is valid from {since:%Y-%m-%d %H:%M} UTC on. Check the clock."
    if now() >= until:
        return f"EXPIRED at {until:%Y-%m-%d %H:%M} UTC. Renew it with `dpspca identity renew`."
    return f"valid until {until:%Y-%m-%d}"


def _require_authority(authority_pem: bytes, expected: str) -> None:
    found = fingerprint(authority_pem)
    require_trust(
        found == expected,
        f"The certificate comes with another authority, {found}.",
        "Do not install it. Ask the operator what happened, in another way than the certificate came.",
    )


def _certificate_facts(entry: IndexEntry) -> dict[str, str | None]:
    return {
        "serial": entry.serial,
        "name": entry.name.uri,
        "until": entry.until.isoformat(),
        "revoked": entry.revoked.isoformat() if entry.revoked else None,
    }


def _state(entry: IndexEntry) -> str:
    return "revoked" if entry.revoked else f"until {entry.until:%Y-%m-%d}"
