"""A job that was forgotten in memory is past_job from its entries, whatever became of it."""

from pathlib import Path

from ledgers import LIMITS, PRICE, SLACK, Place, opening, respond

from dpspca.common.privacy import Price
from dpspca.provider.ledger.entries import Entry, Head, Named
from dpspca.provider.ledger.past_jobs import past_job


def test_a_job_that_ended_in_a_quarantine_counts_as_wholly_spent(tmp_path: Path) -> None:
    place = Place(tmp_path / "ledger" / "ledger.db", tmp_path / "head")
    with place.start() as ledger:
        ledger.open(opening(), LIMITS)
        respond(ledger, "job", 0)
    place.head.unlink()
    with place.start() as ledger:
        assert ledger.quarantine
    with place.start() as ledger:  # and again, after it was forgotten
        job = ledger.past_job("job")
        assert job
        assert (job.state, job.answers, job.spent) == ("quarantined", 1, Price(3 * PRICE, 3 * SLACK))
        assert ledger.past_job("another") is None


def test_entries_that_open_no_job_recall_none() -> None:
    other = Entry.following(Head("a", 0, "0" * 64), 1, Named("cohort", ["a"]))
    assert past_job([], "quarantined") is None
    assert past_job([other], "quarantined") is None
