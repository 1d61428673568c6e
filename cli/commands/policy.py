"""The `dpspca policy` commands: explain a policy in words for an ethics board, check a job against it, draft one."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.cli.arguments import CHECK_CODES, EXIT_CODES, AsJson, job_files, job_flags
from dpspca.cli.render import print_text, to_json
from dpspca.client import prices
from dpspca.client.files import reading
from dpspca.common.algorithms import catalogue
from dpspca.common.checks import check
from dpspca.common.errors import BudgetExceededError, RefusedError
from dpspca.common.names import PartyName, Role, check_name
from dpspca.common.privacy import SLACK_UNIT, Price, PrivacyUnit
from dpspca.common.spec import Budget
from dpspca.common.statement import format_up
from dpspca.common.text import printable
from dpspca.provider.approval import CENTERING
from dpspca.provider.ledger import Balance, Quotas
from dpspca.provider.policy import Policy, Rules, faults, filter_of, suggest

REFUSED: Final = 1

_OTHER_NOISE: Final = (
    " A job whose noise is not Gaussian is limited by this epsilon and delta. It takes more of the budgets below, "
    "because it costs more in mu."
)
_LARGE: Final = 100
"""Numbers from here on are written without decimals."""
_GUESS: Final = {
    PrivacyUnit.ROW_ADD_REMOVE: "whether a given row is in the data or not",
    PrivacyUnit.ROW_REPLACE_ONE: "which of two given contents a row of the data has",
    PrivacyUnit.PERSON_ADD_REMOVE: "whether a given person is in the data or not",
    PrivacyUnit.PERSON_REPLACE_ONE: "which of two given sets of rows a person has in the data",
    PrivacyUnit.ENTRY: "which of two values an entry of the matrix has, if they differ by at most the least norm bound",
    PrivacyUnit.SPECTRAL: (
        "which of two matrices the data are, if they differ by at most the least norm bound in spectral norm"
    ),
}

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
    check(job is not None or analyst is None, "--analyst is given without --job.", "Give the job that they would sign.")
    with reading(file, "a policy in TOML"):
        text = file.read_text(encoding="utf-8")
    problems = [str(fault) for fault in faults(text)]
    read = Policy() if problems else Policy.parse(text)
    job_file = job_files.from_file(job, job_flags.Flags()) if job else None
    job_check = check_job(read, job_file, data_set, analyst) if job_file and not problems else None
    shown = [] if problems else _shown(read, data_set, job_check)
    facts = {"file": str(file), "passed": not problems, "problems": problems, "data_sets": [*map(rules_facts, shown)]}
    if as_json:
        typer.echo(to_json(facts | {"job": job_check}))
    else:
        for line in (*problems, *_explanations(shown, problems), *_job_lines(job_check)):
            print_text(printable(line))
    if problems or (job_check and not job_check["allowed"]):
        raise typer.Exit(REFUSED)


@policy.command("suggest", epilog=EXIT_CODES)
def _suggest(
    job: Annotated[Path, typer.Argument(help="The job, as JSON or TOML.", metavar="JOB", show_default=False)],
    *,
    analyst: Annotated[
        list[str],
        typer.Option(help="An analyst who may submit jobs. Repeat the option for each analyst.", show_default=False),
    ],
    data_set: Annotated[str | None, typer.Option(help="The data set, if the job's file names none.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a draft policy that allows a job and little else, for the steward to read and change."""
    job_file = job_files.from_file(job, job_flags.Flags())
    name = check_name("the data set", _data_set(job_file, data_set))
    text = _DRAFT_HEADER + suggest(job_file.plan, name, analyst)
    Policy.parse(text)  # refuses names and units that no policy may have
    if as_json:
        typer.echo(to_json({"data_set": name, "analysts": sorted(analyst), "policy": text}))
    else:
        typer.echo(text, nl=False)


