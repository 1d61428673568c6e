"""A provider's settings as they are in force, and how they are replaced while the daemon runs. Reads files.

A reload takes all of the new settings or none. It reads and checks them, the policy and the rows beside the running
daemon. If anything is wrong, everything stays as it was, and the log, ``dpspca health`` and the metrics say so. That is
safe: budgets, ledger and rows are those to which every open job was held. It is not so for the policy alone, which is
read again whenever its file changes: a part that cannot be read closes its data sets at once (``policy/file.py``).
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidParameterError
from dpspca.common.storage import EventStream, ProviderSettings, Route, files, keep_until_restart, read_settings
from dpspca.common.trust import CurrentIdentity, CurrentRevocations, RevocationList

from .approval import Approvals
from .connection import Daemon
from .data import Arrivals, CheckedRows, ClusterRows, DataSet, Scratch
from .jobs import OfferedData, ProviderSetup
from .ledger import ledger_paths
from .policy import CurrentPolicy, Policy
from .startup import arriving_data_set, read_data_set

PROBLEM_FILE: Final = "reload-problem"
"""The file beside the ledger that says why the last reload failed. It is there only until a reload succeeds."""
NEEDS_RESTART: Final = (
    "answers_at_once", "identity", "ledger", "ledger_head", "metrics", "mailbox", "memory_mebibytes", "scratch"
)  # fmt: skip

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class CurrentSettings:
    """The settings in force. What a daemon asks for again and again, it asks here."""

    config: Path
    settings: ProviderSettings
    identity: CurrentIdentity
    events: EventStream
    _policy: CurrentPolicy = field(init=False)
    _revocations: CurrentRevocations = field(init=False)

    def __post_init__(self) -> None:
        self._revocations = _revocations(self.settings, self.identity)
        self._policy = CurrentPolicy(self.settings.policy, self._policy_read)

    def policy(self) -> Policy:
        """Return the policy as it is on disk now."""
        return self._policy.get()

    def revocations(self) -> RevocationList:
        """Return the revocation list as it is on disk now."""
        return self._revocations.get()

    @property
    def failed(self) -> bool:
        """Tell whether the last reload failed."""
        return problem_file(self.settings, self.config).exists()

    async def reload(self, setup: ProviderSetup, daemon: Daemon, scratch: Scratch | None = None) -> str | None:
        """Read the settings and everything that they name again, and put it in force if nothing is wrong with it.

        Return the problem if something is.
        """
        try:
            new = await asyncio.to_thread(self._read, setup, daemon, scratch)
        except (DpspcaError, OSError, MemoryError) as problem:
            known = problem if isinstance(problem, DpspcaError) else _of_machine(problem)
            self.note(known)
            return known.what
        settings, changed = keep_until_restart(self.settings, new.settings, NEEDS_RESTART)
        for key in changed:
            _log.warning("'%s' changed in %s. Restart the provider to put it in force.", key, self.config)
        self.settings, self._policy, self._revocations = settings, new.policy, new.revocations
        if setup.approvals:
            _configure(setup.approvals, settings)
        await asyncio.to_thread(self.events.reload, settings.events)
        await daemon.reload(new.route, new.offer)
        self.note(None)
        _log.info("The settings %s were read again. On offer: %s.", self.config, ", ".join(sorted(settings.names)))
        return None

    def note(self, problem: DpspcaError | None) -> None:
        """Note whether the last reload failed, for ``dpspca health``."""
        path = problem_file(self.settings, self.config)
        taken = {"taken": problem is None, "data_sets": sorted(self.settings.names)}
        self.events("settings", **taken, problem=problem and problem.what)
        if problem is None:
            path.unlink(missing_ok=True)
            return
        _log.error("The settings %s were not read again, and everything stays as it was: %s", self.config, problem)
        what = f"At {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} the settings could not be reloaded: {problem.what}"
        with suppress(DpspcaError):  # the log has it
            files.replace(path, what.encode())

    def _policy_read(self, path: Path, policy: Policy, wrong: Sequence[DpspcaError]) -> None:
        closed = None if policy.unreadable is None else sorted(policy.unreadable)
        named = sorted(rules.data_set for rules in policy.data_sets)
        self.events(
            "policy", file=str(path), data_sets=named, closed=closed, problems=[problem.what for problem in wrong]
        )

    def _read(self, setup: ProviderSetup, daemon: Daemon, scratch: Scratch | None) -> "_New":
        settings = read_settings(ProviderSettings, self.config)
        moved = settings.policy != self.settings.policy
        policy = CurrentPolicy(settings.policy, self._policy_read) if moved else self._policy
        listed = _revocations(settings, self.identity)
        listed.get().require_succession(self.revocations())
        rows = _read_rows(settings, self.settings, setup, daemon.offer.digests, scratch)
        offer = daemon.check(rows, settings.dictionaries, policy.get)
        return _New(settings, settings.route, policy, listed, offer)


@dataclass(frozen=True, slots=True)
class _New:
    """The settings that were read and can be put in force."""

    settings: ProviderSettings
    route: Route
    policy: CurrentPolicy
    revocations: CurrentRevocations
    offer: OfferedData


def require_reloaded(settings: ProviderSettings, config: Path) -> None:
    """Raise if the daemon could not reload its settings, and so goes on with earlier ones."""
    path = problem_file(settings, config)
    if path.exists():
        raise InvalidParameterError(
            f"{files.read(path).decode()} Earlier settings stay in force.",
            "Correct this and reload again, or restart the provider. `dpspca doctor` says what is wrong.",
        )


def _of_machine(problem: OSError | MemoryError) -> DpspcaError:
    return InvalidDataError(str(problem) or "There is too little memory.", "Check this machine.")


def problem_file(settings: ProviderSettings, config: Path) -> Path:
    """Return the path of the file that says why the last reload failed."""
    return ledger_paths(settings, config)[0].parent / PROBLEM_FILE


def _revocations(settings: ProviderSettings, identity: CurrentIdentity) -> CurrentRevocations:
    return CurrentRevocations(settings.revocations, identity.get().authority_pem)


def _configure(approvals: Approvals, settings: ProviderSettings) -> None:
    wanted = settings.approval
    if wanted != approvals.settings:
        approvals.configure(wanted)


def _read_rows(
    settings: ProviderSettings,
    before: ProviderSettings,
    setup: ProviderSetup,
    digests: Mapping[str, str],
    scratch: Scratch | None,
) -> dict[str, DataSet]:
    """Read all data sets. Where rows are the same as before, keep those that are in memory."""
    found: dict[str, DataSet] = {}
    offered, name_of = setup.data_sets, setup.ledger.name_of
    for name in settings.data_sets:
        read, known = read_data_set(settings, name, scratch), offered.get(name)
        is_same = (
            isinstance(known, CheckedRows | ClusterRows)
            and type(known) is type(read)
            and (known.uncut, digests[name]) == (read.uncut, name_of(read.digest()))
        )
        found[name] = known if known is not None and is_same else read
    for name in settings.arriving:
        known = offered.get(name)
        declared = _declared(settings, name)
        if not (isinstance(known, Arrivals) and known.is_in_order and declared == _declared(before, name)):
            known = arriving_data_set(settings, name, scratch)
        found[name] = known
    return found


def _declared(settings: ProviderSettings, name: str) -> tuple[Any, ...]:
    """Return all settings of a data set whose rows arrive."""
    return settings.arriving.get(name), settings.reading_of(name), settings.row_entries.get(name)
