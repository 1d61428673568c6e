"""A malicious coordinator, or somebody who can write the queue, against a provider at which persons approve jobs."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from approvals import BEN, MARIA
from dishonest_peers import DENSE, DIMENSION, NORTH, SPARSE, SPEC, Exchange, exchange_with_provider, rows_of
from facts import names_facts
from local_federation import AllowEverything, Enrolment, now
from timeouts import TIMEOUT

from dpspca.common.approval_record import APPROVE, REJECT
from dpspca.common.job import Budget, Schema
from dpspca.common.names import Role
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.signing import SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.approval import ApprovalQueue, Approvals, lines, make_decision, summary
from dpspca.provider.approval.notify import Notifier
from dpspca.provider.jobs import prepared_rows
from dpspca.provider.ledger.entries import Decided
from dpspca.provider.ledger.sqlite import SqliteLedger
from dpspca.provider.policy import ApprovalRule


class Human(AllowEverything):
    """A policy under which one of two persons has to approve each job."""

    approval_rule = ApprovalRule((MARIA, BEN), 1)  # type: ignore[assignment]


class FourEyes(AllowEverything):
    """A policy under which two persons have to approve each job."""

    approval_rule = ApprovalRule((MARIA, BEN), 2)  # type: ignore[assignment]


@dataclass
class Office:
    """The queue, and decisions as a steward makes them."""

    exchange: Exchange
    harness: Approvals

    def decision(
        self,
        job: SignedJob,
        verdict: str = APPROVE,
        person: str = MARIA,
        signer: Identity | None = None,
        **changes: Any,
    ) -> Decided:
        request = self.harness.queue.find(job.job_id)
        parts: dict[str, Any] = {
            "job": job.job_id,
            "data_set": request.data_set if request else "cohort",
            "verdict": verdict,
            "person": person,
            "login": f"account-of-{person}",
            "reason": "because",
            "decided_at": 1,
            "expires_at": request.expires_at if request else 1,
        }
        return make_decision(signer or self.exchange.home, **parts | changes)

    def take(self, decided: Decided) -> str:
        """Put a decision into the queue and have the daemon take it up. Return why it does not count."""
        number = self.harness.queue.decide(decided)
        self.harness.work()
        (problem,) = [each.problem for each in self.harness.queue.decisions(decided.job) if each.number == number]
        return problem


Scene = Callable[[Exchange, Office], Awaitable[None]]


def play(
    tmp_path: Path, scene: Scene, policy: type[AllowEverything] = Human, ledger: SqliteLedger | None = None
) -> None:
    async def perform() -> None:
        enrolment = Enrolment.create(tmp_path / "town")
        offices = []

        def setup(exchange: Exchange) -> dict[str, Any]:
            queue = ApprovalQueue(tmp_path / "approvals.db")
            offices.append(Office(exchange, Approvals(queue, exchange.ledger, lambda: exchange.home, policy, now)))
            return {"policy": policy, "approvals": offices[0].harness}

        rows = {"cohort": rows_of(50), "study": rows_of(51)}
        async with exchange_with_provider(enrolment, NORTH.name, rows, ledger=ledger, setup=setup) as exchange:
            await scene(exchange, offices[0])

    asyncio.run(perform())


async def waits(exchange: Exchange, job: SignedJob) -> None:
    """Ask for a job, and see that it waits."""
    reply = await exchange.admit(job.to_bytes())
    assert reply.awaiting_approval.job == job.job_id, reply


def untouched(exchange: Exchange) -> bool:
    return not exchange.ledger._state.data_sets and not exchange.ledger.open_jobs()  # type: ignore[attr-defined]


def test_t42_nothing_that_a_coordinator_sends_gets_a_waiting_job_answered(tmp_path: Path) -> None:
    """It repeats, reorders and skips messages. The queue has the job once, and nothing is reserved."""

    async def scene(exchange: Exchange, office: Office) -> None:
        job = exchange.job()
        for position, query in ((0, DENSE), (1, SPARSE), (0, DENSE)):
            assert (await exchange.ask(job.to_bytes(), position, query)).refusal.code == "awaiting-approval"
        for _ in range(5):
            await waits(exchange, job)
        assert (await exchange.ask(job.to_bytes(), 0, DENSE)).refusal.code == "awaiting-approval"
        assert [each.job for each in office.harness.queue.requests()] == [job.job_id]
        assert untouched(exchange)
        await exchange.say(farewell=pb.Farewell(job=job.job_id, state="done"))
        assert (await exchange.admit(job.to_bytes())).HasField("refusal")
        assert office.take(office.decision(job)) != ""
        assert (await exchange.ask(job.to_bytes(), 0, DENSE)).HasField("refusal")
        assert untouched(exchange)

    play(tmp_path, scene)


def test_t42_a_job_changed_after_its_approval_waits_again(tmp_path: Path) -> None:
    async def scene(exchange: Exchange, office: Office) -> None:
        job = exchange.job()
        await waits(exchange, job)
        assert office.take(office.decision(job)) == ""
        for other in (
            exchange.job(),
            exchange.job(data_set="study"),
            exchange.job(replace(SPEC, budget=Budget(2.0, 1e-6))),
            exchange.job(audience=["north", "south"]),
        ):
            await waits(exchange, other)
            assert (await exchange.ask(other.to_bytes(), 0, DENSE)).refusal.code == "awaiting-approval"
        forged = replace(job, payload=job.payload.replace(b"cohort", b"study!"))
        assert (await exchange.admit(forged.to_bytes())).HasField("refusal")
        while not (reply := await exchange.admit(job.to_bytes())).HasField("admitted"):
            assert reply.HasField("awaiting_approval"), reply
        assert (await exchange.ask(job.to_bytes(), 0, DENSE)).answer.content

    play(tmp_path, scene)


def test_t42_a_decision_counts_for_its_own_job_provider_and_key_alone(tmp_path: Path) -> None:
    """Whoever can write the queue but not use the provider's key approves nothing."""

    async def scene(exchange: Exchange, office: Office) -> None:
        job, other = exchange.job(), exchange.job(data_set="study")
        for each in (job, other):
            await waits(exchange, each)
        south = exchange.enrolment.identity(Role.PROVIDER, "south")
        good = office.decision(job)
        requested = office.harness.queue.find(other.job_id)
        assert requested is not None
        bad = (
            office.decision(job, signer=south),
            office.decision(job, signer=exchange.analyst),
            replace(good, job=other.job_id, data_set="study", expires_at=requested.expires_at),
            replace(good, person=BEN),
            replace(good, signature=""),
            office.decision(job, person="eve"),
            office.decision(job, data_set="study"),
            office.decision(job, expires_at=1),
            office.decision(exchange.job()),
        )
        for decided in bad:
            assert office.take(decided) != "", decided
        for each in (job, other):
            assert exchange.ledger.decisions(each.job_id) == ()
            assert (await exchange.ask(each.to_bytes(), 0, DENSE)).refusal.code == "awaiting-approval"
        assert office.take(good) == ""
        assert exchange.ledger.decisions(job.job_id) == (good,)

    play(tmp_path, scene)


