"""A job is believed, held against the policy and the budget, and bound to its rows, before a query is answered."""

import asyncio
import logging
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from busy_threads import busy_places
from facts import facts, names_facts
from ledgers import LIMITS, opening, respond
from local_federation import AllowEverything, Enrolment, now
from timeouts import TIMEOUT

from dpspca.client.matrices import dilation
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import BudgetExceededError, DataChangedError, DpspcaError, JobEndedError, RefusedError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.names import PartyName, Role
from dpspca.common.plan import Plan, events, prices
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.costs import cost_units
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.rows import Count, CovarianceProduct
from dpspca.common.transport import wire
from dpspca.common.trust.signing import SignedJob
from dpspca.provider.data.arrivals import Arrivals
from dpspca.provider.data.checked.persons import with_persons
from dpspca.provider.data.checked.preparation import CheckedRows, check_rows
from dpspca.provider.data.memory.scratch import Scratch
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.jobs.open_job import OpenJob
from dpspca.provider.jobs.registry import JobRegistry, ProviderSetup
from dpspca.provider.ledger.entries import Entry, Head, Opening
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.ledger.promises import Promise
from dpspca.provider.policy import Policy, suggest

SPEC = JobSpec(
    schema=Schema(4),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=4.0,
    components=2,
    explained_variance=False,
    options={"sparsity": 4, "rounds": 2},
    method="dps-pca",
)
FIRST = CovarianceProduct(np.eye(4)[:, :2])
OTHER = CovarianceProduct(np.eye(4)[:, 1:3])
ROWS = np.random.default_rng(1).standard_normal((20, 4))


class Refusing(AllowEverything):
    """A policy with one rule, which every job breaks."""

    def check(self, *_: object) -> None:
        raise RefusedError("The rule is broken.", "Ask something else.")


class JustOne(AllowEverything):
    """A policy whose lifetime has room for one job like this."""

    def limits(self, _: PartyName) -> tuple[Filter, None]:
        return Filter.for_budget(SPEC.budget.epsilon, SPEC.budget.delta), None


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


def settings(
    enrolment: Enrolment, policy: type[AllowEverything] = AllowEverything, rows: np.ndarray = ROWS
) -> ProviderSetup:
    me = enrolment.identity(Role.PROVIDER, "north")
    return ProviderSetup("", lambda: me, enrolment.revocations, now, {"cohort": check_rows(rows)}, policy)


def signed(enrolment: Enrolment, count: int = 1) -> list[SignedJob]:
    ada = enrolment.identity(Role.ANALYST, "ada")
    return [enrolment.job(SPEC, ada, ["north"]) for _ in range(count)]


def test_a_job_that_breaks_a_rule_is_not_opened(enrolment: Enrolment) -> None:
    told = settings(enrolment, Refusing)
    (job,) = signed(enrolment)
    with pytest.raises(RefusedError, match=facts("broken")):
        JobRegistry(told).open(job)
    assert isinstance(told.ledger, MemoryLedger)
    assert [entry.number for entry in told.ledger.entries] == [1]  # its founding


def test_a_job_is_planned_once_when_it_is_opened(enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch) -> None:
    planned, plan = list[JobSpec](), catalogue.plan

    def counted(spec: JobSpec) -> Plan:
        planned.append(spec)
        return plan(spec)

    policy = Policy.parse(suggest(plan(SPEC), "cohort", ["ada"]))
    setup = replace(settings(enrolment), policy=lambda: policy)
    monkeypatch.setattr(catalogue, "plan", counted)
    JobRegistry(setup).open(signed(enrolment)[0])
    assert planned == [SPEC]


def test_jobs_together_keep_within_the_lifetime_of_their_data_set(enrolment: Enrolment) -> None:
    registry = JobRegistry(settings(enrolment, JustOne))
    first, second = signed(enrolment, 2)
    opened = registry.open(first)
    assert cost_units(events(opened.plan)) > Filter.for_budget(1.0, 1e-6).whole.units // 2
    with pytest.raises(BudgetExceededError, match=facts("'cohort'")):
        registry.open(second)