def rules_facts(rules: Rules) -> dict[str, Any]:
    """Return the rules of a data set, and what follows from them, as plain values."""
    budgets = {name: _budget_facts(getattr(rules, name)) for name in ("lifetime", "per_analyst", "per_job")}
    budgets["per_job"] = (budgets["per_job"] or {}) | {"guess_at_most": _best_guess_of_job(rules)}
    return (
        asdict(rules)
        | budgets
        | {"largest_jobs": _jobs_that_fit(rules, rules.largest_job), "unusable": rules.unusable()}
    )


def check_job(read: Policy, job_file: job_files.JobFile, data_set: str | None, analyst: str | None) -> dict[str, Any]:
    """Check a job against a policy under which nothing has been spent yet."""
    name = _data_set(job_file, data_set)
    refusals = _refusals(read, job_file, name, analyst) or _lifetime_refusal(read, job_file, name)
    facts = {"data_set": name, "analyst": analyst, "providers": job_file.providers, "allowed": not refusals}
    refused = [{"code": each.code, "what": each.what, "remedy": each.remedy} for each in refusals]
    return facts | {"refusals": refused} | _price(job_file, None if refusals else read.rules(name))


def explanation(rules: Rules) -> Iterator[str]:
    """Yield the explanation of a data set's rules, one paragraph a line."""
    yield f"Data set {rules.data_set}"
    if rules.unit.is_person:
        yield (
            f"  Rows per person: a job must allow for {rules.rows_per_person} or more rows of each person "
            "(rows_per_person). The provider uses at most as many as the job allows for. Its own persons file "
            "([persons]) says which person each row belongs to."
        )
    elif rules.rows_per_person > 1:
        yield (
            f"  Rows per person: one person may have {rules.rows_per_person} rows here. A job must protect all of them "
            f"together (rows_per_person = {rules.rows_per_person} or more), which makes its noise wider by that factor."
        )
    yield f"  Who may ask: {', '.join(rules.analysts)}, and nobody else."
    yield f"  What may be asked: {_queries(rules)}."
    for name, why in rules.unusable().items():
        yield (
            f"  WARNING: methods lists {name}, but no job here can use it. {why} Remove it from methods, or change "
            "the rule that excludes it."
        )
    yield f"  Columns: {_columns(rules)}."
    yield f"  {_bounds(rules)}"
    yield (
        f"  Other providers: a job must name {rules.minimum_parties} or more providers, including this one, and must "
        "not continue with fewer. Each provider's noise protects its data, whoever else takes part."
    )
    yield f"  When answers leave: {_answer_times(rules)}"
    yield f"  Who decides: {_approval(rules)}"
    yield f"  {_quotas(rules.quotas)}"
    yield f"  Who is protected: {rules.unit.neighbours}{_rows(rules)}"
    yield from _budget_lines(rules)


def _data_set(job_file: job_files.JobFile, given: str | None) -> str:
    """Return the name of a job's data set, from its file or from --data-set."""
    check(
        None in {given, job_file.data_set},
        f"--data-set is {given!r:.80}, but the job's file already names {job_file.data_set!r:.80}.",
        "Remove one of the two.",
    )
    name = given or job_file.data_set
    check(name is not None, "The job names no data set.", "Name one with --data-set.")
    return str(name)


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


def _budget_lines(rules: Rules) -> Iterator[str]:
    gaussian = _all_gaussian(rules)
    yield f"  One job costs at most {_amount(rules.per_job)}.{'' if gaussian else _OTHER_NOISE}"
    if rules.per_analyst:
        yield f"  All jobs of one analyst together cost at most {_amount(rules.per_analyst)}."
    yield (
        f"  All jobs of all analysts together, ever, cost at most {_amount(rules.lifetime)}. This budget is never "
        "refilled."
    )
    fitting = _jobs_that_fit(rules, rules.largest_job)
    each = f", {fitting['per_analyst']} for each analyst" if rules.per_analyst else ""
    size = f"of the largest size{'' if gaussian else ' with Gaussian noise'}"
    yield f"  That is enough for {fitting['lifetime']} jobs {size}{each}, or for more jobs that are smaller."
    job, all_jobs = _best_guess_of_job(rules), _best_guess(rules.lifetime)
    yield (
        "  What the numbers mean: suppose that somebody knows everything else and guesses "
        f"{_GUESS[rules.unit]}. Without any answer, the guess is right in 50.0% of cases. With all answers to one job, "
        f"it is right in at most {job:.1%}. With all answers to all jobs that there will ever be, it is right in at "
        f"most {all_jobs:.1%}. In other words, {_one_unit(rules)} makes any conclusion from all these answers at most "
        f"{_factor(rules.lifetime)} times as likely, apart from an additional probability of "
        f"{format_up(rules.lifetime.delta)}."
    )
    yield (
        "  What the numbers do not cover: other data sets. If a person is in several data sets, here or at other "
        "providers, their budgets add up."
    )


