"""A malicious coordinator with a valid certificate, against a real daemon over mutual TLS.

Whatever it sends, a provider answers only the queries that the analyst signed, once each, in order. Everything else is
refused, and costs nothing.
"""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dishonest_peers import DENSE, DIMENSION, NORTH, SPARSE, SPEC, Exchange, run_exchange
from local_federation import now
from numpy.typing import NDArray
from scipy import sparse, stats

from dpspca.common.job import JobSpec, Schema
from dpspca.common.names import PartyName, Role
from dpspca.common.queries.rows import Count, CovarianceProduct
from dpspca.common.trust import identity as identities
from dpspca.common.trust.authority import Authority
from dpspca.common.trust.connection_proof import sign_challenge
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.receipts import sign_receipt
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.ledger.entries import Head
from dpspca.provider.ledger.sqlite import SqliteLedger


def test_a_repeated_query_gets_the_same_bytes(tmp_path: Path) -> None:
    async def scene(exchange: Exchange) -> None:
        signed = exchange.job()
        answers = {
            (await exchange.ask(signed.to_bytes(), 0, DENSE)).answer.content for _ in range(50)
        }  # T05: one answer, however often it is asked for
        assert len(answers) == 1
        assert len(answers.pop()) == DIMENSION * 2 * 8
        standing = exchange.ledger.standing(signed.job_id)
        assert standing is not None
        assert standing.reached == 1

    run_exchange(tmp_path, scene)


def test_t06_t08_t09_other_content_more_rounds_and_another_order_are_refused(tmp_path: Path) -> None:
    async def scene(exchange: Exchange) -> None:
        signed = exchange.job()
        carried = signed.to_bytes()
        assert (await exchange.ask(carried, 1, SPARSE)).refusal.code == "refused"
        assert exchange.ledger.standing(signed.job_id) is None
        assert (await exchange.ask(carried, 0, DENSE)).answer.content
        paid = exchange.ledger.standing(signed.job_id)
        for position, query in (
            (0, CovarianceProduct(-DENSE.basis)),
            (2, SPARSE),
            (3, SPARSE),
            (2**31, SPARSE),
            (1, DENSE),
            (1, Count()),
        ):
            assert (await exchange.ask(carried, position, query)).HasField("refusal")
        assert exchange.ledger.standing(signed.job_id) == paid
        for position in (1, 2):
            assert (await exchange.ask(carried, position, SPARSE)).answer.content
        assert (await exchange.ask(carried, 3, SPARSE)).HasField("refusal")

    run_exchange(tmp_path, scene)


CHANGES: dict[str, list[Any]] = {
    "kind": ["", "count", "CovarianceProduct", "x" * 999],
    "dimension": [0, DIMENSION - 1, DIMENSION + 1, 2**32 - 1],
    "columns": [0, 1, 3, 2**32 - 1],
    "nonzero_rows": [1, DIMENSION - 1, DIMENSION + 1, 2**32 - 1],
    "centred": [True],
    "threshold": [1.0, -1.0, math.inf, math.nan],
    "power": [1, 2**32 - 1],
    "block": [1, 2**32 - 1],
    "blocks": [1, 2, 2**32 - 1],
}
"""Of what announces a query, other values than the one that is right."""


def test_t06_a_query_with_any_field_changed_is_always_refused(tmp_path: Path) -> None:
    async def scene(exchange: Exchange) -> None:
        signed = exchange.job()
        assert (await exchange.ask(signed.to_bytes(), 0, DENSE)).answer.content
        paid = exchange.ledger.standing(signed.job_id)
        for position, query in enumerate((DENSE, SPARSE)):
            for name, values in CHANGES.items():
                for value in values:
                    message = await exchange.ask(signed.to_bytes(), position, query, **{name: value})
                    assert message.HasField("refusal"), (position, name, value)
        announced = {"position": 0, "kind": DENSE.kind, "dimension": DIMENSION, "columns": 2}
        announced |= {"nonzero_rows": DENSE.extent.nonzero_rows, "signed_job": signed.to_bytes()}
        for at in range(0, len(DENSE.content()), 7):
            content = bytearray(DENSE.content())
            content[at] ^= 0x81
            assert (await exchange.ask_in_bytes(bytes(content), **announced)).HasField("refusal"), at
        assert exchange.ledger.standing(signed.job_id) == paid
        assert (await exchange.ask(signed.to_bytes(), 1, SPARSE)).answer.content

    run_exchange(tmp_path, scene)


