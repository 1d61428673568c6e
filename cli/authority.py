"""Commands of the offline authority, and of a party's own identity."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.hashes import SHA256

from dpspca.common.spec import check
from dpspca.common.transport import identity as identities
from dpspca.common.transport.authority import PARTY_DAYS, Authority, Entry
from dpspca.common.transport.certificates import MAX_PEM_BYTES, read_authority, read_certificate
from dpspca.common.transport.errors import require_trust
from dpspca.common.transport.identity import IDENTITY_FILE, Identity
from dpspca.common.transport.names import PartyName
from dpspca.common.transport.renewals import REQUEST

from .flags import EXIT_CODES, AsJson, now
from .output import Folder, tell
from .reading import reading

ca = typer.Typer(
    name="ca", no_args_is_help=True, help="The federation's authority: offline, on the operator's machine."
)
identity = typer.Typer(name="identity", no_args_is_help=True, help="A party's own key and certificate.")

AuthorityFolder = Annotated[
    Path, typer.Argument(metavar="AUTHORITY", help="The authority's folder, its owner's alone.", show_default=False)
]
PartyFolder = Annotated[
    Path,
    typer.Argument(
        metavar="IDENTITY", help="The folder of the party's identity, its owner's alone.", show_default=False
    ),
]
RequestFile = Annotated[Path, typer.Option("--out", help="Where to write the request.", show_default=False)]


@ca.command("init", epilog=EXIT_CODES)
def _init(
    folder: AuthorityFolder,
    federation: Annotated[str, typer.Argument(help="What the federation is called.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Make a new authority. Keep its folder offline: whoever holds it can be anybody."""
    made = Authority.init(folder, federation, now)
    facts = {"federation": made.federation, "folder": str(folder), "authority": _fingerprint(made.certificate_pem)}
    lines = [f"The authority of {made.federation} is in {folder}.", f"authority {facts['authority']}"]
    tell(facts, *lines, as_json=as_json)


@ca.command("show", epilog=EXIT_CODES)
def _show_authority(folder: AuthorityFolder, *, as_json: AsJson = False) -> None:
    """Say whose authority is in a folder, and its fingerprint: every party compares it when it installs."""
    opened = Authority.open(folder, now)
    facts = {"federation": opened.federation, "authority": _fingerprint(opened.certificate_pem)}
    tell(facts, f"The authority of {opened.federation}.", f"authority {facts['authority']}", as_json=as_json)


@ca.command("sign", epilog=EXIT_CODES)
def _sign(  # noqa: PLR0913  # a command's flags are its parameters
    folder: AuthorityFolder,
    request: Annotated[Path, typer.Argument(help="A request from `dpspca identity request`.")],
    *,
    out: Annotated[Path, typer.Option(help="Where to write the certificate.", show_default=False)],
    days: Annotated[int, typer.Option(help="How long it holds: up to 90.")] = PARTY_DAYS,
    expected: Annotated[str | None, typer.Option(help="Refuse any other party: dpspca://FEDERATION/ROLE/NAME.")] = None,
    as_json: AsJson = False,
) -> None:
    """Sign a party's request, and say whom it is for. A party is enrolled once; after that its own key renews it."""
    authority = Authority.open(folder, now)
    name = PartyName.parse(expected) if expected else None

    with reading(request, "a request from `dpspca identity request`"):
        content = _short(request)
        if REQUEST not in content:
            raise ValueError
    before = authority.list()
    whole = _write(out, lambda: authority.sign(content, days=days, expected=name) + authority.certificate_pem)
    made = f"{read_certificate(whole.removesuffix(authority.certificate_pem)).serial_number:x}"
    entry = next(each for each in authority.list() if each.serial == made)
    earlier = [each for each in before if each.name == entry.name and each.serial != made]
    others = [each.serial for each in earlier if not each.revoked and each.until > now()]
    again = any(each.serial == made for each in before)
    facts = {"file": str(out)} | _facts(entry) | {"others": others, "signed_before": again}
    tell(facts, f"{out}: {entry.name}", as_json=as_json)
    for note in _notes(entry, earlier, others, again=again):
        typer.echo(note, err=True)


