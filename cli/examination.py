"""What a program needs in order to work, looked at one thing after the other: settings, files, time, and the way out.

A check that rests on one that failed is skipped, so that the first fault told is the one to mend.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Final, TypeAlias

from cryptography.x509 import Certificate

from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidParameterError, RefusedError
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.transport.certificates import federation_of, read_authority, read_certificate
from dpspca.common.transport.config import (
    Address,
    AnalystConfig,
    AnyConfig,
    CoordinatorConfig,
    ProviderConfig,
    read_any_config,
)
from dpspca.common.transport.errors import NotNowError
from dpspca.common.transport.files import require_private_folder
from dpspca.common.transport.identity import Identity, load_revocations
from dpspca.common.transport.names import Role
from dpspca.common.transport.trust import RevocationList, peer_of, require_role
from dpspca.provider.entries import WAY_OUT, QuarantinedError
from dpspca.provider.greeting import remark
from dpspca.provider.ledger_files import files_in_words, read_head
from dpspca.provider.policy_file import read_policy, read_readable_part
from dpspca.provider.preparation import require_unit
from dpspca.provider.start_checks import require_own_names

from . import probe
from .daemons import arriving_data_set, ledger_paths, read_data_set
from .flags import now
from .looking import look

SOON: Final = timedelta(days=7)
"""Before its end, when a certificate should be renewed."""

_UNUSABLE: Final = (
    "are no rows of finite numbers, or name nobody, and count as rows of zeros. This number is for you alone: do not "
    "pass it on."
)
_ROLES: Final = {
    CoordinatorConfig: Role.COORDINATOR,
    ProviderConfig: Role.PROVIDER,
    AnalystConfig: Role.ANALYST,
}

Work: TypeAlias = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, whether all is well with it (None: it was skipped), and why."""

    name: str
    well: bool | None
    said: str


def require_fit(settings: AnyConfig, me: Identity) -> None:
    """Refuse the identity of a party that may not do what the settings are for."""
    require_role(me.name, _ROLES[type(settings)])


def examine(path: Path) -> Iterator[Check]:
    """Look at settings, and at all that they name."""
    try:
        settings = read_any_config(path)
    except DpspcaError as problem:
        yield Check("settings", well=False, said=str(problem))
        return
    yield Check("settings", well=True, said=f"{path} is understood.")
    unwell: set[str] = set()
    for name, needs, work in Patient(settings, path).checks():
        found = _try(name, work) if unwell.isdisjoint(needs) else Check(name, None, "What it rests on is not well.")
        if not found.well:
            unwell.add(name)
        yield found


def _try(name: str, work: Work) -> Check:
    try:
        return Check(name, well=True, said=work())
    except DpspcaError as problem:
        return Check(name, well=False, said=str(problem))