def test_a_job_does_not_go_on_over_other_rows_after_a_restart(enrolment: Enrolment) -> None:
    told = settings(enrolment)
    (job,) = signed(enrolment)
    JobRegistry(told).open(job).responder.respond(0, FIRST)
    changed = ROWS.copy()
    changed[7, 1] += 1e-9
    with pytest.raises(DataChangedError):
        JobRegistry(replace(told, data_sets={"cohort": check_rows(changed)})).open(job)
    JobRegistry(told).open(job)


def test_a_job_that_is_opened_while_its_rows_are_replaced_ends(enrolment: Enrolment) -> None:
    """Neither the job nor what was prepared for it is kept, so nothing is answered about rows that are gone."""
    told = settings(enrolment)
    registry, (late, job) = JobRegistry(told), signed(enrolment, 2)
    rows = registry.rows

    def replaced(*about: Any) -> Any:
        made = rows.of(*about)
        registry.take_offer(registry.make_offer({"cohort": check_rows(2 * ROWS)}, {}, told.policy))
        return made

    registry.rows = SimpleNamespace(of=replaced)  # type: ignore[assignment]
    with pytest.raises(DataChangedError):
        registry.open(late)
    registry.rows = rows
    with pytest.raises(JobEndedError, match=facts("(withdrawn)")):
        registry.open(late)
    assert told.ledger.open_jobs() == ()
    opened = registry.open(job)
    assert np.abs(opened.responder.respond(0, FIRST)).max() > 0
    registry.take_offer(registry.offer)
    assert told.ledger.open_jobs() == (job.job_id,)
    registry.take_offer(registry.make_offer({}, {}, told.policy))
    assert told.ledger.open_jobs() == ()
    assert told.ledger.standing(job.job_id) is not None  # what it spent is recorded


def test_two_daemons_with_default_settings_draw_unrelated_noise(enrolment: Enrolment) -> None:
    """False alarm: eight draws of thirty bits that agree."""
    told = settings(enrolment)
    (job,) = signed(enrolment)
    first, second = [
        JobRegistry(replace(told, ledger=MemoryLedger())).open(job).responder.respond(0, FIRST) for _ in range(2)
    ]
    assert not (first == second).any()


def test_t18_a_job_uses_as_many_rows_of_a_person_as_it_protects(enrolment: Enrolment) -> None:
    persons = np.zeros(len(ROWS), dtype=np.intp)
    persons[3:] = np.arange(1, len(ROWS) - 2)
    kept = replace(settings(enrolment), data_sets={"cohort": CheckedRows(ROWS, persons=persons)})
    registry = JobRegistry(kept)
    for most in (2, 3, 2):
        shard = registry.rows.of(
            registry.offer,
            "cohort",
            catalogue.plan(replace(SPEC, unit=PrivacyUnit.PERSON_REPLACE_ONE, rows_per_person=most)),
        )
        assert shard.evaluate(Count()).tolist() == [len(ROWS) - 3 + most]
        of_these = Shard(check_rows(np.vstack([ROWS[:most], ROWS[3:]])), SPEC.norm_bound)
        np.testing.assert_array_equal(shard.evaluate(FIRST), of_these.evaluate(FIRST))


