"""The queries, the price and the answers of a job, as plain values and in words, for the person who decides about it.

Everything follows from the signed job, the policy and the ledger, and nothing from a row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import RefusedError
from dpspca.common.job import PRIVATE, PRIVATE_BOUND, Centering, JobSpec, Scaling, rows_used
from dpspca.common.plan import Plan, Step
from dpspca.common.privacy import PrivacyUnit, format_up
from dpspca.common.trust import JobEnvelope, SignedJob
from dpspca.provider.ledger import ANSWER, Decided, LedgerState, Limits, format_time, price_facts
from dpspca.provider.policy import Rules

from .requests import ApprovalRequest, RequestState

MOST_NAMES: Final = 100
"""Columns that are named in words for the person who decides. The plain values name all."""

PROBLEMS: Final = ("job_problem", "policy_problem", "ledger_problem", "queue_problem")
"""Facts that say why others about a job are missing."""
KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "capped-product": "the matrix times a few directions",
        "column-sizes": "how many entries of each column are in each range of sizes",
        "column-sums": "the sum of each column",
        "commit": "a hash of a random number, not of rows",
        "compressed-covariance": "the variance along the components, and the rest of it",
        "count": "the number of rows",
        "covariance": "the covariance of all columns",
        "covariance-product": "the covariance times a few directions",
        "covariance-triangle": "the covariance of all columns",
        "drawn-subspace": "directions from a private mechanism",
        "entry-total": "the sum of the sizes of all entries",
        "grouped-scores": "how many rows of each group have scores in each cell of a plane",
        "norm-histogram": "how many rows are in each range of lengths",
        "norm-range": "how many rows are in each rough range of lengths",
        "peaks": "sizes of a projection, which earlier answers already reveal",
        "perturbed-subspace": "directions from a private mechanism",
        "projection": "the rows' part along a random sketch",
        "published-subspace": "directions from a private mechanism",
        "reveal": "the random number that was hashed before, not of rows",
        "score-histogram": "how many rows have scores in each cell of a plane",
        "sign-pairs": "how often a private mechanism chose each column",
        "sketch": "products of a random sketch of the rows",
        "spectral-product": "the matrix times a few directions",
        "symmetric-product": "the matrix times a few directions",
        "tied-columns": "columns that a private mechanism chose",
        "view-covariance": "the covariance of some or all columns",
        "view-product": "the covariance times a few directions",
        "view-squares": "the sum of squares of some or all columns",
        "walked-subspace": "directions from a private mechanism",
        "weighted-drawn-subspace": "directions from a private mechanism",
        "weighted-perturbed-subspace": "directions from a private mechanism",
        "weighted-published-subspace": "directions from a private mechanism",
        "weighted-walked-subspace": "directions from a private mechanism",
    }
)
"""The subject of each kind of answer."""
CENTERING: Final = {
    Centering.NONE: "the rows as they are",
    Centering.PUBLIC: "the rows minus a public mean",
    Centering.PRIVATE: "the rows minus their noisy mean",
    Centering.PAIRS: "differences of pairs of rows",
}


@dataclass(frozen=True, slots=True)
class SignedContent:
    """A waiting job, read from what the analyst signed."""

    signed: SignedJob
    envelope: JobEnvelope
    plan: Plan

    @classmethod
    def read(cls, request: ApprovalRequest, content: bytes) -> "SignedContent":
        """Read a stored job. Refuse bytes that are not the job of this request."""
        signed = SignedJob.from_bytes(content)
        envelope = JobEnvelope.from_bytes(signed.payload)
        about = (signed.job_id, envelope.data_set, envelope.expires_at)
        if about != (request.job, request.data_set, request.expires_at):
            raise RefusedError(
                "The stored job is not the one that waits.", "Reject it; the analyst can sign a new one."
            )
        return cls(signed, envelope, catalogue.plan(JobSpec.from_json(envelope.spec)))


def summary(request: ApprovalRequest, content: bytes) -> dict[str, Any]:
    """Return the facts about a waiting job that do not need the ledger, as plain values."""
    return request_facts(request) | requested_job_facts(SignedContent.read(request, content))


def request_facts(request: ApprovalRequest) -> dict[str, Any]:
    """Return how a request stands, as plain values."""
    return {
        "job": request.job,
        "analyst": request.analyst,
        "data_set": request.data_set,
        "state": request.state.value,
        "waits_since": format_time(request.asked_at),
        "waits_until": format_time(request.lapses_at),
        "expires": format_time(request.expires_at),
    }


def requested_job_facts(content: SignedContent) -> dict[str, Any]:
    """Return the request of a job, its price, and the answers that would leave, as plain values."""
    envelope, plan = content.envelope, content.plan
    spec = plan.spec
    groups = answer_groups(plan)
    return {
        "signed_at": format_time(envelope.issued_at),
        "providers": list(envelope.audience),
        "minimum_providers": spec.minimum_providers,
        "asks": {
            "method": spec.method,
            "summary": catalogue.find(spec.method).summary,
            "components": spec.components,
            "options": dict(spec.options),
            "columns": spec.schema.dimension,
            "column_names": list(spec.schema.names) if spec.schema.names else None,
            "dictionary": spec.dictionary,
            "centering": str(spec.centering),
            "scaling": str(spec.scaling),
            "norm_bound": PRIVATE if spec.norm_bound == PRIVATE_BOUND else spec.norm_bound,
            "explained_variance": spec.explained_variance,
            "unit": str(spec.unit),
            "rows_per_person": spec.rows_per_person,
            "protects": spec.unit.neighbours,
        },
        "price": price_facts(plan.price)
        | {"epsilon": plan.loss.epsilon(spec.budget.delta), "delta": spec.budget.delta},
        "leaves": groups,
        "answers": len(plan),
        "answer_bytes": sum(each["bytes"] for each in groups),
    }


def answer_groups(plan: Plan) -> list[dict[str, Any]]:
    """Group the answers of a plan: answers of one kind and size that follow each other are one group.

    Where the plan leaves a choice between two queries, both are named, and the larger answer is counted.
    """
    groups = []
    for _, steps in groupby(plan, key=_kinds_and_shapes):
        same = list(steps)
        kinds, numbers = [each.query.kind for each in same[0].choices], same[0].largest
        groups.append(
            {
                "kind": " or ".join(kinds),
                "about": ", or ".join(KINDS.get(kind, kind) for kind in kinds),
                "noise": ", or ".join(dict.fromkeys(map(_noise, same[0].choices))),
                "first": same[0].name,
                "answers": len(same),
                "numbers": numbers,
                "bytes": len(same) * numbers * ANSWER.itemsize,
            }
        )
    return groups


def _kinds_and_shapes(step: Step) -> list[tuple[str, tuple[int, ...]]]:
    return [(each.query.kind, each.shape) for each in step.choices]


def _noise(step: Step) -> str:
    """Name the noise or the mechanism that makes an answer private."""
    if step.query.is_private:
        return "a private mechanism"
    return "noise is added" if step.event else "exact, because the privacy unit leaves it public"


def balance_facts(state: LedgerState, rules: Rules, analyst: str, plan: Plan) -> dict[str, Any]:
    """Return the rest of the budgets now and after the job, as plain values.

    What is reserved for open jobs counts as gone.
    """
    balances = state.balances(rules.data_set, analyst, Limits(*rules.budgets))
    return {
        name: {
            "share_of_budget": balance.share(plan.price),
            "left": balance.facts()["left"],
            "further_such_jobs": balance.jobs(plan.price),
        }
        for name, balance in balances._asdict().items()
        if balance is not None
    }


def decision_facts(decided: Decided) -> dict[str, Any]:
    """Return a decision as plain values."""
    return {
        "verdict": decided.verdict,
        "person": decided.person,
        "login": decided.login,
        "reason": decided.reason,
        "decided": format_time(decided.decided_at),
    }


# --- In words ---------------------------------------------------------------------------------------------------------


def lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the facts about a job in words, one paragraph a line."""
    yield f"Job {facts['job']}"
    signed = f" Signed {facts['signed_at']}." if "signed_at" in facts else ""
    yield f"  Who asks: {facts['analyst']}, about the data set {facts['data_set']}.{signed}"
    yield f"  State: {facts['state']}. {_wait(facts)}"
    for name in PROBLEMS:
        if facts.get(name):
            yield f"  PROBLEM: {facts[name]}"
    if "asks" in facts:
        yield from _request(facts)
    yield from _decisions(facts.get("decisions", ()), facts.get("approvers", ()), facts.get("approvals_needed", 0))