@dataclass(frozen=True)
class Patient:
    """A program's settings. Each method looks at one thing, and says what it found or raises what is wrong."""

    settings: AnyConfig
    file: Path
    """Where they stand."""
    digests: dict[str, str] = field(default_factory=dict)
    fingerprints: dict[str, frozenset[str]] = field(default_factory=dict)
    """What names the rows of each data set that was read."""
    columns: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    """What its columns are called."""

    def checks(self) -> Iterator[tuple[str, tuple[str, ...], Work]]:
        """Give each check: its name, what it rests on, and what does it."""
        settings = self.settings
        yield "identity", (), self.identity
        yield "clock", ("identity",), self.clock
        yield "certificate", ("identity", "clock"), self.certificate
        yield "authority", ("identity",), self.authority
        if not isinstance(settings, AnalystConfig):
            yield "revocation list", ("identity", "clock"), self.revocation_list
            yield "not revoked", ("certificate", "revocation list"), self.not_revoked
        if isinstance(settings, ProviderConfig):
            for name in settings.data_sets:
                yield f"data set {name}", (), partial(self.data_set, name)
            for name in settings.arriving or {}:
                yield f"data set {name}", (), partial(self.arriving, name)
            yield "names of columns", (), self.names_of_columns
            yield "policy", (), partial(_policy, settings)
            yield "ledger", (), partial(_ledger, settings, self.file)
            rows = tuple(f"data set {name}" for name in (*settings.data_sets, *(settings.arriving or {})))
            yield "names of rows", (*rows, "ledger"), partial(self.names_of_rows, settings)
            yield "promises", ("policy", "ledger"), partial(self.promises, settings)
        yield "port", (), self.port
        yield "coordinator", ("identity", "certificate", "port"), self.coordinator
        if isinstance(settings, ProviderConfig):
            yield "connection", ("coordinator",), self.connection

    @cached_property
    def me(self) -> Identity:
        """Whose settings they are."""
        return Identity.load(self.settings.identity)

    @cached_property
    def revoked(self) -> RevocationList:
        """The list that the settings name."""
        assert not isinstance(self.settings, AnalystConfig)
        return load_revocations(self.settings.revocations, self.me.authority_pem)

    @property
    def own_certificate(self) -> Certificate:
        """What this party shows to others."""
        return read_certificate(self.me.certificate_pem)

    def identity(self) -> str:
        """Look whether the files are whole, private, and of a party that may do this."""
        require_fit(self.settings, self.me)
        return f"{self.me.name}, for its owner's eyes alone."

    def clock(self) -> str:
        """Hold the clock against the certificate: nobody's is issued in the future."""
        time, since = now(), self.own_certificate.not_valid_before_utc
        if time < since:
            raise NotNowError(f"It says {time:%Y-%m-%d %H:%M} UTC; the certificate is of {since}.", "Set the clock.")
        return f"{time:%Y-%m-%d %H:%M} UTC, which is after the certificate was issued."

    def certificate(self) -> str:
        """Look whether it is in force."""
        until = self.me.not_after
        left = until - now()
        if left <= timedelta():
            raise NotNowError(f"It ended at {until}.", "Renew it: `dpspca identity renew`.")
        soon = " Renew it soon: `dpspca identity renew`." if left < SOON else ""
        return f"It holds until {until:%Y-%m-%d}, {left.days} days more.{soon}"

    def authority(self) -> str:
        """Look whether the authority's own certificate is in force."""
        trusted = read_authority(self.me.authority_pem)
        until = trusted.not_valid_after_utc
        if not trusted.not_valid_before_utc <= now() < until:
            raise NotNowError(f"Its certificate ended at {until}.", "The operator has to found the federation anew.")
        return f"That of {federation_of(trusted)}, until {until:%Y-%m-%d}."

    def revocation_list(self) -> str:
        """Look whether the list is the authority's, and in force."""
        self.revoked.require_current(now())
        return f"Number {self.revoked.number}; it holds until {self.revoked.next_update:%Y-%m-%d}."

    def not_revoked(self) -> str:
        """Judge ourselves as others do."""
        peer_of(self.me.certificate_pem, self.me.authority_pem, now(), self.revoked)
        return "The certificate is not on that list."

    def port(self) -> str:
        """Look whether anybody listens at the coordinator's address."""
        address = probe.address_of(self.settings)
        _reach(address)
        return f"Somebody listens at {address}."

    def coordinator(self) -> str:
        """Shake hands with the coordinator, and ask how it is."""
        self._ask("")
        return "It serves, and each side believes the other's certificate."

    def connection(self) -> str:
        """Ask the coordinator whether our daemon is connected."""
        self._ask(probe.service_of(self.settings, self.me))
        return "This provider is connected."

    def data_set(self, name: str) -> str:
        """Read rows as the provider does, and remember what names them."""
        assert isinstance(self.settings, ProviderConfig)
        rows, persons = read_data_set(self.settings, name), (self.settings.persons or {}).get(name)
        self.digests[name], self.fingerprints[name] = rows.digest(), rows.fingerprints()
        self.columns[name] = rows.names
        whose = "" if persons is None else f", whose they are in {persons}"
        own = f"; of the {rows.span.of} rows of its table {rows.span.rows} are own" if rows.span else ""
        spoilt = "" if rows.unusable is None else f" {rows.unusable.count} of them {_UNUSABLE}"
        return f"{self.settings.data_sets[name]}: {rows.count} rows of {rows.dimension} columns{whose}{own}.{spoilt}"

    def arriving(self, name: str) -> str:
        """Count the rows that have arrived."""
        assert isinstance(self.settings, ProviderConfig)
        rows, folder = arriving_data_set(self.settings, name), (self.settings.arriving or {})[name]
        self.digests[name], self.fingerprints[name] = rows.digest(), rows.fingerprints()
        self.columns[name] = rows.names
        return f"{folder}: {rows.count} rows of {rows.dimension} columns, and more may arrive."

    def names_of_columns(self) -> str:
        """Look whether a greeting has room for them; where it has not, nothing is wrong, but somebody should know."""
        return remark(self.columns) or "All that there are can be told to the coordinator."

    def names_of_rows(self, settings: ProviderConfig) -> str:
        """Look whether rows are offered, or were spent on, under another name."""
        there = ledger_paths(settings, self.file)[0].exists()
        require_own_names(self.fingerprints, self.digests, look(self.file).books.rows_called if there else _nowhere)
        return "No rows have two names, here or in the ledger."

    def promises(self, settings: ProviderConfig) -> str:
        """Look whether what the policy promises for a data set is what jobs that were answered on it have kept."""
        if not ledger_paths(settings, self.file)[0].exists():
            return "Nothing was promised yet."
        books, policy = look(self.file).books, read_policy(settings.policy)
        for rules in policy.data_sets:
            books.require_promise(rules.data_set, rules.promise)
        return "The policy states no more than every job that was answered has kept."

    def _ask(self, service: str) -> None:
        asyncio.run(probe.ask(probe.address_of(self.settings), self.me, service))