def test_t07_t10_a_changed_forged_late_or_foreign_job_is_refused(tmp_path: Path) -> None:
    async def scene(exchange: Exchange) -> None:
        true = exchange.job()
        looser = replace(true, payload=true.payload.replace(b'"epsilon":1.0', b'"epsilon":9.0'))
        assert looser.payload != true.payload
        longer = replace(true, payload=true.payload.replace(b'"rounds":3', b'"rounds":9'))
        unsigned = replace(true, signature=bytes(len(true.signature)))
        old = exchange.job(now=now() - timedelta(hours=2))
        early = exchange.job(now=now() + timedelta(hours=2))
        elsewhere = exchange.job(audience=["south"])
        unknown = exchange.job(data_set="other")
        wider = exchange.job(replace(SPEC, schema=Schema(DIMENSION + 1)))
        for job in (looser, longer, unsigned, old, early, elsewhere, unknown):
            assert (await exchange.admit(job.to_bytes())).HasField("refusal"), job
            assert (await exchange.ask(job.to_bytes(), 0, DENSE)).HasField("refusal"), job
            assert exchange.ledger.standing(job.job_id) is None
        larger = CovarianceProduct(np.eye(DIMENSION + 1)[:, :2])
        assert (await exchange.ask(wider.to_bytes(), 0, larger)).HasField("refusal")
        for nonsense in (b"", b"nonsense", true.to_bytes()[:-1], true.to_bytes() + b"\0"):
            assert (await exchange.ask(nonsense, 0, DENSE)).HasField("refusal")
            assert (await exchange.admit(nonsense)).HasField("refusal")
        assert not exchange.ledger.open_jobs()

    run_exchange(tmp_path, scene)


@pytest.mark.parametrize(
    "changes",
    [
        {"nonzero_rows": 2**32 - 1},
        {"columns": 2**32 - 1},
        {"dimension": 2**32 - 1},
        {"centred": True},
        {"kind": "covariance"},
        {"kind": "everything"},
    ],
)
def test_t35_an_announced_size_beyond_the_plan_is_refused_at_once(tmp_path: Path, changes: dict[str, Any]) -> None:
    async def scene(exchange: Exchange) -> None:
        signed = exchange.job()
        reply = await exchange.ask(signed.to_bytes(), 0, DENSE, **changes)
        assert reply.HasField("refusal")
        assert exchange.ledger.standing(signed.job_id) is None
        assert (await exchange.ask(signed.to_bytes(), 0, DENSE)).answer.content

    run_exchange(tmp_path, scene)


def test_t01_t03_an_invalid_basis_is_refused_and_the_daemon_continues(tmp_path: Path) -> None:
    async def scene(exchange: Exchange) -> None:
        signed = exchange.job().to_bytes()
        whole = bytes(DENSE.content())
        scaled = bytearray(whole)
        scaled[48:] = (np.frombuffer(whole[48:], "<f8") * 1000).tobytes()
        poisoned = bytearray(whole)
        poisoned[48:56] = np.float64(np.nan).tobytes()
        for content in (bytes(scaled), bytes(poisoned), bytes(len(whole)), whole[:-8], whole + bytes(8)):
            ask = pb.Query(signed_job=signed, kind=DENSE.kind, dimension=DIMENSION, columns=2, nonzero_rows=DIMENSION)
            await exchange.coordinator.outbound.put(pb.ToProvider(query=ask))
            await exchange.coordinator.outbound.put(pb.ToProvider(frame=pb.Frame(content=content)))
            assert (await exchange.reply()).refusal.code in {"invalid-query", "not-canonical-query"}
        await exchange.coordinator.outbound.put(pb.ToProvider(frame=pb.Frame(content=whole)))  # the digest of no query
        assert (await exchange.ask(signed, 0, DENSE)).answer.content

    run_exchange(tmp_path, scene)


WIDE = 64
"""Columns that a basis of fifty fits into."""


def equal_columns(components: int) -> list[NDArray[np.float64]]:
    """Return matrices with equal columns of length one, which are no bases."""
    column = np.random.default_rng(components).standard_normal((WIDE, 1))
    column /= np.linalg.norm(column)
    axis, two = np.eye(WIDE)[:, :1], np.eye(WIDE)[:, :components]
    two[:, -1] = two[:, 0]
    return [np.tile(column, components), np.tile(axis, components), two]


def test_t02_equal_unit_columns_are_refused_at_no_cost(tmp_path: Path) -> None:
    def wide(components: int) -> JobSpec:
        return replace(SPEC, schema=Schema(WIDE), components=components, options={"sparsity": WIDE, "rounds": 1})

    async def scene(exchange: Exchange) -> None:
        for components in range(2, 51):
            signed = exchange.job(wide(components))
            announced = {"signed_job": signed.to_bytes(), "kind": DENSE.kind, "dimension": WIDE, "columns": components}
            for basis in equal_columns(components):
                assert np.allclose(np.linalg.norm(basis, axis=0), 1)
                support = np.flatnonzero(basis.any(axis=1))
                content = support.astype("<u4").tobytes() + basis[support].astype("<f8").tobytes()
                reply = await exchange.ask_in_bytes(content, nonzero_rows=len(support), **announced)
                assert reply.refusal.what.startswith("The basis is not orthonormal")
            assert exchange.ledger.standing(signed.job_id) is None
            await exchange.say(farewell=pb.Farewell(job=signed.job_id, state="cancelled"))
        last = exchange.job(wide(50))
        assert (await exchange.ask(last.to_bytes(), 0, CovarianceProduct(np.eye(WIDE)[:, :50]))).answer.content
        spent, standing = exchange.ledger._state.data_sets["cohort"], exchange.ledger.standing(last.job_id)
        assert standing is not None
        assert (spent.spent.units, spent.reserved.units) == (standing.spent.units, 0)

    run_exchange(tmp_path, scene, rows=np.random.default_rng(2).standard_normal((50, WIDE)))


