"""Report what is spent, reserved and left of the budgets of a provider's data sets, and what a further job would cost.

No figure looks better than it is: what is spent, reserved or asked for is rounded up, what is left is rounded down.
Shares are of mu squared, in which jobs add up, or of the part of delta kept for the implemented noise if less of that
is left.
"""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.cli.arguments import CHECK_CODES, AsJson, DaemonSettings, job_files, job_flags
from dpspca.cli.render import print_text, to_json
from dpspca.client.clock import now
from dpspca.common.checks import check
from dpspca.common.names import PartyName, Role
from dpspca.common.privacy import Price, format_down, round_down, round_up
from dpspca.common.spec import Budget
from dpspca.common.statement import format_up
from dpspca.common.text import printable
from dpspca.provider.ledger import (
    EXPIRED,
    QUARANTINE_REMEDY,
    Account,
    Balance,
    Books,
    LedgerView,
    Limits,
    admission_error,
    format_time,
    hypothetical_opening,
    price_facts,
    read_ledger,
    short_name,
)
from dpspca.provider.policy import Policy, Rules, filter_of, read_policy

from .policy import check_job

REFUSED: Final = 1
MOST_POINTS: Final = 200
_NOBODY: Final = ""
BUDGET_CODES: Final = CHECK_CODES.replace("a check failed, as the output says", "the job is refused or does not fit")


