"""What of the budgets of a provider's data sets is spent, reserved and left, and what a further job would cost.

No figure flatters: what is spent, reserved or asked for is rounded up, what is left is rounded down. Shares are of
mu squared, in which jobs add up, and of the share of delta kept for the implemented noise if that is nearer its end.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.common.algorithms import catalogue
from dpspca.common.plan import events
from dpspca.common.privacy.accountant import Filter, cost_units, slack_units
from dpspca.common.privacy.calibrate import root_down, round_down, round_up
from dpspca.common.privacy.costs import UNIT
from dpspca.common.spec import Budget, check
from dpspca.common.statement import rounded_up
from dpspca.common.transport.names import PartyName, Role
from dpspca.provider.accounts import Account
from dpspca.provider.books import EXPIRED, Books
from dpspca.provider.caps import filter_of
from dpspca.provider.entries import WAY_OUT, Limits
from dpspca.provider.policy import Policy, Rules
from dpspca.provider.policy_file import read_policy

from . import questions
from .flags import CHECK_CODES, AsJson, OwnSettings, now
from .looking import Looked, amount, epsilon_of, imagined, look, moment, probe, short_name
from .output import printable, say, to_json
from .policy import trial

REFUSED: Final = 1
_NOBODY: Final = ""
BUDGET_CODES: Final = CHECK_CODES.replace("something is not", "the job is refused or does not fit")


@dataclass(frozen=True, slots=True)
class Purse:
    """A budget, and what accounts have taken of it, in units and slack units."""

    budget: Filter
    spent: tuple[int, int]
    reserved: tuple[int, int]

    @classmethod
    def of(cls, budget: Budget, accounts: Iterable[Account | None]) -> "Purse":
        """Hold accounts against a budget."""
        taken = [each for each in accounts if each is not None]
        return cls(
            filter_of(budget),
            (sum(each.spent_units for each in taken), sum(each.spent_slack_units for each in taken)),
            (sum(each.reserved_units for each in taken), sum(each.reserved_slack_units for each in taken)),
        )

    @property
    def whole(self) -> tuple[int, int]:
        """All of it."""
        return self.budget.budget_units, self.budget.slack_budget_units

    @property
    def left(self) -> tuple[int, int]:
        """What nobody has taken."""
        units, slack = (
            max(0, most - spent - reserved)
            for most, spent, reserved in zip(self.whole, self.spent, self.reserved, strict=True)
        )
        return units, slack

    def times(self, units: int, slack: int = 0) -> int:
        """Say how many jobs of a price fit into what is left; none into what is gone."""
        return min(self.left[0] // units, self.left[1] // max(1, slack))

    def share(self, taken: tuple[int, int]) -> float:
        """Give what part of the budget an amount takes, rounded up."""
        return round_up(max(self._shares(taken)))

    def facts(self) -> dict[str, Any]:
        """Give it as plain values."""
        epsilon, delta = self.budget.epsilon, self.budget.delta
        left = amount(*self.left) | {"mu": root_down(self.left[0] * UNIT)}
        return {
            "budget": {"epsilon": epsilon, "delta": delta} | amount(*self.whole),
            "spent": amount(*self.spent)
            | {"share": self.share(self.spent), "epsilon": epsilon_of(*self.spent, delta=delta)},
            "reserved": amount(*self.reserved) | {"share": self.share(self.reserved)},
            "left": left | {"share": round_down(min(self._shares(self.left)))},
        }

    def _shares(self, taken: tuple[int, int]) -> list[Fraction]:
        return [Fraction(part, whole) for part, whole in zip(taken, self.whole, strict=True)]


def budget(
    config: OwnSettings,
    *,
    data_set: Annotated[str | None, typer.Option(help="Of this data set alone; for a job that names none.")] = None,
    job: Annotated[
        Path | None, typer.Option(help="Say what this job, JSON or TOML, would cost, and exit with 1 if it may not.")
    ] = None,
    analyst: Annotated[
        str | None, typer.Option(help="Who signs the job. Left out: any analyst that the policy names.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what is spent, reserved and left of each data set's budget, of each analyst's, and what fits into it."""
    check(job is not None or analyst is None, "--analyst is given, and no job.", "Give the job that they would sign.")
    looked = look(config)
    allowed = read_policy(looked.settings.policy)
    order = questions.from_file(job, questions.Flags()) if job else None
    tried = trial(allowed, order, data_set, analyst) if order else None
    names = _names(looked, allowed, str(tried["data_set"]) if tried else data_set)
    shown = [balance(looked, name, _rules(allowed, name)) for name in names]
    asked = cost(looked, allowed, order, tried) if order and tried else None
    if as_json:
        after = moment(looked.books.signed_after) if looked.books.signed_after else None
        typer.echo(to_json({"quarantine": looked.doubt, "signed_after": after, "data_sets": shown, "job": asked}))
    else:
        for line in (*_waiting_words(looked), *_words(looked.doubt, shown, asked)):
            say(printable(line))
    if asked and not asked["fits"]:
        raise typer.Exit(REFUSED)


