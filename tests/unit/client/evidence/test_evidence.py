"""Evidence holds years later as it was collected, and whatever somebody changes in it is found."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from collected_evidence import BILL, MODEL, SITES, SPEC, Case, codes
from facts import names_facts
from hypothesis import given
from hypothesis import strategies as st
from local_federation import Enrolment, now

from dpspca.client.evidence import Evidence, verify
from dpspca.common.approval_record import APPROVE, REJECT
from dpspca.common.names import Role
from dpspca.common.privacy import Price
from dpspca.common.storage import installed_digest
from dpspca.common.version import __version__
from dpspca.provider.jobs import statements


def test_evidence_holds_and_says_what_was_checked_and_what_is_unknown(case: Case) -> None:
    found = verify(case.file, fingerprint=case.fingerprint, model=MODEL, bill_of_materials=BILL)
    assert found.holds, found.failed
    assert {each.code for each in found.checked} >= {
        *("form", "authority", "collector-signature", "job-signature", "job-certificate", "collector", "promise"),
        *(
            f"{what}-{name}"
            for name in SITES
            for what in ("record", "terms", "approvals", "receipt", "price", "software")
        ),
        *("accounts-north", "statement", "software"),
        *("model", "bill-of-materials", "request-record", "request-terms", "request-approvals", "audience"),
    }
    assert {each.code for each in found.unknown} == {
        *("collector-word", "revocation", "coordinator", "origin", "persons", "rows", "clocks", "later"),
    }
    north = found.facts["providers"]["north"]
    assert (north["record"]["state"], north["record"]["answers"], north["record"]["queries"]) == ("done", 1, 1)
    assert north["record"]["ledger"]["entries"] > 0
    decisions = [(each["person"], each["verdict"], each["reason"]) for each in north["approvals"]["decisions"]]
    assert decisions == [("maria", APPROVE, "as planned"), ("ben", APPROVE, "as planned")]
    assert b"account of" not in b"".join(bytes.fromhex(each) for each in case.raw()["statements"]["north"].values())
    assert found.facts["providers"]["south"]["approvals"]["decisions"] == []
    assert found.facts["job"]["job"] == case.job.job_id
    assert verify(case.other).facts["providers"]["south"]["record"]["state"] == "open"
    json.dumps(found.to_dict())


def test_files_that_the_reader_has_are_compared(case: Case) -> None:
    other = verify(case.file, model=b"another")
    assert codes(other) == {"model"}
    assert (other.faults, [each.code for each in other.other_files]) == ([], ["model"])
    assert [each.code for each in verify(case.file[:-9], model=b"another").faults] == ["form"]
    assert codes(verify(case.file, bill_of_materials=b"another")) == {"bill-of-materials"}
    assert codes(verify(case.file, fingerprint="00:" * 31 + "00")) == {"authority"}
    assert {"authority", "model", "bill-of-materials"} <= {each.code for each in verify(case.file).unknown}


def test_a_provider_without_statements_is_named(case: Case) -> None:
    raw = Evidence.from_bytes(case.file)
    partial = replace(raw, statements={"north": raw.statements["north"]}).signed_by(case.ada)
    found = verify(partial.to_bytes())
    assert found.holds
    assert "statements-south" in {each.code for each in found.unknown}
    assert {each.code for each in found.missing} == {"statements-south"}
    assert found.facts["without_statements"] == ["south"]


def test_a_rejected_job_has_no_record_that_could_be_missing(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does collecting again help. A provider that admitted the job still lacks it."""
    honest = statements.ApprovalRecord

    def rejected(**facts: Any) -> Any:
        decided = tuple(replace(each, verdict=REJECT, reason="not covered") for each in facts["decisions"][:1])
        return honest(**facts | {"state": "rejected" if decided else facts["state"], "decisions": decided}
                      | {"accounts": [1] * len(decided)})  # fmt: skip

    monkeypatch.setattr(statements, "ApprovalRecord", rejected)
    raw = Evidence.from_bytes(case.collected(case.job))
    without = {
        name: {kind: each for kind, each in stated.items() if kind != "record"}
        for name, stated in raw.statements.items()
    }
    found = verify(replace(raw, statements=without).signed_by(case.ada).to_bytes())
    assert {each.code for each in found.missing} == {"record-south"}
    (said,) = [each.what for each in found.unknown if each.code == "record-north"]
    assert names_facts(said, "north", "maria")


# --- Tampering --------------------------------------------------------------------------------------------------------

Path_ = tuple[str, ...]


