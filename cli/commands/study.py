"""The `dpspca study` commands: the authority invites the parties of a study, and signs their certificates."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.cli.arguments import CHECK_CODES, EXIT_CODES, AsJson, fingerprint
from dpspca.cli.render import Folder, print_output, print_table
from dpspca.client.clock import now
from dpspca.client.connection import FederationError
from dpspca.client.enrolment import Candidate, RequestKind, StudyOffice, open_authority
from dpspca.client.files import reading
from dpspca.common.checks import check
from dpspca.common.errors import DpspcaError
from dpspca.common.text import printable
from dpspca.common.transport import SOON, Mailbox, MailFolder, RemoteMailbox
from dpspca.common.trust import IndexEntry, Invitation

from .end_quarantine import require_confirmation

REFUSED_SOME: Final = 1
_COLUMNS: Final = ("", "role", "name", "key", "days")
_UNDELIVERED: Final = (
    "Deliver the list with `dpspca study publish`. Until then, the other parties still trust what was revoked."
)

study = typer.Typer(
    name="study", no_args_is_help=True, help="Run a federation's authority: invite its parties and sign certificates."
)

AuthorityFolder = Annotated[
    Path,
    typer.Option("--authority", metavar="FOLDER", help="The authority's folder. Only its owner may have access."),
]
DEFAULT_FOLDER: Final = Path("authority")
Exchange = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder to use instead of the mailbox: requests are read from it, certificates are written to it. A "
        "copy of the coordinator's folder `mailbox` is one.",
        show_default=False,
    ),
]


@study.command("init", epilog=EXIT_CODES)
def _init(
    file: Annotated[Path, typer.Argument(metavar="STUDY", help="The study file (TOML).", show_default=False)],
    *,
    folder: AuthorityFolder = DEFAULT_FOLDER,
    ca_request: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Have an organisation's CA sign the authority: write the request for it to this file, and go on with "
            "`dpspca study certify`.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create the authority of a study, and an invitation for each of its parties.

    Keep the folder offline: anybody who has it can impersonate every party. Send each invitation to its party like a
    password, and tell the parties the authority's fingerprint over another channel.
    """
    if ca_request:
        checked = Folder(ca_request.parent, [ca_request.name])
        asked = StudyOffice.prepare(file, folder)
        checked.write(ca_request.name, lambda path: path.write_bytes(asked))
        print_output({"request": str(ca_request)}, f"{ca_request}: for the CA to sign", as_json=as_json)
        return
    office = StudyOffice.found(file, folder, now)
    _print_invitations(office, office.invite(office.study.parties), as_json=as_json)


