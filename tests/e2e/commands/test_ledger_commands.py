"""The commands about a ledger: show, outbox, verify, export, and end-quarantine."""

import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from commands import Ended, commands_in
from facts import a_line_names, facts, names_facts
from ledgers import Place
from live import COMMAND, live_parties
from steward import ADA, GRACE, LIFETIME, Site, job, opening

from dpspca.common.algorithms import catalogue
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.costs import mu_of
from dpspca.common.trust.signing import JOB_SKEW
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.ledger.ledger import Limits
from dpspca.provider.policy.rules import Policy

DOCS = Path(__file__).parents[3] / "docs" / "ledger.md"
NORTH = ("--config", "north.toml")
OWN = ("--config", "provider.toml")
JOB = [
    *("--components", "2", "--sparsity", "4", "--norm-bound", "12", "--unit", "row-replace-one"),
    *("--centering", "none"),
    *("--epsilon", "1", "--delta", "1e-6", "--data-set", "cohort", "--config", "ada.toml"),
]
Here = Callable[..., Ended]


# --- Beside a daemon that runs ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def enrolment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run a federation and one job of ada, and yield its folder."""
    folder = tmp_path_factory.mktemp("town")
    with live_parties(folder):
        subprocess.run([*COMMAND, "run", *JOB], cwd=folder, check=True, capture_output=True)  # noqa: S603  # our own program
        yield folder


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], enrolment: Path) -> Here:
    return commands_in(enrolment, monkeypatch, capfd)


def test_ledger_show_lists_an_answered_job_of_a_running_provider(beside: Here) -> None:
    facts = beside("ledger", "show", *NORTH, "--json").facts
    (output,) = facts["jobs"]
    assert (output["data_set"], output["analyst"], output["epsilon"], output["delta"]) == (
        "cohort",
        "dpspca://town/analyst/ada",
        1.0,
        1e-6,
    )
    assert output["answered"] == output["asked"] > 0
    assert 0.999 < output["spent_epsilon"] <= 1
    assert datetime.fromisoformat(output["opened"]).utcoffset() == timedelta()
    assert (facts["quarantine"], facts["quarantines"], facts["decisions"]) == (None, [], [])
    words = beside("ledger", "show", *NORTH).out
    assert f"{facts['head']['entries']} entries, the last with hash {facts['head']['hash']}" in words


def test_the_outbox_lists_every_answer_with_its_signed_job(beside: Here) -> None:
    (shown,) = beside("ledger", "show", *NORTH, "--json").facts["jobs"]
    facts = beside("outbox", *NORTH, "--json").facts
    assert len(facts["answers"]) == facts["of"] == shown["answered"]
    assert [each["query"] for each in facts["answers"]] == list(range(1, facts["of"] + 1))
    for each in facts["answers"]:
        assert (each["job"], each["signed_job_sha256"]) == (shown["job"], shown["signed_job_sha256"])
        assert re.fullmatch("[0-9a-f]{64}", each["sha256"])
    assert facts["gaps"] == []
    words = beside("outbox", *NORTH).out
    assert all(each["sha256"] in words for each in facts["answers"])


def test_a_running_ledger_can_be_verified_and_exported_not_changed(beside: Here, enrolment: Path) -> None:
    verified = beside("ledger", "verify", *NORTH, "--json").facts
    assert (verified["passed"], verified["problems"]) == (True, [])
    lines = beside("ledger", "export", *NORTH).out.splitlines()
    assert len(lines) == verified["head"]["entries"]
    assert json.loads(lines[-1])["hash"] == verified["head"]["hash"]
    assert "never quarantined" in beside("ledger", "end-quarantine", *NORTH, "--reason", "to see").error_line
    assert beside("budget", *NORTH, "--json").facts["data_sets"][0]["spent"]["mu"] > 0.23
    assert enrolment.joinpath("north-ledger").stat().st_mode & 0o077 == 0