def _nowhere(_: Sequence[str]) -> None:
    """Know no rows: there is no ledger yet."""


def _policy(settings: ProviderConfig) -> str:
    """Look whether it can be read, which data sets it leaves out (allowing nothing is nothing wrong), and its units."""
    policy, wrong = read_readable_part(settings.policy)
    if wrong:
        raise InvalidParameterError(
            " ".join(str(problem) for problem in wrong), "Every job on what cannot be read is refused."
        )
    units = {rules.data_set: rules.unit for rules in policy.data_sets}
    for name in sorted(settings.names & units.keys()):
        _require_unit(name, units[name], persons=name in (settings.persons or {}))
    silent = sorted(settings.names - units.keys())
    refused = f" It does not name {', '.join(silent)}: every job on that is refused." if silent else ""
    return f"{settings.policy} is understood.{refused}"


def _require_unit(name: str, unit: PrivacyUnit, *, persons: bool) -> None:
    """Refuse a unit under which every job on the data set would be refused."""
    try:
        require_unit(unit, persons=persons)
    except RefusedError as problem:
        remedy = "Change the unit in the policy, or the table [persons] in the settings."
        what = f"The policy for {name!r} lets no job be answered. {problem.what}"
        raise InvalidParameterError(what, remedy) from None


def _ledger(settings: ProviderConfig, file: Path) -> str:
    """Look whether the daemon can use it, and whether it is the one that the second path remembers."""
    path, head_path = ledger_paths(settings, file)
    for folder in (path.parent, head_path.parent):
        if folder.exists():
            require_private_folder(folder)
    with files_in_words(path):
        there, remembered = path.exists(), read_head(head_path)
    if not there and remembered is None:
        return f"{path} will be made when the provider starts for the first time."
    looked = look(file)
    if looked.doubt:
        raise QuarantinedError(f"Quarantined, and every job is refused: {looked.doubt}", WAY_OUT)
    return f"{path}: {looked.books.head.entries} entries, as its second path remembers it."


def _reach(address: Address) -> None:
    try:
        socket.create_connection((address.host, address.port), probe.PATIENCE).close()
    except OSError as problem:
        raise InvalidDataError(
            f"{address} cannot be reached: {problem.strerror or problem}.",
            "Check the address, the firewall, and that the coordinator runs.",
        ) from None
