"""A coordinator that sends without end cannot fill an analyst's memory: the program stops and says why."""

import asyncio
import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from coordinator_processes import StableEnrolment
from local_federation import Enrolment, spec
from oversized_replies import ProgramResult, Replies, Script, run_analyst, serving_replies

from dpspca.client.simulation import simulate
from dpspca.common.names import Role
from dpspca.common.trust.signing import SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

MOST_GROWTH = 100 * 2**20
"""Bytes by which such a program may grow beyond one that listens to an honest coordinator."""
LONGEST = 45
"""Seconds after which a program that still listens is killed. Those that stop do so within a few."""
LARGEST = 3 * 2**20 - 1024
"""Bytes of the largest message that gRPC takes here, less what else stands in it."""

JOB = SignedJob(b"", b"", b"")


def endless(made: Callable[[int], bytes]) -> Callable[[], Replies]:
    return lambda: map(made, count())


def offer(number: int, columns: int = 0) -> bytes:
    names = [f"{number}-{column}" for column in range(columns)]
    data_set = pb.DataSet(name="cohort", dimension=columns or 30, columns=names)
    return pb.Offer(provider=f"site-{number}", data_set=data_set).SerializeToString()


def nested(number: int, *path: int) -> bytes:
    """Return as many empty parts as a message can hold. Each is two bytes here, and far larger when parsed."""
    content = bytes([number << 3 | 2, 0]) * (LARGEST // 2)
    for each in path:
        content = bytes([each << 3 | 2]) + varint(len(content)) + content
    return content


def varint(value: int) -> bytes:
    digits = bytearray()
    while value >= 1 << 7:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*digits, value))


def status(signed: SignedJob, state: str = "running", **others: object) -> bytes:
    output: dict[str, Any] = {"job": signed.job_id, "data_set": "cohort", "queries": 6, "submitted": 1.0} | others
    return pb.Job(state=state, **output).SerializeToString()


def shown(job: SignedJob) -> Callable[[], Replies]:
    return lambda: [status(job, "done", answered=6, signed_job=job.to_bytes())]


def states(job: SignedJob) -> Callable[[], Replies]:
    return endless(lambda number: status(job, step=f"{number:0100000}"))


def done(job: SignedJob) -> Callable[[], Replies]:
    return lambda: [status(job, "done", answered=6)]


def frames(content: bytes) -> Callable[[], Replies]:
    return endless(lambda number: pb.Frame(sequence=number, content=content).SerializeToString())


def model_with_large_header() -> Iterator[bytes]:
    """Send a model of allowed size with a header of empty lists."""
    rows = [[0.0] * spec().schema.dimension] * 2
    whole = simulate([rows], spec(), noise_seed=1).to_bytes()
    heading = json.dumps({"format": "dpspca-model-1", "shapes": {}}).encode()[:-1] + b', "x": ['
    content = heading + b"[]," * 330_000 + b"[]]}\n" + whole
    for start in range(0, len(content), 2**20):
        yield pb.Frame(content=content[start : start + 2**20]).SerializeToString()


LISTED = ("datasets", "--json"), ("jobs", "list", "--json")
LISTS: dict[str, tuple[tuple[str, ...], Script]] = {
    "offers": (LISTED[0], {"DataSets": endless(offer)}),
    "offers of many columns": (LISTED[0], {"DataSets": endless(lambda number: offer(number, 20_000))}),
    "an offer of empty columns": (LISTED[0], {"DataSets": endless(lambda _: nested(3, 2))}),
    "jobs": (LISTED[1], {"List": endless(lambda number: status(JOB, job=f"{number:064x}"))}),
    "jobs with long reasons": (LISTED[1], {"List": endless(lambda number: status(JOB, reason=f"{number:0400000}"))}),
    "a job of empty participants": (LISTED[1], {"List": endless(lambda _: nested(9))}),
}