def _names(looked: Looked, allowed: Policy, chosen: str | None) -> list[str]:
    known = {each.data_set for each in allowed.data_sets} | {*looked.settings.names, *looked.books.data_sets}
    check(chosen is None or chosen in known, f"Nothing here is called {chosen!r:.80}.", "Name a data set.")
    return sorted(known) if chosen is None else [chosen]


def _rules(allowed: Policy, name: str) -> Rules | None:
    return next((rules for rules in allowed.data_sets if rules.data_set == name), None)


# --- What is spent, reserved and left ---------------------------------------------------------------------------------


def balance(looked: Looked, name: str, rules: Rules | None) -> dict[str, Any]:
    """Give how a data set's budget stands; without rules there is none, and nothing is allowed."""
    books = looked.books
    account, written_off = books.data_sets.get(name, Account()), books.written_off.get(name, Account())
    facts = {
        "data_set": name,
        "written_off": amount(written_off.spent_units, written_off.spent_slack_units),
        "past_expiry": sum(books.jobs[each].opening.data_set == name for each in books.overdue(now().timestamp())),
    }
    if rules is None:
        spent = amount(account.spent_units, account.spent_slack_units)
        reserved = amount(account.reserved_units, account.reserved_slack_units)
        no_rules = {"budget": None, "spent": spent, "reserved": reserved, "left": None, "further_jobs": 0}
        return facts | no_rules | {"refused": "The policy says nothing of it.", "analysts": [], "newcomers": None}
    purse, refused = Purse.of(rules.lifetime, [account]), _refused(looked, rules)
    largest = filter_of(rules.per_job).budget_units
    further = 0 if refused else purse.times(largest)
    analysts = [
        _of_analyst(books, rules, uri, further, largest) for data_set, uri in books.analysts if data_set == name
    ]
    return (
        facts
        | purse.facts()
        | {"refused": refused, "further_jobs": further, "largest_job": _plain(rules.per_job), "analysts": analysts}
        | {"newcomers": _of_analyst(books, rules, _NOBODY, further, largest) if rules.per_analyst else None}
    )


def _refused(looked: Looked, rules: Rules) -> str | None:
    """Say why no job at all would be admitted, if none would."""
    if looked.doubt:
        return f"The ledger is quarantined. {looked.doubt}"
    free = imagined(rules.data_set, unit=rules.unit)
    refusal = probe(looked.books, free, Limits(filter_of(rules.lifetime), promise=rules.promise))
    return refusal.what if refusal else None


