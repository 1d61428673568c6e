"""An answer has exactly one encoding of one length, so the encoding can carry no hidden message."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dishonest_peers import DENSE, SPARSE, SPEC, Exchange, dishonest_provider, run_exchange
from facts import names_facts
from google.protobuf.unknown_fields import UnknownFieldSet
from local_federation import NOISE_SEED, SHARDS, Enrolment, RunningFederation, federation, spec
from scipy import sparse

from dpspca.client.connection.jobs import ParticipantStatus
from dpspca.client.simulation import simulate
from dpspca.common.job import JobSpec, Schema
from dpspca.common.names import Role
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.common.results import Model
from dpspca.common.transport.wire import FRAME
from dpspca.common.trust.signing import SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.ledger.sqlite import SqliteLedger
from dpspca.server.jobs.sums import LARGEST_ANSWER

LONG = 70_000
"""Columns with which an answer takes two frames."""


def encoding_of(exchange: Exchange, job: SignedJob, position: int) -> list[pb.FromProvider]:
    """Return a stored answer in its only encoding."""
    stored = exchange.ledger.stored(job.job_id, position)
    assert stored is not None
    content = stored.astype("<i8").tobytes()
    cut = [content[start : start + FRAME] for start in range(0, len(content), FRAME)]
    output = {"job": job.job_id, "position": position}
    return [pb.FromProvider(answer=pb.AnswerFrame(sequence=at, content=each, **output)) for at, each in enumerate(cut)]


async def ask_and_read(
    exchange: Exchange, job: SignedJob, position: int, query: CovarianceProduct, frames: int
) -> list[Any]:
    """Send a query, and return everything that comes back."""
    return [await exchange.ask(job.to_bytes(), position, query), *[await exchange.reply() for _ in range(frames - 1)]]


def test_t34_an_answer_is_sent_in_its_only_form_and_alone(tmp_path: Path) -> None:
    async def scene(exchange: Exchange) -> None:
        job = exchange.job()
        for at, query in enumerate((DENSE, SPARSE, SPARSE)):
            for _ in range(3):
                (answer,) = await ask_and_read(exchange, job, at, query, 1)
                assert [answer.SerializeToString()] == [
                    each.SerializeToString() for each in encoding_of(exchange, job, at)
                ]
                assert not len(UnknownFieldSet(answer)) + len(UnknownFieldSet(answer.answer))
        assert exchange.coordinator.inbound.empty()

    run_exchange(tmp_path, scene)


def test_t34_a_long_answer_is_cut_into_frames_in_only_one_way(tmp_path: Path) -> None:
    what = replace(SPEC, schema=Schema(LONG))
    basis = np.zeros((LONG, 2))
    basis[0, 0] = basis[LONG - 1, 1] = 1.0
    rows = sparse.random_array((40, LONG), density=1e-3, format="csr", rng=0)

    async def scene(exchange: Exchange) -> None:
        job = exchange.job(what)
        for _ in range(2):
            assert await ask_and_read(exchange, job, 0, CovarianceProduct(basis), 2) == encoding_of(exchange, job, 0)
        assert exchange.coordinator.inbound.empty()

    run_exchange(tmp_path, scene, rows=rows)


def test_t34_only_a_receipt_comes_with_the_last_frame(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "kept" / "ledger", tmp_path / "second" / "head") as ledger:

        async def scene(exchange: Exchange) -> None:
            job = exchange.job()
            (answer,) = await ask_and_read(exchange, job, 0, DENSE, 1)
            head, receipt = ledger.head(), answer.answer.receipt
            assert (receipt.ledger, receipt.entries, receipt.hash) == (head.ledger, head.entries, head.hash)
            assert receipt.certificate == exchange.home.certificate_pem
            answer.answer.ClearField("receipt")
            assert [answer] == encoding_of(exchange, job, 0)

        run_exchange(tmp_path, scene, ledger=ledger)


# --- A provider that sends another form -------------------------------------------------------------------------------

HONEST, DISHONEST = ("site-0", "site-1"), "site-2"
ANSWER = bytes(30 * 2 * 8)
FORMS: dict[str, tuple[tuple[int, bytes], ...]] = {
    "cut elsewhere": ((0, ANSWER[:240]), (1, ANSWER[240:])),
    "an empty frame before": ((0, b""), (1, ANSWER)),
    "counted from one": ((1, ANSWER),),
    "a word beside the numbers": ((0, ANSWER + b"a word!!"),),
    "a bit beside the numbers": ((0, ANSWER + b"\1"),),
    "a number less": ((0, ANSWER[:-8]),),
    "numbers of four bytes": ((0, ANSWER[: len(ANSWER) // 2]),),
    "words where numbers are": ((0, b"\xff" * 7 + b"\x7f" + ANSWER[8:]),),
    "a number beyond what noise reaches": ((0, np.int64(LARGEST_ANSWER + 1).tobytes() + ANSWER[8:]),),
    "its negative": ((0, np.int64(-LARGEST_ANSWER - 1).tobytes() + ANSWER[8:]),),
}


async def run_with_liar(
    running: RunningFederation, what: JobSpec, *frames: tuple[int, bytes]
) -> tuple[Model, ParticipantStatus]:
    """Run a job in which a provider without rows sends its second answer in another form."""
    async with dishonest_provider(
        running.coordinator.address, running.enrolment.identity(Role.PROVIDER, DISHONEST)
    ) as site:
        await site.greet()
        job = await running.analyst.submit(what, "cohort", [*HONEST, DISHONEST])
        await site.answer(await site.query(), (0, bytes(8)))
        await site.answer(await site.query(), *frames)
        model, status = await job.result(), await job.status()
        return model, next(each for each in status.participants if each.name == DISHONEST)


@pytest.mark.parametrize("frames", FORMS.values(), ids=FORMS.keys())
def test_t34_an_answer_in_another_form_adds_nothing_to_the_sum(
    tmp_path: Path, frames: tuple[tuple[int, bytes], ...]
) -> None:
    async def scenario() -> None:
        async with federation(Enrolment.create(tmp_path), HONEST) as running:
            model, liar = await run_with_liar(running, spec(), *frames)
        assert (liar.asked, liar.answered) == (2, 1)
        assert names_facts(liar.reason, "Frame") or names_facts(liar.reason, "lattice")
        inside = simulate([SHARDS[name] for name in HONEST], spec(), noise_seed=NOISE_SEED)
        assert model.components.tobytes() == inside.components.tobytes()

    asyncio.run(scenario())
