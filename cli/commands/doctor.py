"""Commands that check programs: `dpspca doctor`, `dpspca health` and `dpspca config`."""

from dataclasses import asdict
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Final

import typer

from dpspca.cli.arguments import CHECK_CODES, EXIT_CODES, AnySettings, AsJson
from dpspca.cli.render import print_output
from dpspca.client.checks import examine
from dpspca.client.enrolment import certificates
from dpspca.client.health import health_message, health_warnings
from dpspca.client.settings_file import STUDY_PROGRAM, problems_in_settings, remarks_on_settings
from dpspca.common.text import printable

CHECK_FAILED: Final = 1
_MARKS: Final = {True: "ok     ", False: "FAILED ", None: "skipped"}

config = typer.Typer(name="config", no_args_is_help=True, help="Check a settings file, or print a sample.")


@config.callback()
def _config() -> None:
    pass


@config.command("check", epilog=CHECK_CODES)
def _check(
    file: Annotated[
        Path,
        typer.Argument(
            help="Settings file (TOML) of a coordinator, provider or analyst, or study file.", show_default=False
        ),
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Show which program a settings file is for, and list everything that is wrong with it. Checks study files, too."""
    program, problems = problems_in_settings(file)
    is_study = program == STUDY_PROGRAM
    further = "" if is_study else " `dpspca doctor` also checks the files and addresses that the settings name."
    lines = problems or [f"No errors.{further}"]
    remarks = [] if problems or is_study else remarks_on_settings(file)
    facts = {"file": str(file), "program": program, "passed": not problems, "problems": problems, "remarks": remarks}
    heading = [f"{file}: {'a study file' if is_study else f'settings of the {program}'}."] if program else []
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
        Sample,
        typer.Argument(
            metavar="SAMPLE", help="What to print: settings of a program, a policy, a job, a dictionary or a study."
        ),
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Print a commented sample file to start from. It explains every key."""
    text = (resources.files("dpspca") / "samples" / f"{of}.toml").read_text(encoding="utf-8")
    print_output({"of": of, "text": text}, text.removesuffix("\n"), as_json=as_json)


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
    last reload of its settings succeeded. Also warns of certificates that expire within ten days, and of settings that
    a coordinator could not reload: it serves with earlier ones.
    """
    passed, message = health_message(config)
    warnings = health_warnings(config)
    found = certificates.facts(config)
    facts = {"passed": passed, "details": message, "certificates": found, "warnings": warnings}
    print_output(facts, *map(printable, (message, *warnings)), as_json=as_json)
    _exit_unless(passed=passed)


def _exit_unless(*, passed: bool) -> None:
    if not passed:
        raise typer.Exit(CHECK_FAILED)