FALSE_ALARM = 1e-6
PAIRS = 40


@pytest.mark.slow
def test_t04_denormal_numbers_do_not_slow_an_answer(tmp_path: Path) -> None:
    """False alarm 1e-6: a coin decides which query of a pair is sent first, so if both take equally long, one is
    slower by a tenth in at most half of the pairs. Rounding the basis, which the coordinator knows, takes some
    microseconds more. Measured is this process's processor time, which includes the coordinator's equal part.
    """
    what = replace(SPEC, schema=Schema(WIDE), options={"sparsity": WIDE, "rounds": 1})

    async def spent(exchange: Exchange, speck: float) -> float:
        basis = np.eye(WIDE)[:, :2]
        basis[WIDE // 2 :] = speck
        job = exchange.job(what)
        begun = time.process_time()
        assert (await exchange.ask(job.to_bytes(), 0, CovarianceProduct(basis))).answer.content
        return time.process_time() - begun

    async def scene(exchange: Exchange) -> None:
        slower = 0
        for turned in np.random.default_rng().integers(2, size=PAIRS):
            first = await spent(exchange, SPECKS[turned])
            second = await spent(exchange, SPECKS[1 - turned])
            denormal, ordinary = (second, first) if turned else (first, second)
            slower += denormal > 1.1 * ordinary
        assert slower <= stats.binom.isf(FALSE_ALARM, PAIRS, 0.5)

    run_exchange(tmp_path, scene, rows=sparse.random_array((8000, WIDE), density=0.5, format="csr", rng=0))


SPECKS = (2.0**-1070, 2.0**-800)
"""A denormal number, and one that is as good as nothing too and that no processor minds."""


SHORTEST_SILENCE = 3.0
"""Seconds: three heartbeats, of which the puppet's welcome promises one every 0 seconds, and a daemon counts 1."""


@pytest.mark.slow
def test_a_provider_redials_a_silent_coordinator(tmp_path: Path) -> None:
    async def scene(exchange: Exchange) -> None:
        begun = asyncio.get_running_loop().time()
        assert (await exchange.reply()).HasField("hello")
        assert asyncio.get_running_loop().time() - begun > SHORTEST_SILENCE - 0.5  # the time began with the welcome
        assert (await exchange.ask(exchange.job().to_bytes(), 0, DENSE)).answer.content

    run_exchange(tmp_path, scene)


@pytest.mark.slow
def test_a_provider_stays_with_a_coordinator_that_sends_heartbeats(tmp_path: Path) -> None:
    async def scene(exchange: Exchange) -> None:
        for _ in range(4):
            await asyncio.sleep(SHORTEST_SILENCE / 3)
            await exchange.coordinator.outbound.put(pb.ToProvider(heartbeat=pb.Heartbeat()))
            assert (await exchange.reply()).HasField("heartbeat")

    run_exchange(tmp_path, scene)


def shown(certificate: bytes, proof: bytes) -> pb.Welcome:
    return pb.Welcome(certificate=certificate, proof=proof)


def another_identity(exchange: Exchange) -> Identity:
    """Return the identity of another party."""
    return exchange.enrolment.identity(Role.PROVIDER, "east")


EAST = PartyName("town", Role.PROVIDER, "east")

UNPROVED: dict[str, Callable[[Exchange], Callable[[bytes], pb.Welcome]]] = {
    "nothing": lambda _: lambda _: pb.Welcome(),
    "no proof": lambda exchange: lambda _: shown(exchange.coordinator.hub.certificate_pem, b""),
    "a provider's certificate": lambda exchange: (
        lambda challenge: shown(
            (east := another_identity(exchange)).certificate_pem, sign_challenge(east, challenge, NORTH)
        )
    ),
    "another's key": lambda exchange: (
        lambda challenge: shown(
            exchange.coordinator.hub.certificate_pem, sign_challenge(another_identity(exchange), challenge, NORTH)
        )
    ),
    "a proof for another provider": lambda exchange: (
        lambda challenge: shown(
            exchange.coordinator.hub.certificate_pem, sign_challenge(exchange.coordinator.hub, challenge, EAST)
        )
    ),
    "a proof of another challenge": lambda exchange: (
        lambda challenge: shown(
            exchange.coordinator.hub.certificate_pem,
            sign_challenge(exchange.coordinator.hub, bytes(len(challenge)), NORTH),
        )
    ),
}


@pytest.mark.parametrize("way", UNPROVED)
def test_t33_only_a_proven_coordinator_is_obeyed(tmp_path: Path, way: str) -> None:
    async def scene(exchange: Exchange) -> None:
        signed = exchange.job()
        assert (await exchange.ask(signed.to_bytes(), 0, DENSE)).HasField(
            "hello"
        )  # it disconnected, and connected again
        assert exchange.ledger.standing(signed.job_id) is None

    run_exchange(tmp_path, scene, welcome=UNPROVED[way])


def test_t33_a_coordinator_revoked_meanwhile_gets_no_answer(tmp_path: Path) -> None:
    async def scene(exchange: Exchange) -> None:
        signed = exchange.job()
        assert (await exchange.ask(signed.to_bytes(), 0, DENSE)).HasField("answer")
        exchange.enrolment.authority.revoke(exchange.coordinator.hub.name)
        exchange.revoked = exchange.enrolment.revocations()
        assert (await exchange.ask(signed.to_bytes(), 1, SPARSE)).HasField("hello")
        standing = exchange.ledger.standing(signed.job_id)
        assert standing is not None
        assert standing.reached == 1

    run_exchange(tmp_path, scene)


FAR = Head("5" * 32, 10**6, "ab" * 32)
"""Of a ledger that the provider never had."""


def foreign_receipts(exchange: Exchange, folder: Path) -> list[pb.Receipt]:
    """Return receipts that would stop the provider if it accepted them as its own."""
    elsewhere = Authority.init(folder / "elsewhere", "town", now)
    request = identities.request(folder / "north elsewhere", NORTH)
    other = identities.install(folder / "north elsewhere", elsewhere.sign(request), elsewhere.certificate_pem)
    true = sign_receipt(exchange.home, Head(FAR.ledger, 1, FAR.hash))
    raised = pb.Receipt(**{each.name: getattr(true, each.name) for each in true.DESCRIPTOR.fields})
    raised.entries = FAR.entries
    east = sign_receipt(another_identity(exchange), FAR)
    return [
        pb.Receipt(),
        pb.Receipt(ledger="x" * 10**6, certificate=b"\xff" * 100, signature=b"\0" * 100, entries=2**64 - 1),
        east,
        pb.Receipt(ledger=FAR.ledger, entries=1, certificate=exchange.home.certificate_pem, signature=east.signature),
        sign_receipt(other, FAR),
        sign_receipt(exchange.coordinator.hub, FAR),
        raised,
    ]


def test_t12_a_foreign_receipt_cannot_stop_a_provider(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "kept" / "ledger", tmp_path / "second" / "head") as ledger:

        async def scene(exchange: Exchange) -> None:
            signed = exchange.job().to_bytes()
            answers = set()
            for receipt in foreign_receipts(exchange, tmp_path):
                await exchange.show(receipt)
                answers.add((await exchange.ask(signed, 0, DENSE)).answer.content)
            assert len(answers) == 1
            assert answers.pop()
            assert ledger.quarantine is None

        run_exchange(tmp_path, scene, ledger=ledger)


def test_t12_an_answer_s_receipt_stops_a_ledger_that_lacks_it(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "kept" / "ledger", tmp_path / "second" / "head") as ledger:

        async def scene(exchange: Exchange) -> None:
            signed = exchange.job().to_bytes()
            receipt = (await exchange.ask(signed, 0, DENSE)).answer.receipt
            assert Head(receipt.ledger, receipt.entries, receipt.hash) == ledger.head()
            for _ in range(3):
                await exchange.show(receipt)
                assert (await exchange.ask(signed, 1, SPARSE)).HasField("answer")
            await exchange.show(sign_receipt(exchange.home, FAR))
            for position, query in ((0, DENSE), (1, SPARSE), (2, SPARSE)):
                assert (await exchange.ask(signed, position, query)).refusal.code == "quarantined"
            assert (await exchange.ask(exchange.job().to_bytes(), 0, DENSE)).refusal.code == "quarantined"

        run_exchange(tmp_path, scene, ledger=ledger)


def test_a_ledger_in_memory_sends_and_checks_no_receipts(tmp_path: Path) -> None:
    async def scene(exchange: Exchange) -> None:
        await exchange.show(sign_receipt(exchange.home, FAR))
        answer = (await exchange.ask(exchange.job().to_bytes(), 0, DENSE)).answer
        assert answer.content
        assert not answer.HasField("receipt")

    run_exchange(tmp_path, scene)
