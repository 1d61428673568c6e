"""The checks of ``dpspca doctor``: settings, files, clock, certificates, data sets, and the connection.

A check that depends on a failed one is skipped, so that the first problem reported is the one to fix.
"""

import asyncio
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Final, TypeAlias

from cryptography.x509 import Certificate

from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidParameterError, NotNowError, RefusedError
from dpspca.common.names import Role
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.storage import (
    Address,
    AnalystSettings,
    AnySettings,
    ApprovalSettings,
    CoordinatorSettings,
    ProviderSettings,
    read_any_settings,
    require_private_folder,
)
from dpspca.common.transport import Mail, RemoteMailbox, ends
from dpspca.common.trust import (
    Identity,
    RevocationList,
    federation_of,
    identity,
    load_revocations,
    peer_of,
    read_authority,
    read_certificate,
    require_role,
)
from dpspca.provider.approval import RequestState
from dpspca.provider.connection import names_warning
from dpspca.provider.data import identify, require_unit
from dpspca.provider.jobs import require_one_name
from dpspca.provider.ledger import (
    QUARANTINE_REMEDY,
    QuarantinedError,
    file_errors,
    ledger_paths,
    read_head,
    read_ledger,
)
from dpspca.provider.policy import read_policy, read_readable_part
from dpspca.provider.startup import approval_queue, arriving_data_set, read_data_set, scratch_for_a_check

from .clock import now
from .connection import probe
from .health import require_in_use

_UNUSABLE: Final = (
    "are unusable (not all numbers are finite, or no person is named) and count as zero rows. This number is for the "
    "steward alone: do not pass it on."
)
_ROLES: Final = {
    CoordinatorSettings: Role.COORDINATOR,
    ProviderSettings: Role.PROVIDER,
    AnalystSettings: Role.ANALYST,
}

Work: TypeAlias = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check: its name, whether it passed (None: it was skipped), and details."""

    name: str
    passed: bool | None
    details: str


def require_fit(settings: AnySettings, me: Identity) -> None:
    """Raise if the identity's role is not the one that the settings are for."""
    require_role(me.name, _ROLES[type(settings)])


def examine(path: Path) -> Iterator[Check]:
    """Check a settings file and everything that it names, and yield the results."""
    try:
        settings = read_any_settings(path)
    except DpspcaError as problem:
        yield Check("settings", passed=False, details=str(problem))
        return
    yield Check("settings", passed=True, details=f"{path} is valid.")
    failed: set[str] = set()
    for name, needs, work in _Checks(settings, path).all():
        missing = [each for each in needs if each in failed]
        result = Check(name, None, f"It depends on: {', '.join(missing)}.") if missing else _run(name, work)
        if not result.passed:
            failed.add(name)
        yield result


def _run(name: str, work: Work) -> Check:
    try:
        return Check(name, passed=True, details=work())
    except DpspcaError as problem:
        return Check(name, passed=False, details=str(problem))