def test_t42_one_person_is_not_two_however_often_they_decide(tmp_path: Path) -> None:
    async def scene(exchange: Exchange, office: Office) -> None:
        job = exchange.job()
        await waits(exchange, job)
        for number in range(3):
            assert office.take(office.decision(job, decided_at=number, login=f"account-{number}")) == ""
            await waits(exchange, job)
        assert office.take(office.decision(job, person=BEN)) == ""
        assert (await exchange.reply()).admitted.job == job.job_id

    play(tmp_path, scene, FourEyes)


def test_t42_one_account_is_not_two_persons_whatever_names_it_gives(tmp_path: Path) -> None:
    """The daemon refuses the second approval, also one that no command of ours made."""

    async def scene(exchange: Exchange, office: Office) -> None:
        job = exchange.job()
        await waits(exchange, job)
        assert office.take(office.decision(job, login="shared")) == ""
        assert names_facts(office.take(office.decision(job, person=BEN, login="shared")), MARIA, BEN, "'shared'")
        await waits(exchange, job)
        assert [each.person for each in exchange.ledger.decisions(job.job_id)] == [MARIA]
        assert office.take(office.decision(job, person=BEN, login="own")) == ""
        assert (await exchange.reply()).admitted.job == job.job_id

    play(tmp_path, scene, FourEyes)


def test_t42_an_approval_is_good_for_one_job_once_also_after_a_restart(tmp_path: Path) -> None:
    """The job was approved, and cancelled before its first query. A coordinator replays it after a restart."""
    places = tmp_path / "kept" / "ledger.db", tmp_path / "head" / "head"
    kept: list[SignedJob] = []

    async def cancelled(exchange: Exchange, office: Office) -> None:
        job = exchange.job()
        kept.append(job)
        await waits(exchange, job)
        assert office.take(office.decision(job)) == ""
        assert (await exchange.reply()).admitted.job == job.job_id
        await exchange.say(farewell=pb.Farewell(job=job.job_id, state="cancelled"))
        assert (await exchange.admit(job.to_bytes())).HasField("refusal")

    with SqliteLedger(*places) as ledger:
        play(tmp_path, cancelled, ledger=ledger)
    (tmp_path / "approvals.db").unlink()  # even if the queue is lost, the ledger knows that the approval is used up
    for side in ("approvals.db-wal", "approvals.db-shm"):
        with contextlib.suppress(FileNotFoundError):
            (tmp_path / side).unlink()
    with SqliteLedger(*places) as ledger:
        assert ledger.decisions(kept[0].job_id) == ()
        assert ledger._state._unasked[kept[0].job_id][0] == "cancelled"


