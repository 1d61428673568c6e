"""The commands `dpspca join` and `dpspca identity`: a party joins a federation, and renews its certificate."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.cli.arguments import EXIT_CODES, AnySettings, AsJson, fingerprint, read_fingerprint
from dpspca.cli.render import print_output
from dpspca.client.clock import now
from dpspca.client.enrolment import Joining, read_invitation, renewal
from dpspca.client.files import reading
from dpspca.common.checks import check
from dpspca.common.errors import require_trust
from dpspca.common.names import Role
from dpspca.common.storage import ProxyAddress
from dpspca.common.text import printable
from dpspca.common.trust import Identity, read_authority, read_certificate, request_fingerprint, require_root

PROBLEMS: Final = 2

identity = typer.Typer(name="identity", no_args_is_help=True, help="Show or renew a party's certificate.")

Exchange = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder to use instead of the mailbox. The request is written there, and the certificate is expected "
        "there.",
        show_default=False,
    ),
]
NoWait = Annotated[
    bool,
    typer.Option("--no-wait", help="Do not wait for the certificate. Repeat the command later to install it."),
]


_Folder = Annotated[
    Path | None,
    typer.Option(help="Folder for the key, the settings and other files. If left out: the party's name."),
]
_Fingerprint = Annotated[
    str | None,
    typer.Option(
        "--fingerprint",
        metavar="FINGERPRINT",
        help="Refuse invitations of any other authority. Give the fingerprint that the authority's operator "
        "told you over another channel.",
    ),
]
_Root = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Refuse invitations of an authority that this CA of an organisation did not sign.",
        show_default=False,
    ),
]
_DataSets = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=FILE", help="For a provider: a data set for its settings. Repeat it for more."),
]


_Proxy = Annotated[
    str | None,
    typer.Option(
        metavar="http://HOST:PORT",
        help="HTTP proxy on the way to the coordinator and its mailbox. The settings name it afterwards.",
        show_default=False,
    ),
]
_ProxyCredentials = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Private file with the line USER:PASSWORD for the proxy.", show_default=False),
]


def join(  # noqa: PLR0913  # a command's flags are its parameters
    invitation: Annotated[Path, typer.Argument(help="The invitation that the authority's operator sent.")],
    *,
    folder: _Folder = None,
    exchange: Exchange = None,
    authority: _Fingerprint = None,
    root: _Root = None,
    data_set: _DataSets = None,
    policy: Annotated[str, typer.Option(help="For a provider: the policy for its settings.")] = "policy.toml",
    proxy: _Proxy = None,
    proxy_credentials: _ProxyCredentials = None,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Join a federation: make a key, ask the authority for a certificate, wait for it, and write a settings file.

    The key never leaves this machine. If you interrupt the command, repeat it with the same invitation.
    """
    given = read_invitation(invitation)
    through = None if proxy is None else ProxyAddress.parse(proxy)
    joining = Joining(given, folder or Path(given.party.name), exchange, through, proxy_credentials)
    shown = _require_authority(given.authority_pem, authority, root)
    data_sets = _data_sets(given.party.role, data_set or [])
    made, key = joining.joined(), None
    if made is None:
        joining.require_usable(now())
        request = joining.request()
        key = request_fingerprint(request)
        _note(f"{given.party} asks for a certificate of the authority {shown}.")
        _note(f"Its key is {key}. Tell the authority's operator, who sees the same.")
        made = asyncio.run(joining.run(request, _note, wait=not no_wait))
    facts: dict[str, Any] = {"name": given.party.uri, "folder": str(joining.folder), "authority": shown, "key": key}
    if made is None:
        line = "Waiting for the authority. Repeat this command when it has signed."
        print_output(facts | {"joined": False}, line, as_json=as_json)
        return
    written = joining.write_settings(data_sets, policy)
    facts |= {"joined": True, "until": made.not_after.isoformat(), "settings": str(joining.settings)}
    print_output(facts, *_joined_lines(joining, made, data_sets, written=written), as_json=as_json)


