"""A coordinator that mixes jobs, keys and providers, against real daemons.

There is no secure aggregation: a coordinator sees each answer and receives no shares, masks or keys. So it gains
nothing by asking for them, by taking sums apart, or by sending each provider another query.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coordinator_processes import StableEnrolment
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from dishonest_peers import (
    DENSE,
    DIMENSION,
    NORTH,
    SPARSE,
    SPEC,
    Exchange,
    basis,
    exchange_with_provider,
    rows_of,
    run_exchange,
)
from facts import names_facts
from local_federation import Enrolment

from dpspca.common.algorithms import catalogue
from dpspca.common.names import Role
from dpspca.common.plan import prices
from dpspca.common.privacy import audit as audits
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.common.trust.certificates import read_key
from dpspca.common.trust.connection_proof import sign_challenge
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.signing import SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard

PLAN = catalogue.plan(SPEC)
COSTS = list(prices(PLAN))
QUERIES = (DENSE, SPARSE, SPARSE)
SITES = ("north", "south", "west")
ROWS = {name: rows_of(50, seed) for seed, name in enumerate(SITES)}


def run_scene_with_three(tmp_path: Path, scene: Callable[[dict[str, Exchange]], Awaitable[None]]) -> None:
    """Run a scene with three daemons that are connected to one malicious coordinator."""

    async def perform() -> None:
        enrolment = StableEnrolment.create(tmp_path)
        async with AsyncExitStack() as stack:
            stages = {
                name: await stack.enter_async_context(exchange_with_provider(enrolment, name, {"cohort": rows}))
                for name, rows in ROWS.items()
            }
            await scene(stages)

    asyncio.run(perform())


def charged_queries(exchange: Exchange, job: SignedJob) -> int:
    """Return how many queries of a job were charged, after checking that they cost what was planned."""
    standing = exchange.ledger.standing(job.job_id)
    if standing is None:
        return 0
    assert standing.spent == COSTS[standing.reached - 1]
    return standing.reached


# --- Two jobs ---------------------------------------------------------------------------------------------------------


def test_t17_equal_queries_of_two_jobs_get_separate_answers(tmp_path: Path) -> None:
    async def scene(exchange: Exchange) -> None:
        jobs = [exchange.job(), exchange.job()]
        answers = [
            [(await exchange.ask(job.to_bytes(), at, query)).answer for job in jobs] for at, query in enumerate(QUERIES)
        ]
        for first, second in answers:
            assert len(first.content) == len(second.content)
            assert first.content != second.content
            assert [first.job, second.job] == [job.job_id for job in jobs]
        assert [charged_queries(exchange, job) for job in jobs] == [len(PLAN)] * 2
        for at, query in enumerate(QUERIES):  # the same in the other order
            for job, own in reversed([*zip(jobs, answers[at], strict=True)]):
                assert (await exchange.ask(job.to_bytes(), at, query)).answer == own
        spent = exchange.ledger._state.data_sets["cohort"].spent.units
        assert spent == 2 * COSTS[-1].units

    run_exchange(tmp_path, scene)


def test_t17_a_query_renamed_to_another_job_counts_for_that_job(tmp_path: Path) -> None:
    async def scene(exchange: Exchange) -> None:
        first, second = exchange.job(), exchange.job()
        answer = (await exchange.ask(second.to_bytes(), 0, DENSE)).answer
        announced = {"kind": DENSE.kind, "dimension": DIMENSION, "columns": 2, "nonzero_rows": DIMENSION}
        await exchange.say(query=pb.Query(signed_job=first.to_bytes(), **announced))
        own = await exchange.ask_in_bytes(DENSE.content(), signed_job=second.to_bytes(), **announced)
        assert own.answer == answer
        assert [charged_queries(exchange, job) for job in (first, second)] == [0, 1]
        other = CovarianceProduct(basis(7))
        assert (await exchange.ask(first.to_bytes(), 0, other)).answer.content != answer.content
        for job, query in ((first, DENSE), (second, other)):  # each job sends the other's query
            assert (await exchange.ask(job.to_bytes(), 0, query)).refusal.code == "refused"
        assert [charged_queries(exchange, job) for job in (first, second)] == [1, 1]

    run_exchange(tmp_path, scene)


# --- Several providers ------------------------------------------------------------------------------------------------

JOBS = 8
FALSE_ALARM = 1e-6


def test_t27_t28_each_provider_s_part_of_a_sum_has_its_planned_noise(
    tmp_path: Path,
) -> None:
    """Each provider's part is the sum of all minus the sum of the others. False alarm 1e-6, a third for each.

    If the sum as a whole had only the noise of one provider, the test would find it with probability 0.99.
    """
    exact = {
        name: [Shard(check_rows(rows), SPEC.norm_bound).evaluate(each) for each in QUERIES]
        for name, rows in ROWS.items()
    }

    async def scene(stages: dict[str, Exchange]) -> None:
        residuals: dict[str, list[np.ndarray]] = {name: [] for name in SITES}
        for _ in range(JOBS):
            job = stages["north"].job(audience=SITES).to_bytes()
            for at, (step, query) in enumerate(zip(PLAN, QUERIES, strict=True)):
                given = {name: read((await exchange.ask(job, at, query)).answer) for name, exchange in stages.items()}
                for name in SITES:
                    left = sum(given.values()) - sum(each for other, each in given.items() if other != name)
                    assert np.array_equal(left, given[name])
                    residuals[name].append((left - exact[name][at].ravel()) / step.noise_std)
        for name, found in residuals.items():
            finding = audits.width(name, np.concatenate(found), FALSE_ALARM / len(SITES))
            assert finding.passed, finding
            assert finding.catches is not None
            assert finding.catches > len(SITES) ** -0.5

    run_scene_with_three(tmp_path, scene)


def read(answer: pb.AnswerFrame) -> np.ndarray:
    return np.frombuffer(answer.content, dtype="<i8")


def test_t28_more_providers_change_neither_noise_nor_price(tmp_path: Path) -> None:
    async def scene(exchange: Exchange) -> None:
        drawn = []
        for audience in (["north"], [*SITES], ["north", *(f"site-{number}" for number in range(100))]):
            for least in {1, len(audience)}:
                job = exchange.job(replace(SPEC, minimum_providers=least), audience)
                assert (await exchange.ask(job.to_bytes(), 0, DENSE)).HasField("answer")
                assert charged_queries(exchange, job) == 1
                drawn.append(catalogue.plan(replace(SPEC, minimum_providers=least)))
        assert all(plan.steps == PLAN.steps for plan in drawn)

    run_exchange(tmp_path, scene)


def test_t31_a_provider_asked_another_query_pays_the_same_price(
    tmp_path: Path,
) -> None:
    """Each answer is private whatever the query: different queries give a wrong model, not a less private one."""

    async def scene(stages: dict[str, Exchange]) -> None:
        job = stages["north"].job(audience=SITES)
        for at in range(len(PLAN)):
            views = {name: CovarianceProduct(basis(10 * at + number, 5)) for number, name in enumerate(SITES)}
            answers = {name: (await stages[name].ask(job.to_bytes(), at, views[name])).answer for name in SITES}
            for name, other in zip(SITES, SITES[1:] + SITES[:1], strict=True):
                refused = await stages[name].ask(job.to_bytes(), at, views[other])
                assert names_facts(refused.refusal.what, f"Query {at + 1}", "other content")
                assert (await stages[name].ask(job.to_bytes(), at, views[name])).answer == answers[name]
            assert {charged_queries(exchange, job) for exchange in stages.values()} == {at + 1}
        for exchange in stages.values():
            assert (await exchange.ask(job.to_bytes(), len(PLAN), SPARSE)).HasField("refusal")
            assert exchange.ledger._state.data_sets["cohort"].spent.units == COSTS[-1].units

    run_scene_with_three(tmp_path, scene)


# --- Promises ---------------------------------------------------------------------------------------------------------


def test_t10_a_price_is_reserved_once_and_freed_when_the_job_ends(tmp_path: Path) -> None:
    """A coordinator can have budget reserved only for jobs that analysts signed, and only until they end."""

    async def scene(exchange: Exchange) -> None:
        job = exchange.job()
        promised = []

        async def admitted() -> None:
            assert (await exchange.admit(job.to_bytes())).admitted.job == job.job_id
            account = exchange.ledger._state.data_sets["cohort"]
            promised.append(account.reserved.units)
            assert account.spent.units + account.reserved.units == COSTS[-1].units

        await admitted()
        await admitted()
        for at, query in enumerate(QUERIES[:2]):
            assert (await exchange.ask(job.to_bytes(), at, query)).answer.content
            await admitted()
        assert promised[:2] == [COSTS[-1].units] * 2
        assert promised[2:] == [COSTS[-1].units - cost.units for cost in COSTS[:2]]
        await exchange.say(farewell=pb.Farewell(job=job.job_id, state="cancelled"))
        assert (await exchange.admit(job.to_bytes())).HasField("refusal")
        account = exchange.ledger._state.data_sets["cohort"]
        assert (account.spent.units, account.reserved.units) == (COSTS[1].units, 0)

    run_exchange(tmp_path, scene)


def test_t06_an_admission_during_a_query_changes_neither(tmp_path: Path) -> None:
    async def scene(exchange: Exchange) -> None:
        job, other = exchange.job(), exchange.job()
        ask = {"kind": DENSE.kind, "dimension": DIMENSION, "columns": 2, "nonzero_rows": DIMENSION}
        await exchange.say(query=pb.Query(signed_job=job.to_bytes(), **ask))
        assert (await exchange.admit(other.to_bytes())).admitted.job == other.job_id
        await exchange.say(frame=pb.Frame(content=bytes(DENSE.content())))
        answer = (await exchange.reply()).answer
        assert (answer.job, answer.position) == (job.job_id, 0)
        assert (charged_queries(exchange, job), charged_queries(exchange, other)) == (1, 0)

    run_exchange(tmp_path, scene)


# --- Shares, masks and keys -------------------------------------------------------------------------------------------

SAID = {
    "ToProvider": {
        "welcome",
        "heartbeat",
        "admit",
        "query",
        "frame",
        "farewell",
        "returned_receipts",
        "statement_request",
    },
    "Welcome": {"software", "heartbeat_seconds", "certificate", "proof", "receipt"},
    "Heartbeat": set[str](),
    "Admit": {"signed_job"},
    "Query": {
        *("signed_job", "position", "kind", "dimension", "columns", "nonzero_rows"),
        *("centred", "threshold", "power", "content", "block", "blocks", "scaled"),
    },
    "Frame": {"sequence", "content"},
    "Farewell": {"job", "state", "receipts"},
    "ReturnedReceipts": {"receipts"},
    "StatementRequest": {"signed_request"},
    "Receipt": {"ledger", "entries", "hash", "certificate", "signature"},
    "HeldReceipt": {"provider", "receipt"},
}
"""All that a coordinator can say to a provider. No share, no mask and no key of anybody's is among it: a certificate
proves who speaks, and nothing is encrypted or masked with its key."""
HEARD = {
    "FromProvider": {"hello", "heartbeat", "answer", "refusal", "admitted", "awaiting_approval", "statement_reply"},
    "Hello": {"software", "data_sets", "challenge", "open_jobs", "held"},
    "DataSet": {"name", "dimension", "columns", "dictionary", "dictionary_title", "sparse"},
    "AnswerFrame": {"job", "position", "sequence", "content", "receipt"},
    "Refusal": {"job", "position", "code", "what", "remedy"},
    "Admitted": {"job"},
    "AwaitingApproval": {"job", "since", "until"},
    "StatementReply": {"request", "signed_statement"},
} | {name: SAID[name] for name in ("Heartbeat", "HeldReceipt", "Receipt")}
"""All that a provider can say to a coordinator."""


def fields_within(message: Any) -> dict[str, set[str]]:
    """Return the fields of a message, and of all messages within it."""
    found = {message.name: {field.name for field in message.fields}}
    for field in message.fields:
        if field.message_type:
            found |= fields_within(field.message_type)
    return found


def test_t29_no_message_has_a_share_or_a_mask() -> None:
    """When you add a field, say here what a coordinator could do with it, and test that."""
    assert fields_within(pb.ToProvider.DESCRIPTOR) == SAID
    assert fields_within(pb.FromProvider.DESCRIPTOR) == HEARD
    assert [each.name for each in pb.ToProvider.DESCRIPTOR.oneofs] == ["message"]
    assert {each.name for each in pb.ToProvider.DESCRIPTOR.oneofs[0].fields} == SAID["ToProvider"]


def unknown(number: int, content: bytes) -> bytes:
    """Return the bytes of a field that no message has."""
    return bytes([number << 3 | 2, len(content)]) + content


def test_t29_an_unknown_message_is_not_answered_and_changes_nothing(tmp_path: Path) -> None:
    async def scene(exchange: Exchange) -> None:
        job = exchange.job()
        answer = (await exchange.ask(job.to_bytes(), 0, DENSE)).answer
        announced = {"kind": DENSE.kind, "dimension": DIMENSION, "columns": 2, "nonzero_rows": DIMENSION}
        ask = pb.Query(signed_job=job.to_bytes(), **announced).SerializeToString()
        for number in (8, 9, 15):
            await exchange.coordinator.outbound.put(pb.ToProvider.FromString(unknown(number, b"the share of south")))
            longer = (
                pb.Query.FromString(ask + unknown(number, b"and your mask"))
                if number > 12
                else pb.Query.FromString(ask)
            )
            await exchange.coordinator.outbound.put(pb.ToProvider(query=longer))
            await exchange.coordinator.outbound.put(pb.ToProvider.FromString(unknown(number, b"before the frames")))
            await exchange.say(frame=pb.Frame(content=bytes(DENSE.content())))
            assert (await exchange.reply()).answer == answer
        assert exchange.coordinator.inbound.empty()
        assert charged_queries(exchange, job) == 1

    run_exchange(tmp_path, scene)


def signed_by(identity: Identity, job: SignedJob) -> SignedJob:
    """Sign a job again with any identity, which our client does only for analysts."""
    signature = read_key(identity.key_pem).sign(job.payload, ec.ECDSA(SHA256()))
    return replace(job, signature=signature, certificate_pem=identity.certificate_pem)


def another_town(exchange: Exchange) -> Enrolment:
    """Found a federation of the same name with another authority."""
    return StableEnrolment.create(exchange.enrolment.folder / "of-its-own", "town")


def forged_jobs(exchange: Exchange, job: SignedJob) -> dict[str, SignedJob]:
    """Return a job with other keys, certificates and signatures."""
    false_ada = another_town(exchange).identity(Role.ANALYST, "ada")
    hub, provider = exchange.coordinator.hub, exchange.home
    chain = false_ada.certificate_pem + false_ada.authority_pem
    return {
        "the coordinator's": signed_by(hub, job),
        "another true analyst's": signed_by(exchange.enrolment.identity(Role.ANALYST, "eve"), job),
        "the provider's own": signed_by(provider, job),
        "its own authority's": signed_by(false_ada, job),
        "its own authority's, with the authority": replace(signed_by(false_ada, job), certificate_pem=chain),
        "the true one, with its own behind": replace(job, certificate_pem=job.certificate_pem + chain),
        "its own, with the true one behind": replace(
            signed_by(false_ada, job), certificate_pem=false_ada.certificate_pem + job.certificate_pem
        ),
        "the true one's certificate over its own signature": replace(
            signed_by(false_ada, job), certificate_pem=job.certificate_pem
        ),
        "the true authority": replace(signed_by(false_ada, job), certificate_pem=exchange.home.authority_pem),
        "no certificate": replace(job, certificate_pem=b""),
    }


def test_t30_a_job_signed_with_another_key_is_refused(tmp_path: Path) -> None:
    async def scene(exchange: Exchange) -> None:
        job = exchange.job()
        forged = forged_jobs(exchange, job)
        for name, each in forged.items():
            assert each.job_id == job.job_id, name
            assert (await exchange.ask(each.to_bytes(), 0, DENSE)).refusal.code, name
            assert exchange.ledger._state.jobs == {}, name
        answer = (await exchange.ask(job.to_bytes(), 0, DENSE)).answer
        for each in forged.values():  # the bytes that ada signed are already her job, so nothing else is checked
            assert (await exchange.ask(each.to_bytes(), 0, DENSE)).answer == answer
        assert exchange.ledger._state.jobs[job.job_id].opening.analyst == exchange.analyst.name.uri
        assert charged_queries(exchange, job) == 1

    run_exchange(tmp_path, scene)


@pytest.mark.parametrize("chained", [False, True])
def test_t30_a_coordinator_with_an_untrusted_key_is_disconnected(tmp_path: Path, chained: bool) -> None:
    async def scene(exchange: Exchange) -> None:
        trusted, job, elsewhere = exchange.home.authority_pem, exchange.job(), another_town(exchange)
        false = elsewhere.identity(Role.COORDINATOR, "hub")
        signed_by_false_ada = signed_by(elsewhere.identity(Role.ANALYST, "ada"), job)
        shown = false.certificate_pem + (false.authority_pem + exchange.coordinator.hub.certificate_pem) * chained
        await exchange.say(
            welcome=pb.Welcome(certificate=shown, proof=sign_challenge(false, exchange.coordinator.challenge, NORTH))
        )
        assert (await exchange.reply()).HasField("hello")  # it disconnected, and connected again
        assert exchange.home.authority_pem == trusted
        assert (await exchange.ask(signed_by_false_ada.to_bytes(), 0, DENSE)).HasField("refusal")
        assert exchange.ledger._state.jobs == {}
        assert (await exchange.ask(job.to_bytes(), 0, DENSE)).HasField("answer")

    run_exchange(tmp_path, scene)
