"""The invariants I1 to I5 of the fault tests: of ledgers and of what analysts received, checked at the end."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from daemons import Daemons

from dpspca.client.connection.jobs import JobStatus
from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import Integers
from dpspca.common.job import JobSpec
from dpspca.common.plan import Step, events
from dpspca.common.privacy.costs import cost_units, slack_units
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries.base import RowQuery
from dpspca.common.results import Model
from dpspca.provider.ledger.accounts import JobAccount
from dpspca.provider.ledger.database import Database
from dpspca.provider.ledger.entries import Head
from dpspca.provider.ledger.ledger import ANSWER
from dpspca.provider.ledger.rules import LedgerState
from dpspca.provider.ledger.sqlite import export, read_ledger_state, verify
from dpspca.provider.policy.file import read_policy
from dpspca.server.jobs.sums import JobSums


@dataclass(frozen=True)
class JobOutcome:
    """How a job ended, according to what its analyst received."""

    name: str
    spec: JobSpec
    status: JobStatus
    model: Model | None


@dataclass(frozen=True)
class ProcessDeath:
    """The death of a provider's process: which provider, and what its head file contained then."""

    site: str
    head: Head | None


@dataclass(frozen=True)
class RunRecord:
    """A federation whose daemons have ended: what analysts received, and what happened to the processes."""

    daemons: Daemons
    data_sets: Sequence[str]
    outcomes: Sequence[JobOutcome]
    remembered: Sequence[JobStatus]
    """The coordinator's status of these jobs at the end."""
    deaths: Sequence[ProcessDeath]
    codes: Mapping[str, int]
    strikes: Mapping[str, int]

    def summary(self) -> dict[str, Any]:
        """Return counts of what happened, and the list of violations."""
        participants = [each for one in self.outcomes for each in one.status.participants]
        return {
            "strikes": dict(sorted(self.strikes.items())),
            "jobs": dict(Counter(each.status.state for each in self.outcomes)),
            "left_out": sum(bool(each.reason) for each in participants),
            "answers": sum(each.answered for each in participants),
            "problems": list(problems(self)),
        }


def problems(record: RunRecord) -> Iterator[str]:
    """Yield every violation as a sentence."""
    yield from (f"{name} ended with {code}" for name, code in record.codes.items() if code)
    endings = {each.name: each.status for each in record.outcomes}
    yield from (f"Job {each.job} became another" for each in record.remembered if endings.get(each.job) != each)
    for site in record.daemons.providers:
        yield from (f"{site}: {found}" for found in _ledger_problems(record, site))
    with ExitStack() as open_ledgers:
        ledgers = {site: open_ledgers.enter_context(_kept(record, site)) for site in record.daemons.providers}
        for each in record.outcomes:
            yield from (f"Job {each.name} ({each.status.state}): {found}" for found in _job_problems(each, ledgers))


def _ledger_problems(record: RunRecord, site: str) -> Iterator[str]:
    path = record.daemons.ledger(site)
    yield from verify(path, record.daemons.head(site))
    yield from _account_problems(record, read_ledger_state(path))
    yield from _history_problems(path, [each.head for each in record.deaths if each.site == site])


@dataclass(frozen=True)
class StoredAnswers:
    """A ledger whose answers were never dropped (``daemons.KEEPING``)."""

    state: LedgerState
    database: Database

    def stored(self, job: str, position: int) -> Integers | None:
        """Return the stored answer, if its hash is the recorded one."""
        query = self.state.query(job, position)
        content = b"".join(self.database.pieces(job, position))
        if query is None or query.answer is None or sha256(content).hexdigest() != query.answer.sha256:
            return None
        return np.frombuffer(content, ANSWER).reshape(query.answer.shape)


@contextmanager
def _kept(record: RunRecord, site: str) -> Iterator[StoredAnswers]:
    path = record.daemons.ledger(site)
    with Database.readable(path) as database:
        yield StoredAnswers(read_ledger_state(path), database)


# --- Jobs -------------------------------------------------------------------------------------------------------------


