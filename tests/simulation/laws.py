"""What must hold in every universe: I1 to I5 of the fault matrix, over all that left it and all that is left of it."""

from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256

import numpy as np
from errands import Errand
from homes import Inheritance, LeftLedger
from inhabitants import SITES
from universe import FINAL, Universe

from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import Integers
from dpspca.common.plan import Step, events
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.costs import cost_units
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries.base import RowQuery
from dpspca.common.spec import JobSpec
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.ledger.accounts import Account, JobAccount
from dpspca.provider.ledger.entries import Head, Quarantined
from dpspca.server.jobs.rounds import combine


def require_laws(universe: Universe, errands: Sequence[Errand], ended: Sequence[pb.Job]) -> None:
    """Hold a universe that is over against I1 to I5."""
    left = universe.inheritance()
    specs = {each.signed.job_id: each.spec for each in errands}
    for site, ledger in left.ledgers.items():
        require_whole(ledger, universe.heads[site])
    for (site, name, position), contents in universe.answers.items():
        require_paid_and_kept(left.ledgers[site], name, position, contents)
    for site, ledger in left.ledgers.items():
        for name, job in ledger.books.jobs.items():
            require_exact_price(job, catalogue_plan(specs[name]))
        require_within_budget(ledger, universe.purses[site].data_set, universe.purses[site].analyst)
    for errand, end in zip(errands, ended, strict=True):
        require_one_end(universe, left, end)
        if end.state == "done":
            require_complete(universe, left, errand, end)


def require_paid_and_kept(ledger: LeftLedger, job: str, position: int, contents: set[bytes]) -> None:
    """I1 and I2: of all answers to a query one left, which was paid for and is the one that is kept."""
    query = ledger.books.query(job, position)
    assert query is not None
    assert query.answer is not None
    assert {sha256(content).hexdigest() for content in contents} == {query.answer.sha256}


def require_whole(ledger: LeftLedger, heads: set[Head]) -> None:
    """I5: nothing that the ledger ever had is gone, and no honest accident looks as if there were."""
    assert ledger.problems == []
    assert not any(isinstance(entry.fact, Quarantined) for entry in ledger.entries)
    for head in heads:
        assert len(ledger.entries) >= head.entries
        assert ledger.entries[head.entries - 1].hash == head.hash


def require_exact_price(job: JobAccount, plan: Sequence[Step]) -> None:
    """I1: every answer was paid for once, and what was asked not more than once."""
    kept = [step for step, query in zip(plan, job.queries, strict=False) if query.answer]
    asked = plan[: len(job.queries)]
    assert cost_units(events(kept)) <= job.account.spent.units <= cost_units(events(asked))
    if job.state is not None:  # what was never answered is given back, and no more than that
        assert job.account.spent.units == cost_units(events(kept))
        assert job.account.reserved.units == 0


def require_within_budget(ledger: LeftLedger, data_set: Filter, analyst: Filter | None) -> None:
    """I1, of all jobs together."""
    require_affordable(ledger.books.data_sets.values(), data_set)
    if analyst:
        require_affordable(ledger.books.analysts.values(), analyst)


def require_affordable(accounts: Iterable[Account], budget: Filter) -> None:
    for account in accounts:
        assert account.spent.units + account.reserved.units <= budget.whole.units
        assert account.spent.slack_units + account.reserved.slack_units <= budget.whole.slack_units


def require_one_end(universe: Universe, left: Inheritance, end: pb.Job) -> None:
    """I3: a job ends, for a reason, once; and the journal knows of it whatever happened since."""
    assert end.state in FINAL
    assert end.state == "done" or end.reason
    assert universe.ends[end.job].keys() == {end.state}
    assert left.journal.problems == []
    known = left.journal.jobs.get(end.job)
    assert known is not None
    assert known.state == end.state


def require_complete(universe: Universe, left: Inheritance, errand: Errand, end: pb.Job) -> None:
    """I4: done is a job with every answer of enough providers, whose model is of these answers and of nothing else."""
    plan = catalogue_plan(errand.spec)
    whole = {each.name for each in end.participants if each.answered == len(plan)}
    assert len(whole) >= errand.spec.minimum_parties
    assert whole <= {*SITES}
    answers = [
        [
            answer_of(universe, each.name, end.job, position, step)
            for each in end.participants
            if each.answered > position
        ]
        for position, step in enumerate(plan)
    ]
    assert left.journal.models[end.job] == model_of(errand.spec, answers)


def answer_of(universe: Universe, site: str, job: str, position: int, step: Step) -> Integers:
    """Give the answer that left."""
    (content,) = universe.answers[site, job, position]
    return np.frombuffer(content, dtype="<i8").reshape(step.shape)


def model_of(spec: JobSpec, answers: Sequence[Sequence[Integers]]) -> bytes:
    """Make a model anew."""
    steps = iter(zip(catalogue_plan(spec), answers, strict=True))

    def ask(_: RowQuery) -> Aggregate:
        step, given = next(steps)
        return combine(spec, step, given)

    return drive(catalogue.run(catalogue.plan(spec)), ask).to_bytes()


@cache
def catalogue_plan(spec: JobSpec) -> tuple[Step, ...]:
    return catalogue.plan(spec)