def _notes(entry: Entry, earlier: Sequence[Entry], others: Sequence[str], *, again: bool) -> Iterator[str]:
    """Tell the operator what to think of: what was signed before, what counts beside it, what was withdrawn."""
    if again:
        yield f"This request was signed before: it is the same certificate, until {entry.until:%Y-%m-%d}."
    if others:
        yield (
            f"This renews {entry.name}. What it had counts as well until it ends: when the new certificate is "
            f"installed, withdraw the old with `dpspca ca revoke`: {', '.join(others)}."
        )
    elif earlier and not earlier[-1].revoked:
        yield f"This renews {entry.name}, whose last certificate ended on {earlier[-1].until:%Y-%m-%d}."
    elif earlier:
        yield (
            f"{entry.name} had certificates before, the last of which was revoked on {earlier[-1].revoked:%Y-%m-%d}. "
            "If you are not sure who asked for this one, withdraw it with `dpspca ca revoke`."
        )


def _short(path: Path) -> bytes:
    """Read a file that cannot be long; what is no file, or goes on without end, is none of these."""
    if path.exists() and not path.is_file():
        raise ValueError
    with path.open("rb") as file:
        return file.read(MAX_PEM_BYTES)


@ca.command("revoke", epilog=EXIT_CODES)
def _revoke(
    folder: AuthorityFolder,
    which: Annotated[str, typer.Argument(help="A serial number, or a party's name.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Withdraw certificates; then `dpspca ca publish`, and give the new list to every daemon."""
    revoked = Authority.open(folder, now).revoke(which)
    lines = [f"revoked {entry.serial} of {entry.name}" for entry in revoked]
    tell({"revoked": [_facts(entry) for entry in revoked]}, *lines, as_json=as_json)


@ca.command("list", epilog=EXIT_CODES)
def _list(folder: AuthorityFolder, *, as_json: AsJson = False) -> None:
    """List every certificate that was signed."""
    entries = Authority.open(folder, now).list()
    lines = [f"{entry.serial}  {_state(entry):16}  {entry.name}" for entry in entries]
    tell({"certificates": [_facts(entry) for entry in entries]}, *lines, as_json=as_json)


@ca.command("publish", epilog=EXIT_CODES)
def _publish(
    folder: AuthorityFolder,
    *,
    out: Annotated[Path, typer.Option(help="Where to write the list.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Write a fresh revocation list. It holds for 30 days; without one in force nobody is believed."""
    _write(out, Authority.open(folder, now).revocation_list)
    tell({"file": str(out)}, str(out), as_json=as_json)


@identity.command("request", epilog=EXIT_CODES)
def _request(
    folder: PartyFolder,
    name: Annotated[str, typer.Argument(help="dpspca://FEDERATION/ROLE/NAME; roles: coordinator, provider, analyst.")],
    *,
    out: RequestFile,
    as_json: AsJson = False,
) -> None:
    """Make a key, which stays here, and a request to hand to the operator."""
    party = PartyName.parse(name)
    _write(out, lambda: identities.request(folder, party))
    tell({"file": str(out), "name": party.uri}, str(out), as_json=as_json)


@identity.command("renew", epilog=EXIT_CODES)
def _renew(folder: PartyFolder, *, out: RequestFile, as_json: AsJson = False) -> None:
    """Make a new key and a request for it. The old ones stay in use until the new certificate is installed."""
    _write(out, lambda: identities.renew_request(folder))
    tell({"file": str(out), "name": Identity.load(folder).name.uri}, str(out), as_json=as_json)


@identity.command("install", epilog=EXIT_CODES)
def _install(
    folder: PartyFolder,
    certificate: Annotated[Path, typer.Argument(help="What `dpspca ca sign` wrote: certificate and authority.")],
    *,
    authority: Annotated[
        str | None,
        typer.Option(
            metavar="FINGERPRINT",
            help="Refuse any other authority: its fingerprint as `dpspca ca show` prints it, received another way than "
            "the certificate.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Install the certificate that the operator signed. The authority that comes with it is believed from then on."""
    expected = None if authority is None else _read_fingerprint(authority)
    known = (folder / IDENTITY_FILE).exists()
    with reading(certificate, "what `dpspca ca sign` wrote"):
        own, mark, brought = certificate.read_bytes().partition(b"-----END CERTIFICATE-----\n")
        if expected:
            _require_authority(brought, expected)
        installed = identities.install(folder, own + mark, brought)
    _tell_identity(installed, as_json=as_json)
    if not (expected or known):
        typer.echo(
            "Compare the authority's fingerprint with what the operator tells you another way than the certificate "
            "came: whoever else signed it could pass for anybody.",
            err=True,
        )


@identity.command("show", epilog=EXIT_CODES)
def _show(folder: PartyFolder, *, as_json: AsJson = False) -> None:
    """Say whose identity is in a folder, whether and until when it holds, and the fingerprint of its authority."""
    _tell_identity(Identity.load(folder), as_json=as_json)


def _write(out: Path, make: Callable[[], bytes]) -> bytes:
    """Make what goes into a file, once it is sure to find its place: no key is made and nothing signed in vain."""
    folder = Folder(out.parent, [out.name])
    content = make()
    folder.write(out.name, lambda path: path.write_bytes(content))
    return content


def _tell_identity(shown: Identity, *, as_json: bool) -> None:
    since, until = read_certificate(shown.certificate_pem).not_valid_before_utc, shown.not_after
    facts = {
        "name": shown.name.uri,
        "since": since.isoformat(),
        "until": until.isoformat(),
        "in_force": since <= now() < until,
        "authority": _fingerprint(shown.authority_pem),
    }
    tell(facts, f"{shown.name} {_standing(since, until)}", f"authority {facts['authority']}", as_json=as_json)


def _standing(since: datetime, until: datetime) -> str:
    """Say from or until when a certificate holds, and what to do if that is not now."""
    if now() < since:
        return f"NOT YET IN FORCE: from {since:%Y-%m-%d %H:%M} UTC on. Check the clock."
    if now() >= until:
        return f"NO LONGER IN FORCE: it ended at {until:%Y-%m-%d %H:%M} UTC. Renew it: `dpspca identity renew`."
    return f"until {until:%Y-%m-%d}"


def _fingerprint(authority_pem: bytes) -> str:
    """Give what tells an authority from every other, in the form that other programs write it too."""
    return read_authority(authority_pem).fingerprint(SHA256()).hex(":").upper()


def _read_fingerprint(text: str) -> str:
    """Take a fingerprint with colons, with spaces or without, and refuse part of one: it could be matched by trying."""
    try:
        found = bytes.fromhex(text.replace(":", " "))
    except ValueError:
        found = b""
    check(
        len(found) == SHA256.digest_size,
        f"{text!r:.120} is no fingerprint of an authority.",
        "Give all of what `dpspca ca show` prints: 64 digits from 0 to F.",
    )
    return found.hex(":").upper()


def _require_authority(authority_pem: bytes, expected: str) -> None:
    found = _fingerprint(authority_pem)
    require_trust(
        found == expected,
        f"The certificate comes with another authority, {found}.",
        "Do not install it: ask the operator what happened, another way than it came.",
    )


def _facts(entry: Entry) -> dict[str, str | None]:
    return {
        "serial": entry.serial,
        "name": entry.name.uri,
        "until": entry.until.isoformat(),
        "revoked": entry.revoked.isoformat() if entry.revoked else None,
    }


def _state(entry: Entry) -> str:
    return "revoked" if entry.revoked else f"until {entry.until:%Y-%m-%d}"