def _of_analyst(books: Books, rules: Rules, uri: str, further: int, largest: int) -> dict[str, Any]:
    """Give how one analyst stands on a data set; where analysts have no budget of their own, against the lifetime."""
    accounts = [books.analysts.get((rules.data_set, uri))]
    if rules.per_analyst:
        accounts.append(books.written_off.get(rules.data_set))
    purse = Purse.of(rules.per_analyst or rules.lifetime, accounts)
    named = uri == _NOBODY or short_name(uri) in rules.analysts
    fitting = min(further, purse.times(largest)) if named else 0
    return {"analyst": uri or None, "named": named, "further_jobs": fitting} | purse.facts()


def _plain(of: Budget) -> dict[str, float]:
    return {"epsilon": of.epsilon, "delta": of.delta}


# --- What a job would cost --------------------------------------------------------------------------------------------


def cost(looked: Looked, allowed: Policy, order: questions.Order, tried: dict[str, Any]) -> dict[str, Any]:
    """Say what a job costs and whether it would be admitted now; jobs past their expiry are closed in the books."""
    listed = events(catalogue.plan(order.spec))
    price = cost_units(listed), slack_units(listed)
    facts = {key: tried[key] for key in ("data_set", "allowed", "refusals", "price")}
    if not tried["allowed"]:
        return facts | {"fits": False, "analysts": []}
    rules = allowed.rules(tried["data_set"])
    _expire(looked.books)
    purse = Purse.of(rules.lifetime, [looked.books.data_sets.get(rules.data_set)])
    who = [tried["analyst"]] if tried["analyst"] else rules.analysts
    reasons = [(each, _why_not(looked, rules, each, price)) for each in who]
    fitting = [{"analyst": each, "fits": reason is None, "why_not": reason} for each, reason in reasons]
    room = {"share": purse.share(price), "such_jobs": 0 if _refused(looked, rules) else purse.times(*price)}
    return facts | room | {"fits": any(each["fits"] for each in fitting), "analysts": fitting}


def _expire(books: Books) -> None:
    """Close what the daemon will close before it opens the next job."""
    for name in books.overdue(now().timestamp()):
        closed = books.to_close(name, EXPIRED)
        for entry in books.draft(0, [closed] if closed else []):
            books.append(entry)


def _why_not(looked: Looked, rules: Rules, analyst: str, price: tuple[int, int]) -> str | None:
    """Ask the books as the daemon does."""
    uri = _uri(looked.books, rules.data_set, analyst)
    asked = imagined(rules.data_set, unit=rules.unit, analyst=uri, units=price[0], slack=price[1])
    refusal = probe(looked.books, asked, Limits(*rules.limits(PartyName("any", Role.ANALYST, analyst)), rules.promise))
    return _refused(looked, rules) or (refusal.what if refusal else None)


def _uri(books: Books, data_set: str, analyst: str) -> str:
    """Find an analyst of that name; of several, in federations one after the other, the one with least left."""
    named = [uri for name, uri in books.analysts if name == data_set and short_name(uri) == analyst]
    return max(named, key=lambda uri: _taken(books.analysts[data_set, uri]), default=_NOBODY)


def _taken(account: Account) -> int:
    return account.spent_units + account.reserved_units


# --- In words ---------------------------------------------------------------------------------------------------------


def _waiting_words(looked: Looked) -> Iterator[str]:
    after = looked.books.signed_after
    if after >= now().timestamp():
        yield f"A quarantine was just ended: only jobs signed after {moment(after)} are answered."


def _words(doubt: str | None, shown: list[dict[str, Any]], asked: dict[str, Any] | None) -> Iterator[str]:
    if doubt:
        yield f"QUARANTINED, no job is answered, and more may be spent than is shown: {doubt} {WAY_OUT}"
    if not shown:
        yield "There is no data set to speak of."
    for each in shown:
        yield from _balance_words(each)
    if asked:
        yield from _cost_words(asked)
    yield (
        "Shares are of mu squared, in which jobs add up. Of jobs with one epsilon and delta, those whose noise is not "
        "Gaussian take more of it, and fewer of them fit. What is spent or reserved is rounded up, what is left is "
        "rounded down."
    )


