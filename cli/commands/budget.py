"""The `dpspca budget` command: print what is spent, reserved and left of budgets, and what a further job would cost."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.cli.arguments import CHECK_CODES, AsJson, DaemonSettingsFile, job_files, job_flags
from dpspca.cli.render import print_text, to_json
from dpspca.client.clock import now
from dpspca.client.steward import balance, check_job, cost
from dpspca.common.checks import check, check_known
from dpspca.common.privacy import float_above, float_below, format_down, format_up
from dpspca.common.text import printable
from dpspca.provider.ledger import QUARANTINE_REMEDY, LedgerReader, format_time, read_ledger
from dpspca.provider.policy import Policy, read_readable_part

REFUSED: Final = 1
BUDGET_CODES: Final = CHECK_CODES.replace("a check failed, as the output says", "the job is refused or does not fit")


def budget(
    config: DaemonSettingsFile,
    *,
    data_set: Annotated[
        str | None, typer.Option(help="Report this data set only. With --job: the data set of a job that names none.")
    ] = None,
    job: Annotated[
        Path | None,
        typer.Option(
            help="Also report what this job (JSON or TOML) would cost. Exits with 1 if it is refused or does not fit."
        ),
    ] = None,
    analyst: Annotated[
        str | None, typer.Option(help="Analyst who signs the job. If left out: any analyst that the policy names.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report what is spent, reserved and left of each data set's and analyst's budget, and how many jobs still fit."""
    check(
        job is not None or analyst is None,
        "--analyst is given without --job.",
        "Give the analyst's job with --job.",
    )
    view = read_ledger(config)
    policy, problems = read_readable_part(view.settings.policy)
    policy_problems = [str(each) for each in problems]
    job_file = job_files.from_file(job, job_flags.Flags()) if job else None
    job_check = None
    if job_file:
        job_check = check_job(policy, job_file, job_files.data_set_of(job_file, data_set), analyst)
    names = _names(view, policy, str(job_check["data_set"]) if job_check else data_set)
    shown = [balance(view, name, policy) for name in names]
    asked = cost(view, policy, job_file, job_check) if job_file and job_check else None
    if as_json:
        after = format_time(view.state.signed_after) if view.state.signed_after else None
        facts = {"quarantine": view.quarantine_reason, "signed_after": after, "policy_problems": policy_problems}
        typer.echo(to_json(facts | {"data_sets": shown, "job": asked}))
    else:
        for line in (*policy_problems, *_signed_after_lines(view), *_lines(view.quarantine_reason, shown, asked)):
            print_text(printable(line))
    if asked and not asked["fits"]:
        raise typer.Exit(REFUSED)


def _names(view: LedgerReader, policy: Policy, chosen: str | None) -> list[str]:
    tables = {each.data_set for each in policy.data_sets} | (policy.unreadable or frozenset())
    known = tables | {*view.settings.names, *view.state.data_sets}
    if chosen is not None:
        check_known("data set", chosen, sorted(known))
    return sorted(known) if chosen is None else [chosen]


# --- As lines of text -------------------------------------------------------------------------------------------------


def _signed_after_lines(view: LedgerReader) -> Iterator[str]:
    after = view.state.signed_after
    if after >= now().timestamp():
        yield f"A quarantine has just ended: only jobs signed after {format_time(after)} are answered."


def _lines(reason: str | None, shown: list[dict[str, Any]], asked: dict[str, Any] | None) -> Iterator[str]:
    if reason:
        what = "QUARANTINED: no job is answered, and more may have been spent than is shown."
        yield f"{what} {reason} {QUARANTINE_REMEDY}"
    if not shown:
        yield "There are no data sets to report."
    for each in shown:
        yield from _balance_lines(each)
    if asked:
        yield from _cost_lines(asked)
    yield (
        "Shares are of mu squared, in which jobs add up. At the same epsilon and delta, a job whose noise is not "
        "Gaussian takes more of it than a Gaussian job, so fewer such jobs fit. What is spent or reserved is rounded "
        "up. What is left is rounded down."
    )