def test_doctor_checks_policy_and_ledger(beside: Here, enrolment: Path) -> None:
    checks = {each["name"]: each for each in beside("doctor", *NORTH, "--json").facts["checks"]}
    assert checks["policy"]["details"] == "policy.toml is valid."
    entries = beside("ledger", "verify", *NORTH, "--json").facts["head"]["entries"]
    assert (checks["ledger"]["passed"], entries > 0) == (True, True)
    assert names_facts(checks["ledger"]["details"], "ledger.db", f"{entries} entries")
    away = beside("doctor", "--config", "west.toml")
    assert a_line_names(away.out, "ok", "west-ledger/ledger.db")
    shutil.copy(enrolment / "north.csv", enrolment / "trial.csv")
    (enrolment / "more.toml").write_text((enrolment / "west.toml").read_text() + 'trial = "trial.csv"\n')
    more = beside("doctor", "--config", "more.toml")
    assert a_line_names(more.out, "ok", "policy.toml", "trial")
    (enrolment / "none.toml").write_text(
        (enrolment / "west.toml").read_text().replace("policy.toml", "none-there.toml")
    )
    failed = beside("doctor", "--config", "none.toml").failed_checks
    assert any(names_facts(line, "policy", "none-there.toml", os.strerror(errno.ENOENT)) for line in failed)


# --- One provider's folder --------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A stopped provider that answered two analysts."""
    made = Site.made(tmp_path)
    with made.running(at=1_700_000_000) as ledger:
        made.answer(ledger, "a" * 64)
        ledger.close("a" * 64, "done")
    with made.running(at=1_700_086_400) as ledger:
        made.answer(ledger, "b" * 64, 2, job(0.5), analyst=GRACE)
    return made


@pytest.fixture
def older(site: Site) -> Site:
    """The same provider, with a ledger restored from before its last answer."""
    site.back_up()
    with site.running() as ledger:
        site.answer(ledger, "c" * 64)
    site.restore()
    return site


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    return commands_in(tmp_path, monkeypatch, capfd)


def answers(ended: Ended) -> list[tuple[str, int]]:
    return [(each["job"][0], each["query"]) for each in ended.facts["answers"]]


@pytest.mark.usefixtures("site")
def test_the_outbox_lists_the_selected_answers(here: Here) -> None:
    every = [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)]
    asked = ("outbox", *OWN, "--json")
    assert answers(here(*asked)) == every
    assert answers(here(*asked, "--analyst", "grace")) == answers(here(*asked, "--analyst", GRACE)) == every[3:]
    assert answers(here(*asked, "--analyst", "ada", "--data-set", "cohort")) == every[:3]
    unknown = here("outbox", *OWN, "--data-set", "nothere").error_line
    assert unknown.startswith("Unknown data set 'nothere'. Available: cohort")
    for since in ("2023-11-15", "2023-11-15T22:13:20Z", "2023-11-15T23:13:20+01:00"):
        assert answers(here(*asked, "--since", since)) == every[3:], since
    assert here(*asked).facts["answers"][0]["at"] == "2023-11-14T22:13:20Z"
    assert a_line_names(
        here("outbox", *OWN, "--analyst", "ada").out, "3 answers", "288 bytes", "5 answers", "ever left"
    )
    assert here(*asked, "--analyst", "adda").facts["analysts"] == [ADA, GRACE]
    assert a_line_names(here("outbox", *OWN, "--analyst", "adda").out, "No answer", "'adda'", ADA, GRACE)
    assert "No answer" not in here("outbox", *OWN, "--analyst", "ada").out
    assert here("outbox", *OWN, "--since", "").error_line.startswith("--since is ''")
    output = {
        "greeting": "hello",
        "admission": "admitted",
        "approval": "awaiting_approval",
        "receipt": "answer",
        "refusal": "refusal",
        "heartbeat": "heartbeat",
        "statement": "statement_reply",
    }
    assert set(here(*asked).facts["beside"]) == set(output)
    assert set(output.values()) == {each.name for each in pb.FromProvider.DESCRIPTOR.oneofs_by_name["message"].fields}
    assert here("outbox", *OWN, "--since", "yesterday").error_line.startswith(
        "--since is 'yesterday', which is not a time"
    )


def test_the_outbox_hash_is_that_of_the_stored_bytes(here: Here, site: Site) -> None:
    kept = Place(site.path, site.path).tamper("SELECT job, position + 1, content FROM answers")
    output = {(each["job"], each["query"]): each["sha256"] for each in here("outbox", *OWN, "--json").facts["answers"]}
    bytes_of = {(name, query): sha256(content).hexdigest() for name, query, content in kept}
    assert (len(output), len(bytes_of)) == (5, 2)  # of the open job
    steps = [step.name for step in catalogue.plan(job())]
    assert {each["step"] for each in here("outbox", *OWN, "--json").facts["answers"]} <= set(steps)
    assert bytes_of.items() <= output.items()


