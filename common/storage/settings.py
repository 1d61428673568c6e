"""Settings of the programs, in TOML. A key that is not known is refused, and paths are taken from the file's folder."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from dpspca.common.decoding import By, Filled, Source, between, decode, faults_of, keys_of
from dpspca.common.errors import DpspcaError, InvalidParameterError

from .addresses import Address, DatabaseUrl
from .approval_settings import ApprovalSettings
from .data_settings import SAMPLES, DataSettings
from .event_settings import EventSettings
from .other_files import require_settings
from .paths import FilePath, located
from .routes import ProxyAddress, Route
from .toml_file import read_toml


def _place(text: str, source: Source) -> Path | DatabaseUrl:
    """Read the place of a journal: a file or a database."""
    if text.startswith("postgresql://"):
        return DatabaseUrl(text)
    if "://" in text:
        scheme = text.partition("://")[0]  # only this part: there may be a password in the rest
        raise InvalidParameterError(f"It begins with {scheme!r:.40}, not with 'postgresql'.", SAMPLES)
    path: Path = source.locate(text)
    return path


AddressText: TypeAlias = Annotated[Address, By(lambda text, _: Address.parse(text))]
ProxyText: TypeAlias = Annotated[ProxyAddress, By(lambda text, _: ProxyAddress.parse(text))]
Place: TypeAlias = Annotated[Path | DatabaseUrl, By(_place, Filled)]


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorSettings:
    """A coordinator's settings. By default, its journal is a file beside them, and stored results may take a GiB."""

    listen: AddressText
    identity: FilePath
    revocations: FilePath
    journal: Place | None = None
    result_mebibytes: Annotated[int, between(1, 2**30)] | None = None
    metrics: AddressText | None = None
    mailbox: AddressText | None = None
    """Where it listens for the mailbox of certificates."""
    mailbox_folder: FilePath | None = None
    """The folder of the mailbox; left out, it is beside the settings. ``client.enrolment.mailbox_folder`` tells."""
    events: EventSettings = field(default_factory=EventSettings)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderSettings(DataSettings):
    """A provider's settings: its data sets, and everything else.

    By default, the ledger is in a folder beside the settings, and its head file is in the folder of the identity.
    ``approval`` says how long jobs wait for a person's approval, and who is notified. ``scratch`` is the private folder
    that holds rows that are not in memory. ``answers_at_once`` is how many answers may be in progress.
    """

    coordinator: AddressText
    identity: FilePath
    revocations: FilePath
    policy: FilePath
    ledger: FilePath | None = None
    ledger_head: FilePath | None = None
    approval: ApprovalSettings = field(default_factory=ApprovalSettings)
    metrics: AddressText | None = None
    scratch: FilePath | None = None
    answers_at_once: Annotated[int, between(1, 32)] | None = None
    mailbox: AddressText | None = None
    proxy: ProxyText | None = None
    proxy_credentials: FilePath | None = None
    events: EventSettings = field(default_factory=EventSettings)

    @property
    def route(self) -> Route:
        """How the coordinator is reached."""
        return Route.of(self.coordinator, self.proxy, self.proxy_credentials)

    @property
    def mailbox_route(self) -> Route | None:
        """How the coordinator's mailbox is reached."""
        return None if self.mailbox is None else Route.of(self.mailbox, self.proxy, self.proxy_credentials)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalystSettings:
    """The settings of an analyst's commands."""

    coordinator: AddressText
    identity: FilePath
    mailbox: AddressText | None = None
    proxy: ProxyText | None = None
    proxy_credentials: FilePath | None = None

    @property
    def route(self) -> Route:
        """How the coordinator is reached."""
        return Route.of(self.coordinator, self.proxy, self.proxy_credentials)

    @property
    def mailbox_route(self) -> Route | None:
        """How the coordinator's mailbox is reached."""
        return None if self.mailbox is None else Route.of(self.mailbox, self.proxy, self.proxy_credentials)


Settings = TypeVar("Settings", CoordinatorSettings, ProviderSettings, AnalystSettings)
AnySettings: TypeAlias = CoordinatorSettings | ProviderSettings | AnalystSettings


def read_settings(kind: type[Settings], path: Path) -> Settings:
    """Read a program's settings, or say everything that is wrong with them."""
    return _decoded(kind, path, read_toml(path))


def read_any_settings(path: Path) -> AnySettings:
    """Read settings of any program."""
    raw = read_toml(path)
    require_settings(path, raw)
    read: AnySettings = _decoded(kind_of(raw), path, raw)
    return read


def read_data_settings(path: Path) -> DataSettings:
    """Read the tables about data sets in a provider's settings, before or after the provider is enrolled.

    All other keys may be missing, and their values are ignored.
    """
    require_own(ProviderSettings, path)
    others = keys_of(ProviderSettings) - keys_of(DataSettings)
    raw = {key: value for key, value in read_toml(path).items() if key not in others}
    return decode(DataSettings, raw, _source(path))


def _decoded(kind: type[Settings], path: Path, raw: dict[str, Any]) -> Settings:
    return decode(kind, raw, _source(path))


def _source(path: Path) -> Source:
    return Source(str(path), partial(located, path.parent), sample=SAMPLES)


def kind_of(raw: dict[str, Any]) -> type[Any]:
    """Tell by its keys which program a file of settings is for, also if some of them are misspelt."""
    coordinator, provider, analyst = map(keys_of, (CoordinatorSettings, ProviderSettings, AnalystSettings))
    if "listen" in raw:
        return CoordinatorSettings
    if raw.keys() & (provider - coordinator - analyst):
        return ProviderSettings
    if "coordinator" not in raw and raw.keys() & (coordinator - analyst):
        return CoordinatorSettings
    return ProviderSettings if "revocations" in raw else AnalystSettings


def faults(kind: type[Any], path: Path, raw: dict[str, Any]) -> Sequence[DpspcaError]:
    """Return everything that is wrong with a program's settings."""
    return faults_of(lambda: _decoded(kind, path, raw))


def require_own(kind: type[AnySettings], path: Path) -> None:
    """Refuse settings that are, to the last key, another program's."""
    raw = read_toml(path)
    other = kind_of(raw)
    if other is not kind and not any(faults(other, path, raw)):
        raise InvalidParameterError(
            f"{path} holds the settings of {program_of(other)}, not of {program_of(kind)}.",
            "Name the right file with --config.",
        )


def program_of(kind: type[AnySettings]) -> str:
    """Name the program that a kind of settings is for."""
    return {CoordinatorSettings: "the coordinator", ProviderSettings: "a provider", AnalystSettings: "an analyst"}[kind]