def budget(
    config: DaemonSettings,
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
    check(job is not None or analyst is None, "--analyst is given without --job.", "Give the job that they would sign.")
    view = read_ledger(config)
    policy = read_policy(view.settings.policy)
    job_file = job_files.from_file(job, job_flags.Flags()) if job else None
    job_check = check_job(policy, job_file, data_set, analyst) if job_file else None
    names = _names(view, policy, str(job_check["data_set"]) if job_check else data_set)
    shown = [balance(view, name, _rules(policy, name)) for name in names]
    asked = cost(view, policy, job_file, job_check) if job_file and job_check else None
    if as_json:
        after = format_time(view.books.signed_after) if view.books.signed_after else None
        typer.echo(
            to_json({"quarantine": view.quarantine_reason, "signed_after": after, "data_sets": shown, "job": asked})
        )
    else:
        for line in (*_signed_after_lines(view), *_lines(view.quarantine_reason, shown, asked)):
            print_text(printable(line))
    if asked and not asked["fits"]:
        raise typer.Exit(REFUSED)


def _names(view: LedgerView, policy: Policy, chosen: str | None) -> list[str]:
    known = {each.data_set for each in policy.data_sets} | {*view.settings.names, *view.books.data_sets}
    available = f"Available: {', '.join(sorted(known))}." if known else "The settings and the policy name none."
    check(chosen is None or chosen in known, f"Unknown data set {chosen!r:.80}.", available)
    return sorted(known) if chosen is None else [chosen]


def _rules(policy: Policy, name: str) -> Rules | None:
    return next((rules for rules in policy.data_sets if rules.data_set == name), None)


# --- What is spent, reserved and left ---------------------------------------------------------------------------------


def balance(view: LedgerView, name: str, rules: Rules | None) -> dict[str, Any]:
    """Return how a data set's budget stands. Without rules there is no budget, and every job is refused."""
    books = view.books
    account, written_off = books.data_sets.get(name, Account()), books.written_off.get(name, Account())
    facts = {
        "data_set": name,
        "written_off": price_facts(written_off.spent),
        "past_expiry": sum(books.jobs[each].opening.data_set == name for each in books.overdue(now().timestamp())),
    }
    if rules is None:
        spent = price_facts(account.spent)
        reserved = price_facts(account.reserved)
        no_rules = {"budget": None, "spent": spent, "reserved": reserved, "left": None, "further_jobs": 0}
        return (
            facts
            | no_rules
            | {"refused": "The policy has no table for this data set.", "analysts": [], "newcomers": None}
        )
    balance_now, refused = Balance.of(filter_of(rules.lifetime), [account]), _reason_for_no_jobs(view, rules)
    largest = rules.largest_job
    further = 0 if refused else balance_now.jobs(largest)
    analysts = [
        _of_analyst(books, rules, uri, further, largest) for data_set, uri in books.analysts if data_set == name
    ]
    return (
        facts
        | balance_now.facts()
        | {
            "refused": refused,
            "further_jobs": further,
            "largest_job": _budget_facts(rules.per_job),
            "analysts": analysts,
        }
        | {"newcomers": _of_analyst(books, rules, _NOBODY, further, largest) if rules.per_analyst else None}
        | {"history": _history(view, name, balance_now)}
    )


def _history(view: LedgerView, name: str, balance_now: Balance) -> list[dict[str, Any]]:
    """Return what was spent over time, in at most ``MOST_POINTS`` points, of which the last is the newest."""
    points = view.spending(name)
    step = -(-len(points) // MOST_POINTS)
    chosen = points[::-1][:: step or 1][::-1]
    return [{"at": format_time(at), "mu": spent.mu, "share": balance_now.share(spent)} for at, spent in chosen]


def _reason_for_no_jobs(view: LedgerView, rules: Rules) -> str | None:
    """Return why no job at all would be admitted, or None if some would."""
    if view.quarantine_reason:
        return f"The ledger is quarantined. {view.quarantine_reason}"
    free = hypothetical_opening(rules.data_set, unit=rules.unit)
    refusal = admission_error(view.books, free, Limits(filter_of(rules.lifetime), promise=rules.promise))
    return refusal.what if refusal else None


def _of_analyst(books: Books, rules: Rules, uri: str, further: int, largest: Price) -> dict[str, Any]:
    """Return how one analyst's budget on a data set stands, or the lifetime if analysts have no budget of their own."""
    accounts = [books.analysts.get((rules.data_set, uri))]
    if rules.per_analyst:
        accounts.append(books.written_off.get(rules.data_set))
    balance_now = Balance.of(filter_of(rules.per_analyst or rules.lifetime), accounts)
    named = uri == _NOBODY or short_name(uri) in rules.analysts
    fitting = min(further, balance_now.jobs(largest)) if named else 0
    return {"analyst": uri or None, "named": named, "further_jobs": fitting} | balance_now.facts()


def _budget_facts(of: Budget) -> dict[str, float]:
    return {"epsilon": of.epsilon, "delta": of.delta}


# --- What a job would cost --------------------------------------------------------------------------------------------


def cost(view: LedgerView, policy: Policy, job_file: job_files.JobFile, job_check: dict[str, Any]) -> dict[str, Any]:
    """Return what a job costs and whether it would be admitted now. Jobs past their expiry are closed in the books."""
    price = job_file.plan.price
    facts = {key: job_check[key] for key in ("data_set", "allowed", "refusals", "price")}
    if not job_check["allowed"]:
        return facts | {"fits": False, "analysts": []}
    rules = policy.rules(job_check["data_set"])
    _expire(view.books)
    balance_now = Balance.of(filter_of(rules.lifetime), [view.books.data_sets.get(rules.data_set)])
    who = [job_check["analyst"]] if job_check["analyst"] else rules.analysts
    reasons = [(each, _reason_against(view, rules, each, price)) for each in who]
    fitting = [{"analyst": each, "fits": reason is None, "why_not": reason} for each, reason in reasons]
    room = {
        "share": balance_now.share(price),
        "such_jobs": 0 if _reason_for_no_jobs(view, rules) else balance_now.jobs(price),
    }
    return facts | room | {"fits": any(each["fits"] for each in fitting), "analysts": fitting}


def _expire(books: Books) -> None:
    """Close in the books the jobs that the daemon will close before it opens the next job."""
    for name in books.overdue(now().timestamp()):
        closed = books.to_close(name, EXPIRED)
        for entry in books.draft(0, [closed] if closed else []):
            books.append(entry)


def _reason_against(view: LedgerView, rules: Rules, analyst: str, price: Price) -> str | None:
    """Return why the daemon would not admit a job of this price by this analyst now, or None if it would."""
    uri = _uri(view.books, rules.data_set, analyst)
    asked = hypothetical_opening(rules.data_set, unit=rules.unit, analyst=uri, price=price)
    refusal = admission_error(
        view.books, asked, Limits(*rules.limits(PartyName("any", Role.ANALYST, analyst)), rules.promise)
    )
    return _reason_for_no_jobs(view, rules) or (refusal.what if refusal else None)


def _uri(books: Books, data_set: str, analyst: str) -> str:
    """Return the analyst of that short name with the least left. Successive federations may each have had one."""
    named = [uri for name, uri in books.analysts if name == data_set and short_name(uri) == analyst]
    return max(named, key=lambda uri: _taken(books.analysts[data_set, uri]), default=_NOBODY)


def _taken(account: Account) -> int:
    return account.taken.units


# --- As lines of text -------------------------------------------------------------------------------------------------


def _signed_after_lines(view: LedgerView) -> Iterator[str]:
    after = view.books.signed_after
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
            f"    {facts['past_expiry']} open jobs are past their expiry. What they reserve is freed when the next job "
            "is opened."
        )
    yield f"  Left: mu {_down(facts['left'])}, {_percent_down(facts['left'])}."
    largest = facts["largest_job"]
    size = f"epsilon {format_up(largest['epsilon'])} at delta {format_up(largest['delta'])}"
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
    return f"{format_up(round_up(100 * Fraction(facts['share'])), 3)} %"


def _percent_down(facts: dict[str, Any]) -> str:
    return f"{format_down(round_down(100 * Fraction(facts['share'])), 3)} %"