@pytest.mark.usefixtures("site")
def test_jobs_are_shown_with_their_state_and_their_price(here: Here) -> None:
    output = {each["job"][0]: each for each in here("ledger", "show", *OWN, "--json").facts["jobs"]}
    assert (output["a"]["state"], output["a"]["answered"], output["a"]["asked"]) == ("done", 3, 3)
    assert (output["b"]["state"], output["b"]["answered"], output["b"]["asked"]) == ("open", 2, 2)
    assert output["a"]["spent"]["units"] == opening("any", job()).units
    assert output["b"]["spent"]["units"] + output["b"]["reserved"]["units"] == opening("any", job(0.5)).units
    assert output["a"]["spent"]["mu"] == mu_of(output["a"]["spent"]["units"])
    table = here("ledger", "show", *OWN).out
    assert re.search(r"aaaaaaaaaaaa │ cohort +│ ada +│ 2023-11-14 │ done +│ 3 of 3 +│ 1, 1e-06 +│ 0.2368", table)


@pytest.mark.usefixtures("site")
def test_the_chain_of_an_export_can_be_checked_as_documented(here: Here, capfd: pytest.CaptureFixture[str]) -> None:
    ended = here("ledger", "export", *OWN, "--out", "ledger.jsonl", "--json")
    head = here("ledger", "verify", *OWN, "--json").facts["head"]
    assert ended.facts == {"file": "ledger.jsonl", "entries": head["entries"]}
    (example,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(compile(example, str(DOCS), "exec"), {})  # noqa: S102  # our own text
    assert capfd.readouterr().out.strip() == head["hash"]
    text = Path("ledger.jsonl").read_text()
    Path("ledger.jsonl").write_text(text.replace("analyst/ada", "analyst/bob"))
    with pytest.raises(AssertionError, match=facts("entry 3")):
        exec(compile(example, str(DOCS), "exec"), {})  # noqa: S102  # our own text


@pytest.mark.usefixtures("site")
def test_an_export_replaces_a_file_only_with_force(here: Here, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    message = here("ledger", "export", *OWN, "--out", "there").error_line
    assert message.startswith("there already exists.")
    assert "--force" in message
    assert (tmp_path / "there").read_text() == "mine"
    assert here("ledger", "export", *OWN, "--out", "there", "--force").code == 0
    entries = here("ledger", "export", *OWN, "--json").facts["entries"]
    assert [json.loads(line) for line in (tmp_path / "there").read_text().splitlines()] == entries
    assert (tmp_path / "there").stat().st_mode & 0o777 == 0o600
    assert "cannot be written" in here("ledger", "export", *OWN, "--out", "no/where").error_line
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.usefixtures("site")
def test_an_export_replaces_only_files_and_warns_that_it_is_private(here: Here, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to("mine")
    (tmp_path / "nowhere").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "link", "nowhere", "pipe"):
        for flags in ((), ("--force",)):
            refused = here("ledger", "export", *OWN, "--out", name, *flags)
            assert refused.error_line == f"{name} is a folder, a link, a pipe or a device. Name another file."
    assert (tmp_path / "mine").read_text() == "mine"
    assert "Keep it private" in here("ledger", "export", *OWN, "--out", "new").out


def test_verify_reports_a_damaged_ledger_and_exits_with_1(here: Here, site: Site) -> None:
    well = here("ledger", "verify", *OWN)
    assert (well.code, names_facts(well.out, "entry 16")) == (0, True)
    place = Place(site.path, site.path)
    place.tamper("UPDATE answers SET content = zeroblob(96) WHERE job LIKE 'b%' AND position = 0")
    damaged = here("ledger", "verify", *OWN)
    assert damaged.code == 1
    (lost,) = damaged.out.splitlines()
    assert names_facts(lost, "query 1", "b" * 64)
    place.tamper(
        "DROP TRIGGER entries_are_never_changed",
        "UPDATE entries SET content = replace(content, 'analyst/ada', 'analyst/eve') WHERE number = 3",
    )
    broken = here("ledger", "verify", *OWN, "--json")
    assert (broken.code, json.loads(broken.out)["head"]) == (1, None)
    assert names_facts(json.loads(broken.out)["problems"][0], "chain", "entry 3")
    for command in ("ledger show", "outbox", "budget"):
        assert names_facts(here(*command.split(), *OWN).error_line, "chain", "entry 3")


@pytest.mark.parametrize("command", ["ledger show", "ledger export", "outbox", "ledger end-quarantine --reason why"])
def test_commands_do_not_create_a_missing_ledger(command: str, here: Here, tmp_path: Path) -> None:
    Site.made(tmp_path)
    missing = ("no ledger", "ledger/ledger.db", "`dpspca ledger end-quarantine --help`")
    assert names_facts(here(*command.split(), *OWN).error_line, missing)
    verified = here("ledger", "verify", *OWN)
    assert (verified.code, names_facts(verified.out, missing)) == (1, True)
    assert not (tmp_path / "ledger").exists()


@pytest.mark.usefixtures("site")
def test_other_programs_settings_are_refused_by_name(here: Here, tmp_path: Path) -> None:
    (tmp_path / "ada.toml").write_text('coordinator = "127.0.0.1:1"\nidentity = "ada"\n')
    for command in ("ledger show", "ledger verify", "ledger export", "outbox", "budget"):
        message = here(*command.split(), "--config", "ada.toml").error_line
        assert names_facts(message, "ada.toml", "analyst", "provider")


# --- Quarantine -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("older")
def test_every_command_reports_an_older_copy_of_the_ledger(here: Here) -> None:
    verified = here("ledger", "verify", *OWN)
    reason = here("budget", *OWN, "--json").facts["quarantine"]
    assert (verified.code, reason in verified.out) == (1, True)
    assert names_facts(reason, "head file", "24 entries", 16)
    assert f" {reason} " in here("ledger", "show", *OWN).out.partition("QUARANTINED")[2]
    (gap,) = here("outbox", *OWN, "--json").facts["gaps"]
    assert gap.startswith(reason)
    assert "missing" in gap
    (wrong,) = [line for line in here("doctor", *OWN).failed_checks if " ledger: " in line]
    assert names_facts(wrong.replace(reason, ""), "quarantine")
    assert reason in wrong


def test_a_deleted_ledger_is_not_taken_for_a_new_one(here: Here, site: Site) -> None:
    shutil.rmtree(site.path.parent)
    (wrong,) = [line for line in here("doctor", *OWN).failed_checks if " ledger: " in line]
    assert names_facts(wrong, "no ledger", "ledger/ledger.db")
    with site.running():
        pass
    assert a_line_names(here("ledger", "verify", *OWN).out, "head file", "another ledger")


def test_a_ledger_folder_open_to_others_is_reported(here: Here, site: Site) -> None:
    site.path.parent.chmod(0o755)
    (wrong,) = [line for line in here("doctor", *OWN).failed_checks if " ledger: " in line]
    assert names_facts(wrong, "`chmod 700 ledger`")


def end_quarantine(here: Here, *words: str) -> dict[str, Any]:
    return here("ledger", "end-quarantine", *OWN, "--reason", "disk failed, ticket 12", "--yes", "--json", *words).facts


def test_ending_a_quarantine_counts_everything_and_records_it(here: Here, older: Site) -> None:
    shown = {each["job"][0]: each for each in here("ledger", "show", *OWN, "--json").facts["jobs"]}
    known = sum(shown[name][kind]["units"] for name in "ab" for kind in ("spent", "reserved"))
    facts = end_quarantine(here)
    assert facts["counted"]["cohort"]["units"] == LIFETIME.whole.units - known
    assert facts["refused"] == []
    found = Place(older.path, older.path).tamper("SELECT content FROM entries ORDER BY number DESC LIMIT 1")
    at = datetime.fromtimestamp(json.loads(found[0][0])["at"], UTC)
    assert datetime.fromisoformat(facts["signed_after"]) == at + timedelta(seconds=JOB_SKEW)
    output = here("budget", *OWN, "--json").facts
    (budget,) = output["data_sets"]
    assert (budget["left"]["units"], budget["further_jobs"], budget["spent"]["share"]) == (0, 0, 1.0)
    assert output["signed_after"] == facts["signed_after"]
    assert f"only jobs signed after {facts['signed_after']} are answered." in here("budget", *OWN).out
    words = here("ledger", "show", *OWN).out
    assert a_line_names(words, "quarantined", "head file")
    assert a_line_names(words, "ended", "disk failed, ticket 12")
    assert "QUARANTINED" not in words
    assert here("ledger", "verify", *OWN).code == 0
    (gap,) = here("outbox", *OWN, "--json").facts["gaps"]
    assert names_facts(gap, "Found", "head file", "24 entries", 16, "missing")
    assert a_line_names(here("outbox", *OWN).out, "answers", "More may")
    assert "ever left" not in here("outbox", *OWN).out
    with older.running() as ledger:
        assert ledger.quarantine is None
        assert ledger.head().entries == facts["head"]["entries"] + 1


def test_budget_says_what_a_raised_lifetime_still_lacks(here: Here, older: Site) -> None:
    """With a larger epsilon alone, the part of delta for implemented noise shrinks below what counts as spent."""
    end_quarantine(here)
    policy = older.folder / "policy.toml"
    lifetime = "lifetime = {{ epsilon = {}, delta = {} }}"
    output = policy.read_text()
    for changed, missing in ((("6.0", "1e-5"), "kept for noise as implemented"), (("6.0", "1e-4"), None)):
        policy.write_text(output.replace(lifetime.format("4.0", "1e-5"), lifetime.format(*changed)))
        (budget,) = here("budget", *OWN, "--json").facts["data_sets"]
        assert missing in budget["refused"] if missing else budget["refused"] is None, changed


def test_ending_a_quarantine_can_count_single_jobs(here: Here, older: Site) -> None:
    named = ("cohort=1,1e-6", "cohort=0.5,1e-6", "cohort=job.json")
    counted = end_quarantine(here, *(word for each in named for word in ("--count", each)))["counted"]["cohort"]
    each = [Filter.for_budget(epsilon, 1e-6).whole.units for epsilon in (1.0, 0.5)]
    each.append(opening("any", job()).units)
    assert counted["units"] == sum(each)
    (budget,) = here("budget", *OWN, "--json").facts["data_sets"]
    assert budget["written_off"]["units"] == sum(each)
    assert budget["left"]["units"] == LIFETIME.whole.units - budget["spent"]["units"]
    assert 0 < budget["left"]["share"] < 1
    largest = Filter.for_budget(1.0, 1e-6)
    whole = opening("new", job(), issued_at=1 << 40, units=largest.whole.units * budget["further_jobs"])
    with older.running() as ledger:
        assert ledger.open(whole, Limits(LIFETIME)) is None


def test_a_counted_budget_covers_the_most_a_job_can_have_cost(here: Here, older: Site) -> None:
    del older
    counted = end_quarantine(here, "--count", "cohort=1,1e-6")["counted"]["cohort"]
    asked = opening("any", job())
    assert (counted["units"], counted["slack_units"]) >= (asked.units, asked.slack_units)
    assert counted["slack_units"] >= asked.slack_units
    assert counted["slack_units"] < LIFETIME.whole.slack_units / 1e6


def test_ending_a_quarantine_can_count_nothing(here: Here, site: Site) -> None:
    (site.folder / "identity" / "ledger-head").unlink()
    assert a_line_names(here("ledger", "verify", *OWN).out, "head file", "empty")
    assert end_quarantine(here, "--count", "cohort=nothing")["counted"]["cohort"]["units"] == 0
    (budget,) = here("budget", *OWN, "--json").facts["data_sets"]
    assert budget["written_off"]["units"] == 0
    assert here("ledger", "verify", *OWN).code == 0


def test_a_data_set_without_policy_stays_refused_until_named(here: Here, older: Site) -> None:
    with (older.folder / "provider.toml").open("a") as file:
        file.write('trial = "trial.csv"\n')
    assert end_quarantine(here, "--count", "cohort=nothing")["refused"] == ["trial"]
    assert "nobody has decided" in refused(here, "trial", older)
    later = end_quarantine(here, "--count", "trial=1,1e-6")
    assert (list(later["counted"]), later["refused"]) == (["trial"], [])
    again = here("ledger", "end-quarantine", *OWN, "--reason", "again", "--yes")
    assert names_facts(again.error_line, "already recorded", "--count")


def refused(here: Here, name: str, site: Site) -> str:
    """Return why no job on a data set is admitted, once the policy has a table for it."""
    policy = (site.folder / "policy.toml").read_text()
    (site.folder / "policy.toml").write_text(policy + policy.replace("cohort", name))
    (output,) = here("budget", *OWN, "--json", "--data-set", name).facts["data_sets"]
    (site.folder / "policy.toml").write_text(policy)
    return str(output["refused"])


def test_ending_a_quarantine_needs_confirmation(here: Here, older: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = ("ledger", "end-quarantine", *OWN, "--reason", "why")
    for reply in ("n\n", ""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(reply))
        ended = here(*asking)
        assert ended.code == 2
        assert "cohort: mu" in ended.err
        assert "taken back" in ended.err
        assert "nothing was done" in ended.err
    with older.running() as ledger:
        assert ledger.quarantine is not None
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    agreed = here(*asking)
    assert agreed.code == 0
    assert re.fullmatch(
        r"The quarantine ended with entry \d+\. .*`dpspca budget`.*\n.* jobs signed after \S+Z .* 5 minutes.*\n",
        agreed.out,
    )


def test_a_quarantine_cannot_be_ended_while_a_daemon_runs(here: Here, older: Site) -> None:
    with older.running() as ledger:
        message = here("ledger", "end-quarantine", *OWN, "--reason", "why", "--yes").error_line
        assert names_facts(message, "ledger.db", f"process {os.getpid()}")
        assert ledger.quarantine is not None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--reason", " "), "--reason is"),
        (("--reason", "why", "--count", "cohort=1"), "--count is 'cohort=1', which is neither"),
        (("--reason", "why", "--count", "cohort"), "--count is 'cohort', which is neither"),
        (("--reason", "why", "--count", "cohort=-1,1e-6"), "epsilon is -1.0"),
        (("--reason", "why", "--count", "cohort=nan,1e-6"), "epsilon is nan"),
        (
            ("--reason", "why", "--count", "cohort=none.toml"),
            "--count is 'cohort=none.toml', which is neither",
        ),
        (
            ("--reason", "why", "--count", "cohort=nothing", "--count", "cohort=1,1e-6"),
            "--count gives 'nothing' and also a job for cohort.",
        ),
        (
            ("--reason", "why", "--count", "chort=nothing"),
            "Unknown data set 'chort' in --count.",
        ),
    ],
)
@pytest.mark.usefixtures("older")
def test_ending_a_quarantine_with_wrong_arguments_is_refused(words: tuple[str, ...], message: str, here: Here) -> None:
    ended = here("ledger", "end-quarantine", *OWN, "--yes", *words)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert here("ledger", "show", *OWN, "--json").facts["quarantine"] is not None


# --- Suggested policies -----------------------------------------------------------------------------------------------


def test_a_suggested_policy_allows_its_job_and_is_marked_a_draft(here: Here, tmp_path: Path) -> None:
    Site.made(tmp_path)
    asking = ("policy", "suggest", "job.json", "--analyst", "grace", "--analyst", "ada", "--data-set", "cohort")
    written = here(*asking).out
    assert written.startswith("# A first draft")
    assert "`dpspca policy check`" in written
    assert Policy.parse(written).rules("cohort").analysts == ("ada", "grace")
    facts = here(*asking, "--json").facts
    assert facts == {"data_set": "cohort", "analysts": ["ada", "grace"], "policy": written}
    (tmp_path / "policy.toml").write_text(written)
    checked = here("policy", "check", "policy.toml", "--job", "job.json", "--data-set", "cohort")
    assert (checked.code, "is allowed." in checked.out) == (0, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("job.json", "--analyst", "ada"), "The job names no data set."),
        (("job.json", "--analyst", "Ada!", "--data-set", "cohort"), "'Ada!'"),
        (("job.json", "--analyst", "ada", "--data-set", "Co hort"), "the data set is 'Co hort'."),
        (("job.json", "--analyst", "ada", "--analyst", "ada", "--data-set", "cohort"), "different names"),
        (("none.json", "--analyst", "ada"), "none.json cannot be read"),
    ],
)
def test_suggest_refuses_names_that_no_policy_may_have(
    words: tuple[str, ...], message: str, here: Here, tmp_path: Path
) -> None:
    Site.made(tmp_path)
    assert message in here("policy", "suggest", *words).error_line
