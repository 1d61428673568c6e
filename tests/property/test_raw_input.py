"""Hostile input: whatever stands in a file, each reader takes it as it is meant or refuses it with a clear error.

Readers of settings, policies, jobs, dictionaries and stored values go through one layer. So one table of readers and
one list of hostile values cover them all.
"""

import json
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pytest

from dpspca.cli.arguments.job_files import from_file
from dpspca.cli.arguments.job_flags import Flags
from dpspca.client.evidence.document import FORMAT, Evidence, Outcome, Reported, StoredModel
from dpspca.common.decoding import decode
from dpspca.common.errors import DpspcaError
from dpspca.common.job import Accounting, Bounds, Budget, Centering, Conditions, JobSpec, Schema, StatedCap, Terms
from dpspca.common.ledger_record import LedgerRecord
from dpspca.common.plan import Plan
from dpspca.common.privacy import Price, PrivacyUnit
from dpspca.common.results import Model, PrivacyStatement, Weighed
from dpspca.common.storage import dictionary_faults, read_any_settings, read_dictionary
from dpspca.provider.approval.decisions import read_decision
from dpspca.provider.ledger.entries import Entry, Head, Named
from dpspca.provider.policy.rules import Policy
from dpspca.server.job_states import JobParticipant, JobRecord
from dpspca.server.journal.contract import read_job, write_job

SAMPLES: Final = Path(__file__).parents[2] / "deploy" / "samples"
PROVIDER: Final = """
coordinator = "hub:1"
identity = "north"
revocations = "revoked.pem"
policy = "policy.toml"
data_sets = { cohort = "rows.csv", labs = "labs.csv" }
arriving = { new = "new" }
persons = { labs = "whose.txt" }
row_entries = { cohort = 40 }
spans = {}
reading = { cohort = { columns = ["a", "b"], missing = { a = 1.5 }, missing_codes = [-9] }, labs = { table = "t" } }
approval = { expires_hours = 3, notify = ["a", "b"], notify_seconds = 4 }
ledger = "ledger.db"
metrics = "127.0.0.1:1"
"""
CONDITIONS: Final = Conditions(
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    rows_per_person=1,
    methods=("dps-pca",),
    accounting=(Accounting.EXACT,),
    centering=(Centering.NONE,),
    explained_variance=True,
    columns=("a", "b"),
    norm_bound=Bounds(1.0, 20.0),
    mean_bound=Bounds(0.5, 2.0),
    minimum_providers=2,
    unproven=False,
    approvals_needed=0,
    per_job=StatedCap(1.0, 1e-6),
    per_analyst=StatedCap(4.0, 1e-6),
    quotas={"open_jobs": 10},
    dictionary_required=True,
)
SPEC: Final = JobSpec(
    schema=Schema(2, ("a", "b")),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=2.0,
    components=1,
    method="dps-pca",
    options={"sparsity": 1, "rounds": 3},
)
PARTIES: Final = {"provider": "dpspca://town/provider/north", "analyst": "dpspca://town/analyst/ada"}


@dataclass(frozen=True)
class Reader:
    """A valid value, how a file writes it, and what reads the file."""

    value: Callable[[], Any]
    read: Callable[[bytes, Path], object]
    is_toml: bool = False
    is_written_by_people: bool = False


def from_path(read: Callable[[Path], object], name: str) -> Callable[[bytes, Path], object]:
    def through_a_file(content: bytes, folder: Path) -> object:
        (folder / name).write_bytes(content)
        return read(folder / name)

    return through_a_file


def sample(name: str) -> dict[str, Any]:
    return tomllib.loads((SAMPLES / f"{name}.toml").read_text(encoding="utf-8"))


def terms() -> Any:
    some = {"data_set": "cohort", "stated_at": 1, "dimension": 2, "columns_digest": None, "dictionary_digest": None}
    made = Terms(**PARTIES, **some, software="1", conditions=CONDITIONS, left=StatedCap(4.0, 1e-6).price, refused=None)
    return json.loads(made.to_bytes())


def record() -> Any:
    texts = dict.fromkeys(("job", "data_set", "unit", "signed_job", "answers_digest", "receipt", "software"), "x")
    times = {"stated_at": 1, "opened_at": 1, "expires_at": 2, "queries": 2, "answers": 1}
    made = LedgerRecord(**PARTIES, **texts, **times, state="open", reserved=Price(5, 1), spent=Price(2, 0))
    return json.loads(made.to_bytes())


