"""What operators have to do one day, done with commands and real daemons: docs/operations.md as tests."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from operated_federation import PROVIDERS, QUARANTINE, ROLES, OperatedFederation, opened

pytestmark = pytest.mark.slow
"""Each restarts several processes."""


@pytest.fixture(scope="module")
def founded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    federation = OperatedFederation(tmp_path_factory.mktemp("founded"))
    federation.found()
    federation.write_files()
    return federation.folder


@pytest.fixture
def federation(tmp_path: Path, founded: Path) -> Iterator[OperatedFederation]:
    with opened(tmp_path, founded) as made:
        yield made


def refused_at_north(federation: OperatedFederation) -> bool:
    done = federation.tried_job("north")
    return done.returncode == 2 and "quarantine" in done.stderr


# --- Ledgers ----------------------------------------------------------------------------------------------------------


def test_a_restored_ledger_is_noticed_and_counts_what_is_missing(federation: OperatedFederation) -> None:
    federation.job()
    federation.stop("north")
    federation.copy("north/ledger", "backup")
    federation.start("north")
    federation.job()
    both = federation.spent("north")
    federation.stop("north")
    federation.copy("backup", "north/ledger")
    assert federation.spent("north") == both // 2
    federation.start("north", QUARANTINE)
    assert refused_at_north(federation)
    federation.stop("north")
    federation.end_quarantine("north", "job.json")  # one job is missing, and it was this one
    assert federation.spent("north") == both
    federation.start("north")
    federation.job()
    assert federation.spent("north") == 3 * both // 2
    assert "All is well" in federation.ledger("verify")


def test_a_lost_ledger_without_a_copy_counts_what_may_be_missing(federation: OperatedFederation) -> None:
    federation.job()
    once = federation.spent("north")
    federation.stop("north")
    shutil.rmtree(federation.home("north") / "ledger")
    federation.start("north", QUARANTINE)
    federation.stop("north")
    federation.end_quarantine("north", "job.json")
    assert federation.spent("north") == once
    federation.start("north")
    federation.job()
    federation.job("south")
    assert federation.parties() == 1  # the others were never affected


def test_t45_a_provider_without_its_key_of_rows_waits_for_the_copy(federation: OperatedFederation) -> None:
    federation.job()
    once = federation.spent("north")
    federation.stop("north")
    federation.copy("north/ledger", "backup")
    key = federation.home("north") / "ledger" / "ledger.db.row-key"
    key.unlink()
    for _ in range(2):
        done = federation.tried("provider", "start", *federation.settings("north"))
        assert (done.returncode, key.name in done.stderr, key.exists()) == (2, True, False), done.stderr
    assert federation.spent("north") == once  # reading needs no key
    shutil.copy(federation.folder / "backup" / key.name, key)
    federation.start("north")
    federation.job()
    assert federation.spent("north") == 2 * once


def test_a_lost_head_file_is_noticed_and_costs_nothing(federation: OperatedFederation) -> None:
    federation.job()
    once = federation.spent("north")
    federation.stop("north")
    shutil.rmtree(federation.home("north") / "head")
    federation.start("north", QUARANTINE)
    federation.stop("north")
    federation.end_quarantine("north", "nothing")
    federation.start("north")
    federation.job()
    assert federation.spent("north") == 2 * once


def test_a_ledger_restored_with_its_head_file_is_noticed(federation: OperatedFederation) -> None:
    federation.job()
    federation.stop("north")
    for part in ("ledger", "head"):
        federation.copy(f"north/{part}", f"backup-{part}")
    federation.start("north")
    federation.job()
    federation.stop("north")
    for part in ("ledger", "head"):
        federation.copy(f"backup-{part}", f"north/{part}")
    federation.start("north", QUARANTINE)
    assert refused_at_north(federation)


# --- The journal ------------------------------------------------------------------------------------------------------


def test_a_restored_journal_has_earlier_results_and_changes_no_budget(federation: OperatedFederation) -> None:
    first = federation.job()
    federation.stop("hub")
    federation.copy("hub", "backup")
    federation.start("hub")
    second = federation.job()
    spent = federation.spent("north")
    federation.stop("hub")
    federation.copy("backup", "hub")
    federation.start("hub")
    listed = federation.facts("jobs", "list", *federation.settings("ada"))["jobs"]
    assert [each["job"] for each in listed] == [first["job"]]
    federation.run("jobs", "result", first["job"], *federation.settings("ada"), "--out", "again.dpspca")
    lost = federation.tried("jobs", "result", second["job"], *federation.settings("ada"), "--out", "lost.dpspca")
    assert lost.returncode == 2
    assert federation.spent("north") == spent
    federation.job()


def test_a_lost_journal_loses_results_and_changes_no_budget(federation: OperatedFederation) -> None:
    federation.job()
    spent = federation.spent("north")
    federation.stop("hub")
    for file in federation.home("hub").glob("journal.db*"):
        file.unlink()
    federation.start("hub")
    assert federation.facts("jobs", "list", *federation.settings("ada"))["jobs"] == []
    assert federation.spent("north") == spent
    federation.job()


# --- The authority ----------------------------------------------------------------------------------------------------


def test_a_restored_authority_goes_on_signing(
    federation: OperatedFederation,
) -> None:
    federation.copy("authority", "safe")
    shutil.rmtree(federation.home("authority"))
    federation.job()  # nobody asks the authority
    federation.copy("safe", "authority")
    federation.stop("south")
    federation.renew("south")
    federation.publish()
    federation.start("south")
    federation.job()
    assert federation.parties() == 2


def test_after_the_loss_of_the_authority_a_new_one_keeps_the_ledgers(
    federation: OperatedFederation,
) -> None:
    federation.job()
    spent = federation.spent("north")
    federation.stop()
    shutil.rmtree(federation.home("authority"))
    for name in ROLES:
        shutil.rmtree(federation.identity_folder(name))
    federation.found()
    federation.open()
    assert federation.spent("north") == spent
    federation.job()
    assert federation.spent("north") == 2 * spent


# --- Parties that move, leave, and renew ------------------------------------------------------------------------------


def test_a_provider_moves_and_its_old_copy_is_of_no_use(federation: OperatedFederation) -> None:
    federation.job()
    spent = federation.spent("north")
    federation.stop("north")
    federation.copy("north", "old-machine")
    federation.copy("north", "new-machine")
    shutil.rmtree(federation.home("north"))
    federation.home("new-machine").rename(federation.home("north"))  # the other machine
    federation.start("north")
    federation.job()
    assert federation.spent("north") == 2 * spent
    federation.stop("north")
    federation.home("north").rename(federation.home("away"))
    federation.home("old-machine").rename(federation.home("north"))
    federation.start("north", QUARANTINE)  # the coordinator's receipt shows that the copy is old
    assert refused_at_north(federation)


def test_a_provider_leaves_and_the_others_go_on(federation: OperatedFederation) -> None:
    federation.job()
    federation.revoke("north")
    federation.stop("north")
    federation.job("south")
    assert federation.parties() == 1
    done = federation.tried("provider", "start", *federation.settings("north"))
    assert done.returncode == 2
    assert "revoked" in done.stderr
    federation.ledger("export", "--out", "kept.jsonl")  # its records stay its own
    assert "All is well" in federation.ledger("verify")


def test_all_keys_and_the_list_are_renewed_while_daemons_run(federation: OperatedFederation) -> None:
    old = {federation.identity(name).key_pem for name in ROLES}
    for name in ROLES:
        federation.renew(name)
    federation.publish()
    for name in PROVIDERS:
        federation.running[name].send_signal(signal.SIGHUP)  # dial again, with the new certificate
    federation.job()
    assert federation.parties() == 2
    assert not {federation.identity(name).key_pem for name in ROLES} & old
    assert federation.tried("health", *federation.settings("north")).returncode == 0
