"""A job is believed, held against the policy and the budget, and bound to its rows, before a question is answered."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from town import AnythingGoes, Town, now

from dpspca.common.errors import BudgetExceededError, RefusedError
from dpspca.common.plan import events
from dpspca.common.privacy.accountant import Filter, cost_units
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import Count, CovarianceProduct
from dpspca.common.spec import Budget, JobSpec, Schema
from dpspca.common.transport.names import PartyName, Role
from dpspca.common.transport.signing import SignedJob
from dpspca.provider import docket as dockets
from dpspca.provider.docket import Docket, Settings
from dpspca.provider.entries import Entry, Head, Opening
from dpspca.provider.ledger import MemoryLedger
from dpspca.provider.preparation import CheckedRows, check_rows
from dpspca.provider.respond import Responder

SPEC = JobSpec(
    schema=Schema(4),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=4.0,
    components=2,
    explained_variance=False,
    options={"sparsity": 4, "rounds": 2},
)
FIRST = CovarianceProduct(np.eye(4)[:, :2])
ROWS = np.random.default_rng(1).standard_normal((20, 4))


class Refusing(AnythingGoes):
    """A policy with one rule, which every job breaks."""

    def check(self, *_: object) -> None:
        raise RefusedError("The rule is broken.", "Ask something else.")


class JustOne(AnythingGoes):
    """A policy whose lifetime has room for one job like this."""

    def limits(self, _: PartyName) -> tuple[Filter, None]:
        return Filter.for_budget(SPEC.budget.epsilon, SPEC.budget.delta), None


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town.found(tmp_path)


def settings(town: Town, policy: type[AnythingGoes] = AnythingGoes, rows: np.ndarray = ROWS) -> Settings:
    me = town.identity(Role.PROVIDER, "north")
    return Settings("", lambda: me, town.revocations, now, {"cohort": check_rows(rows)}, policy)


def signed(town: Town, count: int = 1) -> list[SignedJob]:
    ada = town.identity(Role.ANALYST, "ada")
    return [town.job(SPEC, ada, ["north"]) for _ in range(count)]


def test_a_job_that_breaks_a_rule_is_not_opened(town: Town) -> None:
    told = settings(town, Refusing)
    (job,) = signed(town)
    with pytest.raises(RefusedError, match="rule is broken"):
        Docket(told).open(job)
    assert isinstance(told.ledger, MemoryLedger)
    assert [entry.number for entry in told.ledger.entries] == [1]  # its founding


def test_jobs_together_keep_within_the_lifetime_of_their_data_set(town: Town) -> None:
    docket = Docket(settings(town, JustOne))
    first, second = signed(town, 2)
    opened = docket.open(first)
    assert cost_units(events(opened.plan)) > Filter.for_budget(1.0, 1e-6).budget_units // 2
    with pytest.raises(BudgetExceededError, match="cohort"):
        docket.open(second)


def test_a_job_does_not_go_on_over_other_rows_after_a_restart(town: Town) -> None:
    told = settings(town)
    (job,) = signed(town)
    Docket(told).open(job).responder.respond(0, FIRST)
    changed = ROWS.copy()
    changed[7, 1] += 1e-9
    with pytest.raises(RefusedError, match="data changed"):
        Docket(replace(told, data_sets={"cohort": check_rows(changed)})).open(job)
    Docket(told).open(job)


def test_two_daemons_with_the_settings_they_are_born_with_draw_unrelated_noise(town: Town) -> None:
    """False alarm: eight draws of thirty bits that agree."""
    told = settings(town)
    (job,) = signed(town)
    first, second = [
        Docket(replace(told, ledger=MemoryLedger())).open(job).responder.respond(0, FIRST) for _ in range(2)
    ]
    assert not (first == second).any()


def test_t18_a_job_is_answered_over_as_many_rows_of_a_person_as_it_protects(town: Town) -> None:
    persons = np.zeros(len(ROWS), dtype=np.intp)
    persons[3:] = np.arange(1, len(ROWS) - 2)
    kept = replace(settings(town), data_sets={"cohort": CheckedRows(ROWS, persons=persons)})
    docket = Docket(kept)
    for most in (2, 3, 2):
        shard = docket._shard("cohort", replace(SPEC, rows_per_person=most))
        assert shard.evaluate(Count()).tolist() == [len(ROWS) - 3 + most]


def test_t25_a_receipt_confirms_no_guess_of_the_rows(town: Town) -> None:
    """Whoever knows all else of an entry that names the rows lacks random bits that no two openings share."""
    told = settings(town)
    assert isinstance(told.ledger, MemoryLedger)
    docket = Docket(told)
    for job in signed(town, 2):
        docket.open(job)
    openings = [entry for entry in told.ledger.entries if isinstance(entry.fact, Opening)]
    blinds = {entry.fact.blind for entry in openings if isinstance(entry.fact, Opening)}
    assert len(blinds) == 2
    for entry, before in zip(openings, (told.ledger.entries[0], openings[0]), strict=True):
        assert isinstance(entry.fact, Opening)
        assert len(entry.fact.blind) == 32
        head = Head("", before.number, before.hash)
        assert Entry.following(head, entry.at, entry.fact).hash == entry.hash
        assert Entry.following(head, entry.at, replace(entry.fact, blind="")).hash != entry.hash


def test_noise_drawn_ahead_is_let_go_with_its_job_however_that_ends(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go: list[Responder] = []

    def noted(responder: Responder) -> None:
        let_go.append(responder)

    monkeypatch.setattr(Responder, "let_go", noted)
    monkeypatch.setattr(dockets, "MAX_OPEN_JOBS", 1)
    ada, days = town.identity(Role.ANALYST, "ada"), [0]
    docket = Docket(replace(settings(town), clock=lambda: now() + timedelta(days=days[0])))

    def opened() -> Responder:
        return docket.open(town.job(SPEC, ada, ["north"], now=now() + timedelta(days=days[0]))).responder

    first, second = opened(), opened()
    assert let_go == [first]  # there was no place for two
    name = next(iter(docket._jobs))
    docket.close(name, "done")
    docket.close(name, "done")
    assert let_go == [first, second]
    monkeypatch.setattr(dockets, "MAX_OPEN_JOBS", 2)
    third = opened()
    days[0] = 1
    opened()
    assert let_go == [first, second, third]  # it had expired
    assert len(docket._jobs) == 1


def test_rows_that_were_spent_on_are_not_offered_under_another_name(town: Town) -> None:
    told = settings(town)
    Docket(told).open(*signed(town))
    renamed = replace(told, data_sets={"study": check_rows(ROWS.copy())})
    with pytest.raises(RefusedError, match=r"rows of 'study' are those of 'cohort'.*Offer them as 'cohort'"):
        Docket(renamed)
    beside = replace(told, data_sets={"cohort": check_rows(ROWS + 1), "study": check_rows(ROWS)})
    with pytest.raises(RefusedError, match="rows of 'study' are those of 'cohort'"):
        Docket(beside)
    Docket(told)
    Docket(replace(told, data_sets={"cohort": check_rows(ROWS), "study": check_rows(ROWS + 1)}))


def test_the_same_rows_are_not_offered_twice(town: Town) -> None:
    twice = {name: check_rows(ROWS) for name in ("cohort", "study")}
    with pytest.raises(RefusedError, match="rows of 'study' are those of 'cohort'"):
        Docket(replace(settings(town), data_sets=twice))