def _wait(facts: Mapping[str, Any]) -> str:
    if facts["state"] == RequestState.WAITING:
        return f"It waits from {facts['waits_since']} until {facts['waits_until']} at most."
    return f"It began to wait at {facts['waits_since']}."


def _request(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a job asks, what it costs, and what would be sent."""
    yield f"  What is asked: {_asked(facts['asks'])}"
    least = facts["minimum_providers"]
    yield f"  Providers: {', '.join(facts['providers'])}. The job goes on with {least} of them or more."
    yield f"  Who is protected: {facts['asks']['protects']}"
    used = rows_used(PrivacyUnit(facts["asks"]["unit"]), facts["asks"]["rows_per_person"])
    if used:
        yield f"  Rows of a person: {used}"
    yield from _cost(facts)
    yield (
        f"  What will be sent: {facts['answers']} answers, one for each query, {facts['answer_bytes']:,} bytes in all. "
        "No row is sent."
    )
    for each in facts["leaves"]:
        times = "once" if each["answers"] == 1 else f"{each['answers']} times"
        yield f"    {times}: {each['about']} ({each['kind']}), {_numbers(each['numbers'])}; {each['noise']}."


def _numbers(count: int) -> str:
    return "1 number" if count == 1 else f"{count:,} numbers"


def _asked(asks: Mapping[str, Any]) -> str:
    names = asks["column_names"] or []
    shown = ", ".join(f"{name!r:.60}" for name in names[:MOST_NAMES])  # quoted: the analyst may have chosen the names
    more = len(names) - MOST_NAMES
    named = f" ({shown}{f' and {more} more (see --json)' if more > 0 else ''})" if names else ""
    rows = PrivacyUnit(asks["unit"]).is_row
    of = CENTERING[Centering(asks["centering"])] if rows else "a symmetric matrix"
    options = "".join(f", {name} = {value}" for name, value in sorted(asks["options"].items()))
    prepared = f", prepared with the dictionary {asks['dictionary'][:12]}" if asks["dictionary"] else ""
    scaled = ", divided by noisy scales" if asks["scaling"] == Scaling.PRIVATE else ""
    variance = ", and the variance that they explain" if asks["explained_variance"] else ""
    components = "1 principal component" if asks["components"] == 1 else f"{asks['components']} principal components"
    return (
        f"{components} of {asks['columns']} columns{named} of {of}{prepared}{scaled}{variance}. "
        f"Method: {asks['method']}, {asks['summary']}{options}. Norm bound: {asks['norm_bound']}."
    )


def _cost(facts: Mapping[str, Any]) -> Iterator[str]:
    price = facts["price"]
    worth = f"epsilon {format_up(price['epsilon'], 4)} at delta {format_up(price['delta'])}"
    waits = " Nothing is spent while it waits." if facts["state"] == RequestState.WAITING else ""
    yield f"  What it costs: mu {format_up(price['mu'], 4)}, that is {worth}.{waits}"
    for name, each in facts.get("balances", {}).items():
        whose = "the data set's lifetime" if name == "data_set" else "the analyst's own budget"
        share = format_up(100 * each["share_of_budget"], 3)
        left = format_up(-100 * each["left"]["share"], 3).removeprefix("-")
        yield (
            f"  What is left: {left} % of {whose}; this job takes {share} % of that budget. "
            f"{each['further_such_jobs']} such jobs fit, this one included."
        )


def _decisions(decided: Sequence[Mapping[str, Any]], approvers: Sequence[str], needed: int) -> Iterator[str]:
    if needed:
        persons = "1 of these persons" if needed == 1 else f"{needed} different persons of these"
        yield f"  Who decides: {persons}: {', '.join(approvers)}."
    for each in decided:
        why = f": {each['reason']}" if each["reason"] else ""
        where = "" if each.get("recorded", True) else " (the provider has not recorded it yet)"
        problem = f" This does not count. {each['problem']}" if each.get("problem") else ""
        who = f"{each['person']} ({each['login']})"
        yield f"  {each['verdict'].upper()} by {who} at {each['decided']}{why}.{where}{problem}"
