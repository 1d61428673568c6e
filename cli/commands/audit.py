"""The `dpspca audit` command: test on made-up rows that this installation's answers are as private as promised."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.cli.arguments import AsJson, job_files, job_flags
from dpspca.cli.render import print_output, show_count
from dpspca.client.audit import Audit, daemons
from dpspca.client.audit import answers as auditing
from dpspca.client.demo import log_on_failure
from dpspca.common.privacy import AuditKind, AuditResult
from dpspca.common.text import printable

FAILED: Final = 1
_MARKS: Final = {True: "passed", False: "FAILED"}


def audit(
    *,
    job: Annotated[
        Path | None,
        typer.Option(
            help="Job to audit (JSON or TOML). If left out: a job with every kind of query.", show_default=False
        ),
    ] = None,
    runs: Annotated[
        int, typer.Option(help="Number of times that the job is answered over each of two made-up data sets.", min=2)
    ] = auditing.RUNS,
    as_json: AsJson = False,
) -> None:
    """Test this installation's noise: have daemons answer a job many times over made-up rows, and test every answer.

    No real data are read, and no budget is spent.
    """
    asked = job_files.from_file(job, job_flags.Flags()).spec if job else auditing.default_job()
    asked = replace(asked, dictionary=None)  # made-up rows need no preparation, and noise does not depend on it
    with log_on_failure(), daemons(asked) as opening, show_count("jobs answered", quiet=as_json) as show_progress:
        found = auditing.audit(asked, runs=runs, opening=opening, progress=show_progress, check_times=True)
    print_output(facts(found), *map(printable, lines(found)), as_json=as_json)
    if not found.passed:
        raise typer.Exit(FAILED)


def facts(found: Audit) -> dict[str, Any]:
    """Return an audit as plain values."""
    findings = [asdict(each) | {"passed": each.passed} for each in found.findings]
    about = {"job": found.spec.digest(), "runs": found.runs, "false_alarm": found.false_alarm}
    return about | {"passed": found.passed, "findings": findings}


def lines(found: Audit) -> list[str]:
    """Return lines that say what was tried, what each test found, and what that means."""
    failed = sum(not each.passed for each in found.findings)
    verdict = (
        f"{failed} of {len(found.findings)} tests failed: this software does not keep its privacy promise on this "
        "machine. Stop answering jobs with it, and report this."
        if failed
        else f"All {len(found.findings)} tests passed."
    )
    unit = found.spec.unit
    by_unit = f"are neighbours by the unit {unit}. No real data were read"
    apart = "differ in one row. No real row was read" if unit.is_row and found.spec.rows_per_person == 1 else by_unit
    return [
        f"{found.runs} jobs over each of two made-up data sets that {apart}.",
        f"If all is as promised, the probability that any test fails is at most {found.false_alarm:g}.",
        "",
        *(f"{_MARKS[each.passed]}  {_sentence(each)}" for each in found.findings),
        "",
        verdict,
    ]


def _sentence(each: AuditResult) -> str:
    if each.kind is AuditKind.WIDTH:
        return f"{each.name}: {each.measured:.3f} times the planned width (would notice {each.catches:.3f})"
    if each.kind is AuditKind.DISTANCE:
        return f"{each.name}: mu = {each.measured:.2f}, {each.planned:.2f} allowed (would notice {each.catches:.2f})"
    if each.kind is AuditKind.REACH:
        return (
            f"{each.name}: {each.measured:.3f} apart without noise, {each.planned:.3f} allowed (would notice a "
            f"sensitivity below {each.catches:.2f} of the true one)"
        )
    if each.kind is AuditKind.TIME:
        notice = "too few runs to notice anything" if each.catches is None else f"would notice {each.catches:.2f}"
        return (
            f"{each.name}: longer over the same data set in {each.measured:.2f} of pairs, {each.planned} allowed "
            f"({notice})"
        )
    return f"{each.name}: this outcome has probability {each.probability:.2g} if all is as planned"