@dataclass(frozen=True)
class _Checks:
    """The checks of one settings file. Each method does one: it returns what it found, or raises what is wrong."""

    settings: AnySettings
    file: Path
    """The file of the settings."""
    digests: dict[str, str] = field(default_factory=dict)
    fingerprints: dict[str, frozenset[str]] = field(default_factory=dict)
    """Digest and fingerprints of the rows of each data set that was read; they identify the rows."""
    columns: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    """Column names of each data set that was read."""

    def all(self) -> Iterator[tuple[str, tuple[str, ...], Work]]:
        """Yield each check: its name, the checks that it depends on, and the function that does it."""
        settings = self.settings
        yield "identity", (), self.identity
        yield "clock", ("identity",), self.clock
        yield "certificate", ("identity", "clock"), self.certificate
        yield "authority", ("identity",), self.authority
        if not isinstance(settings, AnalystSettings):
            yield "revocation list", ("identity", "clock"), self.revocation_list
            yield "not revoked", ("certificate", "revocation list"), self.not_revoked
        if isinstance(settings, ProviderSettings):
            for name in settings.data_sets:
                yield f"data set {name}", (), partial(self.data_set, name)
            for name in settings.arriving:
                yield f"data set {name}", (), partial(self.arriving, name)
            yield "names of columns", (), self.names_of_columns
            yield "policy", (), partial(_policy, settings)
            yield "ledger", (), partial(_ledger, settings, self.file)
            rows = tuple(f"data set {name}" for name in (*settings.data_sets, *settings.arriving))
            yield "names of rows", (*rows, "ledger"), partial(self.names_of_rows, settings)
            yield "promises", ("policy", "ledger"), partial(self.promises, settings)
            if settings.approval:
                yield "approval", (), partial(_approval, settings, settings.approval, self.file)
        if settings.mailbox and not isinstance(settings, CoordinatorSettings):
            yield "mailbox", ("identity",), partial(self.mailbox, settings)
        yield "port", (), self.port
        yield "coordinator", ("identity", "certificate", "port"), self.coordinator
        if isinstance(settings, ProviderSettings):
            yield "connection", ("coordinator",), self.connection
            yield "reload", (), self.reload
        if isinstance(settings, CoordinatorSettings):
            yield "reload", ("coordinator",), self.reload

    @cached_property
    def me(self) -> Identity:
        """The identity that the settings name."""
        return Identity.load(self.settings.identity)

    @cached_property
    def revoked(self) -> RevocationList:
        """The revocation list that the settings name."""
        assert not isinstance(self.settings, AnalystSettings)
        return load_revocations(self.settings.revocations, self.me.authority_pem)

    @property
    def own_certificate(self) -> Certificate:
        """The certificate that this party presents to others."""
        return read_certificate(self.me.certificate_pem)

    def identity(self) -> str:
        """Check that the identity's files are complete and private, and that its role fits the settings."""
        require_fit(self.settings, self.me)
        return f"{self.me.name}; its files are readable by their owner alone."

    def clock(self) -> str:
        """Compare the clock with the certificate, which was not issued in the future."""
        time, since = now(), self.own_certificate.not_valid_before_utc
        if time < since:
            raise NotNowError(
                f"The clock says {time:%Y-%m-%d %H:%M} UTC, but the certificate was issued later, at {since}.",
                "Set the clock.",
            )
        return f"{time:%Y-%m-%d %H:%M} UTC, which is after the certificate was issued."

    def certificate(self) -> str:
        """Check that the party's certificate has not expired."""
        until = self.me.not_after
        left = until - now()
        if left <= timedelta():
            raise NotNowError(f"It expired at {until}.", "Renew it: `dpspca identity renew`.")
        soon = " Renew it soon: `dpspca identity renew`." if ends(self.me, None)[0].warning(now()) else ""
        return f"Valid until {until:%Y-%m-%d}, for {left.days} more days.{soon}"

    def authority(self) -> str:
        """Check that the authority's own certificate is valid now."""
        trusted = read_authority(self.me.authority_pem)
        until = trusted.not_valid_after_utc
        if not trusted.not_valid_before_utc <= now() < until:
            raise NotNowError(
                f"The authority's certificate is valid from {trusted.not_valid_before_utc} until {until}, not now.",
                "Check the clock. If the certificate expired, a new authority has to be created.",
            )
        return f"The authority of {federation_of(trusted)}, valid until {until:%Y-%m-%d}."

    def revocation_list(self) -> str:
        """Check that the revocation list was signed by the authority and is current."""
        self.revoked.require_current(now())
        return f"Number {self.revoked.number}, valid until {self.revoked.next_update:%Y-%m-%d}."

    def not_revoked(self) -> str:
        """Check this party's certificate as other parties do."""
        peer_of(self.me.certificate_pem, self.me.authority_pem, now(), self.revoked)
        return "The certificate is not on the revocation list."

    def port(self) -> str:
        """Check that a program listens at the coordinator's address, or at the proxy's."""
        route = probe.route_of(self.settings)
        _reach(route.proxy or route.address)
        return f"A program listens at {route.proxy or route.address}."

    def mailbox(self, settings: ProviderSettings | AnalystSettings) -> str:
        """Look into the mailbox, as the program does when it renews its certificate."""
        route = settings.mailbox_route
        assert route
        RemoteMailbox(route).get(identity.mailbox_slot(settings.identity), Mail.CERTIFICATE)
        return f"{route} answers."

    def coordinator(self) -> str:
        """Connect to the coordinator, and ask whether it serves."""
        self._ask("")
        return "It serves, and both sides accept each other's certificate."

    def reload(self) -> str:
        """Check that the daemon could reload its settings the last time that it was told to."""
        require_in_use(self.settings, self.file)
        return "No reload of the settings failed since the last one that succeeded."

    def connection(self) -> str:
        """Ask the coordinator whether this provider is connected."""
        self._ask(probe.service_of(self.settings, self.me))
        return "This provider is connected."

    def data_set(self, name: str) -> str:
        """Read the rows as the provider does, and remember what identifies them."""
        assert isinstance(self.settings, ProviderSettings)
        persons = (self.settings.persons or {}).get(name)
        with scratch_for_a_check(self.settings, self.file) as scratch:
            rows = read_data_set(self.settings, name, scratch)
            self.digests[name], self.fingerprints[name] = identify(rows, data_set=name)
        self.columns[name] = rows.names
        by_person = "" if persons is None else f", with persons from {persons}"
        span = f"; it holds {rows.span.rows} of the {rows.span.of} rows of the whole table" if rows.span else ""
        unusable = "" if rows.unusable is None else f" {rows.unusable.count} of them {_UNUSABLE}"
        size = f"{rows.count} rows of {rows.dimension} columns{_prepared(self.settings, name)}"
        return f"{self.settings.data_sets[name]}: {size}{by_person}{span}.{unusable}"

    def arriving(self, name: str) -> str:
        """Count the rows that have arrived."""
        assert isinstance(self.settings, ProviderSettings)
        folder = self.settings.arriving[name]
        with scratch_for_a_check(self.settings, self.file) as scratch:
            rows = arriving_data_set(self.settings, name, scratch)
            self.digests[name], self.fingerprints[name] = identify(rows, data_set=name)
        self.columns[name] = rows.names
        size = f"{rows.count} rows of {rows.dimension} columns{_prepared(self.settings, name)}"
        return f"{folder}: {size}, and more may arrive."

    def names_of_columns(self) -> str:
        """Report column names that are too many for a greeting to the coordinator. That is not a failure."""
        return names_warning(self.columns) or "All column names fit into the greeting to the coordinator."

    def names_of_rows(self, settings: ProviderSettings) -> str:
        """Check that no rows are offered under two names, or were spent on under another name."""
        there = ledger_paths(settings, self.file)[0].exists()
        require_one_name(
            self.fingerprints, self.digests, read_ledger(self.file).data_set_of_rows if there else _no_name
        )
        return "No rows have two names, here or in the ledger."

    def promises(self, settings: ProviderSettings) -> str:
        """Check that every answered job kept what the policy promises now for its data set."""
        if not ledger_paths(settings, self.file)[0].exists():
            return "Nothing was promised yet: there is no ledger."
        state, policy = read_ledger(self.file).state, read_policy(settings.policy)
        for rules in policy.data_sets:
            state.require_promise(rules.data_set, rules.promise)
        return "Every job that was answered kept what the policy promises."

    def _ask(self, service: str) -> None:
        asyncio.run(probe.ask(probe.route_of(self.settings), self.me, service))