@pytest.mark.parametrize("unit", [unit for unit in PrivacyUnit if unit.is_row])
@pytest.mark.parametrize("persons", [None, np.arange(len(ROWS)), np.zeros(len(ROWS), dtype=np.intp)])
def test_only_a_unit_of_persons_is_answered_about_persons(
    enrolment: Enrolment, unit: PrivacyUnit, persons: np.ndarray | None
) -> None:
    """Else the statement would be false: a row that leaves lets the person's next one in, or nobody bounds a person.

    Whether rows are ready from a job before makes no difference, nor does what a persons' file says.
    """
    registry = JobRegistry(replace(settings(enrolment), data_sets={"cohort": CheckedRows(ROWS, persons=persons)}))
    true = PrivacyUnit.ROW_ADD_REMOVE if persons is None else PrivacyUnit.PERSON_ADD_REMOVE
    registry.rows.of(registry.offer, "cohort", catalogue.plan(replace(SPEC, unit=true)))
    if unit.is_person == (persons is not None):
        registry.rows.of(registry.offer, "cohort", catalogue.plan(replace(SPEC, unit=unit)))
        return
    ledger = registry._settings.ledger
    with pytest.raises(RefusedError, match=facts(unit, "[persons]" if persons is None else "person-add-remove")):
        registry.open(enrolment.job(replace(SPEC, unit=unit), enrolment.identity(Role.ANALYST, "ada"), ["north"]))
    assert isinstance(ledger, MemoryLedger)
    assert len(ledger.entries) == 1  # its founding: the refusal cost nothing


OF_PERSONS = replace(SPEC, unit=PrivacyUnit.PERSON_ADD_REMOVE)
"""A job about persons."""


@pytest.mark.parametrize(
    ("then", "now_persons", "is_said"),
    [
        (list(range(20)), [0, 0, *range(2, 20)], True),
        (list(range(20)), [f"p{place}" for place in range(20)], False),
        ([0, 0, *range(2, 20)], [1, 1, *range(2, 20)], False),
    ],
    ids=["two are one", "other labels", "another label for one"],
)
def test_t18_a_change_of_persons_after_answers_is_logged(
    then: list[Any], now_persons: list[Any], is_said: bool, enrolment: Enrolment, caplog: pytest.LogCaptureFixture
) -> None:
    """Answers protected each of two names alone, so the lifetime is too low for the person behind both."""
    told = replace(settings(enrolment), data_sets={"cohort": with_persons(CheckedRows(ROWS), then)})
    job = enrolment.job(OF_PERSONS, enrolment.identity(Role.ANALYST, "ada"), ["north"])
    JobRegistry(told).open(job).responder.respond(0, FIRST)
    JobRegistry(told)
    JobRegistry(replace(told, data_sets={"cohort": with_persons(CheckedRows(ROWS), now_persons)}))
    assert [each.levelname for each in caplog.records if each.levelno > logging.INFO] == ["ERROR"] * is_said


def test_a_ledger_that_began_with_rows_is_not_spent_from_for_persons(enrolment: Enrolment) -> None:
    told, ada = settings(enrolment), enrolment.identity(Role.ANALYST, "ada")
    JobRegistry(told).open(enrolment.job(replace(SPEC, unit=PrivacyUnit.ROW_ADD_REMOVE), ada, ["north"]))
    persons = replace(told, data_sets={"cohort": CheckedRows(ROWS, persons=np.arange(len(ROWS)))})
    with pytest.raises(RefusedError, match=facts("unit = row-add-remove", "person-add-remove")):
        JobRegistry(persons).open(enrolment.job(replace(SPEC, unit=PrivacyUnit.PERSON_ADD_REMOVE), ada, ["north"]))


def test_t25_a_receipt_confirms_no_guess_of_the_rows(enrolment: Enrolment) -> None:
    """Whoever knows all else of an entry that names the rows lacks random bits that no two openings share."""
    told = settings(enrolment)
    assert isinstance(told.ledger, MemoryLedger)
    registry = JobRegistry(told)
    for job in signed(enrolment, 2):
        registry.open(job).responder.respond(0, FIRST)
    openings = [entry for entry in told.ledger.entries if isinstance(entry.fact, Opening)]
    places = [entry.number - 1 for entry in openings]
    blinds = {entry.fact.blind for entry in openings if isinstance(entry.fact, Opening)}
    assert len(blinds) == 2
    for entry, before in zip(openings, (told.ledger.entries[place - 1] for place in places), strict=True):
        assert isinstance(entry.fact, Opening)
        assert len(entry.fact.blind) == 32
        head = Head("", before.number, before.hash)
        assert Entry.following(head, entry.at, entry.fact).hash == entry.hash
        assert Entry.following(head, entry.at, replace(entry.fact, blind="")).hash != entry.hash