def _require_authority(authority_pem: bytes, expected: str | None, root: Path | None) -> str:
    """Refuse an authority with another fingerprint, or that this CA did not sign. Return its fingerprint."""
    shown = fingerprint(authority_pem)
    if expected is not None:
        require_trust(
            shown == read_fingerprint(expected),
            f"The invitation comes from another authority, {shown}.",
            "Do not use it. Ask the operator what happened, over another channel.",
        )
    if root is not None:
        with reading(root, "certificates of the CA"):
            require_root(read_authority(authority_pem), root.read_bytes(), now())
    return shown


def _joined_lines(joining: Joining, made: Identity, data_sets: Mapping[str, str], *, written: bool) -> list[str]:
    """List the files that the party has now, and its next steps."""
    role, settings = made.name.role, joining.settings
    lines = [
        f"{made.name} has joined. Its certificate is valid until {made.not_after:%Y-%m-%d}.",
        f"{settings}: {'its settings' if written else 'left as it was'}.",
    ]
    match role:
        case Role.ANALYST:
            lines.append(f"Next: dpspca datasets --config {settings}")
        case Role.COORDINATOR:
            lines.append(f"Next: dpspca coordinator start --config {settings}")
        case Role.PROVIDER:
            name = "name your data sets in the settings, " if written and not data_sets else ""
            lines.append(f"Next: {name}check the rows (`dpspca data check --config {settings}`),")
            lines.append("and write a policy (`dpspca policy suggest`).")
            lines.append(f"Then: dpspca provider start --config {settings}")
    return lines


def _data_sets(role: Role, given: list[str]) -> dict[str, str]:
    check(
        role is Role.PROVIDER or not given,
        f"--data-set is for providers, and this invitation is for the {role}.",
        "Leave it out.",
    )
    pairs = [each.partition("=") for each in given]
    for name, mark, place in pairs:
        check(
            bool(name and mark and place),
            f"--data-set {name!r:.80} names no file.",
            "Write NAME=FILE, as in cohort=rows.csv.",
        )
    return {name: str(Path(place).absolute()) for name, _, place in pairs}


@identity.command("renew", epilog=EXIT_CODES)
def _renew(  # noqa: PLR0913  # a command's flags are its parameters
    config: AnySettings,
    *,
    exchange: Exchange = None,
    if_due: Annotated[
        bool,
        typer.Option(
            "--if-due",
            help="For a timer: fetch the newest revocation list, install a certificate that was asked for, and ask for "
            "one if a third of its life is left. Do not wait.",
        ),
    ] = False,
    revocations: Annotated[
        Path | None,
        typer.Option(
            help="A copy of the revocation list to bring up to date, too. A newer one stays.",
            show_default=False,
        ),
    ] = None,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Renew the certificate: make a new key, ask the authority, wait, and install the new certificate.

    Daemons with a mailbox do this by themselves. The old certificate stays in use until the new one is installed.
    """
    if if_due:
        _renew_if_due(*renewal.if_due(config, exchange, revocations), as_json=as_json)
        return
    request, mail = renewal.begin(config, exchange)
    key = request_fingerprint(request)
    _note(f"The new key is {key}. Tell the authority's operator, who signs it with `dpspca study sign`.")
    made = asyncio.run(renewal.run(mail, request, _note, wait=not no_wait))
    if made is None:
        line = "Waiting for the authority. Repeat this command when it has signed."
        print_output({"renewed": False, "key": key}, line, as_json=as_json)
        return
    if revocations is not None:
        renewal.copy_newer_list(mail, revocations, made.authority_pem)
    _print_identity(made, as_json=as_json)


def _renew_if_due(held: Identity, renewed: bool, problems: list[str], *, as_json: bool) -> None:  # noqa: FBT001
    """Print what was done. A timer sees by the exit code that something went wrong."""
    line = f"{'Renewed: v' if renewed else 'V'}alid until {held.not_after:%Y-%m-%d}."
    facts = {"renewed": renewed, "until": held.not_after.isoformat(), "problems": problems}
    print_output(facts, line, as_json=as_json)
    for problem in problems:
        _note(problem)
    if problems:
        raise typer.Exit(PROBLEMS)


@identity.command("show", epilog=EXIT_CODES)
def _show(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="IDENTITY", help="The party's identity folder. Only its owner may have access.", show_default=False
        ),
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Show the party of an identity folder, how long its certificate is valid, and its authority's fingerprint."""
    _print_identity(Identity.load(folder), as_json=as_json)


def _note(text: str) -> None:
    typer.echo(printable(text), err=True)


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
