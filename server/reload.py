"""A coordinator's settings as they are in force, and how they are replaced while it runs. Reads files.

A reload takes all of the new settings or none. A mistake leaves everything as it was; the log, ``dpspca health`` and
the metrics say so.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dpspca.common.errors import DpspcaError
from dpspca.common.storage import CoordinatorSettings, EventStream, keep_until_restart, read_settings
from dpspca.common.trust import CurrentIdentity, CurrentRevocations, RevocationList

from .coordinator import Coordinator
from .rpc import RESULT_BYTES

NEEDS_RESTART: Final = ("listen", "identity", "journal", "metrics", "mailbox", "mailbox_folder")

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class CurrentSettings:
    """The settings in force."""

    config: Path
    settings: CoordinatorSettings
    identity: CurrentIdentity
    events: EventStream
    problem: str | None = None
    """Why the last reload failed, or None if it did not."""
    _revocations: CurrentRevocations = field(init=False)

    def __post_init__(self) -> None:
        self._revocations = self._listed(self.settings)

    def revocations(self) -> RevocationList:
        """Return the revocation list as it is on disk now."""
        return self._revocations.get()

    @property
    def result_bytes(self) -> int:
        """How many bytes of results the coordinator keeps."""
        room = self.settings.result_mebibytes
        return RESULT_BYTES if room is None else room * 2**20

    async def reload(self, running: Coordinator) -> str | None:
        """Read the settings again, and put them in force if nothing is wrong with them. Return the problem if it is."""
        try:
            new, listed = await asyncio.to_thread(self._read)
        except DpspcaError as problem:
            self.problem = problem.what
            _log.error("The settings %s were not read again, and everything stays as it was: %s", self.config, problem)
            self.events("settings", taken=False, problem=problem.what)
            return self.problem
        self.settings, changed = keep_until_restart(self.settings, new, NEEDS_RESTART)
        for key in changed:
            _log.warning("'%s' changed in %s. Restart the coordinator to put it in force.", key, self.config)
        self._revocations, self.problem = listed, None
        running.limit_results(self.result_bytes)
        await asyncio.to_thread(self.events.reload, self.settings.events)
        self.events("settings", taken=True, problem=None)
        _log.info("The settings %s were read again.", self.config)
        return None

    def _read(self) -> tuple[CoordinatorSettings, CurrentRevocations]:
        new = read_settings(CoordinatorSettings, self.config)
        listed = self._listed(new)
        listed.get().require_succession(self.revocations())
        return new, listed

    def _listed(self, settings: CoordinatorSettings) -> CurrentRevocations:
        return CurrentRevocations(settings.revocations, self.identity.get().authority_pem)