def evidence() -> Any:
    reported = Reported("done", 3, {"north": Outcome(3, 3, "")})
    made = Evidence(
        authority="a",
        collector="b",
        collected_at=1,
        job="c",
        promise={"mu": 0.5, "proven": True, "answers": 3},
        statement="d",
        reported=reported,
        requests={"terms": "e"},
        statements={"north": {"terms": "f"}},
        model=StoredModel("g", 5),
        software="1",
        bill_of_materials=None,
        software_digest="i",
        signature="h",
    )
    return json.loads(made.to_bytes())


def model() -> bytes:
    statement = PrivacyStatement.of(_plan(), parties=2, fresh_noise=True)
    made = Model(np.eye(1, 2), statement, feature_names=("a", "b"), explained_variance=np.ones(1))
    return replace(made, explained_variance_std=0.5).to_bytes()


def _plan() -> Plan:
    from dpspca.common.algorithms import catalogue  # noqa: PLC0415  # loading takes a moment

    return catalogue.plan(SPEC)


def read_model(line: bytes, _folder: Path) -> object:
    return Model.from_bytes(line + b"\n" + model().partition(b"\n")[2])


def decision() -> Any:
    texts = ("job", "data_set", "verdict", "person", "login", "reason", "certificate", "signature")
    return dict.fromkeys(texts, "x") | {"decided_at": 1, "expires_at": 2}


def job_record() -> Any:
    made = JobRecord("a", "ada", "cohort", 3, participants={"north": JobParticipant(3, 2, "", 5, 0.5)}, submitted=1.5)
    return json.loads(write_job(made))


def entry() -> Any:
    return json.loads(Entry.following(Head("l", 0, "0" * 64), 1, Named("cohort", ["a", "b"], "c")).content)


READERS: Final = {
    "a coordinator's settings": Reader(
        lambda: sample("coordinator") | {"journal": "j.db", "result_mebibytes": 3},
        from_path(read_any_settings, "s.toml"),
        is_toml=True,
        is_written_by_people=True,
    ),
    "a provider's settings": Reader(
        lambda: tomllib.loads(PROVIDER), from_path(read_any_settings, "s.toml"), is_toml=True, is_written_by_people=True
    ),
    "a policy": Reader(
        lambda: sample("policy"),
        lambda content, _: Policy.parse(content.decode()),
        is_toml=True,
        is_written_by_people=True,
    ),
    "a dictionary in TOML": Reader(
        lambda: sample("dictionary"), from_path(read_dictionary, "d.toml"), is_toml=True, is_written_by_people=True
    ),
    "a dictionary in JSON": Reader(
        lambda: sample("dictionary"), from_path(read_dictionary, "d.json"), is_written_by_people=True
    ),
    "a job's file in TOML": Reader(
        lambda: sample("job"),
        from_path(lambda path: from_file(path, Flags()), "j.toml"),
        is_toml=True,
        is_written_by_people=True,
    ),
    "a job's file in JSON": Reader(
        lambda: sample("job"), from_path(lambda path: from_file(path, Flags()), "j.json"), is_written_by_people=True
    ),
    "a spec": Reader(
        lambda: json.loads(SPEC.to_json()), lambda content, _: JobSpec.from_json(content), is_written_by_people=True
    ),
    "terms": Reader(terms, lambda content, _: Terms.from_bytes(content)),
    "a record": Reader(record, lambda content, _: LedgerRecord.from_bytes(content)),
    "evidence": Reader(evidence, lambda content, _: Evidence.from_bytes(content)),
    "a model": Reader(lambda: json.loads(model().partition(b"\n")[0]), read_model),
    "a decision": Reader(decision, lambda content, _: read_decision(content.decode())),
    "a job of a journal": Reader(job_record, lambda content, _: read_job(content.decode())),
    "an entry of a ledger": Reader(entry, lambda content, _: Entry.read(content.decode(), "0" * 64)),
    "weights": Reader(lambda: [[100, 7], [50, 3]], lambda content, _: Weighed.from_json(content.decode(), 2)),
}

HUGE: Final = "x" * 10_000_000
HOSTILE: Final = {
    "a deep list": [[[[[[[[]]]]]]]],
    "a deep table": {"a": {"a": {"a": {"a": {}}}}},
    "a huge integer": 10**399,
    "a larger integer": -(10**3_999),
    "not a number": float("nan"),
    "infinity": float("-inf"),
    "a list of lists": [[1], ["a"], [True]],
    "lone surrogates": "\ud800" * 5,
    "an unknown key": {"colour": "red"},
}


_OF_JSON: Final = {"lone surrogates"}
_OF_PEOPLE: Final = {"a huge integer"}
"""Amounts of a ledger are integers of that size."""
_OPEN: Final = {
    *((key,) for key in ("options", "arriving", "data_sets", "promise", "requests")),
    ("statements", "north"),
}
"""Tables whose keys are names. Only the method knows which options it has."""


