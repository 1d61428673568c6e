"""Evidence from a federation of real processes: collected with a job or after it, and checked without any of them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import Ended, commands_in
from facts import a_line_names, names_facts
from live import live_parties

from dpspca.client.connection.statements import Collected, StatementRequests
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

FLAGS = [
    "--components",
    "2",
    "--norm-bound",
    "12",
    "--unit",
    "row-replace-one",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--centering",
    "none",
]
JOB = [*FLAGS, "--method", "analyze-gauss", "--data-set", "cohort", "--config", "ada.toml"]


@pytest.fixture(scope="module")
def enrolment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("town")
    with live_parties(folder):
        yield folder


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], enrolment: Path) -> Callable[..., Ended]:
    return commands_in(enrolment, monkeypatch, capfd)


@pytest.mark.slow
def test_evidence_of_a_run_is_checked_in_words_and_against_files(here: Callable[..., Ended]) -> None:
    ran = here("run", *JOB, "--out", "one.model", "--evidence", "one.evidence", "--json").facts
    assert ran["files"]["evidence"] == "one.evidence"
    fingerprint = here("study", "show", "--json").facts["authority"]
    checked = ("evidence", "verify", "one.evidence", "--fingerprint", fingerprint, "--model", "one.model")
    shown = here(*checked)
    assert shown.code == 0
    for words in ("Everything that can be checked holds.", "north signed", "south signed", "ended there as 'done'"):
        assert words in shown.out
    facts = here(*checked, "--json").facts
    assert (facts["holds"], facts["failed"], facts["job"]["job"]) == (True, [], ran["job"])
    assert {each["code"] for each in facts["checked"]} >= {"receipt-north", "record-south", "terms-north", "model"}
    north = facts["providers"]["north"]["record"]
    ledger = here("ledger", "show", "--config", "north.toml", "--json").facts
    (mine,) = [each for each in ledger["jobs"] if each["job"] == ran["job"]]
    assert mine["state"] == north["state"] == "done"
    left = here("outbox", "--config", "north.toml", "--json").facts["answers"]
    assert north["answers"] == len([each for each in left if each["job"] == ran["job"]])


def test_a_job_is_collected_later_and_what_is_changed_is_found(here: Callable[..., Ended], enrolment: Path) -> None:
    job = here("run", *JOB, "--out", "two.model", "--json").facts["job"]
    written = here("evidence", job[:12], "--config", "ada.toml", "--out", "two.evidence", "--json").facts
    lists = {"without_statements": [], "missing": [], "failed": []}
    assert written == {"file": "two.evidence", "holds": True, **lists}
    again = here("evidence", job, "--config", "ada.toml", "--out", "two.evidence")
    assert "two.evidence already exists" in again.error_line
    assert here("evidence", "verify", "two.evidence", "--model", "two.model").code == 0
    wrong_model = here("evidence", "verify", "two.evidence", "--model", "ada.toml")
    assert wrong_model.code == 1
    assert "Do not rely on this file" not in wrong_model.out, "the evidence is sound, and the model is another one"
    raw = json.loads((enrolment / "two.evidence").read_text())
    raw["model"]["size"] += 1
    (enrolment / "changed.evidence").write_text(json.dumps(raw, sort_keys=True, separators=(",", ":")) + "\n")
    refused = here("evidence", "verify", "changed.evidence")
    assert refused.code == 1
    assert refused.out.startswith("FAILED. Do not rely on this file:")
    (enrolment / "cut.evidence").write_bytes((enrolment / "two.evidence").read_bytes()[:-100])
    assert here("evidence", "verify", "cut.evidence", "--json").code == 1


@pytest.mark.parametrize(("silent", "code"), [(["south"], 0), (["north", "south"], 1)])
def test_a_provider_that_stated_nothing_is_named_with_the_next_step(
    here: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, silent: list[str], code: int
) -> None:
    honest = StatementRequests._keep

    def keep(self: StatementRequests, collected: Collected, reply: pb.Statement) -> None:
        honest(self, collected, pb.Statement(provider=reply.provider) if reply.provider in silent else reply)

    monkeypatch.setattr(StatementRequests, "_keep", keep)
    job = here("run", *JOB, "--out", "part.model", "--evidence", "part.evidence", "--force", "--json").facts
    assert sum(names_facts(note, "`dpspca evidence JOB`", "--force") for note in job["notes"]) == len(silent)
    collected = here("evidence", job["job"], "--config", "ada.toml", "--out", "part.evidence", "--force", "--json")
    assert collected.code == code
    assert json.loads(collected.out)["without_statements"] == silent
    assert all(a_line_names(collected.err, name, "`dpspca evidence JOB`", "--force") for name in silent)
    shown = here("evidence", "verify", "part.evidence")
    assert shown.code == 0
    assert names_facts(shown.out.splitlines()[-1], *(silent if code == 0 else ["NO"]))
    assert here("evidence", "verify", "part.evidence", "--json").facts["without_statements"] == silent


@pytest.mark.slow
def test_evidence_is_asked_for_in_order(here: Callable[..., Ended]) -> None:
    assert names_facts(here("run", *JOB, "--evidence", "a", "--detach").error_line, "--evidence", "--detach")
    assert "is not a folder" in here("run", *JOB, "--evidence", "no/such/a", "--out", "c").error_line
    assert "no such job" in here("evidence", "0" * 64, "--config", "ada.toml").error_line
    part = here("evidence", "verify", "one.evidence", "--fingerprint", "1").error_line
    assert names_facts(part, "'1'", "`dpspca study show`", 64)
    assert here("evidence", "verify", "none.evidence").code == 2
