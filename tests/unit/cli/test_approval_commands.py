"""`dpspca approval` and the steward's pages on a provider's own machine, also if its policy or ledger has mistakes."""

import asyncio
import io
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from approvals import BEN, MARIA, Site, human_policy, waiting_job
from commands import Ended, commands_in
from facts import facts, names_facts
from local_federation import Enrolment

from dpspca.cli.dashboard import steward as steward_pages
from dpspca.cli.dashboard.app import _Site
from dpspca.cli.dashboard.guard import Guard
from dpspca.cli.dashboard.steward import StewardPages
from dpspca.client.steward import approvals
from dpspca.common.approval_record import APPROVE, REJECT
from dpspca.common.trust import IDENTITY_FILE
from dpspca.provider.approval import RequestEvent, SharedAccountError
from dpspca.provider.policy import UnreadablePolicyError
from dpspca.provider.reload import PROBLEM_FILE

BAD_TABLE = '[data_sets.other]\nunit = "nonsense"\n'
NORTH = ("--config", "provider.toml")

Town = tuple[Site, str, Callable[..., Ended]]


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path / "town")


def north_with(
    enrolment: Enrolment, policy: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Town:
    """Make a provider with a ledger and a job that waits, and return both with a function that runs commands."""
    monkeypatch.setattr(approvals, "TAKEN_SECONDS", 0)  # no daemon runs
    site = Site.made(enrolment, "north", human_policy(MARIA, BEN))
    with site.open():
        pass
    (site.folder / "policy.toml").write_text(policy)
    return site, waiting_job(enrolment, site), commands_in(site.folder, monkeypatch, capfd)


def shown(site: Site, section: str = "", item: str = "") -> str:
    """Return a page of the steward's dashboard as HTML."""
    pages = StewardPages(site.config)
    page = asyncio.run(pages.page(section, item))
    return _Site(site.config, Guard.draw("127.0.0.1:1"), pages)._rendered(page, section)


def test_a_mistake_in_one_table_hinders_no_decision_on_another_data_set(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    site, job, run = north_with(enrolment, human_policy(MARIA, BEN) + BAD_TABLE, monkeypatch, capfd)
    told = run("approval", "show", job, "--json", *NORTH).facts
    assert (told["approvers"], sorted(told["balances"])) == ([MARIA, BEN], ["data_set"])
    assert "policy_problem" not in told
    page = shown(site, "approval", job)
    assert "<form" in page
    assert "policy_problem" not in page
    overview = shown(site)
    assert names_facts(overview, "cohort", "other", "nonsense")
    assert "The budget of cohort" in overview
    assert names_facts(shown(site, "policy"), "Data set cohort", "nonsense")
    spent = run("budget", "--json", *NORTH).facts
    assert [(each["data_set"], each["budget"] is None) for each in spent["data_sets"]] == [
        ("cohort", False), ("other", True)
    ]  # fmt: skip
    assert names_facts(" ".join(spent["policy_problems"]), "'other'", "nonsense")
    decided = run("approval", "approve", job, "--person", MARIA, "--yes", "--json", *NORTH)
    assert decided.facts["verdict"] == APPROVE
    rejected = run("approval", "reject", job, "--person", MARIA, "--reason", "no", "--yes", "--json", *NORTH)
    assert rejected.facts["verdict"] == REJECT


def test_why_facts_about_a_waiting_job_are_missing_is_said(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    policy = human_policy(MARIA).replace("row-replace-one", "nonsense")
    site, job, run = north_with(enrolment, policy, monkeypatch, capfd)
    ledger = site.folder / "ledger" / "ledger.db"
    for side in ("-wal", "-shm"):
        ledger.with_name(ledger.name + side).unlink(missing_ok=True)
    ledger.write_bytes(b"noise" * 1000)
    told = run("approval", "show", job, "--json", *NORTH).facts
    assert "balances" not in told
    assert names_facts(told["policy_problem"], "'cohort'", "`dpspca policy check", "policy.toml")
    assert names_facts(told["ledger_problem"], "ledger.db")
    for text in (run("approval", "show", job, *NORTH).out, shown(site, "approval", job)):
        assert names_facts(text, "policy check", "ledger.db")
    assert "<form" not in shown(site, "approval", job)
    with pytest.raises(UnreadablePolicyError, match=facts("'cohort'")):
        site.office.decide(site.office.find(job), APPROVE, MARIA, "")


def test_a_rejection_is_shown_and_confirmed_like_an_approval(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    site, job, run = north_with(enrolment, human_policy(MARIA), monkeypatch, capfd)
    words = ("approval", "reject", job[:4], "--person", MARIA, "--reason", "no", *NORTH)
    for answer in ("", "n\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        refused = run(*words)
        assert refused.code == 2
        assert names_facts(refused.err, f"Job {job}", "[y/N]", "--yes")
    assert site.office.queue.decisions(job) == []
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert run(*words).code == 0
    assert [each.read().verdict for each in site.office.queue.decisions(job)] == [REJECT]


@pytest.mark.parametrize("verdict", [("approve",), ("reject", "--reason", "no")])
def test_a_person_whom_the_policy_does_not_name_is_refused_first(
    verdict: tuple[str, ...], enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _, job, run = north_with(enrolment, human_policy(MARIA), monkeypatch, capfd)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    refused = run("approval", *verdict, job, "--person", "eve", *NORTH)
    assert refused.code == 2
    assert names_facts(refused.error_line, "'eve'", "--person", MARIA)
    assert not names_facts(refused.err, "[y/N]"), "nobody reads a whole job for nothing"


def test_t42_a_second_approval_from_one_account_is_refused_with_both_names(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    site, job, run = north_with(enrolment, human_policy(MARIA, BEN, needed=2), monkeypatch, capfd)
    monkeypatch.setenv("SUDO_USER", "shared")
    assert run("approval", "approve", job, "--person", MARIA, "--yes", *NORTH).code == 0
    refused = run("approval", "approve", job, "--person", BEN, "--yes", *NORTH)
    assert names_facts(refused.error_line, MARIA, BEN, "'shared'")
    form = {"job": job, "verdict": APPROVE, "person": BEN}
    with pytest.raises(SharedAccountError, match=facts(MARIA, BEN, "'shared'")):
        asyncio.run(StewardPages(site.config).decide(form))
    assert len(site.office.queue.decisions(job)) == 1
    monkeypatch.setenv("SUDO_USER", "own")
    assert run("approval", "approve", job, "--person", BEN, "--yes", *NORTH).code == 0
    monkeypatch.setenv("SUDO_USER", "shared")
    assert run("approval", "reject", job, "--person", BEN, "--reason", "no", "--yes", *NORTH).code == 0


def test_what_was_decided_is_shown_after_the_job_ended(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    site, job, run = north_with(enrolment, human_policy(MARIA), monkeypatch, capfd)
    asks = run("approval", "show", job, "--json", *NORTH).facts["asks"]
    assert run("approval", "reject", job, "--person", MARIA, "--reason", "why not", "--yes", *NORTH).code == 0
    with site.open() as settings:
        settings["approvals"].work()
    told = run("approval", "show", job, "--json", *NORTH).facts
    assert (told["state"], told["asks"]) == ("rejected", asks)
    assert not {"balances", "approvers"} & told.keys(), "nobody decides about it any more"
    assert [(each["person"], each["recorded"]) for each in told["decisions"]] == [(MARIA, True)]
    (decision,) = told["decisions"]
    for text in (run("approval", "show", job, *NORTH).out, shown(site, "approval", job)):
        assert names_facts(text, "rejected", MARIA, "why not", "4 columns", decision["decided"])
    assert "<form" not in shown(site, "approval", job)


def test_a_job_that_nobody_decided_about_leaves_no_signed_job_behind(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    site, job, run = north_with(enrolment, human_policy(MARIA), monkeypatch, capfd)
    site.office.queue.change(job, RequestEvent.END)
    told = run("approval", "show", job, "--json", *NORTH).facts
    assert (told["state"], told["decisions"], "asks" in told) == ("ended", [], False)
    assert names_facts(run("approval", "show", job, *NORTH).out, job, "ended")


def test_a_waiting_job_that_cannot_be_read_can_be_shown_and_rejected(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    site, job, run = north_with(enrolment, human_policy(MARIA), monkeypatch, capfd)
    with site.office.queue._writing() as write:
        write("UPDATE requests SET signed = x'00'")
    told = run("approval", "show", job, "--json", *NORTH).facts
    assert told["job_problem"]
    assert told["approvers"] == [MARIA]
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert run("approval", "reject", job, "--person", MARIA, "--reason", "no", *NORTH).code == 0


def test_a_damaged_decision_hides_no_other_job_and_hinders_no_decision(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    site, job, run = north_with(enrolment, human_policy(MARIA), monkeypatch, capfd)
    assert run("approval", "approve", job, "--person", MARIA, "--reason", "once", "--yes", *NORTH).code == 0
    with closing(sqlite3.connect(site.office.queue.path)) as queue, queue:
        queue.execute("UPDATE decisions SET content = '{'")
    (listed,) = run("approval", "list", "--json", *NORTH).facts["requests"]
    assert (listed["job"], listed["decisions"]) == (job, [])
    for text in (
        run("approval", "list", *NORTH).out,
        run("approval", "show", job, *NORTH).out,
        shown(site, "approval"),
    ):
        assert listed["queue_problem"] in text
    assert run("approval", "approve", job, "--person", MARIA, "--reason", "second", "--yes", *NORTH).code == 0
    page = shown(site, "approval", job)
    assert listed["queue_problem"] in page
    assert page.count("second") == 1, "a decision is shown once"


def test_a_stewards_pages_follow_certificates_lists_reloads_and_health(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site.made(enrolment, "north", human_policy(MARIA))
    health = [True, "connected"]
    monkeypatch.setattr(steward_pages, "health_message", lambda _: tuple(health))
    monkeypatch.setattr(steward_pages, "HEALTH_SECONDS", 0.0)
    certificate = enrolment.folder / "provider-north" / IDENTITY_FILE
    (site.folder / "ledger").mkdir(mode=0o700)

    async def marks() -> None:
        pages = StewardPages(site.config)
        before = await pages.mark()
        assert await pages.mark() == before
        for path in (certificate, site.folder / "revoked.pem", site.folder / "ledger" / PROBLEM_FILE):
            path.write_bytes(path.read_bytes() + b"\n" if path.exists() else b"x")
            after = await pages.mark()
            assert after != before, path
            before = after
        health[:] = [False, "not connected"]
        async with asyncio.timeout(20):
            while await pages.mark() == before:  # noqa: ASYNC110  # the check runs beside
                await asyncio.sleep(0.01)

    asyncio.run(marks())