def _no_name(_: Sequence[str]) -> None:
    """Return no earlier name for any rows: there is no ledger yet."""


def _policy(settings: ProviderSettings) -> str:
    """Check that the policy can be read and that its units fit. A data set that it does not name is not a failure."""
    policy, problems = read_readable_part(settings.policy)
    if problems:
        raise InvalidParameterError(
            " ".join(str(problem) for problem in problems),
            "Every job on a data set whose part of the policy cannot be read is refused.",
        )
    units = {rules.data_set: rules.unit for rules in policy.data_sets}
    for name in sorted(settings.names & units.keys()):
        _require_unit(name, units[name], persons=name in settings.persons)
    absent = sorted(settings.names - units.keys())
    refused = f" It does not name {', '.join(absent)}: every job on that is refused." if absent else ""
    return f"{settings.policy} is valid.{refused}"


def _require_unit(name: str, unit: PrivacyUnit, *, persons: bool) -> None:
    """Raise if every job with this unit on the data set would be refused."""
    try:
        require_unit(unit, persons=persons)
    except RefusedError as problem:
        remedy = "Change the unit in the policy, or the table [persons] in the settings."
        what = f"With the policy's unit {unit} every job on {name!r} is refused. {problem.what}"
        raise InvalidParameterError(what, remedy) from None


def _ledger(settings: ProviderSettings, file: Path) -> str:
    """Check that the daemon can use the ledger, and that it agrees with its head file."""
    path, head_path = ledger_paths(settings, file)
    for folder in (path.parent, head_path.parent):
        if folder.exists():
            require_private_folder(folder)
    with file_errors(path):
        there, remembered = path.exists(), read_head(head_path)
    if not there and remembered is None:
        return f"{path} will be created when the provider starts for the first time."
    view = read_ledger(file)
    if view.quarantine_reason:
        raise QuarantinedError(
            f"The ledger is in quarantine, and every job is refused: {view.quarantine_reason}", QUARANTINE_REMEDY
        )
    return f"{path}: {view.state.head.entries} entries, in agreement with its head file."


def _approval(settings: ProviderSettings, approval: ApprovalSettings, file: Path) -> str:
    """Check that the queue of jobs that wait for approval can be read, and that the steward's command exists."""
    waiting = len(approval_queue(settings, file).requests(RequestState.WAITING))
    command = approval.notify[:1]
    if command and shutil.which(command[0]) is None:
        raise InvalidParameterError(
            f"notify names {command[0]!r:.80}, which is not an executable program.", "Give its whole path in notify."
        )
    return f"{waiting} jobs wait. {f'{command[0]} is run for each.' if command else 'Nobody is notified (notify).'}"


def _reach(address: Address) -> None:
    try:
        socket.create_connection((address.host, address.port), probe.TIMEOUT_SECONDS).close()
    except OSError as problem:
        raise InvalidDataError(
            f"{address} cannot be reached: {problem.strerror or problem}.",
            "Check the address and the firewall, and that the coordinator is running.",
        ) from None


def _prepared(settings: ProviderSettings, name: str) -> str:
    """Say by which dictionary the rows of a data set are prepared, if by one."""
    held = settings.dictionaries.get(name)
    return "" if held is None else f", prepared with the dictionary {held.dictionary.digest()}"