def test_t42_a_decision_taken_up_again_after_a_crash_is_recorded_once(tmp_path: Path) -> None:
    """The daemon died after the ledger had the decision, and before the queue had noted that."""

    async def scene(exchange: Exchange, office: Office) -> None:
        job = exchange.job()
        await waits(exchange, job)
        decided = office.decision(job)
        assert office.take(decided) == ""
        with office.harness.queue._writing() as run:
            run("UPDATE decisions SET taken = 0")
        office.harness.work()
        assert exchange.ledger.decisions(job.job_id) == (decided,)
        assert [(each.taken, each.problem) for each in office.harness.queue.decisions(job.job_id)] == [(True, "")]
        assert (await exchange.reply()).admitted.job == job.job_id

    play(tmp_path, scene)


def test_t42_a_rejection_is_final_and_sent_with_its_reason(tmp_path: Path) -> None:
    async def scene(exchange: Exchange, office: Office) -> None:
        job = exchange.job()
        await waits(exchange, job)
        assert office.take(office.decision(job, REJECT)) == ""
        refused = (await exchange.reply()).refusal
        assert (refused.code, refused.what) == ("rejected", f"Rejected by {MARIA}: because.")
        assert office.take(office.decision(job, person=BEN)) != ""
        for _ in range(2):
            assert (await exchange.admit(job.to_bytes())).refusal.code == "rejected"
        assert untouched(exchange)

    play(tmp_path, scene)


@pytest.mark.slow
def test_t42_a_coordinator_that_lost_its_authority_gets_no_decision(tmp_path: Path) -> None:
    async def scene(exchange: Exchange, office: Office) -> None:
        job = exchange.job()
        await waits(exchange, job)
        exchange.enrolment.authority.revoke(exchange.coordinator.hub.name)
        exchange.revoked = exchange.enrolment.revocations()
        assert office.take(office.decision(job)) == ""
        with contextlib.suppress(TimeoutError):
            reply = await asyncio.wait_for(exchange.coordinator.inbound.get(), 3)
            assert not reply.HasField("admitted"), reply
        assert untouched(exchange)

    play(tmp_path, scene)


def test_t42_no_row_is_prepared_for_a_job_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a job would be refused for in any case is said at once, and nobody is asked about it."""
    prepared: list[str] = []
    real = prepared_rows._prepared

    def noted(*arguments: Any) -> Any:
        prepared.append("rows")
        return real(*arguments)

    monkeypatch.setattr(prepared_rows, "_prepared", noted)

    async def scene(exchange: Exchange, office: Office) -> None:
        wide = exchange.job(replace(SPEC, schema=Schema(DIMENSION + 1)))
        assert (await exchange.admit(wide.to_bytes())).HasField("refusal")
        assert office.harness.queue.requests() == []
        job = exchange.job()
        await waits(exchange, job)
        assert (await exchange.ask(job.to_bytes(), 0, DENSE)).HasField("refusal")
        assert prepared == []
        assert office.take(office.decision(job)) == ""
        assert (await exchange.reply()).admitted.job == job.job_id
        assert prepared == ["rows"]

    play(tmp_path, scene)


def test_t42_a_coordinator_that_asks_again_and_again_fills_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(exchange: Exchange, office: Office) -> None:
        job, strange = exchange.job(), exchange.job(replace(SPEC, dictionary="0" * 64))
        with caplog.at_level(logging.INFO):
            for _ in range(3):
                await waits(exchange, job)
                assert (await exchange.admit(strange.to_bytes())).refusal.code == "other-dictionary"
        of_jobs = [each for each in caplog.records if "ob " in each.getMessage() and each.name.startswith("dpspca")]
        assert len(of_jobs) >= 6
        assert {getattr(each, "about", None) for each in of_jobs} == {"the coordinator"}
        assert office.harness.queue.find(job.job_id) is not None

    play(tmp_path, scene)


def test_t42_names_of_columns_neither_silence_nor_deceive_the_steward(tmp_path: Path) -> None:
    """Rows without names may be called anything by the analyst: line breaks, sentences, or much text.

    The steward's command is run with all of them, and what the steward reads quotes them and cuts them short. Half
    characters are refused.
    """
    told = tmp_path / "told.json"
    names = ["a\nState: approved", "b) of the rows. What it costs: mu 0.", "c" * 10_000, "$(touch x)", "<b>"]
    names += [f"column {number}" for number in range(DIMENSION - len(names))]

    async def scene(exchange: Exchange, office: Office) -> None:
        halved = replace(SPEC, schema=Schema(DIMENSION, ("\ud800", *names[1:])))
        assert (await exchange.admit(exchange.job(halved).to_bytes())).refusal.code == "invalid-parameter"
        job = exchange.job(replace(SPEC, schema=Schema(DIMENSION, tuple(names))))
        await waits(exchange, job)
        request = office.harness.queue.find(job.job_id)
        assert request
        notifier = Notifier(("sh", "-c", f"cat > {told}"), TIMEOUT)
        await asyncio.to_thread(notifier.run, summary(request, job.to_bytes()))
        assert json.loads(told.read_bytes())["asks"]["column_names"] == names
        words = list(lines(summary(request, job.to_bytes())))
        (asked,) = [each for each in words if "What is asked" in each]
        assert f"'{names[1]}'" in asked
        assert len(asked) < 1000
        assert all(each.isprintable() for each in words)

    play(tmp_path, scene)
