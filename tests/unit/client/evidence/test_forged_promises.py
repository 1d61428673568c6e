"""A promise or a price that does not follow from the job is never confirmed, whatever version somebody claims."""

from dataclasses import asdict, fields, replace
from hashlib import sha256
from typing import Any

import pytest
from collected_evidence import MODEL, SITES, Case, codes

from dpspca.client.evidence import Evidence, Findings, verify
from dpspca.client.evidence.promise import COMPUTED, NUMBERS
from dpspca.common.privacy import Price
from dpspca.common.version import __version__
from dpspca.provider.jobs import statements

VERSIONS = (__version__, "0.1.9", "99.0.0", "")
OTHERS: dict[str, Any] = {
    "unit": "row-add-remove",
    "accounting": "published",
    "centering": "public",
    "norm_bound": "private",
    "mean_bound": 3.0,
    "fresh_noise": False,
    "federated": False,
    "proven": False,
    "gaussian": False,
    "answers": 7,
    "parties": 1,
    "rows_per_person": 2,
}


def forged(case: Case, **changed: Any) -> Findings:
    """Check evidence that its own analyst changed and signed again."""
    return verify(replace(Evidence.from_bytes(case.file), **changed).signed_by(case.ada).to_bytes())


def unknown(found: Findings) -> set[str]:
    return {each.code for each in found.unknown}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("is_missing", [False, True])
def test_t40_a_claimed_version_excuses_only_what_a_version_computes(
    case: Case, version: str, name: str, is_missing: bool
) -> None:
    stated = Evidence.from_bytes(case.file).promise
    other = {name: OTHERS.get(name, 1e-4)}
    kept = {key: value for key, value in stated.items() if key != name}
    found = forged(case, software=version, promise=kept if is_missing else stated | other)
    excused = version != __version__ and name in COMPUTED
    assert codes(found) == (set() if excused else {"promise"})
    assert ("promise-computed" in unknown(found)) is excused
    assert found.facts["promise"] == kept
    assert found.facts["unconfirmed"]["promise"] == ({} if is_missing else other)


@pytest.mark.parametrize("version", VERSIONS)
def test_t40_a_whole_promise_of_another_price_is_refused(case: Case, version: str) -> None:
    cheap = {"epsilon": 0.001, "mu": 0.0001, "exact_epsilon": 0.001}
    found = forged(case, software=version, promise=Evidence.from_bytes(case.file).promise | cheap)
    assert codes(found) == {"promise"}
    assert not found.facts["promise"].keys() & cheap
    assert found.facts["unconfirmed"]["promise"] == cheap


@pytest.mark.parametrize("version", VERSIONS)
def test_t40_numbers_that_no_job_has_are_never_confirmed(case: Case, version: str) -> None:
    found = forged(case, software=version, promise=Evidence.from_bytes(case.file).promise | {"total_epsilon": 0.1})
    assert found.holds is (version != __version__)
    assert "total_epsilon" not in found.facts["promise"]
    assert found.facts["unconfirmed"]["promise"] == {"total_epsilon": 0.1}


@pytest.mark.parametrize("version", VERSIONS)
def test_t40_other_words_for_the_promise_are_shown_and_not_confirmed(case: Case, version: str) -> None:
    found = forged(case, software=version, statement="Nobody learns anything.")
    assert codes(found) == ({"statement"} if version == __version__ else set())
    assert ("statement" in unknown(found)) is (version != __version__)
    (shown,) = [each.what for each in (*found.failed, *found.unknown) if each.code == "statement"]
    assert "Nobody learns anything." in shown
    assert found.facts["statement"] is None
    assert found.facts["unconfirmed"]["statement"] == "Nobody learns anything."


def test_t40_without_a_signed_job_no_promise_is_confirmed(case: Case) -> None:
    read = Evidence.from_bytes(case.file)
    found = forged(case, job=read.job[:-2])
    assert "job-signature" in codes(found)
    assert (found.facts["promise"], found.facts["statement"]) == ({}, None)
    assert found.facts["unconfirmed"] == {"promise": dict(read.promise), "statement": read.statement}


def test_every_part_of_the_file_is_among_the_facts(case: Case) -> None:
    read, facts = Evidence.from_bytes(case.file), verify(case.file).facts
    named = {"statements": "providers", "bill_of_materials": "software", "software_digest": "software"}
    parts = {each.name for each in fields(Evidence)} - {"signature"}
    assert {named.get(each, each) for each in parts} <= facts.keys()
    assert facts["promise"] == read.promise
    assert facts["statement"] == read.statement
    assert facts["unconfirmed"] == {"promise": {}, "statement": None}
    assert facts["reported"] == asdict(read.reported)
    assert facts["collected_at"] == read.collected_at
    assert facts["collector"]["party"] == "dpspca://town/analyst/ada"
    assert facts["model"] == {"sha256": sha256(MODEL).hexdigest(), "size": len(MODEL)}
    assert facts["requests"].keys() == read.requests.keys()
    assert facts["requests"]["record"]["about"] == case.job.job_id
    assert facts["requests"]["terms"]["about"] == "cohort"


def test_what_cannot_be_read_is_no_fact(case: Case) -> None:
    read = Evidence.from_bytes(case.file)
    facts = forged(case, requests={**read.requests, "terms": "00"}).facts
    assert facts["requests"]["terms"] is None
    assert verify(replace(read, collector="").to_bytes()).facts["collector"] is None


# --- The price that a provider reserved -------------------------------------------------------------------------------


def with_records(case: Case, monkeypatch: pytest.MonkeyPatch, *, equal: bool = True, free: bool = False) -> Findings:
    """Check evidence of providers that say that an earlier version of the software reserved another price."""
    honest = statements.LedgerRecord

    def dishonest(**facts: Any) -> Any:
        part = 2 if equal or facts["provider"].endswith("north") else 3
        price = Price() if free else Price(facts["spent"].units // part)
        return honest(**facts | {"reserved": price, "spent": price, "software": "0.1.9"})

    monkeypatch.setattr(statements, "LedgerRecord", dishonest)
    return verify(case.collected(case.job))


def test_t40_an_unconfirmed_price_is_marked_as_such(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    stated = verify(case.file).facts["providers"].values()
    assert [each["record"]["price_confirmed"] for each in stated] == [True, True]
    found = with_records(case, monkeypatch)
    assert found.holds
    assert {f"price-{name}" for name in SITES} <= unknown(found)
    assert [each["record"]["price_confirmed"] for each in found.facts["providers"].values()] == [False, False]


def test_t40_one_version_has_one_price(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes(with_records(case, monkeypatch, equal=False)) == {"prices"}


def test_t40_no_version_reserves_nothing(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes(with_records(case, monkeypatch, free=True)) == {f"price-{name}" for name in SITES}