def _refusals(read: Policy, job_file: job_files.JobFile, name: str, analyst: str | None) -> list[RefusedError]:
    """Return the refusals by the rules.

    A job that names no providers is addressed to all that offer the data set. They are assumed to be enough.
    """
    try:
        rules = read.rules(name)
    except RefusedError as refusal:
        return [refusal]
    signer = PartyName("any", Role.ANALYST, analyst or rules.analysts[0])
    audience = job_file.providers or tuple(map(str, range(rules.minimum_parties)))
    return [*rules.refusals(job_file.spec, signer, audience, job_file.public_bound)]


def _lifetime_refusal(read: Policy, job_file: job_files.JobFile, name: str) -> list[RefusedError]:
    """Return a refusal if the rules allow the job but the lifetime is too small for it even while nothing is spent."""
    rules = read.rules(name)
    try:
        filter_of(rules.lifetime).charge(job_file.plan.price)
    except BudgetExceededError as problem:
        return [BudgetExceededError(f"The lifetime of '{name}': {problem.what}", problem.remedy)]
    return []


def _price(job_file: job_files.JobFile, rules: Rules | None) -> dict[str, Any]:
    price = {"price": prices.facts(job_file.plan)["total"]}
    return price | ({"such_jobs": _jobs_that_fit(rules, job_file.plan.price)} if rules else {})


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


def _jobs_that_fit(rules: Rules, price: Price) -> dict[str, int | None]:
    """Return how many jobs of a price fit into the budgets while nothing is spent."""
    budgets = {"lifetime": rules.lifetime, "per_analyst": rules.per_analyst}
    return {name: Balance.of(filter_of(each)).jobs(price) if each else None for name, each in budgets.items()}


def _budget_facts(budget: Budget | None) -> dict[str, float] | None:
    if budget is None:
        return None
    mu = filter_of(budget).whole.mu
    return {"epsilon": budget.epsilon, "delta": budget.delta, "mu": mu, "guess_at_most": _best_guess(budget)}


def _best_guess(budget: Budget) -> float:
    """Return the most that a guess between two neighbouring data sets, at even odds, can be right, as a probability.

    It is rounded up to a thousandth. Telling N(0, 1) from N(mu, 1) succeeds with probability Phi(mu / 2). The slack of
    the budget is added, because the implemented noise is a little off.
    """
    whole = filter_of(budget).whole
    right = math.erfc(-whole.mu / 2 / math.sqrt(2)) / 2 + float(whole.slack_units * SLACK_UNIT)
    return min(1.0, math.ceil(1000 * right) / 1000)


def _best_guess_of_job(rules: Rules) -> float:
    """Return the same for one job. A job whose noise is not Gaussian is limited by epsilon and delta, not by their mu.

    By (epsilon, delta) alone a guess is right with probability at most (e^epsilon + delta) / (1 + e^epsilon): the total
    variation distance of neighbours is at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) (Kairouz, Oh & Viswanath
    2015), and knowing the answers adds half of it to one half.
    """
    gaussian = _best_guess(rules.per_job)
    if _all_gaussian(rules):
        return gaussian
    odds, delta = math.exp(rules.per_job.epsilon), rules.per_job.delta
    return max(gaussian, min(1.0, math.ceil(1000 * (odds + delta) / (1 + odds)) / 1000))


