"""Files of earlier versions are read: a ledger, a journal and a model of 0.1.0, and evidence of 0.2.0.

``fixtures/version-0.1.0.tar.gz`` holds the files of a provider and a coordinator after two finished jobs, in the middle
of a third, and the output of 0.1.0's own commands about them. ``fixtures/evidence-0.2.0.json.gz`` is evidence of a
job of two providers, for one of which persons approved it. These files are never regenerated.
"""

import gzip
import json
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Ended, commands_in
from facts import names_facts
from html_pages import of_tag
from ledgers import Place

from dpspca import load_model
from dpspca.client.evidence import verify
from dpspca.common.results import Model
from dpspca.server.journal.contract import RecordedQuery
from dpspca.server.journal.sqlite import SqliteJournal

FIXTURE = Path(__file__).parents[1] / "fixtures" / "version-0.1.0.tar.gz"
EVIDENCE = FIXTURE.with_name("evidence-0.2.0.json.gz")
AUTHORITY = "F2:13:59:CD:3C:7E:5D:74:DD:FE:AB:47:6B:E5:F8:48:47:59:4F:92:BD:33:B0:63:BB:01:8A:CF:93:65:D8:C8"
UNFINISHED = "7a674148f9f837869c61641935fb9cc938938c5941ee0ef5fea61e10e48d6eb6"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(FIXTURE) as kept:
        for name in kept.getnames():
            content = kept.extractfile(name)
            assert content
            (tmp_path / name).parent.mkdir(mode=0o700, exist_ok=True)
            (tmp_path / name).touch(0o600)
            (tmp_path / name).write_bytes(content.read())
    return tmp_path


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    return commands_in(folder, monkeypatch, capfd)


