"""Whether a program is healthy: the coordinator serves, or the provider answers jobs. It takes seconds at most."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from dpspca.client.clock import now
from dpspca.client.connection import probe, require_in_force
from dpspca.client.enrolment import certificates
from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.storage import (
    AnalystSettings,
    AnySettings,
    CoordinatorSettings,
    ProviderSettings,
    kind_of,
    read_any_settings,
    read_toml,
)
from dpspca.common.trust import Identity
from dpspca.provider.ledger import require_trusted
from dpspca.provider.policy import read_readable_part
from dpspca.provider.reload import require_reloaded

_HEALTHY_MESSAGES: Final[dict[type[Any], str]] = {
    CoordinatorSettings: "serving",
    ProviderSettings: "connected",
    AnalystSettings: "serving",
}


def health_message(config: Path) -> tuple[bool, str]:
    """Return whether a program is healthy, and what there is to say about it."""
    problems = _health_problems(config)
    return not problems, " ".join(problems) or _HEALTHY_MESSAGES[kind_of(read_toml(config))]


def _health_problems(config: Path) -> list[str]:
    """Return everything that is wrong with the connection and on this machine."""
    try:
        settings = read_any_settings(config)
    except DpspcaError as problem:
        return [str(problem)]
    found = _problems_of(lambda: _require_connected(settings))
    if isinstance(settings, ProviderSettings):
        found += [str(problem) for problem in read_readable_part(settings.policy)[1]]
        found += _problems_of(lambda: require_trusted(settings, config))
        found += _problems_of(lambda: require_in_use(settings, config))
    return found


def health_warnings(config: Path) -> list[str]:
    """Return what an operator should know of a healthy program: until when certificates are valid, a failed reload.

    A coordinator that could not reload its settings serves as before. It must not count as unhealthy, because service
    managers would take it out of service.
    """
    found = certificates.warnings(certificates.facts(config))
    with suppress(DpspcaError):  # `health_message` says that the settings cannot be read
        settings = read_any_settings(config)
        if isinstance(settings, CoordinatorSettings):
            found += _problems_of(lambda: require_in_use(settings, config))
    return found


def require_in_use(settings: AnySettings, config: Path) -> None:
    """Raise if a daemon could not reload its settings, and so goes on with earlier ones. A coordinator is asked."""
    if isinstance(settings, ProviderSettings):
        require_reloaded(settings, config)
    if isinstance(settings, CoordinatorSettings):
        me = Identity.load(settings.identity)
        if problem := asyncio.run(probe.ask_reload_problem(probe.address_of(settings), me)):
            raise InvalidParameterError(
                f"The settings {config} could not be reloaded: {problem} Earlier settings stay in force.",
                "Correct this and reload again, or restart the coordinator.",
            )


def _problems_of(require: Callable[[], None]) -> list[str]:
    try:
        require()
    except DpspcaError as problem:
        return [str(problem)]
    return []


def _require_connected(settings: AnySettings) -> None:
    me = Identity.load(settings.identity)
    require_in_force(me, now())
    asyncio.run(probe.ask(probe.route_of(settings), me, probe.service_of(settings, me)))
