"""Commands that say whether a program is well, and if not, what is wrong with it."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.client.federation import require_in_force
from dpspca.common.errors import DpspcaError
from dpspca.common.transport.config import (
    AnalystConfig,
    AnyConfig,
    CoordinatorConfig,
    ProviderConfig,
    faults,
    kind_of,
    read_any_config,
    read_toml,
)
from dpspca.common.transport.identity import Identity
from dpspca.provider.greeting import remark
from dpspca.provider.policy_file import read_readable_part
from dpspca.provider.sources import names_in

from . import probe
from .examination import examine, require_fit
from .flags import CHECK_CODES, EXIT_CODES, AnySettings, AsJson, now
from .looking import require_trusted
from .output import printable, tell

UNWELL: Final = 1
_WELL: Final[dict[type[Any], str]] = {
    CoordinatorConfig: "serving",
    ProviderConfig: "connected",
    AnalystConfig: "serving",
}
_MARKS: Final = {True: "well   ", False: "WRONG  ", None: "skipped"}

_IN_A_POLICY: Final = frozenset({"lifetime", "per_job", "algorithms", "minimum_parties", "analysts", "unit"})
_IN_A_JOB: Final = frozenset({"components", "norm_bound", "unit", "job", "schema", "budget", "algorithm"})
_OTHERS: Final[tuple[tuple[str, Callable[[dict[str, Any]], bool], str], ...]] = (
    ("a policy", lambda raw: _is_policy(raw.get("data_sets")), "dpspca policy check"),
    ("a job", lambda raw: bool(_IN_A_JOB & raw.keys()), "dpspca plan"),
)
"""Files of people's own that are in TOML too: what each is, how to tell, and the command that looks at it."""

config = typer.Typer(name="config", no_args_is_help=True, help="Files of settings.")


@config.callback()
def _config() -> None:
    pass


@config.command("check", epilog=CHECK_CODES)
def _check(
    file: Annotated[Path, typer.Argument(help="Settings of any of the programs.", show_default=False)],
    *,
    as_json: AsJson = False,
) -> None:
    """Say for which program settings are, and everything that is wrong with them."""
    program, problems = _look_at(file)
    lines = problems or ["Nothing is wrong with them. `dpspca doctor` also looks at what they name."]
    remarks = [] if problems else _remarks(file)
    facts = {"file": str(file), "program": program, "well": not problems, "problems": problems, "remarks": remarks}
    heading = [f"{file}: settings of the {program}."] if program else []
    tell(facts, *heading, *map(printable, (*lines, *remarks)), as_json=as_json)
    _leave(well=not problems)


class Sample(StrEnum):
    """What there is a commented sample of."""

    COORDINATOR = "coordinator"
    PROVIDER = "provider"
    ANALYST = "analyst"
    POLICY = "policy"
    JOB = "job"


@config.command("sample", epilog=EXIT_CODES)
def _sample(
    of: Annotated[Sample, typer.Argument(help="Settings of a program, a policy or a job.")], *, as_json: AsJson = False
) -> None:
    """Print a commented sample, in which every key is explained: a file to begin with."""
    text = (resources.files("dpspca") / "samples" / f"{of}.toml").read_text(encoding="utf-8")
    tell({"of": of, "text": text}, text.removesuffix("\n"), as_json=as_json)


def _look_at(file: Path) -> tuple[str | None, list[str]]:
    """Name the program that settings are for, if they can be read, and all that is wrong with them."""
    try:
        raw = read_toml(file)
    except DpspcaError as problem:
        return None, [str(problem)]
    for what, marks, command in _OTHERS:
        if marks(raw):
            return None, [f"{file} is {what}, and no settings of a program. `{command} {file}` looks at it."]
    kind = kind_of(raw)
    problems = [str(fault) for fault in faults(kind, file, raw)]
    return kind.__name__.removesuffix("Config").lower(), problems or _misfits(file)


def _is_policy(tables: object) -> bool:
    rules = tables.values() if isinstance(tables, dict) else ()
    return any(isinstance(each, dict) and _IN_A_POLICY & each.keys() for each in rules)


def _remarks(file: Path) -> list[str]:
    """Say what is not wrong, and should be known: that there is no room for the names of all columns."""
    settings = read_any_config(file)
    if not isinstance(settings, ProviderConfig):
        return []
    places = settings.data_sets | (settings.arriving or {})
    said = remark({name: names_in(place) for name, place in places.items()})
    return [said] if said else []


def _misfits(file: Path) -> list[str]:
    """Say whether the identity that settings name is of another role; where there is none yet, nothing is wrong."""
    settings = read_any_config(file)
    try:
        me = Identity.load(settings.identity)
    except DpspcaError:
        return []
    try:
        require_fit(settings, me)
    except DpspcaError as problem:
        return [f"{file}: identity: {problem}"]
    return []


def doctor(config: AnySettings, *, as_json: AsJson = False) -> None:
    """Look, one after the other, at all that a program needs, and say what is wrong."""
    checks = list(examine(config))
    well = all(each.well for each in checks)
    lines = [printable(f"{_MARKS[each.well]}  {each.name}: {each.said}") for each in checks]
    tell({"well": well, "checks": [asdict(each) for each in checks]}, *lines, as_json=as_json)
    _leave(well=well)


def health(config: AnySettings, *, as_json: AsJson = False) -> None:
    """Say quickly whether the coordinator serves, or the provider answers jobs: for whatever keeps them running.

    A provider answers if it is connected, all of its policy can be read, and its ledger is not in quarantine.
    """
    problems = _ailments(config)
    well = not problems
    said = " ".join(problems) or _WELL[kind_of(read_toml(config))]
    tell({"well": well, "said": said}, printable(said), as_json=as_json)
    _leave(well=well)


def _ailments(config: Path) -> list[str]:
    """Say everything that is wrong: with the connection, and on this machine."""
    try:
        settings = read_any_config(config)
    except DpspcaError as problem:
        return [str(problem)]
    found = _failures(lambda: _require_connected(settings))
    if isinstance(settings, ProviderConfig):
        found += [str(problem) for problem in read_readable_part(settings.policy)[1]]
        found += _failures(lambda: require_trusted(settings, config))
    return found


def _failures(look: Callable[[], None]) -> list[str]:
    try:
        look()
    except DpspcaError as problem:
        return [str(problem)]
    return []


def _require_connected(settings: AnyConfig) -> None:
    me = Identity.load(settings.identity)
    require_in_force(me, now())
    asyncio.run(probe.ask(probe.address_of(settings), me, probe.service_of(settings, me)))


def _leave(*, well: bool) -> None:
    if not well:
        raise typer.Exit(UNWELL)