@study.command("certify", epilog=EXIT_CODES)
def _certify(
    certificate: Annotated[Path, typer.Argument(help="What the organisation's CA signed.", show_default=False)],
    *,
    root: Annotated[
        Path, typer.Option(help="Certificates of the CA: the one that signed, up to its root.", show_default=False)
    ],
    folder: AuthorityFolder = DEFAULT_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Install the certificate that an organisation's CA signed for the authority, and invite the parties."""
    with reading(certificate, "what the CA signed"):
        signed = certificate.read_bytes()
    with reading(root, "certificates of the CA"):
        roots = root.read_bytes()
    office = StudyOffice.certify(folder, signed, roots, now)
    _print_invitations(office, office.invite(office.study.parties), as_json=as_json)


@study.command("invite", epilog=EXIT_CODES)
def _invite(
    party: Annotated[
        list[str], typer.Argument(metavar="ROLE/NAME...", help="Parties, as in provider/west.", show_default=False)
    ],
    *,
    folder: AuthorityFolder = DEFAULT_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Invite more parties, or invite one again. An earlier invitation that was not used is no longer valid."""
    office = StudyOffice(folder, now)
    _print_invitations(office, office.invite(map(office.party, party)), as_json=as_json)


@study.command("sign", epilog=f"{CHECK_CODES} Here, 1 means that a request was refused.")
def _sign(
    *,
    folder: AuthorityFolder = DEFAULT_FOLDER,
    exchange: Exchange = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the requests for certificates, ask for confirmation, and sign them. Also deliver a fresh revocation list.

    Compare the fingerprints of new keys with what the parties see. A party's first request is proven by its
    invitation, which works once; later requests by its current key. Certificates that were signed before are delivered
    again.
    """
    office = StudyOffice(folder, now)
    mailbox = mailbox_of(office, exchange)
    found = office.candidates(mailbox)
    fresh = [each for each in found if each.kind in {RequestKind.ENROLS, RequestKind.RENEWS}]
    if as_json:
        listed = "Run it without --json to see whom, or sign with --json --yes."
        check(yes or not fresh, f"{len(fresh)} requests wait, and --json shows nobody before it asks.", listed)
    else:
        _print_candidates([each for each in found if each.kind is not RequestKind.SIGNED_BEFORE])
    if fresh:
        require_confirmation(iter(()), f"Sign {len(fresh)}?", yes=yes)
    ended = office.sign(found, mailbox)
    refused = [each for each in ended if each.kind is RequestKind.REFUSED]
    counts = {kind: sum(each.kind is kind for each in ended) for kind in RequestKind}
    signed = counts[RequestKind.ENROLS] + counts[RequestKind.RENEWS]
    lines = [f"Signed {signed}, refused {len(refused)}. The revocation list is new."]
    print_output({"requests": [_candidate_facts(each) for each in ended]}, *lines, as_json=as_json)
    if refused:
        raise typer.Exit(REFUSED_SOME)


@study.command("show", epilog=EXIT_CODES)
def _show(*, folder: AuthorityFolder = DEFAULT_FOLDER, as_json: AsJson = False) -> None:
    """Show the authority's fingerprint, all invitations and all certificates."""
    authority = open_authority(folder, now)
    facts: dict[str, Any] = {
        "federation": authority.federation,
        "authority": fingerprint(authority.certificate_pem),
        "invitations": [
            {"name": each.name.uri, "until": each.until.isoformat(), "used": each.used is not None}
            for each in authority.invited()
        ],
        "certificates": [_certificate_facts(each) for each in authority.list()],
    }
    print_output(facts, f"The authority of {authority.federation}.", f"authority {facts['authority']}", as_json=as_json)
    if not as_json:
        waiting = [each for each in authority.invited() if each.used is None]
        rows = [(each.name.uri, f"invited until {each.until:%Y-%m-%d}", "") for each in waiting]
        print_table(
            ("party", "", "serial number"),
            [*rows, *((each.name.uri, _state(each), each.serial) for each in authority.list())],
        )


@study.command("revoke", epilog=EXIT_CODES)
def _revoke(
    which: Annotated[str, typer.Argument(help="A serial number, or a party: ROLE/NAME.", show_default=False)],
    *,
    folder: AuthorityFolder = DEFAULT_FOLDER,
    exchange: Exchange = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show certificates, ask for confirmation and revoke them. Deliver the new revocation list.

    A revocation cannot be undone: the party joins again with a new invitation, in a new folder.
    """
    office = StudyOffice(folder, now)
    shown = (f"{each.serial} of {each.name}, {_state(each)}" for each in office.revocable(which))
    require_confirmation(shown, "Revoke for good?", yes=yes)
    revoked = office.authority.revoke(office.party(which) if "/" in which else which)
    lines = [f"revoked {entry.serial} of {entry.name}" for entry in revoked]
    print_output({"revoked": [_certificate_facts(entry) for entry in revoked]}, *lines, as_json=as_json)
    if office.study.mailbox is None and exchange is None:
        typer.echo(f"This study has no mailbox. {_UNDELIVERED}", err=True)
        return
    try:
        office.publish(office.authority.revocation_list(), mailbox_of(office, exchange))
    except DpspcaError as problem:
        raise FederationError(
            f"The certificate is revoked, but the new list was not delivered. {problem.what}", _UNDELIVERED
        ) from None


@study.command("publish", epilog=EXIT_CODES)
def _publish(
    *,
    folder: AuthorityFolder = DEFAULT_FOLDER,
    exchange: Exchange = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write the list to, in place of the mailbox.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Deliver a fresh revocation list, valid for 30 days. Without a valid list, daemons refuse all parties.

    `dpspca study sign` and `dpspca study revoke` do the same.
    """
    office = StudyOffice(folder, now)
    if out:
        checked = Folder(out.parent, [out.name])
        listed = office.authority.revocation_list()
        checked.write(out.name, lambda path: path.write_bytes(listed))
    else:
        mailbox = mailbox_of(office, exchange)
        office.publish(office.authority.revocation_list(), mailbox)
    where = str(out or exchange or office.study.mailbox)
    print_output({"delivered": where}, f"The list is in {where}.", as_json=as_json)


def mailbox_of(office: StudyOffice, exchange: Path | None) -> Mailbox:
    """Return the folder that was named, or else the study's mailbox."""
    if exchange:
        check(exchange.is_dir(), f"{exchange} is not a folder.", "Name the folder in which the requests are.")
        return MailFolder(exchange)
    check(
        office.study.mailbox is not None,
        "This study has no mailbox.",
        "Name the folder in which the requests are, with --exchange.",
    )
    assert office.study.mailbox_route
    return RemoteMailbox(office.study.mailbox_route)


def _print_invitations(office: StudyOffice, made: Sequence[tuple[Invitation, Path]], *, as_json: bool) -> None:
    shown = fingerprint(office.authority.certificate_pem)
    facts = {
        "federation": office.authority.federation,
        "authority": shown,
        "invitations": [
            {"name": each.party.uri, "file": str(path), "until": each.until.isoformat()} for each, path in made
        ],
    }
    lines = [f"{path}: for {each.party}, until {each.until:%Y-%m-%d}" for each, path in made]
    lines.append(f"authority {shown}")
    print_output(facts, *lines, as_json=as_json)
    typer.echo(
        "Send each invitation to its party like a password, then delete the file: whoever has it can join in that "
        "name, once.",
        err=True,
    )


def _print_candidates(found: Sequence[Candidate]) -> None:
    rows = [
        (
            each.kind.value,
            each.party.role.value if each.party else "",
            each.party.name if each.party else "",
            each.key,
            str(each.days or ""),
        )
        for each in found
    ]
    if rows:
        print_table(_COLUMNS, rows)
    for each in found:
        if each.problem:
            typer.echo(printable(f"{each.source}: {each.problem}"), err=True)


def _candidate_facts(each: Candidate) -> dict[str, Any]:
    return {
        "source": each.source,
        "outcome": each.kind.value,
        "name": each.party.uri if each.party else None,
        "key": each.key or None,
        "days": each.days or None,
        "code": each.problem.code if each.problem else None,
        "problem": str(each.problem) if each.problem else None,
    }


def _certificate_facts(entry: IndexEntry) -> dict[str, str | None]:
    return {
        "serial": entry.serial,
        "name": entry.name.uri,
        "until": entry.until.isoformat(),
        "revoked": entry.revoked.isoformat() if entry.revoked else None,
    }


def _state(entry: IndexEntry) -> str:
    if entry.revoked:
        return "revoked"
    left = entry.until - now()
    if left <= timedelta():
        return f"expired on {entry.until:%Y-%m-%d}"
    soon = f", in {left.days} days" if left < SOON else ""
    return f"until {entry.until:%Y-%m-%d}{soon}"