def leaves(value: Any, at: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """List everything in a file that is no object."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, (*at, key))
    else:
        yield at, value


def places(value: Any, at: Path_ = ()) -> Iterator[Path_]:
    """List every key, also those of objects."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield (*at, key)
            yield from places(each, (*at, key))


def got(value: Any, at: Path_) -> Any:
    for key in at:
        value = value[key]
    return value


def put(value: Any, at: Path_, new: Any) -> Any:
    """Return a copy with another value at a place, or without it (...)."""
    copy = json.loads(json.dumps(value))
    parent = got(copy, at[:-1])
    if new is ...:
        del parent[at[-1]]
    else:
        parent[at[-1]] = new
    return copy


def written(raw: Any) -> bytes:
    return json.dumps(raw, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def others(value: Any) -> list[Any]:
    """List values other than this one, of the same type and of others."""
    return [each for each in _others(value) if (type(each), each) != (type(value), value)]


def _others(value: Any) -> list[Any]:
    match value:
        case bool():
            return [not value, None]
        case int():
            return [value + 1, value - 1, 0 if value else 1, float(value) + 0.5, str(value)]
        case float():
            return [value * 2, -value, 0.0, str(value)]
        case None:
            return [0, "", "0" * 64]
        case str():
            changed = value[:-1] + ("0" if value[-1:] != "0" else "1")
            return [changed, value[:-2], value + "00", value.upper() + " ", "", None, 1]
    return [None]


@pytest.mark.slow
def test_t40_every_changed_or_missing_part_is_found(case: Case) -> None:
    raw = case.raw()
    tried = 0
    for at, value in leaves(raw):
        for other in others(value):
            found = verify(written(put(raw, at, other)))
            assert not found.holds, (at, other)
            tried += 1
    for at in places(raw):
        assert not verify(written(put(raw, at, ...))).holds, at
        tried += 1
    assert tried > 200


def test_t40_swapped_parts_and_parts_of_another_job_are_found(case: Case) -> None:
    raw, other = case.raw(), json.loads(case.other)
    for at in places(raw):
        mine, theirs = got(raw, at), got(other, at)
        if mine != theirs:
            assert not verify(written(put(raw, at, theirs))).holds, at
    known = list(leaves(raw))
    for (one, first), (two, second) in zip(known, known[1:] + known[:1], strict=True):
        if first != second:
            assert not verify(written(put(put(raw, one, second), two, first))).holds, (one, two)
    north, south = raw["statements"]["north"], raw["statements"]["south"]
    assert not verify(written(put(raw, ("statements",), {"north": south, "south": north}))).holds


def test_t40_a_file_in_another_form_is_found(case: Case) -> None:
    raw = case.raw()
    whole = case.file
    reversed_ = json.dumps(dict(reversed(raw.items())), separators=(",", ":")).encode() + b"\n"
    twice = b'{"authority":"",' + whole[1:]
    inner = whole.replace(b'"reported":{', b'"reported":{"state":"done",')
    for content in (
        json.dumps(raw, sort_keys=True).encode(),
        json.dumps(raw, sort_keys=True, indent=1).encode(),
        *(reversed_, twice, inner, whole + b"\n", whole[:-1], whole + whole, b" " + whole, b"", b"{}", b"[]", b"null"),
        whole.decode().encode("utf-16"),
        b"[" * 100_000,
    ):
        found = verify(content)
        assert codes(found) == {"form"}, content[:40]


@given(st.data())
def test_t40_truncated_files_and_changed_bytes_are_found(case: Case, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, 10**6)) % len(case.file)
    flip = data.draw(st.integers(1, 255))
    assert not verify(case.file[:at]).holds
    assert not verify(case.file[:at] + bytes([case.file[at] ^ flip]) + case.file[at + 1 :]).holds
    assert not verify(case.file[:at] + case.file[at + 1 :]).holds


COLLECTORS_WORD = {
    ("collected_at",),
    ("software",),
    ("software_digest",),
    ("bill_of_materials",),
    *((("reported", each)) for each in ("state", "answered")),
    *(("reported", "providers", name, each) for name in SITES for each in ("asked", "answered", "reason")),
    *(("model", each) for each in ("sha256", "size")),
}
"""What rests on the word of the analyst who signed the file, as the check itself says."""


@pytest.mark.slow
def test_t40_an_analyst_who_signs_a_changed_file_is_found_out(case: Case) -> None:
    raw = case.raw()
    believed = set()
    for at, value in leaves(raw):
        for other in others(value):
            try:
                changed = Evidence.from_bytes(written(put(raw, at, other))).signed_by(case.ada)
            except ValueError:
                continue
            if at != ("signature",) and verify(changed.to_bytes()).holds:
                believed.add(at)
    assert believed <= COLLECTORS_WORD, believed - COLLECTORS_WORD


def test_t40_an_analyst_who_signs_records_of_another_job_is_found_out(case: Case) -> None:
    """Requests and statements of a cheaper job, all true by themselves, do not fit the job of the file."""
    read, other = Evidence.from_bytes(case.file), Evidence.from_bytes(case.other)
    mixed = replace(read, requests=other.requests, statements=other.statements).signed_by(case.ada)
    wrong = {"request-record", "record-north", "record-south", "request-approvals", "approvals-north"}
    assert wrong <= codes(verify(mixed.to_bytes()))
    only = replace(other, requests={**read.requests, "record": other.requests["record"]}, job=read.job)
    assert not verify(only.signed_by(case.ada).to_bytes()).holds


def test_t40_another_analyst_cannot_collect_or_sign_the_file(case: Case) -> None:
    read = Evidence.from_bytes(case.file)
    theirs = replace(read, collector=case.eve.certificate_pem.decode())
    assert "collector" in codes(verify(theirs.signed_by(case.eve).to_bytes()))
    assert codes(verify(read.signed_by(case.eve).to_bytes())) == {"collector-signature"}


def test_t40_the_other_form_of_a_signature_is_refused(case: Case) -> None:
    """An ECDSA signature (r, s) verifies as (r, n - s), too; only the smaller is accepted here."""
    from cryptography.hazmat.primitives.asymmetric.utils import (  # noqa: PLC0415
        decode_dss_signature,
        encode_dss_signature,
    )

    from dpspca.client.evidence.document import _ORDER  # noqa: PLC0415

    read = Evidence.from_bytes(case.file)
    first, second = decode_dss_signature(bytes.fromhex(read.signature))
    other = encode_dss_signature(first, _ORDER - second).hex()
    assert codes(verify(replace(read, signature=other).to_bytes())) == {"collector-signature"}
    padded = replace(read, signature=read.signature.upper())
    assert codes(verify(padded.to_bytes())) == {"collector-signature"}


def test_certificates_are_judged_at_the_time_of_the_job_and_not_now(case: Case, tmp_path: Path) -> None:
    """Nothing reads the clock. A job that was signed after its certificate had expired does not hold."""
    enrolment = Enrolment.create(tmp_path)
    short = enrolment.identity(Role.ANALYST, "ada", days=1)
    late = enrolment.job(SPEC, short, SITES, now=now() + timedelta(days=2))
    read = replace(
        Evidence.from_bytes(case.file),
        authority=short.authority_pem.decode(),
        collector=short.certificate_pem.decode(),
        job=late.to_bytes().hex(),
        statements={},
    )
    failed = codes(verify(read.signed_by(short).to_bytes()))
    assert {"job-certificate"} <= failed
    assert "job-signature" not in failed


def test_t40_evidence_of_another_authority_does_not_pass_for_ours(case: Case, tmp_path: Path) -> None:
    other = Enrolment.create(tmp_path, "town")
    forged = replace(Evidence.from_bytes(case.file), authority=other.authority.certificate_pem.decode())
    assert {"collector-signature", "job-signature"} <= codes(verify(forged.to_bytes()))
    whole = case.file
    assert codes(verify(whole, fingerprint="AA:" * 31 + "AA")) == {"authority"}


@pytest.mark.parametrize(("software", "known"), [(__version__, True), ("0.0.1 \x1b[31m", False)])
def test_t40_a_provider_that_reserved_another_price_is_never_confirmed(
    case: Case, monkeypatch: pytest.MonkeyPatch, software: str, known: bool
) -> None:
    """It may say that another version of the software computed it. Then nobody can know."""
    honest = statements.LedgerRecord

    def dishonest(**facts: Any) -> Any:
        spent = Price(facts["spent"].units // 2)
        return honest(**facts | {"reserved": spent, "spent": spent, "software": software})

    monkeypatch.setattr(statements, "LedgerRecord", dishonest)
    found = verify(case.collected(case.job))
    prices = {f"price-{name}" for name in SITES}
    assert not prices & {each.code for each in found.checked}
    assert (codes(found) >= prices) is known
    assert ({each.code for each in found.unknown} >= prices) is not known


@pytest.mark.parametrize(
    ("changed", "failed"),
    [
        ({"state": "waiting", "decisions": (), "accounts": ()}, False),
        ({"decisions": (), "accounts": ()}, False),
        ({"decisions": ()}, True),
        ({"accounts": None}, False),
        ({"accounts": (1,)}, True),
        ({"accounts": (2, 1)}, True),
        ({"accounts": (1, 3)}, True),
        ({"accounts": (0, 1)}, True),
        ({"stated_at": 5}, True),
        ({"person": ""}, True),
        ({"person": "Dr. X, director"}, True),
        ({"verdict": "reject", "reason": " "}, True),
        ({"reason": "x" * 301}, True),
        ({"decided_at": 4_000_000_000}, True),
        ({"decided_at": 5}, True),
        ({"entry": 0}, True),
    ],
)
def test_t40_decisions_that_no_ledger_can_have_are_refused(
    case: Case, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], failed: bool
) -> None:
    """A provider may sign anything; what it says is held against its form, the job and the time."""
    honest = statements.ApprovalRecord

    def dishonest(**facts: Any) -> Any:
        own = {key: value for key, value in changed.items() if key in facts}
        inner = {key: value for key, value in changed.items() if key not in facts}
        facts |= {"decisions": tuple(replace(each, **inner) for each in facts["decisions"])} | own
        return honest(**facts)

    monkeypatch.setattr(statements, "ApprovalRecord", dishonest)
    found = verify(case.collected(case.job))
    assert ("approvals-north" in codes(found)) is failed
    if changed.get("state") == "waiting":
        (said,) = [each.what for each in found.checked if each.code == "approvals-north"]
        assert "waiting" in said
        assert "admitted" not in said


def test_fewer_approvals_than_the_terms_ask_for_are_named(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = statements.conditions_of
    monkeypatch.setattr(statements, "conditions_of", lambda rules: replace(honest(rules), approvals_needed=2))
    found = verify(case.collected(case.job))
    assert found.holds
    assert {"approved-south"} == {each.code for each in found.unknown if each.code.startswith("approved-")}


def test_t40_one_account_that_approved_as_two_persons_is_named(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    own, shared = verify(case.file), verify(case.other)
    for found, accounts in ((own, [1, 2]), (shared, [1, 1])):
        decisions = found.facts["providers"]["north"]["approvals"]["decisions"]
        assert [each["account"] for each in decisions] == accounts
    assert "accounts-north" in {each.code for each in own.checked}
    assert "accounts-south" not in {each.code for each in (*own.checked, *own.unknown)}
    (said,) = [each.what for each in shared.unknown if each.code == "accounts-north"]
    assert names_facts(said, "maria", "ben", "north")
    honest = statements.ApprovalRecord
    monkeypatch.setattr(statements, "ApprovalRecord", lambda **facts: honest(**facts | {"accounts": None}))
    earlier = verify(case.collected(case.job))
    assert earlier.holds
    assert "accounts-north" in {each.code for each in earlier.unknown}


def test_other_software_than_here_is_named_and_does_not_fail(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Evidence.from_bytes(case.file)
    assert verify(case.file).facts["software"]["digest"] == installed_digest()
    honest = statements.LedgerRecord
    monkeypatch.setattr(statements, "LedgerRecord", lambda **facts: honest(**facts | {"software_digest": "0" * 64}))
    for content, other in (
        (replace(read, software_digest="0" * 64).signed_by(case.ada).to_bytes(), {"software"}),
        (replace(read, software_digest=None).signed_by(case.ada).to_bytes(), {"software"}),
        (case.collected(case.job), {f"software-{name}" for name in SITES}),
    ):
        found = verify(content)
        assert found.holds
        assert {each.code for each in found.unknown if each.code.startswith("software")} == other


def test_evidence_from_before_approvals_were_stated_still_holds(case: Case) -> None:
    read = Evidence.from_bytes(case.file)
    requests = {kind: each for kind, each in read.requests.items() if kind != "approvals"}
    stated = {
        name: {kind: each for kind, each in own.items() if kind != "approvals"} for name, own in read.statements.items()
    }
    found = verify(replace(read, requests=requests, statements=stated).signed_by(case.ada).to_bytes())
    assert found.holds, found.failed
    assert {f"approvals-{name}" for name in SITES} <= {each.code for each in found.unknown}


def test_t40_a_job_admitted_after_a_rejection_is_found(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, record = statements.ApprovalRecord, statements.LedgerRecord

    def rejected(**facts: Any) -> Any:
        return honest(**facts | {"decisions": tuple(replace(each, verdict="reject") for each in facts["decisions"])})

    monkeypatch.setattr(statements, "ApprovalRecord", rejected)
    assert verify(case.collected(case.job)).holds  # persons may reject a job that runs
    monkeypatch.setattr(
        statements, "LedgerRecord", lambda **facts: record(**facts | {"opened_at": facts["stated_at"] + 900})
    )
    assert codes(verify(case.collected(case.job))) == {"rejection-north"}
