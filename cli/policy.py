"""What a provider's policy means, in words that an ethics board can read, and a job tried against it."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import BudgetExceededError, RefusedError
from dpspca.common.plan import events
from dpspca.common.privacy.accountant import cost_units, slack_units
from dpspca.common.privacy.costs import SLACK_UNIT, mu_of
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.spec import Budget, Centering, check
from dpspca.common.statement import rounded_up
from dpspca.common.transport.names import PartyName, Role, check_name
from dpspca.provider.caps import filter_of
from dpspca.provider.policy import Policy, Rules, faults
from dpspca.provider.quotas import Quotas
from dpspca.provider.suggestion import suggest

from . import priced, questions
from .flags import CHECK_CODES, EXIT_CODES, AsJson
from .output import printable, say, to_json
from .reading import reading

REFUSED: Final = 1

_ROWS: Final = {
    Centering.NONE: "the rows as they are",
    Centering.PUBLIC: "the rows less a mean known from elsewhere",
    Centering.PRIVATE: "the rows less their own mean, which is asked for with noise",
}
_OTHER_NOISE: Final = (
    " A job whose noise is not Gaussian is held to this epsilon and delta, and takes more of what follows, for it "
    "counts for more in mu."
)
_LONG: Final = 100
"""From here on a number is written without decimals."""
_GUESSED: Final = {
    PrivacyUnit.ROW_ADD_REMOVE: "whether a given row is in the data or not",
    PrivacyUnit.ROW_REPLACE_ONE: "which of two given contents a row of the data has",
    PrivacyUnit.PERSON_ADD_REMOVE: "whether a given person is in the data or not",
    PrivacyUnit.PERSON_REPLACE_ONE: "which of two given sets of rows a person has in the data",
    PrivacyUnit.ENTRY: "which of two values, no further apart than the least bound, an entry of the matrix has",
    PrivacyUnit.SPECTRAL: "which of two matrices the data are, no further apart in spectral norm than the least bound",
}

_BEGINNING: Final = (
    "# A beginning: it allows the job that it was made from, and leaves room for a few. Read every line, change what\n"
    "# is not meant, and have `dpspca policy check` say in words what it then allows.\n"
)

policy = typer.Typer(name="policy", no_args_is_help=True, help="What a provider's steward allows.")


@policy.callback()
def _policy() -> None:
    pass


@policy.command("check", epilog=CHECK_CODES)
def _check(
    file: Annotated[Path, typer.Argument(help="A policy in TOML.", metavar="POLICY", show_default=False)],
    *,
    job: Annotated[
        Path | None, typer.Option(help="Try this job, JSON or TOML, and exit with 1 if it is refused.")
    ] = None,
    data_set: Annotated[str | None, typer.Option(help="Of this data set alone; for a job that names none.")] = None,
    analyst: Annotated[
        str | None, typer.Option(help="Who signs the job. Left out: any analyst that the policy names.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say in words what a policy allows, at what price, or everything that is wrong with it; try a job against it."""
    check(job is not None or analyst is None, "--analyst is given, and no job.", "Give the job that they would sign.")
    with reading(file, "a policy in TOML"):
        text = file.read_text(encoding="utf-8")
    problems = [str(fault) for fault in faults(text)]
    read = Policy() if problems else Policy.parse(text)
    order = questions.from_file(job, questions.Flags()) if job else None
    tried = trial(read, order, data_set, analyst) if order and not problems else None
    shown = [] if problems else _shown(read, data_set, tried)
    facts = {"file": str(file), "well": not problems, "problems": problems, "data_sets": [*map(explained, shown)]}
    if as_json:
        typer.echo(to_json(facts | {"job": tried}))
    else:
        for line in (*problems, *_all_words(shown, problems), *_verdict(tried)):
            say(printable(line))
    if problems or (tried and not tried["allowed"]):
        raise typer.Exit(REFUSED)