def replies_about_a_job(job: SignedJob) -> dict[str, tuple[tuple[str, ...], Script]]:
    """Return what is sent about a job of the analyst, and the command that receives it."""
    name = job.job_id[:12]
    watch, result = ("jobs", "watch", name), ("jobs", "result", name)
    known: Script = {"Get": shown(job)}
    return {
        "states to who watches": ((*watch, "--json"), known | {"Watch": states(job)}),
        "states to who waits for the result": (result, known | {"Watch": states(job)}),
        "answers beyond the plan": (watch, known | {"Watch": lambda: [status(job, "done", answered=2**32 - 1)]}),
        "full frames": (result, known | {"Watch": done(job), "Result": frames(bytes(2**20))}),
        "empty frames": (result, known | {"Watch": done(job), "Result": frames(b"")}),
        "a model with a bloated heading": (result, known | {"Watch": done(job), "Result": model_with_large_header}),
        "a job that is too long": (watch, {"Get": lambda: [nested(9)]}),
    }


def reasons() -> Replies:
    """End a call with the longest reason that gRPC allows, with terminal control characters."""
    raise RuntimeError("\x1b[2J" * 3000)
    yield b""


WATCHED = tuple(replies_about_a_job(JOB))


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return StableEnrolment.create(tmp_path)


def compare_memory(
    enrolment: Enrolment, words: tuple[str, ...], script: Script, *, compressed: bool = False
) -> tuple[ProgramResult, int]:
    """Run a command against that coordinator and against an honest one. Return how much more memory the first took."""

    async def perform() -> tuple[ProgramResult, int]:
        async with serving_replies(enrolment, {}) as address:
            honest = await run_analyst(enrolment, address, LISTED[1], LONGEST)
        assert honest.code == 0, honest.err
        async with serving_replies(enrolment, script, compressed) as address:
            ended = await run_analyst(enrolment, address, words, LONGEST)
        return ended, ended.most_memory - honest.most_memory

    return asyncio.run(perform())


def require_refused(ended: ProgramResult, growth: int) -> None:
    """Check that a program ended with an error, without growing."""
    assert ended.code == 2, (ended.code, ended.err[-400:], growth / 2**20)
    assert "The coordinator sent" in ended.err
    assert "Traceback" not in ended.err
    assert growth < MOST_GROWTH, growth / 2**20


@pytest.mark.slow
@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.nightly) if what == "offers" else what for what in LISTS]
)
def test_an_endless_list_is_refused_within_bounded_memory(enrolment: Enrolment, what: str) -> None:
    require_refused(*compare_memory(enrolment, *LISTS[what]))


@pytest.mark.parametrize("what", WATCHED)
def test_an_endless_answer_about_one_job_is_refused(enrolment: Enrolment, what: str) -> None:
    job = enrolment.job(spec(), enrolment.identity(Role.ANALYST, "ada"), ["site-0"])
    require_refused(*compare_memory(enrolment, *replies_about_a_job(job)[what]))


@pytest.mark.slow
def test_a_message_that_expands_greatly_is_refused(enrolment: Enrolment) -> None:
    script = {"List": lambda: [bytes(200 * 2**20)]}
    ended, growth = compare_memory(enrolment, LISTED[1], script, compressed=True)
    assert (ended.code, "RESOURCE_EXHAUSTED" in ended.err) == (2, True)
    assert growth < MOST_GROWTH


@pytest.mark.parametrize("words", LISTED)
def test_error_text_is_shortened_and_cannot_control_the_terminal(enrolment: Enrolment, words: tuple[str, ...]) -> None:
    ended, _ = compare_memory(enrolment, words, {"List": reasons, "DataSets": reasons})
    assert ended.code == 2
    assert "\x1b" not in ended.err
    assert len(ended.err) < 10_000


@pytest.mark.slow
def test_an_honest_list_of_many_jobs_and_offers_is_read(enrolment: Enrolment) -> None:
    """This is near the largest that a coordinator sends: 250 jobs of 128 providers and 128 offers of 10,000 columns."""
    parties = [pb.Participant(name=f"site-{number}", asked=6, answered=6) for number in range(128)]
    columns = [f"a column of name {number}" for number in range(10_000)]
    jobs = [status(JOB, "done", job=f"{number:064x}", participants=parties) for number in range(250)]
    offers = [
        pb.Offer(
            provider=f"site-{number}", data_set=pb.DataSet(name="cohort", dimension=len(columns), columns=columns)
        ).SerializeToString()
        for number in range(128)
    ]
    for words in LISTED:
        ended, _ = compare_memory(enrolment, words, {"List": lambda: jobs, "DataSets": lambda: offers})
        assert ended.code == 0, ended.err[-400:]