def _balance_lines(facts: dict[str, Any]) -> Iterator[str]:
    yield f"Data set {facts['data_set']}"
    if facts["refused"]:
        yield f"  NO JOB IS ADMITTED. {facts['refused']}"
    whole = facts["budget"]
    if whole is None:
        yield f"  Spent: mu {_up(facts['spent'])}. Reserved: mu {_up(facts['reserved'])}."
        return
    yield f"  Lifetime: epsilon {format_up(whole['epsilon'])} at delta {format_up(whole['delta'])} (mu {_up(whole)})."
    spent = facts["spent"]
    worth = _epsilon_at(spent["epsilon"], whole["delta"])
    yield f"  Spent: mu {_up(spent)}, {_percent_up(spent)}. This is worth {worth}."
    if facts["written_off"]["units"]:
        yield f"    Of this, mu {_up(facts['written_off'])} was counted as spent when a quarantine was ended."
    yield f"  Reserved for open jobs: mu {_up(facts['reserved'])}, {_percent_up(facts['reserved'])}."
    if facts["past_expiry"]:
        yield (
            f"    {facts['past_expiry']} open jobs have expired. What they reserve is given back when the next job "
            "is opened."
        )
    yield f"  Left: mu {_down(facts['left'])}, {_percent_down(facts['left'])}."
    per_job = facts["per_job"]
    size = f"epsilon {format_up(per_job['epsilon'])} at delta {format_up(per_job['delta'])}"
    yield f"  Room for {facts['further_jobs']} further jobs of the largest size allowed ({size})."
    yield from _analyst_lines(facts)


def _analyst_lines(facts: dict[str, Any]) -> Iterator[str]:
    capped = facts["newcomers"] is not None
    for each in facts["analysts"]:
        own = f", left mu {_down(each['left'])} of their own budget" if capped else ""
        room = f"room for {each['further_jobs']} such jobs" if each["named"] else "no longer named in the policy"
        taken = f"spent mu {_up(each['spent'])}, reserved mu {_up(each['reserved'])}"
        yield f"  {each['analyst']}: {taken}{own}; {room}."
    if capped:
        new = facts["newcomers"]
        yield (
            f"  An analyst without any jobs so far: left mu {_down(new['left'])} of their own budget; room for "
            f"{new['further_jobs']} such jobs."
        )


def _cost_lines(asked: dict[str, Any]) -> Iterator[str]:
    price = asked["price"]
    named = f"mu {_up(price)}, that is {_epsilon_at(price['epsilon'], price['delta'])}"
    if not asked["allowed"]:
        yield f"The job would cost {named}. The policy REFUSES it:"
        yield from (f"  {each['what']} {each['remedy']}" for each in asked["refusals"])
        return
    fitting = [each["analyst"] for each in asked["analysts"] if each["fits"]]
    yield (
        f"The job costs {named}, which takes {_percent_up(asked)} of the lifetime. There is room for "
        f"{asked['such_jobs']} such jobs."
    )
    yield f"  It fits if signed by {' or '.join(fitting)}." if fitting else "  It does NOT fit."
    for each in asked["analysts"]:
        if not each["fits"]:
            yield f"  It does not fit if signed by {each['analyst']}: {each['why_not']}"


def _epsilon_at(epsilon: float | None, delta: float) -> str:
    return (
        f"epsilon {format_up(epsilon, 4)} at delta {format_up(delta)}"
        if epsilon is not None
        else f"no finite epsilon at delta {format_up(delta)}"
    )


def _up(facts: dict[str, Any]) -> str:
    return format_up(facts["mu"], 4)


def _down(facts: dict[str, Any]) -> str:
    return format_down(facts["mu"], 4)


def _percent_up(facts: dict[str, Any]) -> str:
    return f"{format_up(float_above(100 * Fraction(facts['share'])), 3)} %"


def _percent_down(facts: dict[str, Any]) -> str:
    return f"{format_down(float_below(100 * Fraction(facts['share'])), 3)} %"
