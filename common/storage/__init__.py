"""Private files, settings, SQLite files, installed files, and a ban on core dumps."""

from . import files, posix, sqlite_file
from .addresses import Address, DatabaseUrl
from .approval_settings import ApprovalSettings
from .changed_keys import keep_until_restart
from .core_dumps import forbid_core_dumps
from .data_settings import MAX_DATA_SETS, DataSettings
from .dictionaries import dictionary_faults, read_dictionary, read_frequencies
from .engine_settings import EngineKind, EngineSettings
from .event_settings import EventSettings
from .event_stream import Emit, EventStream, Kinds, ignore
from .files import PRIVATE, require_private_folder
from .installed import installed_digest
from .other_files import JOB, STUDY, other_file
from .paths import is_pattern, located
from .reading import DELIMITERS, SAMPLE_LISTS, Codes, Reading
from .routes import ProxyAddress, Route
from .settings import (
    AnalystSettings,
    AnySettings,
    CoordinatorSettings,
    ProviderSettings,
    faults,
    kind_of,
    read_any_settings,
    read_data_settings,
    read_settings,
    require_own,
)
from .study_file import Study
from .toml_file import read_toml
from .triplets import UNUSABLE, Triplets

__all__ = [
    "DELIMITERS",
    "JOB",
    "MAX_DATA_SETS",
    "PRIVATE",
    "SAMPLE_LISTS",
    "STUDY",
    "UNUSABLE",
    "Address",
    "AnalystSettings",
    "AnySettings",
    "ApprovalSettings",
    "Codes",
    "CoordinatorSettings",
    "DataSettings",
    "DatabaseUrl",
    "Emit",
    "EngineKind",
    "EngineSettings",
    "EventSettings",
    "EventStream",
    "Kinds",
    "ProviderSettings",
    "ProxyAddress",
    "Reading",
    "Route",
    "Study",
    "Triplets",
    "dictionary_faults",
    "faults",
    "files",
    "forbid_core_dumps",
    "ignore",
    "installed_digest",
    "is_pattern",
    "keep_until_restart",
    "kind_of",
    "located",
    "other_file",
    "posix",
    "read_any_settings",
    "read_data_settings",
    "read_dictionary",
    "read_frequencies",
    "read_settings",
    "read_toml",
    "require_own",
    "require_private_folder",
    "sqlite_file",
]
