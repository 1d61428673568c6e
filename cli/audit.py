"""The command that holds the noise of this very installation against what it promises, on made-up rows."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.client import audit as auditing
from dpspca.client.audit import Audit
from dpspca.common.privacy.audit import Finding, Kind

from . import questions
from .audited import daemons
from .flags import AsJson
from .loopback import telling_why
from .output import counting, printable, tell

NOT_PASSED: Final = 1
_MARKS: Final = {True: "well ", False: "WRONG"}


def audit(
    *,
    spec: Annotated[
        Path | None,
        typer.Option(
            help="Audit this job, JSON or TOML. Left out: one with every kind of question.", show_default=False
        ),
    ] = None,
    runs: Annotated[
        int, typer.Option(help="How often the job is answered over each of the two made-up data sets.", min=2)
    ] = auditing.RUNS,
    as_json: AsJson = False,
) -> None:
    """Have daemons answer a job many times over made-up rows, and test all answers. No real row is looked at."""
    job = questions.from_file(spec, questions.Flags()).spec if spec else auditing.default_job()
    with telling_why(), daemons(job) as opening, counting("jobs answered", quiet=as_json) as tell_progress:
        found = auditing.audit(job, runs=runs, opening=opening, tell=tell_progress, timed=True)
    tell(facts(found), *map(printable, words(found)), as_json=as_json)
    if not found.passed:
        raise typer.Exit(NOT_PASSED)


def facts(found: Audit) -> dict[str, Any]:
    """Give an audit as plain values."""
    findings = [asdict(each) | {"passed": each.passed} for each in found.findings]
    about = {"job": found.spec.digest(), "runs": found.runs, "false_alarm": found.false_alarm}
    return about | {"passed": found.passed, "findings": findings}


def words(found: Audit) -> list[str]:
    """Say what was tried, what each test found, and what that means."""
    wrong = sum(not each.passed for each in found.findings)
    verdict = (
        f"{wrong} of {len(found.findings)} tests failed: this software does not keep its promise here. Stop answering "
        "jobs with it, and report this."
        if wrong
        else f"All {len(found.findings)} tests passed."
    )
    unit = found.spec.unit
    by_unit = f"are neighbours by the unit {unit}; no real data were"
    apart = "differ in one row; no real row was" if unit.is_row and found.spec.rows_per_person == 1 else by_unit
    return [
        f"{found.runs} jobs over each of two made-up data sets that {apart} looked at.",
        f"That any test fails though all is well has a probability of at most {found.false_alarm:g}.",
        "",
        *(f"{_MARKS[each.passed]}  {_sentence(each)}" for each in found.findings),
        "",
        verdict,
    ]


def _sentence(each: Finding) -> str:
    if each.kind is Kind.WIDTH:
        return f"{each.name}: {each.measured:.3f} of what was planned (would notice {each.catches:.3f})"
    if each.kind is Kind.DISTANCE:
        return f"{each.name}: mu = {each.measured:.2f}, {each.planned:.2f} allowed (would notice {each.catches:.2f})"
    if each.kind is Kind.TIME:
        notice = "too few runs to notice anything" if each.catches is None else f"would notice {each.catches:.2f}"
        return (
            f"{each.name}: longer over the same one in {each.measured:.2f} of pairs, {each.planned} allowed ({notice})"
        )
    return f"{each.name}: what was found has probability {each.probability:.2g} if all is as planned"