def said(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_a_ledger_shows_every_job_as_before(run: Callable[..., Ended], folder: Path) -> None:
    verified = run("ledger", "verify", "--config", "north.toml")
    assert (verified.code, names_facts(verified.out, "entry 33")) == (0, True)
    before, now = said(folder, "said-ledger.json"), run("ledger", "show", "--config", "north.toml", "--json").facts
    assert now["head"] == before["head"]
    assert now["jobs"] == before["jobs"]


def test_a_ledger_accepts_new_entries(run: Callable[..., Ended], folder: Path) -> None:
    place = Place(folder / "north-ledger" / "ledger.db", folder / "provider-north" / "ledger-head")
    with place.start() as ledger:
        assert ledger.quarantine is None
        assert list(ledger.open_jobs()) == [UNFINISHED]
        answer = ledger.stored(UNFINISHED, 1)
        assert answer is not None
        assert answer.shape == (6, 2)
    run("ledger", "export", "--config", "north.toml", "--out", "now.jsonl")
    before, now = ((folder / name).read_text().splitlines() for name in ("entries.jsonl", "now.jsonl"))
    assert now[: len(before)] == before
    assert "All is well" in run("ledger", "verify", "--config", "north.toml").out


OF_ROWS = "f305246d7c333fe49f8dbb0fe54e9917c04f91b3eac503392526ae86bb2e1478"
"""The digest of the rows, which the ledger of 0.1.0 has in each job."""


def place_of(folder: Path) -> Place:
    return Place(folder / "north-ledger" / "ledger.db", folder / "provider-north" / "ledger-head")


def assert_hidden(folder: Path, run: Callable[..., Ended]) -> None:
    """The ledger knows its rows, and shows nothing of them."""
    place = place_of(folder)
    with place.start() as ledger:
        ledger.key_names()
        assert ledger.quarantine is None
        assert ledger.data_set_of_rows([ledger.name_of(OF_ROWS)]) == "cohort"
        assert list(ledger.open_jobs()) == [UNFINISHED]
        assert ledger.stored(UNFINISHED, 1) is not None
    assert "All is well" in run("ledger", "verify", "--config", "north.toml").out
    now = run("ledger", "show", "--config", "north.toml", "--json").facts["jobs"]
    before = said(folder, "said-ledger.json")["jobs"]
    assert [job.pop("data_digest") for job in before] == [OF_ROWS] * 3
    assert OF_ROWS not in {job.pop("data_digest") for job in now}
    assert now == before
    for file in place.path.parent.iterdir():
        assert OF_ROWS.encode() not in file.read_bytes()


def test_t45_a_ledger_of_0_1_0_gets_names_for_its_rows(run: Callable[..., Ended], folder: Path) -> None:
    assert OF_ROWS.encode() in (folder / "north-ledger" / "ledger.db").read_bytes()
    assert_hidden(folder, run)


KILLED = """
import os, signal, sys
from pathlib import Path
from dpspca.provider.ledger import sqlite

def killing(before=0):
    calls = []
    def kill(*_, **__):
        calls.append(1)
        if len(calls) > before:
            os.kill(os.getpid(), signal.SIGKILL)
    return kill

def after(original, kill):
    def wrapped(*given, **named):
        made = original(*given, **named)
        kill()
        return made
    return wrapped

ledger = sqlite.SqliteLedger(Path(sys.argv[1]), Path(sys.argv[2]))
match sys.argv[3]:
    case "no key": sqlite.make_row_key = killing()
    case "key": sqlite.make_row_key = after(sqlite.make_row_key, killing())
    case "middle": sqlite.Entry.after = after(sqlite.Entry.after, killing(20))
    case "entries": sqlite.SqliteLedger._cover = killing()
    case "head": sqlite.Database.empty_log = killing()
ledger.key_names()
"""


@pytest.mark.parametrize("point", ["no key", "key", "middle", "entries", "head"])
def test_t45_a_kill_while_names_are_made_leaves_one_ledger_or_the_other(
    point: str, run: Callable[..., Ended], folder: Path
) -> None:
    place = place_of(folder)
    command = [sys.executable, "-c", KILLED, str(place.path), str(place.head), point]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # this package
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    run("ledger", "export", "--config", "north.toml", "--out", "now.jsonl")
    before, now = ((folder / name).read_text().splitlines() for name in ("entries.jsonl", "now.jsonl"))
    is_old = point in {"no key", "key", "middle"}
    assert (now[: len(before)] == before) == is_old
    assert any('"kind":"keyed"' in line for line in now) == (not is_old)
    assert_hidden(folder, run)


def test_a_journal_still_has_its_jobs_models_and_sums(folder: Path) -> None:
    journal = SqliteJournal(folder / "journal.db")
    assert journal.hold()
    with closing(journal):
        recorded = journal.jobs()
        assert [each.job.state.value for each in recorded] == ["done", "done", "running"]
        assert recorded[-1].job.name == UNFINISHED
        kept = Model.from_bytes(journal.model(recorded[0].job.name, 0))
        assert kept.components.tobytes() == load_model(folder / "model.dpspca").components.tobytes()
        assert [journal.query(UNFINISHED, position) is None for position in range(4)] == [False] * 3 + [True]
        asked = journal.query(UNFINISHED, 1)
        assert isinstance(asked, RecordedQuery)
        assert asked.parties == 2
        assert journal.total(UNFINISHED, 0, (1,)) == [120]
        assert journal.total(UNFINISHED, 1, (6, 2)).shape == (6, 2)
        assert sorted(journal.receipts()) == ["north", "south"]


def test_a_model_shows_what_it_showed(run: Callable[..., Ended], folder: Path) -> None:
    before, now = said(folder, "said-model.json"), run("model", "show", "model.dpspca", "--json").facts
    for component in now["components"]:
        component.pop("explained_variance_interval")  # which it did not say
        assert component.pop("left_out_at_most") is None
        for feature in component["top_features"]:
            assert feature.pop("loading_std") is feature.pop("loading_interval") is None  # which it did not know
    for fact in ("features", "support_size", "support", "components"):
        assert now[fact] == before[fact]
    for fact in ("epsilon", "delta", "unit", "parties", "releasable"):
        assert now["statement"][fact] == before["statement"][fact]
    exported = said(folder, "components.json")
    assert np.array_equal(load_model(folder / "model.dpspca").components, np.array(exported["components"]))


def test_a_model_has_a_report(run: Callable[..., Ended], folder: Path) -> None:
    before = said(folder, "said-model.json")
    assert run("report", "model.dpspca").code == 0
    shown = of_tag((folder / "report.html").read_text(encoding="utf-8"), "data")
    values = {float(each.attributes["value"]) for each in shown}
    for component in before["components"]:
        assert component["explained_variance"] in values
        assert {feature["loading"] for feature in component["top_features"]} <= values


def test_evidence_collected_by_0_2_0_still_holds() -> None:
    """Other words for the same promise fail only for the version that wrote the file, while it is not published."""
    content = gzip.decompress(EVIDENCE.read_bytes())
    found = verify(content, fingerprint=AUTHORITY, model=b"a model", bill_of_materials=b"a bill of materials")
    assert {each.code for each in found.failed} <= {"promise", "statement"}
    assert {
        f"{what}-{name}" for name in ("north", "south") for what in ("record", "terms", "approvals", "receipt")
    } <= {each.code for each in found.checked}
    people = [each["person"] for each in found.facts["providers"]["north"]["approvals"]["decisions"]]
    assert people == ["maria", "ben"]
    assert not verify(content.replace(b'"software":"0.2.0"', b'"software":"0.3.0"')).holds