def _all_gaussian(rules: Rules) -> bool:
    return all(catalogue.find(name).gaussian for name in rules.methods)


def _amount(budget: Budget) -> str:
    mu = format_up(filter_of(budget).whole.mu, 4)
    return f"epsilon {format_up(budget.epsilon)} at delta {format_up(budget.delta)} (mu {mu})"


def _factor(budget: Budget) -> str:
    value = math.exp(budget.epsilon)
    return format_up(value, 3) if value < _LARGE else f"{math.ceil(value):,}"


def _queries(rules: Rules) -> str:
    rows = " or ".join(CENTERING[each] for each in rules.centering) if rules.unit.is_row else "a symmetric matrix"
    how = "; ".join(f"{name}, {catalogue.find(name).summary}" for name in rules.methods)
    also = ", and the variance that they explain" if rules.explained_variance else ""
    with_dictionary = ", prepared with the shared dictionary of the provider's settings" if rules.dictionary else ""
    of = f"principal components of {rows}{with_dictionary}{also}"
    return f"{of}. Methods: {how}. Accounting: {' or '.join(rules.accounting)}"


def _rows(rules: Rules) -> str:
    """Return how many rows a person has, if the privacy unit is a row."""
    if not rules.unit.is_row:
        return " A person with several entries is protected less, in proportion."
    if rules.unit.is_person:
        return ""
    rows = "one row" if rules.rows_per_person == 1 else f"at most {rules.rows_per_person} rows"
    return f" One person has {rows}: the policy says so, and no program can check it."


def _answer_times(rules: Rules) -> str:
    if rules.answer_interval == 0:
        return "as soon as they are ready. The time that an answer takes can then reveal something about the rows."
    given = rules.answer_interval
    interval = "follows from the size of the query" if given is None else f"is {given:g} seconds"
    rows = "all rows of a person that count" if rules.unit.is_person or rules.rows_per_person > 1 else "a row"
    return (
        f"a whole number of intervals after the query. The interval {interval}. If processing {rows} takes a tenth of "
        "the interval, the time of one answer gives that away in at most 55 of 100 cases. A blind guess is right in 50."
    )


def _one_unit(rules: Rules) -> str:
    if rules.unit.is_person:
        return "one person"
    return "one row" if rules.unit.is_row else "such a change"


def _bounds(rules: Rules) -> str:
    if rules.unit.is_row:
        return (
            f"Norm bound: rows are clipped to a length that the job chooses, {rules.norm_bound}{_mean(rules)}. A job "
            "that scales columns chooses it in multiples of each column's root mean square, within a factor of 1,000 "
            "of the root of the number of columns."
        )
    return (
        f"Norm bound: a job protects changes up to a bound that it chooses, {rules.norm_bound}. All jobs together "
        "protect changes up to the least of these bounds, and larger changes less, in proportion."
    )


def _columns(rules: Rules) -> str:
    if isinstance(rules.columns, int):
        return f"any, at most {rules.columns}"
    return f"only {', '.join(rules.columns)}"


def _approval(rules: Rules) -> str:
    rule = rules.approval_rule
    if rule is None:
        return "no person. A job that follows the rules and fits the budgets is answered."
    persons = "1 of these persons" if rule.needed == 1 else f"{rule.needed} different persons of these"
    return f"{persons} must approve each job: {', '.join(rule.approvers)}."


def _quotas(quotas: Quotas) -> str:
    return (
        f"Quotas: each analyst may have {quotas.open_jobs:,} open jobs here, whose answers take up to "
        f"{quotas.answer_mebibytes:,} MiB ({quotas.answer_mebibytes_in_all:,} MiB for all analysts together), and may "
        f"submit {quotas.jobs_a_day:,} jobs with {quotas.queries_a_day:,} queries a day."
    )


def _mean(rules: Rules) -> str:
    return f", and for the mean to a length {rules.mean_bound}" if rules.mean_bound else ""