def written(value: Any, *, is_toml: bool) -> bytes:
    if not is_toml:
        return _canonical(value)
    return "\n".join(f"{json.dumps(key)} = {_in_toml(each)}" for key, each in value.items()).encode("utf-8", "replace")


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + (
        b"\n" if isinstance(value, dict) and value.get("format") == FORMAT else b""
    )


def _in_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_in_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_in_toml, value)) + "]"
    return str(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Name every place in a value, tables and lists included."""
    if path:
        yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in pairs:
        yield from places(each, (*path, key))


def with_value(value: Any, path: tuple[Any, ...], hostile: Any) -> Any:
    if not path:
        return hostile
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = with_value(value[path[0]], path[1:], hostile)
    return changed


def require_clear(reader: Reader, content: bytes, folder: Path) -> str | None:
    """Return the reason for which content is refused, or None if it is read. Any other error fails the test."""
    expected = ValueError if reader is READERS["weights"] else DpspcaError
    try:
        reader.read(content, folder)
    except expected as problem:
        reason = str(problem)
    else:
        return None
    assert len(reason) < 10_000
    assert reason.encode()
    return reason


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as made:
        yield Path(made)


@pytest.mark.parametrize("name", READERS)
def test_what_is_valid_is_read(name: str, folder: Path) -> None:
    reader = READERS[name]
    assert require_clear(reader, written(reader.value(), is_toml=reader.is_toml), folder) is None


@pytest.mark.parametrize("name", READERS)
def test_t36_a_hostile_value_at_any_place_is_refused_with_a_reason(name: str, folder: Path) -> None:
    reader = READERS[name]
    valid = reader.value()
    for path in places(valid):
        for what, hostile in HOSTILE.items():
            if (what in _OF_JSON and reader.is_toml) or (what in _OF_PEOPLE and not reader.is_written_by_people):
                continue
            content = written(with_value(valid, path, hostile), is_toml=reader.is_toml)
            reason = require_clear(reader, content, folder)
            assert reason is not None or path in _OPEN, (path, what)


@pytest.mark.parametrize("name", [name for name, reader in READERS.items() if reader.is_written_by_people])
def test_t36_ten_megabytes_of_text_are_refused_and_not_repeated(name: str, folder: Path) -> None:
    reader = READERS[name]
    valid = reader.value()
    texts = [path for path in places(valid) if isinstance(path[-1], str)]
    for path in (texts[0], texts[-1]):
        reason = require_clear(reader, written(with_value(valid, path, HUGE), is_toml=reader.is_toml), folder)
        assert reason is not None, path
        assert "xxxxx" * 40 not in reason
    reason = require_clear(reader, written(valid | {HUGE: 1}, is_toml=reader.is_toml), folder)
    assert reason is not None
    assert "xxxxx" * 40 not in reason


@pytest.mark.parametrize("name", READERS)
def test_t36_nesting_without_end_and_keys_given_twice_are_refused(name: str, folder: Path) -> None:
    reader = READERS[name]
    for text in ("[" * 100_000, '{"a":' * 100_000, "a = " + "[" * 100_000, "[a]\n[a]\n", '{"a": 1, "a": 2}', "", "\0"):
        assert require_clear(reader, text.encode(), folder) is not None


def test_every_reader_of_peoples_files_tells_all_that_is_wrong_at_once(folder: Path) -> None:
    for name, reader in READERS.items():
        if reader.is_written_by_people:
            valid = reader.value()
            wrong = {key: [[0]] for key in [*valid][:3] if key not in {"data_set", "format", "algorithm"}}
            reason = require_clear(reader, written(valid | wrong | {"colour": 1}, is_toml=reader.is_toml), folder)
            assert reason is not None
            assert "colour" in reason, name
            assert all(f"{key} " in reason or f"{key}:" in reason for key in wrong), (name, reason)


def test_the_faults_of_a_dictionary_are_those_that_reading_it_raises(folder: Path) -> None:
    raw = sample("dictionary")
    raw["features"]["x"] = {"kind": "number", "unit": 3, "range": ["a", 1]}
    raw["features"]["y"] = {"kind": "number", "levels": ["a"]}
    (folder / "d.json").write_bytes(written(raw, is_toml=False))
    with pytest.raises(DpspcaError) as caught:
        read_dictionary(folder / "d.json")
    assert str(caught.value) == " ".join(map(str, dictionary_faults(folder / "d.json")))
    assert decode(dict[str, int], {"a": 1}) == {"a": 1}
