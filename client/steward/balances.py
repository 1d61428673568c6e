"""Spent, reserved and remaining budgets of a provider's data sets, and the price of a further job.

No figure looks better than it is: what is spent, reserved or asked for is rounded up, what is left is rounded down.
Shares are of mu squared, in which jobs add up, or of the part of delta kept for the implemented noise if less of that
is left.
"""

from typing import Any, Final

from dpspca.client.clock import now
from dpspca.client.jobs import JobFile
from dpspca.common.errors import RefusedError
from dpspca.common.job import Budget
from dpspca.common.names import PartyName, Role
from dpspca.common.privacy import Price
from dpspca.provider.ledger import (
    EXPIRED,
    Account,
    Balance,
    Balances,
    LedgerReader,
    LedgerState,
    Limits,
    admission_error,
    format_time,
    hypothetical_opening,
    price_facts,
    short_name,
)
from dpspca.provider.policy import Policy, Rules, filter_of

MOST_POINTS: Final = 200
"""The most points in the history of a budget."""
_NOBODY: Final = ""


# --- What is spent, reserved and left ---------------------------------------------------------------------------------


def balance(view: LedgerReader, name: str, policy: Policy) -> dict[str, Any]:
    """Return how a data set's budget stands. Without readable rules there is no budget, and every job is refused."""
    state = view.state
    account, written_off = state.data_sets.get(name, Account()), state.written_off.get(name, Account())
    facts = {
        "data_set": name,
        "written_off": price_facts(written_off.spent),
        "past_expiry": sum(state.jobs[each].opening.data_set == name for each in state.overdue(now().timestamp())),
    }
    try:
        rules = policy.rules(name)
    except RefusedError as refusal:
        spent = price_facts(account.spent)
        reserved = price_facts(account.reserved)
        no_rules = {"budget": None, "spent": spent, "reserved": reserved, "left": None, "further_jobs": 0}
        return facts | no_rules | {"refused": refusal.what, "analysts": [], "newcomers": None}
    balance_now, refused = _balances(state, rules).data_set, _reason_for_no_jobs(view, rules)
    largest = rules.largest_gaussian_job
    further = 0 if refused else balance_now.jobs(largest)
    analysts = [
        _of_analyst(state, rules, uri, further, largest) for data_set, uri in state.analysts if data_set == name
    ]
    return (
        facts
        | balance_now.facts()
        | {
            "refused": refused,
            "further_jobs": further,
            "per_job": _budget_facts(rules.per_job),
            "analysts": analysts,
        }
        | {"newcomers": _of_analyst(state, rules, _NOBODY, further, largest) if rules.per_analyst else None}
        | {"history": _history(view, name, balance_now)}
    )


def _history(view: LedgerReader, name: str, balance_now: Balance) -> list[dict[str, Any]]:
    """Return the spent budget over time, in at most ``MOST_POINTS`` points. The last point is the newest."""
    points = view.spending(name)
    step = -(-len(points) // MOST_POINTS)
    chosen = points[::-1][:: step or 1][::-1]
    return [{"at": format_time(at), "mu": spent.mu, "share": balance_now.share(spent)} for at, spent in chosen]


def _reason_for_no_jobs(view: LedgerReader, rules: Rules) -> str | None:
    """Return why no job at all would be admitted, or None if some would."""
    if view.quarantine_reason:
        return f"The ledger is quarantined. {view.quarantine_reason}"
    free = hypothetical_opening(rules.data_set, unit=rules.unit)
    refusal = admission_error(view.state, free, Limits(filter_of(rules.lifetime), promise=rules.promise))
    return refusal.what if refusal else None


def _of_analyst(state: LedgerState, rules: Rules, uri: str, further: int, largest: Price) -> dict[str, Any]:
    """Return how one analyst's budget on a data set stands, or the lifetime if analysts have no budget of their own."""
    shared, own = _balances(state, rules, uri)
    balance_now = own or Balance.of(shared.budget, [state.analysts.get((rules.data_set, uri))])
    named = uri == _NOBODY or short_name(uri) in rules.analysts
    fitting = min(further, balance_now.jobs(largest)) if named else 0
    return {"analyst": uri or None, "named": named, "further_jobs": fitting} | balance_now.facts()


def _balances(state: LedgerState, rules: Rules, uri: str = _NOBODY) -> Balances:
    return state.balances(rules.data_set, uri, Limits(*rules.budgets))


def _budget_facts(of: Budget) -> dict[str, float]:
    return {"epsilon": of.epsilon, "delta": of.delta}


# --- What a job would cost --------------------------------------------------------------------------------------------


def cost(view: LedgerReader, policy: Policy, job_file: JobFile, job_check: dict[str, Any]) -> dict[str, Any]:
    """Return the price of a job and whether it would be admitted now. Expired jobs are closed in the ledger's state."""
    price = job_file.plan.price
    facts = {key: job_check[key] for key in ("data_set", "allowed", "refusals", "price")}
    if not job_check["allowed"]:
        return facts | {"fits": False, "analysts": []}
    rules = policy.rules(job_check["data_set"])
    _expire(view.state)
    balance_now = _balances(view.state, rules).data_set
    who = [job_check["analyst"]] if job_check["analyst"] else rules.analysts
    reasons = [(each, _reason_against(view, rules, each, price)) for each in who]
    fitting = [{"analyst": each, "fits": reason is None, "why_not": reason} for each, reason in reasons]
    room = {
        "share": balance_now.share(price),
        "such_jobs": 0 if _reason_for_no_jobs(view, rules) else balance_now.jobs(price),
    }
    return facts | room | {"fits": any(each["fits"] for each in fitting), "analysts": fitting}


def _expire(state: LedgerState) -> None:
    """Close in the ledger's state the jobs that the daemon will close before it opens the next job."""
    for name in state.overdue(now().timestamp()):
        closed = state.to_close(name, EXPIRED)
        for entry in state.draft(0, [closed] if closed else []):
            state.append(entry)


def _reason_against(view: LedgerReader, rules: Rules, analyst: str, price: Price) -> str | None:
    """Return why the daemon would not admit a job of this price by this analyst now, or None if it would."""
    uri = _uri(view.state, rules.data_set, analyst)
    asked = hypothetical_opening(rules.data_set, unit=rules.unit, analyst=uri, price=price)
    refusal = admission_error(
        view.state, asked, Limits(*rules.limits(PartyName("any", Role.ANALYST, analyst)), rules.promise)
    )
    return _reason_for_no_jobs(view, rules) or (refusal.what if refusal else None)


def _uri(state: LedgerState, data_set: str, analyst: str) -> str:
    """Return the analyst of that short name with the least left. Successive federations may each have had one."""
    named = [uri for name, uri in state.analysts if name == data_set and short_name(uri) == analyst]
    return max(named, key=lambda uri: _taken(state.analysts[data_set, uri]), default=_NOBODY)


def _taken(account: Account) -> int:
    return account.taken.units
