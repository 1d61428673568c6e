"""A page of the ledger's file is damaged while its daemon runs: answers after that are charged, or none is sent.

A running daemon may not notice, because SQLite keeps pages in memory. After a restart, it either has every charge, or
reports that its ledger is damaged or lacks entries, and answers nothing.
"""

import asyncio
import random
import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from coordinator_processes import StableEnrolment
from dishonest_peers import DENSE, SPARSE, Exchange, exchange_with_provider, rows_of
from ledgers import Place

from dpspca.common.trust.signing import SignedJob
from dpspca.provider.ledger.entries import LedgerError

PAGE = 4096
QUERIES = (DENSE, SPARSE, SPARSE)
IN_WORDS = "damaged|no ledger|cannot be (used|read|written)|chain breaks"
REFUSALS = (
    "The provider's ledger cannot be|Another process changed|The stored answer is damaged|"
    "Query 2 was asked, but query 1 is next"  # which could not be recorded
)


@dataclass
class FinishedRun:
    """The answers that one provider sent, by job and position, and its refusals."""

    place: Place
    left: dict[tuple[str, int], set[bytes]] = field(default_factory=lambda: defaultdict(set))
    refused: list[str] = field(default_factory=list)

    async def ask(self, exchange: Exchange, job: SignedJob, position: int) -> None:
        reply = await exchange.ask(job.to_bytes(), position, QUERIES[position])
        if reply.HasField("answer"):
            self.left[job.job_id, position].add(reply.answer.content)
        else:
            self.refused.append(reply.refusal.what)

    def started_again(self) -> str:
        """Restart, and compare charges and stored answers with the answers that were sent."""
        try:
            with self.place.start() as ledger:
                if ledger.quarantine:
                    return "quarantined"
                for (job, position), contents in self.left.items():
                    standing = ledger.standing(job)
                    assert standing is not None
                    assert standing.reached > position
                    with suppress(LedgerError):
                        again = ledger.stored(job, position)
                        assert again is None or {again.tobytes()} == contents
        except LedgerError as problem:
            if not re.search(IN_WORDS, problem.what):
                raise
            return "refused"
        return "whole"


async def struck(enrolment: StableEnrolment, suffix: str, page: int) -> tuple[FinishedRun, set[str], int]:
    """Let a daemon answer, damage a page, let it answer again. Return how it restarts, and the number of pages."""
    name, rows = f"site-{page}", {"cohort": rows_of(20)}
    story = FinishedRun(
        Place(enrolment.folder / name / "ledger" / "ledger.db", enrolment.folder / name / "second" / "head")
    )
    with story.place.start() as ledger:
        async with exchange_with_provider(enrolment, name, rows, ledger) as exchange:
            job, later = exchange.job(), exchange.job()
            await story.ask(exchange, job, 0)  # which is in the file itself once the ledger is shut
    ledger = story.place.start()
    try:
        async with exchange_with_provider(enrolment, name, rows, ledger) as exchange:
            await story.ask(exchange, job, 1)  # which is in the log beside it
            assert len(story.left) == 2
            pages = damage(Path(f"{story.place.path}{suffix}"), page)
            for position in (0, 1, 2, 2):
                await story.ask(exchange, job, position)
            for position in (0, 1):  # opening a job lets go of what SQLite has in memory
                await story.ask(exchange, later, position)
        killed, head = story.place.snapshot(), story.place.head.read_bytes()
    finally:
        with suppress(LedgerError):  # what is in the log goes into the file
            ledger.shut()
    found = {story.started_again()}
    story.place.restore(killed)
    story.place.head.write_bytes(head)
    return story, found | {story.started_again()}, pages


def damage(path: Path, page: int) -> int:
    """Overwrite a page of the file in use. Return the number of pages."""
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(page * PAGE)
        file.write(random.Random(page).randbytes(min(PAGE, size - page * PAGE)))
    return -(-size // PAGE)


@pytest.mark.parametrize(("suffix", "noticed"), [("", "refused"), ("-wal", "quarantined")])
def test_i1_i2_a_damaged_page_lets_no_uncharged_answer_leave(tmp_path: Path, suffix: str, noticed: str) -> None:
    async def scenario() -> None:
        enrolment, starts = StableEnrolment.create(tmp_path), set[str]()
        page, pages = 0, 1
        while page < pages:
            story, found, pages = await struck(enrolment, suffix, page)
            assert all(len(contents) == 1 for contents in story.left.values())
            assert all(re.match(REFUSALS, what) for what in story.refused), story.refused
            starts |= found
            page += 1
        assert page > 5
        assert starts == {"whole", noticed}  # what is spoilt may be in the log as well, or no longer needed

    asyncio.run(scenario())