def _job_problems(outcome: JobOutcome, ledgers: Mapping[str, StoredAnswers]) -> Iterator[str]:
    """I3, I4: a job has an end and a reason; all reported answers are stored, and the model was computed from them."""
    status = outcome.status
    if status.state not in {"done", "failed", "cancelled"} or (status.state != "done" and not status.reason):
        yield f"no end, or no reason: {status.reason!r}"
    lost = [
        f"{each.name} is said to have answered {each.answered} queries, and has no answer to {at + 1}"
        for each in status.participants
        for at in range(each.answered)
        if ledgers[each.name].stored(outcome.name, at) is None
    ]
    yield from lost
    if outcome.model and not lost:
        whole = sum(each.answered == status.queries for each in status.participants)
        if not max(1, outcome.spec.minimum_providers) <= whole == outcome.model.statement.parties:
            yield f"{whole} took part to the end, {outcome.model.statement.parties} are stated"
        if _content(outcome.model) != _content(_recomputed(outcome, ledgers)):
            yield "the model is not the one that the stored answers give"


def _recomputed(outcome: JobOutcome, ledgers: Mapping[str, StoredAnswers]) -> Model:
    """Compute a model from the stored answers of the providers that are reported to have answered."""
    steps = iter(enumerate(catalogue.plan(outcome.spec)))
    sums = JobSums(outcome.spec)

    def ask(_: RowQuery) -> Aggregate:
        position, step = next(steps)
        asked = [each.name for each in outcome.status.participants if each.answered > position]
        stored = {name: ledgers[name].stored(outcome.name, position) for name in asked}
        return sums.add(step, {name: answer for name, answer in stored.items() if answer is not None})

    return drive(catalogue.run(catalogue.plan(outcome.spec)), ask)


def _content(model: Model) -> list[bytes | None]:
    parts = (model.components, model.mean, model.explained_variance, model.explained_variance_ratio)
    return [None if part is None else part.tobytes() for part in parts]


# --- Ledgers ----------------------------------------------------------------------------------------------------------


def _account_problems(record: RunRecord, state: LedgerState) -> Iterator[str]:
    """I1: spent is the price of every query that was asked, within the lifetime budget."""
    plans = {each.name: catalogue.plan(each.spec) for each in record.outcomes}
    if state.jobs.keys() - plans.keys():
        yield f"jobs that nobody signed: {state.jobs.keys() - plans.keys()}"
        return
    policy = read_policy(record.daemons.enrolment.folder / "policy.toml")
    for name, taken in state.data_sets.items():
        jobs = {job: found for job, found in state.jobs.items() if found.opening.data_set == name}
        paid = [_paid(found, plans[job]) for job, found in jobs.items()]
        if [taken.spent.units, taken.spent.slack_units] != [sum(part) for part in zip(*paid, strict=True)]:
            asked = sum(units for units, _ in paid)
            yield f"{name}: {taken.spent.units} units are spent, and what was asked costs {asked}"
        lifetime = policy.rules(name).limits(record.daemons.ada.name)[0]
        if taken.spent.units + taken.reserved.units > lifetime.whole.units:
            yield f"{name}: more is spent and promised than the lifetime allows"
        if taken.spent.slack_units + taken.reserved.slack_units > lifetime.whole.slack_units:
            yield f"{name}: more slack is spent and promised than the lifetime allows"


def _paid(job: JobAccount, plan: Sequence[Step]) -> tuple[int, int]:
    """Return the price of what was asked, whether or not its answer left."""
    asked = events(plan[: len(job.queries)])
    return cost_units(asked), slack_units(asked)


def _history_problems(path: Path, heads: Iterable[Head | None]) -> Iterator[str]:
    """I2, I5: at most one answer per query, and no entry of the ledger was ever lost."""
    hashes: dict[int, str] = {}
    stored: Counter[tuple[str, int]] = Counter()
    for entry in export(path):
        hashes[entry["number"]] = entry["hash"]
        if entry["kind"] == "stored":
            stored.update([(entry["job"], entry["position"])])
    yield from (f"two answers to query {at} of {job}" for (job, at), times in stored.items() if times > 1)
    for head in heads:
        if head and hashes.get(head.entries) != head.hash:
            yield f"entry {head.entries}, which was there at a death, is not there any more"
