"""The invariants I1 to I5 of the fault matrix, checked on all answers that were sent and on the final state."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256

import numpy as np
from party_identities import SITES
from party_state import FinalLedger, FinalState
from planned_jobs import PlannedJob
from simulated_federation import FINAL, SimulatedFederation

from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import Integers
from dpspca.common.job import JobSpec
from dpspca.common.plan import Step, events
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.costs import cost_units
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries.base import RowQuery
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.ledger.accounts import Account, JobAccount
from dpspca.provider.ledger.entries import Head, Quarantined
from dpspca.server.jobs.sums import JobSums


def require_invariants(
    simulated: SimulatedFederation, planned_jobs: Sequence[PlannedJob], ended: Sequence[pb.Job]
) -> None:
    """Check I1 to I5 after a run."""
    left = simulated.final_state()
    specs = {each.signed.job_id: each.spec for each in planned_jobs}
    for site, ledger in left.ledgers.items():
        require_whole(ledger, simulated.heads[site])
    for (site, name, position), contents in simulated.answers.items():
        require_paid_and_kept(left.ledgers[site], name, position, contents)
    for site, ledger in left.ledgers.items():
        for name, job in ledger.state.jobs.items():
            require_exact_price(job, catalogue_plan(specs[name]))
        require_within_budget(ledger, simulated.budgets[site].data_set, simulated.budgets[site].analyst)
    for planned, end in zip(planned_jobs, ended, strict=True):
        require_one_end(simulated, left, end)
        if end.state == "done":
            require_complete(simulated, left, planned, end)


def require_paid_and_kept(ledger: FinalLedger, job: str, position: int, contents: set[bytes]) -> None:
    """I1 and I2: only one answer to a query was sent. It was charged, and it is the stored one."""
    query = ledger.state.query(job, position)
    assert query is not None
    assert query.answer is not None
    assert {sha256(content).hexdigest() for content in contents} == {query.answer.sha256}


def require_whole(ledger: FinalLedger, heads: set[Head]) -> None:
    """I5: the ledger lost no entry, and no fault caused a quarantine."""
    assert ledger.problems == []
    assert not any(isinstance(entry.fact, Quarantined) for entry in ledger.entries)
    for head in heads:
        assert len(ledger.entries) >= head.entries
        assert ledger.entries[head.entries - 1].hash == head.hash


def require_exact_price(job: JobAccount, plan: Sequence[Step]) -> None:
    """I1: every query that was asked was charged once, whether or not its answer left."""
    assert job.account.spent.units == cost_units(events(plan[: len(job.queries)]))
    if job.state is not None:  # the price of queries that were not asked is released
        assert job.account.reserved.units == 0


def require_within_budget(ledger: FinalLedger, data_set: Filter, analyst: Filter | None) -> None:
    """I1 for all jobs together."""
    require_affordable(ledger.state.data_sets.values(), data_set)
    if analyst:
        require_affordable(ledger.state.analysts.values(), analyst)


def require_affordable(accounts: Iterable[Account], budget: Filter) -> None:
    for account in accounts:
        assert account.spent.units + account.reserved.units <= budget.whole.units
        assert account.spent.slack_units + account.reserved.slack_units <= budget.whole.slack_units


def require_one_end(simulated: SimulatedFederation, left: FinalState, end: pb.Job) -> None:
    """I3: a job ends once and with a reason, and the journal still has that end."""
    assert end.state in FINAL
    assert end.state == "done" or end.reason
    assert simulated.ends[end.job].keys() == {end.state}
    assert left.journal.problems == []
    known = left.journal.jobs.get(end.job)
    assert known is not None
    assert known.state == end.state


def require_complete(simulated: SimulatedFederation, left: FinalState, planned: PlannedJob, end: pb.Job) -> None:
    """I4: a done job has all answers of enough providers, and its model follows from exactly these answers."""
    plan = catalogue_plan(planned.spec)
    whole = {each.name for each in end.participants if each.answered == len(plan)}
    assert len(whole) >= planned.spec.minimum_providers
    assert whole <= {*SITES}
    answers = [
        {
            each.name: answer_of(simulated, each.name, end.job, position, step)
            for each in end.participants
            if each.answered > position
        }
        for position, step in enumerate(plan)
    ]
    assert left.journal.models[end.job] == model_of(planned.spec, answers)


def answer_of(simulated: SimulatedFederation, site: str, job: str, position: int, step: Step) -> Integers:
    """Return the answer that was sent."""
    (content,) = simulated.answers[site, job, position]
    return np.frombuffer(content, dtype="<i8").reshape(step.shape)


def model_of(spec: JobSpec, answers: Sequence[Mapping[str, Integers]]) -> bytes:
    """Compute the model from the answers of each provider, weighed as the coordinator weighs them."""
    steps, sums = iter(zip(catalogue_plan(spec), answers, strict=True)), JobSums(spec)

    def ask(_: RowQuery) -> Aggregate:
        step, given = next(steps)
        return sums.add(step, given)

    return drive(catalogue.run(catalogue.plan(spec)), ask).weighed_by(sums.weighed).to_bytes()


@cache
def catalogue_plan(spec: JobSpec) -> tuple[Step, ...]:
    return catalogue.plan(spec)
