"""Commands that check programs: `dpspca doctor`, `dpspca health` and `dpspca config`."""

from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.cli.arguments import CHECK_CODES, EXIT_CODES, AnySettings, AsJson
from dpspca.cli.render import print_output
from dpspca.client.checks import examine, require_fit
from dpspca.client.enrolment import certificates
from dpspca.client.health import health_message
from dpspca.common.errors import DpspcaError
from dpspca.common.storage import (
    ProviderConfig,
    faults,
    kind_of,
    read_any_config,
    read_toml,
)
from dpspca.common.text import printable
from dpspca.common.trust import Identity
from dpspca.provider.connection import names_warning
from dpspca.provider.data import names_in

CHECK_FAILED: Final = 1
_MARKS: Final = {True: "ok     ", False: "FAILED ", None: "skipped"}

_IN_A_POLICY: Final = frozenset({"lifetime", "per_job", "methods", "minimum_providers", "analysts", "unit"})
_IN_A_JOB: Final = frozenset({"components", "norm_bound", "unit", "job", "schema", "budget", "method"})
_OTHER_FILES: Final[tuple[tuple[str, Callable[[dict[str, Any]], bool], str], ...]] = (
    ("a policy", lambda raw: _is_policy(raw.get("data_sets")), "dpspca policy check"),
    ("a dictionary", lambda raw: {"format", "features"} <= raw.keys(), "dpspca dictionary check"),
    ("a job", lambda raw: bool(_IN_A_JOB & raw.keys()), "dpspca plan"),
)
"""Other TOML files that people write: what each is, how to recognise it, and the command that checks it."""

config = typer.Typer(name="config", no_args_is_help=True, help="Check a settings file, or print a sample.")


@config.callback()
def _config() -> None:
    pass


@config.command("check", epilog=CHECK_CODES)
def _check(
    file: Annotated[
        Path,
        typer.Argument(help="Settings file (TOML) of a coordinator, provider or analyst.", show_default=False),
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Show which program a settings file is for, and list everything that is wrong with it."""
    program, problems = _problems_in_settings(file)
    lines = problems or ["No errors. `dpspca doctor` also checks the files and addresses that the settings name."]
    remarks = [] if problems else _remarks(file)
    facts = {"file": str(file), "program": program, "passed": not problems, "problems": problems, "remarks": remarks}
    heading = [f"{file}: settings of the {program}."] if program else []
    print_output(facts, *heading, *map(printable, (*lines, *remarks)), as_json=as_json)
    _exit_unless(passed=not problems)


class Sample(StrEnum):
    """The files that have a commented sample."""

    COORDINATOR = "coordinator"
    PROVIDER = "provider"
    ANALYST = "analyst"
    POLICY = "policy"
    JOB = "job"
    DICTIONARY = "dictionary"
    STUDY = "study"


@config.command("sample", epilog=EXIT_CODES)
def _sample(
    of: Annotated[
        Sample, typer.Argument(help="What to print: settings of a program, a policy, a job, a dictionary or a study.")
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Print a commented sample file to start from. It explains every key."""
    text = (resources.files("dpspca") / "samples" / f"{of}.toml").read_text(encoding="utf-8")
    print_output({"of": of, "text": text}, text.removesuffix("\n"), as_json=as_json)


def _problems_in_settings(file: Path) -> tuple[str | None, list[str]]:
    """Return the program that settings are for, or None if that is unknown, and all that is wrong with them."""
    try:
        raw = read_toml(file)
    except DpspcaError as problem:
        return None, [str(problem)]
    for what, marks, command in _OTHER_FILES:
        if marks(raw):
            return None, [f"{file} is {what}, not a settings file. Check it with `{command} {file}`."]
    kind = kind_of(raw)
    problems = [str(fault) for fault in faults(kind, file, raw)]
    return kind.__name__.removesuffix("Config").lower(), problems or _identity_problems(file)


def _is_policy(tables: object) -> bool:
    rules = tables.values() if isinstance(tables, dict) else ()
    return any(isinstance(each, dict) and _IN_A_POLICY & each.keys() for each in rules)


def _remarks(file: Path) -> list[str]:
    """Return a warning if a provider cannot send the names of all columns. That is not an error."""
    settings = read_any_config(file)
    if not isinstance(settings, ProviderConfig):
        return []
    places = settings.places
    no_room = names_warning({name: names_in(place, settings.reading_of(name)) for name, place in places.items()})
    return [no_room] if no_room else []


def _identity_problems(file: Path) -> list[str]:
    """Return an error if the identity that settings name has another role. A missing identity is not an error yet."""
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
    """Check everything that a program needs, and report every problem."""
    checks = list(examine(config))
    passed = all(each.passed for each in checks)
    lines = [printable(f"{_MARKS[each.passed]}  {each.name}: {each.details}") for each in checks]
    print_output({"passed": passed, "checks": [asdict(each) for each in checks]}, *lines, as_json=as_json)
    _exit_unless(passed=passed)


def health(config: AnySettings, *, as_json: AsJson = False) -> None:
    """Check quickly whether the coordinator serves, or the provider answers jobs. Service managers can run it.

    A provider answers jobs if it is connected, its whole policy can be read, its ledger is not in quarantine, and the
    last reload of its settings succeeded. Also warns of certificates that expire within ten days.
    """
    passed, message = health_message(config)
    found = certificates.facts(config)
    soon = certificates.warnings(found)
    facts = {"passed": passed, "details": message, "certificates": found, "warnings": soon}
    print_output(facts, *map(printable, (message, *soon)), as_json=as_json)
    _exit_unless(passed=passed)


def _exit_unless(*, passed: bool) -> None:
    if not passed:
        raise typer.Exit(CHECK_FAILED)