@policy.command("suggest", epilog=EXIT_CODES)
def _suggest(
    job: Annotated[Path, typer.Argument(help="A job as JSON or TOML.", metavar="JOB", show_default=False)],
    *,
    analyst: Annotated[list[str], typer.Option(help="Who may ask; once for each.", show_default=False)],
    data_set: Annotated[str | None, typer.Option(help="The data set; for a job that names none.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a policy that allows a job, and little else: a beginning, to be read and changed by the data's steward."""
    order = questions.from_file(job, questions.Flags())
    name = check_name("the data set", _data_set(order, data_set))
    text = _BEGINNING + suggest(order.spec, name, analyst)
    Policy.parse(text)  # a name or a unit that no policy takes is refused here
    if as_json:
        typer.echo(to_json({"data_set": name, "analysts": sorted(analyst), "policy": text}))
    else:
        typer.echo(text, nl=False)


def explained(rules: Rules) -> dict[str, Any]:
    """Give the rules of a data set, and what follows from them, as plain values."""
    budgets = {name: _worth(getattr(rules, name)) for name in ("lifetime", "per_analyst", "per_job")}
    budgets["per_job"] = (budgets["per_job"] or {}) | {"guess_at_most": _guess_of_job(rules)}
    most = filter_of(rules.per_job).budget_units
    return asdict(rules) | budgets | {"largest_jobs": _fitting(rules, most), "unusable": rules.unusable()}


def trial(read: Policy, order: questions.Order, data_set: str | None, analyst: str | None) -> dict[str, Any]:
    """Try a job against a policy under which nothing was spent yet."""
    name = _data_set(order, data_set)
    refusals = _refusals(read, order, name, analyst) or _room(read, order, name)
    facts = {"data_set": name, "analyst": analyst, "providers": order.providers, "allowed": not refusals}
    refused = [{"code": each.code, "what": each.what, "remedy": each.remedy} for each in refusals]
    return facts | {"refusals": refused} | _price(order, None if refusals else read.rules(name))


def words(rules: Rules) -> Iterator[str]:
    """Explain the rules of a data set, a paragraph a line."""
    yield f"Data set {rules.data_set}"
    if rules.unit.is_person:
        yield (
            f"  A job has to be signed for {rules.rows_per_person} or more rows of each person (rows_per_person). The "
            "provider uses no more of each than the job says, by its own list of whose each row is ([persons])."
        )
    elif rules.rows_per_person > 1:
        yield (
            f"  One person may have {rules.rows_per_person} rows here. A job has to protect all of them together "
            f"(rows_per_person = {rules.rows_per_person}, or more): its noise is as many times as wide."
        )
    yield f"  Who may ask: {', '.join(rules.analysts)}, and nobody else."
    yield f"  What may be asked: {_questions(rules)}."
    for name, why in rules.unusable().items():
        yield (
            f"  WARNING: no job here can use {name}, though algorithms lists it. {why} Take it off the list, or change "
            "the rule that it does not go with."
        )
    yield f"  Of which columns: {_columns(rules)}."
    yield f"  {_bounds(rules)}"
    yield (
        f"  Together with whom: a job must be addressed to {rules.minimum_parties} or more providers, this one "
        "included, and must not go on with fewer. Each provider's noise protects its data whoever else takes part."
    )
    yield f"  When answers leave: {_departure(rules)}"
    yield f"  {_quotas(rules.quotas)}"
    yield (f"  Who is protected: {rules.unit.neighbours}{_rows(rules)}")
    yield from _budget_words(rules)


def _data_set(order: questions.Order, given: str | None) -> str:
    """Name the data set that a job is over."""
    check(None in {given, order.data_set}, "The job's file says what --data-set says.", "Leave one of them out.")
    name = given or order.data_set
    check(name is not None, "The job names no data set.", "Name one with --data-set.")
    return str(name)


def _shown(read: Policy, data_set: str | None, tried: dict[str, Any] | None) -> list[Rules]:
    """Choose the data sets to speak of: those asked for, or the one that a job is over, if there is one."""
    if data_set and not tried:
        return [read.rules(data_set)]
    return [rules for rules in read.data_sets if tried is None or tried["data_set"] == rules.data_set]


def _all_words(shown: list[Rules], problems: list[str]) -> Iterator[str]:
    if not shown and not problems:
        yield "There is no data set to speak of: nothing may be asked."
    for rules in shown:
        yield from words(rules)


def _budget_words(rules: Rules) -> Iterator[str]:
    gaussian = _all_gaussian(rules)
    yield f"  One job costs at most {_amount(rules.per_job)}.{'' if gaussian else _OTHER_NOISE}"
    if rules.per_analyst:
        yield f"  All jobs of one analyst cost together at most {_amount(rules.per_analyst)}."
    yield f"  All jobs of all analysts, ever, cost together at most {_amount(rules.lifetime)}. Time refills nothing."
    fitting = _fitting(rules, filter_of(rules.per_job).budget_units)
    each = f", {fitting['per_analyst']} of each analyst" if rules.per_analyst else ""
    size = f"of the largest size{'' if gaussian else ' with Gaussian noise'}"
    yield f"  That is enough for {fitting['lifetime']} jobs {size}{each}; of smaller jobs, for more."
    job, all_jobs = _guess_of_job(rules), _guess(rules.lifetime)
    yield (
        "  What the numbers mean: somebody who knows all the rest guesses "
        f"{_GUESSED[rules.unit]}. With nothing but a coin they are right in 50 % of cases; with all answers to one "
        f"job, in at most {job:.1%}; with all answers to all jobs there will ever be, in at most {all_jobs:.1%}. Said "
        f"otherwise: {_one(rules)} makes any conclusion from those at most {_factor(rules.lifetime)} times as likely, "
        f"apart from an additional probability of {rounded_up(rules.lifetime.delta)}."
    )
    yield (
        "  What they do not cover: other data sets. Whoever is in several, here or at other providers, is protected by "
        "their budgets added up."
    )


def _refusals(read: Policy, order: questions.Order, name: str, analyst: str | None) -> list[RefusedError]:
    """Ask the rules. A job that names no providers is signed for all that offer the data set: say, for enough."""
    try:
        rules = read.rules(name)
    except RefusedError as refusal:
        return [refusal]
    signer = PartyName("any", Role.ANALYST, analyst or rules.analysts[0])
    audience = order.providers or tuple(map(str, range(rules.minimum_parties)))
    return [*rules.refusals(order.spec, signer, audience)]


def _room(read: Policy, order: questions.Order, name: str) -> list[RefusedError]:
    """Refuse what the rules allow and the whole lifetime has no room for, even while nothing is spent."""
    rules = read.rules(name)
    try:
        filter_of(rules.lifetime).admit(events(catalogue.plan(order.spec)))
    except BudgetExceededError as problem:
        return [BudgetExceededError(f"The lifetime of '{name}': {problem.what}", problem.remedy)]
    return []


def _price(order: questions.Order, rules: Rules | None) -> dict[str, Any]:
    listed = events(catalogue.plan(order.spec))
    price = {"price": priced.facts(order.spec)["total"]}
    return price | ({"such_jobs": _fitting(rules, cost_units(listed), slack_units(listed))} if rules else {})


def _verdict(tried: dict[str, Any] | None) -> Iterator[str]:
    if tried is None:
        return
    who = f"signed by {tried['analyst']}" if tried["analyst"] else "signed by any analyst that the policy names"
    where = "" if tried["providers"] else ", for as many providers as it takes"
    if not tried["allowed"]:
        yield f"The job, {who}{where}, is REFUSED, and would cost nothing:"
        yield from (f"  {each['what']} {each['remedy']}" for each in tried["refusals"])
        return
    price, fitting = tried["price"], tried["such_jobs"]
    epsilon = f"epsilon {rounded_up(price['epsilon'], 4)} at delta {rounded_up(price['delta'])}"
    yield f"The job, {who}{where}, is allowed. It costs mu {rounded_up(price['mu'], 4)}, that is {epsilon}."
    each = f", {fitting['per_analyst']} of each analyst" if fitting["per_analyst"] is not None else ""
    yield (
        f"  The data set's lifetime has room for {fitting['lifetime']} such jobs{each}, less what was spent already: "
        "the provider's ledger knows that, the policy does not."
    )


def _fitting(rules: Rules, units: int, slack: int = 0) -> dict[str, int | None]:
    """Say how many jobs of a price fit into the budgets while nothing is spent."""

    def times(budget: Budget) -> int:
        room = filter_of(budget)
        return min(room.budget_units // units, room.slack_budget_units // max(1, slack))

    return {"lifetime": times(rules.lifetime), "per_analyst": times(rules.per_analyst) if rules.per_analyst else None}


def _worth(budget: Budget | None) -> dict[str, float] | None:
    if budget is None:
        return None
    mu = mu_of(filter_of(budget).budget_units)
    return {"epsilon": budget.epsilon, "delta": budget.delta, "mu": mu, "guess_at_most": _guess(budget)}


def _guess(budget: Budget) -> float:
    """Give how often a guess between two neighbours, at even odds, is right at most; rounded up to a thousandth.

    Telling N(0, 1) from N(mu, 1) succeeds with probability Phi(mu / 2); the implemented noise is a little off.
    """
    room = filter_of(budget)
    right = math.erfc(-mu_of(room.budget_units) / 2 / math.sqrt(2)) / 2 + float(room.slack_budget_units * SLACK_UNIT)
    return min(1.0, math.ceil(1000 * right) / 1000)


def _guess_of_job(rules: Rules) -> float:
    """Give the same for one job. One whose noise is not Gaussian is held to epsilon and delta, and not to their mu.

    By (epsilon, delta) alone a guess is right with probability (e^epsilon + delta) / (1 + e^epsilon) at most: the total
    variation distance of neighbours is at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) (Kairouz, Oh & Viswanath
    2015), and half of it is what knowing the answers adds to one half.
    """
    gaussian = _guess(rules.per_job)
    if _all_gaussian(rules):
        return gaussian
    odds, delta = math.exp(rules.per_job.epsilon), rules.per_job.delta
    return max(gaussian, min(1.0, math.ceil(1000 * (odds + delta) / (1 + odds)) / 1000))


def _all_gaussian(rules: Rules) -> bool:
    return all(catalogue.find(name).gaussian for name in rules.algorithms)


def _amount(budget: Budget) -> str:
    mu = rounded_up(mu_of(filter_of(budget).budget_units), 4)
    return f"epsilon {rounded_up(budget.epsilon)} at delta {rounded_up(budget.delta)} (mu {mu})"


def _factor(budget: Budget) -> str:
    value = math.exp(budget.epsilon)
    return rounded_up(value, 3) if value < _LONG else f"{math.ceil(value):,}"


def _questions(rules: Rules) -> str:
    rows = " or ".join(_ROWS[each] for each in rules.centering) if rules.unit.is_row else "a symmetric matrix"
    how = "; ".join(f"{name}, {catalogue.find(name).summary}" for name in rules.algorithms)
    also = ", and how much of the whole they explain" if rules.explained_variance else ""
    return f"principal components of {rows}{also}. How: {how}; noise by {' or '.join(rules.accounting)} accounting"


def _rows(rules: Rules) -> str:
    """Say how many rows a person has, where it is rows that are protected."""
    if not rules.unit.is_row:
        return " Somebody whom several entries are about is protected correspondingly less."
    if rules.unit.is_person:
        return ""
    rows = "one row" if rules.rows_per_person == 1 else f"at most {rules.rows_per_person} rows"
    return f" One person has {rows}; the policy states that, and no program checks it."


def _departure(rules: Rules) -> str:
    if rules.answer_interval == 0:
        return "as soon as they are made. How long that takes can tell whoever asks something about the rows."
    given = rules.answer_interval
    interval = "an interval that follows from the size of what is asked" if given is None else f"{given:g} seconds"
    return (
        f"a whole number of times {interval} after the question, chosen so that a row which takes a tenth of that to "
        "go through is told from another by the time of one answer in 55 of 100 cases at most. A coin is right in 50."
    )


def _one(rules: Rules) -> str:
    if rules.unit.is_person:
        return "one person"
    return "one row" if rules.unit.is_row else "such a change"


def _bounds(rules: Rules) -> str:
    if rules.unit.is_row:
        return f"Rows are shortened to a length that the job chooses {rules.norm_bound}{_mean(rules)}."
    return (
        f"A job protects changes up to a bound that it chooses {rules.norm_bound}; all jobs together protect changes "
        "up to the least of these, and larger ones correspondingly less."
    )


def _columns(rules: Rules) -> str:
    if isinstance(rules.columns, int):
        return f"any, at most {rules.columns}"
    return f"none but {', '.join(rules.columns)}"


def _quotas(quotas: Quotas) -> str:
    return (
        f"How much at once: each analyst may have {quotas.open_jobs:,} open jobs here, whose answers take up to "
        f"{quotas.answer_mebibytes:,} MiB (those of all analysts {quotas.answer_mebibytes_in_all:,} MiB), and may send "
        f"{quotas.jobs_a_day:,} jobs with {quotas.questions_a_day:,} questions a day."
    )


def _mean(rules: Rules) -> str:
    return f", and for their mean to one {rules.mean_bound}" if rules.mean_bound else ""