def answered(told: ProviderSetup, job: SignedJob, data_set: str = "cohort") -> None:
    """Answer a job's first query as a daemon does."""

    async def answer() -> None:
        reader = wire.QueryReader(FIRST.announcement, opened.plan[0])
        for sequence, frame in enumerate(wire.frames(FIRST.content())):
            reader.add(sequence, bytes(frame))
        await opened.answer(0, reader, lambda: None)

    opened = JobRegistry(told).open(job)
    assert opened.envelope.data_set == data_set
    asyncio.run(answer())


def test_rows_that_were_spent_on_are_not_offered_under_another_name(enrolment: Enrolment) -> None:
    told = settings(enrolment)
    first, second = signed(enrolment, 2)
    JobRegistry(told).open(first)
    JobRegistry(replace(told, data_sets={"study": check_rows(ROWS)}))  # it was asked nothing yet
    answered(told, second)
    renamed = replace(told, data_sets={"study": check_rows(ROWS.copy())})
    with pytest.raises(RefusedError, match=facts("'study'", "'cohort'")):
        JobRegistry(renamed)
    beside = replace(told, data_sets={"cohort": check_rows(ROWS + 1), "study": check_rows(ROWS)})
    with pytest.raises(RefusedError, match=facts("'study'", "'cohort'")):
        JobRegistry(beside)
    JobRegistry(told)
    JobRegistry(replace(told, data_sets={"cohort": check_rows(ROWS), "study": check_rows(ROWS + 1)}))


def test_the_same_rows_are_not_offered_twice(enrolment: Enrolment) -> None:
    twice = {name: check_rows(ROWS) for name in ("cohort", "study")}
    with pytest.raises(RefusedError, match=facts("'study'", "'cohort'")):
        JobRegistry(replace(settings(enrolment), data_sets=twice))


# --- When answers leave -----------------------------------------------------------------------------------------------


class Slow(AllowEverything):
    """A policy under which answers leave a good while after they were made."""

    answer_interval = 0.5  # type: ignore[assignment]  # seconds


def reading(job: OpenJob, query: CovarianceProduct = FIRST) -> wire.QueryReader:
    """Read a first query whole, as it comes over the wire."""
    reader = wire.QueryReader(query.announcement, job.plan[0])
    for sequence, frame in enumerate(wire.frames(query.content())):
        reader.add(sequence, bytes(frame))
    return reader


def test_an_answer_leaves_as_the_policy_says(enrolment: Enrolment) -> None:
    async def seconds(policy: type[AllowEverything]) -> float:
        job = JobRegistry(replace(settings(enrolment, policy), toss=lambda: 0.5)).open(*signed(enrolment))
        begun = time.monotonic()
        await job.answer(0, reading(job), lambda: None)
        return time.monotonic() - begun

    assert asyncio.run(seconds(Slow)) >= 1


def test_a_repeated_query_is_not_answered_sooner(enrolment: Enrolment) -> None:
    """The first is gone when the answer is made and has not left; the second has to wait for it all the same."""

    async def twice() -> float:
        job = JobRegistry(replace(settings(enrolment, Slow), toss=lambda: 0.5)).open(*signed(enrolment))
        begun = time.monotonic()
        first = asyncio.create_task(job.answer(0, reading(job), lambda: None))
        while not job.responder._ledger.query_digest(job.name, 0):  # noqa: ASYNC110  # it is paid for in a thread
            await asyncio.sleep(0.01)
        first.cancel()
        assert job.is_busy
        await job.answer(0, reading(job), lambda: None)
        return time.monotonic() - begun

    assert asyncio.run(twice()) >= 2


