"""The `dpspca policy` commands: explain a policy in words for an ethics board, check a job against it, draft one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.cli.arguments import CHECK_CODES, EXIT_CODES, AsJson, job_files, job_flags
from dpspca.cli.render import output, print_text, to_json
from dpspca.client import plan_facts
from dpspca.client.files import reading
from dpspca.client.steward import check_job, explanation, rules_facts
from dpspca.common.checks import check
from dpspca.common.names import check_name
from dpspca.common.privacy import format_up
from dpspca.common.text import printable
from dpspca.provider.policy import Policy, Rules, faults, suggest

REFUSED: Final = 1

_DRAFT_HEADER: Final = (
    "# A first draft: it allows the job that it was made from, and has room for a few such jobs. Read every line and\n"
    "# change what you do not want. Then run `dpspca policy check`, which explains in words what the policy allows.\n"
)

policy = typer.Typer(name="policy", no_args_is_help=True, help="Check or draft a provider's policy.")


@policy.callback()
def _policy() -> None:
    pass


@policy.command("check", epilog=CHECK_CODES)
def _check(
    file: Annotated[Path, typer.Argument(help="The policy, in TOML.", metavar="POLICY", show_default=False)],
    *,
    job: Annotated[
        Path | None,
        typer.Option(help="A job (JSON or TOML) to check against the policy. Exits with 1 if the policy refuses it."),
    ] = None,
    data_set: Annotated[
        str | None, typer.Option(help="Explain this data set only. With --job: the data set of a job that names none.")
    ] = None,
    analyst: Annotated[
        str | None, typer.Option(help="Analyst who signs the job. If left out: any analyst that the policy names.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain in words what a policy allows and at what price, or list its errors. With --job, check a job against it.

    If the policy has errors, the job is not checked.
    """
    check(job is not None or analyst is None, "--analyst is given without --job.", "Give the analyst's job with --job.")
    with reading(file, "a policy in TOML"):
        text = file.read_text(encoding="utf-8")
    problems = [str(fault) for fault in faults(text)]
    read = Policy() if problems else Policy.parse(text)
    job_file = job_files.from_file(job, job_flags.Flags()) if job else None
    job_check = None
    if job_file and not problems:
        job_check = check_job(read, job_file, job_files.data_set_of(job_file, data_set), analyst)
    shown = [] if problems else _shown(read, data_set, job_check)
    facts = {"file": str(file), "passed": not problems, "problems": problems, "data_sets": [*map(rules_facts, shown)]}
    if as_json:
        typer.echo(to_json(facts | {"job": job_check}))
    else:
        for line in (*problems, *_explanations(shown, problems), *_job_lines(job_check)):
            print_text(printable(line))
        if job_file and job_check and job_check["allowed"]:
            output.print_plan(plan_facts.facts(job_file.plan))
    if problems or (job_check and not job_check["allowed"]):
        raise typer.Exit(REFUSED)


@policy.command("suggest", epilog=EXIT_CODES)
def _suggest(
    job: Annotated[Path, typer.Argument(help="The job, as JSON or TOML.", metavar="JOB", show_default=False)],
    *,
    analyst: Annotated[
        list[str],
        typer.Option(help="An analyst who may submit jobs. Repeat the flag for each analyst.", show_default=False),
    ],
    data_set: Annotated[str | None, typer.Option(help="The data set, if the job's file names none.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a draft policy that allows a job and little else, for the steward to read and change."""
    job_file = job_files.from_file(job, job_flags.Flags())
    name = check_name("the data set", job_files.data_set_of(job_file, data_set))
    text = _DRAFT_HEADER + suggest(job_file.plan, name, analyst)
    Policy.parse(text)  # refuses names and units that no policy may have
    if as_json:
        typer.echo(to_json({"data_set": name, "analysts": sorted(analyst), "policy": text}))
    else:
        typer.echo(text, nl=False)


def _shown(read: Policy, data_set: str | None, job_check: dict[str, Any] | None) -> list[Rules]:
    """Return the rules to explain: those of the job's data set, of the data set that was asked for, or all."""
    if data_set and not job_check:
        return [read.rules(data_set)]
    return [rules for rules in read.data_sets if job_check is None or job_check["data_set"] == rules.data_set]


def _explanations(shown: list[Rules], problems: list[str]) -> Iterator[str]:
    if not shown and not problems:
        yield "No data set to explain. Jobs on a data set that has no table in the policy are refused."
    for rules in shown:
        yield from explanation(rules)


def _job_lines(job_check: dict[str, Any] | None) -> Iterator[str]:
    if job_check is None:
        return
    who = f"signed by {job_check['analyst']}" if job_check["analyst"] else "signed by any analyst that the policy names"
    where = "" if job_check["providers"] else " and addressed to enough providers"
    if not job_check["allowed"]:
        yield f"The job, {who}{where}, is REFUSED. A refused job costs nothing. Reasons:"
        yield from (f"  {each['what']} {each['remedy']}" for each in job_check["refusals"])
        return
    price, fitting = job_check["price"], job_check["such_jobs"]
    epsilon = f"epsilon {format_up(price['epsilon'], 4)} at delta {format_up(price['delta'])}"
    yield f"The job, {who}{where}, is allowed. It costs mu {format_up(price['mu'], 4)}, that is {epsilon}."
    each = f", {fitting['per_analyst']} for each analyst" if fitting["per_analyst"] is not None else ""
    yield (
        f"  The data set's lifetime has room for {fitting['lifetime']} such jobs{each}, if nothing is spent yet. Only "
        "the provider's ledger knows what was spent: run `dpspca budget` there."
    )