def _balance_words(facts: dict[str, Any]) -> Iterator[str]:
    yield f"Data set {facts['data_set']}"
    if facts["refused"]:
        yield f"  NO JOB IS ADMITTED. {facts['refused']}"
    whole = facts["budget"]
    if whole is None:
        yield f"  Spent: mu {_up(facts['spent'])}. Reserved: mu {_up(facts['reserved'])}."
        return
    yield f"  Lifetime: epsilon {rounded_up(whole['epsilon'])} at delta {rounded_up(whole['delta'])} (mu {_up(whole)})."
    spent = facts["spent"]
    yield f"  Spent: mu {_up(spent)}, {_percent_up(spent)}; that is worth {_worth(spent['epsilon'], whole['delta'])}."
    if facts["written_off"]["units"]:
        yield f"    Of this, mu {_up(facts['written_off'])} was counted as spent when a quarantine was ended."
    yield f"  Reserved for open jobs: mu {_up(facts['reserved'])}, {_percent_up(facts['reserved'])}."
    if facts["past_expiry"]:
        yield f"    {facts['past_expiry']} of them are past their expiry, and give theirs back when a job is opened."
    yield f"  Left: mu {_down(facts['left'])}, {_percent_down(facts['left'])}."
    largest = facts["largest_job"]
    size = f"epsilon {rounded_up(largest['epsilon'])} at delta {rounded_up(largest['delta'])}"
    yield f"  Room for {facts['further_jobs']} further jobs of the largest size allowed ({size})."
    yield from _analyst_words(facts)


def _analyst_words(facts: dict[str, Any]) -> Iterator[str]:
    capped = facts["newcomers"] is not None
    for each in facts["analysts"]:
        own = f", left mu {_down(each['left'])} of their own budget" if capped else ""
        room = f"room for {each['further_jobs']} such jobs" if each["named"] else "may not ask any more"
        taken = f"spent mu {_up(each['spent'])}, reserved mu {_up(each['reserved'])}"
        yield f"  {each['analyst']}: {taken}{own}; {room}."
    if capped:
        new = facts["newcomers"]
        yield (
            f"  An analyst who has asked nothing yet: left mu {_down(new['left'])} of their own budget; room for "
            f"{new['further_jobs']} such jobs."
        )


def _cost_words(asked: dict[str, Any]) -> Iterator[str]:
    price = asked["price"]
    named = f"mu {_up(price)}, that is {_worth(price['epsilon'], price['delta'])}"
    if not asked["allowed"]:
        yield f"The job would cost {named}. The policy REFUSES it:"
        yield from (f"  {each['what']} {each['remedy']}" for each in asked["refusals"])
        return
    fitting = [each["analyst"] for each in asked["analysts"] if each["fits"]]
    yield f"The job costs {named}; {_percent_up(asked)} of the lifetime. {asked['such_jobs']} such jobs are left."
    yield f"  It fits if signed by {' or '.join(fitting)}." if fitting else "  It does NOT fit."
    for each in asked["analysts"]:
        if not each["fits"]:
            yield f"  Not for {each['analyst']}: {each['why_not']}"


def _worth(epsilon: float | None, delta: float) -> str:
    return (
        f"epsilon {rounded_up(epsilon, 4)} at delta {rounded_up(delta)}" if epsilon is not None else "no epsilon at all"
    )


def _up(facts: dict[str, Any]) -> str:
    return rounded_up(facts["mu"], 4)


def _down(facts: dict[str, Any]) -> str:
    return rounded_down(facts["mu"], 4)


def _percent_up(facts: dict[str, Any]) -> str:
    return f"{rounded_up(round_up(100 * Fraction(facts['share'])), 3)} %"


def _percent_down(facts: dict[str, Any]) -> str:
    return f"{rounded_down(round_down(100 * Fraction(facts['share'])), 3)} %"


def rounded_down(value: float, digits: int = 6) -> str:
    """Write a number of which more is better in a few digits, never more than it is."""
    return rounded_up(-value, digits).removeprefix("-")