def test_a_busy_job_is_kept_when_others_are_opened(enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpspca.provider.jobs.registry.MAX_OPEN_JOBS", 2)

    async def crowd() -> None:
        registry = JobRegistry(replace(settings(enrolment, Slow), toss=lambda: 0.5))
        busy, *others = signed(enrolment, 4)
        job = registry.open(busy)
        asked = asyncio.create_task(job.answer(0, reading(job), lambda: None))
        while not job.is_busy:  # noqa: ASYNC110  # a turn of the loop or two
            await asyncio.sleep(0)
        for other in others:
            registry.open(other)
        assert registry.find(busy.job_id) is job
        assert list(registry._jobs) == [others[-1].job_id, busy.job_id]
        await asked

    asyncio.run(crowd())


FORMS = {
    "sparse": lambda _: check_rows(scipy.sparse.csr_array(ROWS)),
    "half the bits": lambda _: check_rows(ROWS.astype(np.float32)),
    "in another order": lambda _: check_rows(ROWS[::-1, [2, 0, 3, 1]]),
    "with names": lambda _: replace(check_rows(ROWS), names=("a", "b", "c", "d")),
    "with persons": lambda _: replace(check_rows(ROWS), persons=np.zeros(len(ROWS), dtype=np.intp)),
    "arriving": lambda folder: Arrivals("study", arriving(folder)),
    "as a matrix": lambda _: check_rows(dilation(ROWS, 0, len(ROWS))),
}


def arriving(folder: Path) -> Path:
    (folder / "rows").mkdir(exist_ok=True)
    for number, part in enumerate(np.array_split(ROWS, 3)):
        np.save(folder / "rows" / f"{number}.npy", part)
    return folder / "rows"


@pytest.mark.parametrize("form", FORMS)
def test_the_same_rows_in_another_form_are_refused_under_another_name(
    enrolment: Enrolment, tmp_path: Path, form: str
) -> None:
    told, same = settings(enrolment), FORMS[form](tmp_path)
    with pytest.raises(RefusedError, match=facts("'study'", "'cohort'")):
        JobRegistry(replace(told, data_sets={"cohort": check_rows(ROWS), "study": same}))
    JobRegistry(told).open(*signed(enrolment)).responder.respond(0, FIRST)
    with pytest.raises(RefusedError, match=facts("'study'", "'cohort'")):
        JobRegistry(replace(told, data_sets={"study": same}))
    JobRegistry(replace(told, data_sets={"cohort": same}))


def test_rows_that_arrived_are_recognised_as_one_file_later(enrolment: Enrolment, tmp_path: Path) -> None:
    rows = Arrivals("cohort", arriving(tmp_path))
    told = replace(settings(enrolment), data_sets={"cohort": rows})
    registry = JobRegistry(told)
    more = np.random.default_rng(2).standard_normal((5, 4))
    np.save(tmp_path / "rows" / "9.npy", more)
    rows.count_next(len(ROWS) + 5)
    registry._name_rows(registry.offer, "cohort")
    with pytest.raises(RefusedError, match=facts("'study'", "'cohort'")):
        JobRegistry(replace(told, data_sets={"study": check_rows(np.vstack([ROWS, more]))}))


def test_rows_whose_fingerprints_a_restart_spared_are_still_recognised(enrolment: Enrolment, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    rows = read_offered(tmp_path / "rows.npy", scratch=Scratch(tmp_path / "scratch"))
    told = replace(settings(enrolment), data_sets={"cohort": rows})
    registry = JobRegistry(told)
    registry.open(*signed(enrolment)).responder.respond(0, FIRST)
    again = JobRegistry(told)
    assert again.offer.fingerprints["cohort"] < registry.offer.fingerprints["cohort"]
    assert again._named(again.offer, "cohort").rows
    other = check_rows(ROWS[::-1, [2, 0, 3, 1]])
    with pytest.raises(RefusedError, match=facts("'study'", "'cohort'")):
        JobRegistry(replace(told, data_sets={"cohort": rows, "study": other}))


@pytest.mark.parametrize("arrive", [False, True])
def test_t45_no_entry_holds_a_digest_or_fingerprint_of_rows(arrive: bool, enrolment: Enrolment, tmp_path: Path) -> None:
    rows = Arrivals("cohort", arriving(tmp_path)) if arrive else check_rows(ROWS)
    told = replace(settings(enrolment), data_sets={"cohort": rows})
    assert isinstance(told.ledger, MemoryLedger)
    registry = JobRegistry(told)
    registry._name_rows(registry.offer, "cohort")
    told.ledger.open(opening(data_digest=registry.offer.digests["cohort"]), LIMITS)
    respond(told.ledger, "job", 0)
    written = "".join(entry.content for entry in told.ledger.entries)
    identifiers = {rows.digest(), *rows.fingerprints()}
    assert len(identifiers) >= 2
    for identifier in identifiers:
        assert identifier not in written
        assert told.ledger.name_of(identifier) in written


def test_rows_that_an_earlier_version_knew_in_one_form_are_known_in_all(enrolment: Enrolment) -> None:
    told = settings(enrolment)
    assert isinstance(told.ledger, MemoryLedger)
    rows = check_rows(ROWS)
    old = opening(data_digest=told.ledger.name_of(rows.digest()))
    told.ledger.open(old, LIMITS)
    respond(told.ledger, "job", 0)
    sparse = check_rows(scipy.sparse.csr_array(ROWS))
    with pytest.raises(RefusedError, match=facts("'study'", "'cohort'")):
        JobRegistry(replace(told, data_sets={"study": rows}))
    JobRegistry(replace(told, data_sets={"study": sparse}))  # nobody can know
    JobRegistry(told)
    with pytest.raises(RefusedError, match=facts("'study'", "'cohort'")):
        JobRegistry(replace(told, data_sets={"study": sparse}))
    entries = len(told.ledger.entries)
    JobRegistry(told)
    assert len(told.ledger.entries) == entries


# --- What a policy promises -------------------------------------------------------------------------------------------


class Stating(AllowEverything):
    """A policy that says what all jobs protect."""

    extent = 1.0

    @property
    def promise(self) -> Promise:  # type: ignore[override]
        return Promise(str(SPEC.unit), self.extent)


class Raised(Stating):
    """The same, after its steward raised the rows that a person has."""

    extent = 2.0


def test_a_policy_that_promises_more_than_jobs_kept_is_refused(
    enrolment: Enrolment, caplog: pytest.LogCaptureFixture
) -> None:
    told, ada = settings(enrolment, Stating), enrolment.identity(Role.ANALYST, "ada")
    answered(told, enrolment.job(SPEC, ada, ["north"]))
    assert "refused" not in caplog.text
    raised = replace(told, policy=Raised, data_sets=told.data_sets | {"other": check_rows(ROWS + 1)})
    registry = JobRegistry(raised)
    said = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(said) == 1
    assert names_facts(said[0], "data set 'cohort'", "2 rows", "one row", "rows_per_person")
    two = replace(SPEC, rows_per_person=2)
    with pytest.raises(RefusedError, match=facts("rows_per_person", 1)):
        registry.open(enrolment.job(two, ada, ["north"]))
    registry.open(enrolment.job(two, ada, ["north"], "other"))


def test_extent_and_size_of_a_job_follow_from_its_spec(enrolment: Enrolment) -> None:
    told = settings(enrolment)
    assert isinstance(told.ledger, MemoryLedger)
    answered(told, *signed(enrolment))
    (found,) = [entry.fact for entry in told.ledger.entries if isinstance(entry.fact, Opening)]
    plan = catalogue.plan(SPEC)
    assert (found.protects, found.queries) == (1, len(plan))
    assert found.answer_bytes == 8 * sum(int(np.prod(step.shape)) for step in plan)


def test_an_answer_is_not_in_the_ledger_before_it_leaves(enrolment: Enrolment) -> None:
    """Receipts, room for other jobs, and what is given back at an end are all read from the ledger."""
    told = replace(settings(enrolment, Slow), toss=lambda: 0.5)
    registry, (signed_job,) = JobRegistry(told), signed(enrolment)

    async def ended() -> None:
        job = registry.open(signed_job)
        asked = asyncio.create_task(job.answer(0, reading(job), lambda: None))
        while not told.ledger.query_digest(job.name, 0):  # noqa: ASYNC110  # it is paid for in a thread
            await asyncio.sleep(0.01)
        heads = {told.ledger.attested_head()}
        for _ in range(30):  # the answer is made in milliseconds, and leaves after a second
            await asyncio.sleep(0.01)
            heads.add(told.ledger.attested_head())
        assert len(heads) == 1
        assert told.ledger.stored(job.name, 0) is None
        # Until the answer leaves, nobody can begin where it was made, and no memory is freed.
        assert registry.places._taken
        assert registry._last._in_use
        registry.close(job.name, "cancelled")
        with pytest.raises(DpspcaError):
            await asked

    asyncio.run(ended())
    account = told.ledger._state.data_sets["cohort"]  # type: ignore[attr-defined]
    assert (account.spent.units, account.reserved.units) == (next(prices(catalogue.plan(SPEC))).units, 0)


def test_a_job_is_opened_once_however_many_ask_at_the_same_time(enrolment: Enrolment) -> None:
    async def crowd() -> None:
        registry, (job,) = JobRegistry(settings(enrolment)), signed(enrolment)
        opened = await asyncio.gather(*(registry.find_or_open(job) for _ in range(5)))
        assert len({id(each) for each in opened}) == 1

    asyncio.run(crowd())


def test_t22_a_job_is_opened_while_all_places_are_taken(enrolment: Enrolment) -> None:
    """Opening is free. If it waited for an answer to another job, it would show when that is made."""

    async def scene() -> None:
        registry, (job,) = JobRegistry(settings(enrolment)), signed(enrolment)
        async with busy_places(registry.places):
            assert await asyncio.wait_for(registry.find_or_open(job), TIMEOUT / 2)

    asyncio.run(scene())


def test_t22_what_is_stored_or_refused_waits_for_no_work_on_rows(enrolment: Enrolment) -> None:
    """It costs nothing. If it waited for an answer to another job, it would show when that is made."""

    async def scene() -> None:
        registry, (job,) = JobRegistry(settings(enrolment)), signed(enrolment)
        opened = await registry.find_or_open(job)
        first = await opened.answer(0, reading(opened), lambda: None)
        async with busy_places(registry.places):
            again = await asyncio.wait_for(opened.answer(0, reading(opened), lambda: None), TIMEOUT / 2)
            with pytest.raises(RefusedError):
                await asyncio.wait_for(opened.answer(0, reading(opened, OTHER), lambda: None), TIMEOUT / 2)
            assert bytes(again[0]) == bytes(first[0])

    asyncio.run(scene())


def test_t35_a_query_whose_job_ends_leaves_the_line_at_once(enrolment: Enrolment) -> None:
    """Nobody wants its answer, and others may wait until it has had its turn."""

    async def scene() -> None:
        registry, (job,) = JobRegistry(settings(enrolment)), signed(enrolment)
        opened = await registry.find_or_open(job)
        async with busy_places(registry.places):
            asking = asyncio.create_task(opened.answer(0, reading(opened), lambda: None))
            async with asyncio.timeout(TIMEOUT / 2):
                while not registry.places._waiting:  # noqa: ASYNC110  # nothing tells when it is in line
                    await asyncio.sleep(0.001)
                await asyncio.to_thread(registry.close, job.job_id, "cancelled")
                with pytest.raises(JobEndedError):
                    await asking
            assert not registry.places._waiting

    asyncio.run(scene())


def test_t22_an_answer_is_made_once_others_have_left(enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        registry, (job,) = JobRegistry(settings(enrolment)), signed(enrolment)
        opened, evaluated = await registry.find_or_open(job), []
        evaluate = opened.responder.evaluate
        monkeypatch.setattr(opened.responder, "evaluate", lambda paid: evaluated.append(paid) or evaluate(paid))
        monkeypatch.setattr(opened.schedule, "_chosen", lambda: 0.3)
        async with busy_places(registry.places):
            asked = asyncio.create_task(opened.answer(0, reading(opened), lambda: None))
            while opened._paid is None:  # noqa: ASYNC110  # it is paid for in a thread
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            assert not evaluated
            begun = asyncio.get_running_loop().time()
        assert await asked
        assert asyncio.get_running_loop().time() - begun >= 0.6  # as long as one that did not have to wait
        monkeypatch.setattr(opened.schedule, "_chosen", lambda: 0.001)
        monkeypatch.setattr(opened.responder, "evaluate", lambda _: opened.responder.respond(9, FIRST))
        with pytest.raises(RefusedError):
            await opened.answer(1, reading(opened), lambda: None)
        assert not registry.places._taken

    asyncio.run(scene())


def test_t35_a_job_that_ends_drops_the_query_that_waits_for_a_place(enrolment: Enrolment) -> None:
    """Otherwise the contents of paid queries would pile up while places are taken."""

    async def scene() -> None:
        registry, (job,) = JobRegistry(settings(enrolment)), signed(enrolment)
        opened = await registry.find_or_open(job)
        async with busy_places(registry.places):
            waiting = asyncio.create_task(opened.answer(0, reading(opened), lambda: None))
            while opened._paid is None:  # noqa: ASYNC110  # it is paid for in a thread
                await asyncio.sleep(0.01)
            registry.close(job.job_id, "cancelled")
            assert opened._paid is None
        with pytest.raises(JobEndedError):
            await waiting

    asyncio.run(scene())


def test_a_row_of_zeros_is_recorded_as_any_other(enrolment: Enrolment, tmp_path: Path) -> None:
    """The number of entries goes out with every receipt."""
    usual, counts = settings(enrolment), []
    for name, row in (("zeros", np.zeros((1, 4))), ("numbers", np.ones((1, 4)))):
        (tmp_path / name).mkdir()
        rows = Arrivals("cohort", arriving(tmp_path / name))
        told = replace(usual, data_sets={"cohort": rows}, ledger=MemoryLedger())
        registry = JobRegistry(told)
        registry._name_rows(registry.offer, "cohort")
        np.save(tmp_path / name / "rows" / "9.npy", row)
        rows.count_next(len(ROWS) + 1)
        registry._name_rows(registry.offer, "cohort")
        assert isinstance(told.ledger, MemoryLedger)
        counts.append(len(told.ledger.entries))
    assert counts[0] == counts[1]


def test_a_table_of_zeros_is_recorded_as_any_other(enrolment: Enrolment) -> None:
    usual, jobs, counts = settings(enrolment), signed(enrolment, 2), []
    for rows, job in zip((np.zeros((5, 4)), np.vstack([np.zeros((4, 4)), np.ones(4)])), jobs, strict=True):
        told = replace(usual, data_sets={"cohort": check_rows(rows)}, ledger=MemoryLedger())
        answered(told, job)
        assert isinstance(told.ledger, MemoryLedger)
        counts.append(len(told.ledger.entries))
    assert counts[0] == counts[1]


def test_a_memory_ledger_has_no_answer_to_an_unknown_job() -> None:
    assert MemoryLedger()._fetch("nobody's", 0, None) is None  # type: ignore[arg-type]
