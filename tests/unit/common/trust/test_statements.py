"""A statement counts for the provider that signed it, the analyst who asked, and the request that was signed."""

from collections.abc import Callable  # noqa: TC003
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from facts import facts
from hypothesis import given
from hypothesis import strategies as st
from local_federation import Enrolment, now

from dpspca.common.errors import (
    DpspcaError,
    NotNowError,
    NotTrustedError,
    RefusedError,
    RevokedError,
    WrongRoleError,
    WrongSignerError,
)
from dpspca.common.names import PartyName, Role
from dpspca.common.trust import joined_bytes
from dpspca.common.trust.certificates import read_key
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.revocations import RevocationList
from dpspca.common.trust.signing import JOB_SKEW
from dpspca.common.trust.statements import (
    MAX_STATEMENT_BYTES,
    REQUEST_SECONDS,
    SignedRequest,
    SignedStatement,
    StatementKind,
    StatementRequest,
    requester_of,
    sign_request,
    sign_statement,
    verify_request,
    verify_statement,
)

FOUNDED = now()
BORN = FOUNDED + timedelta(minutes=10)  # so that certificates are valid earlier, too
CONTENT = b'{"left":3}'


@dataclass(frozen=True)
class Parties:
    known: dict[str, Identity]
    revoked: RevocationList
    after_revocation: RevocationList

    def request(self, who: str = "ada", **changes: Any) -> SignedRequest:
        drawn = StatementRequest.draw(StatementKind.TERMS, "cohort", self.known[who].name, BORN)
        return sign_request(replace(drawn, **changes), self.known[who])

    def read(self, signed: SignedRequest, **others: Any) -> StatementRequest:
        usual: dict[str, Any] = {"now": BORN, "revoked": self.revoked}
        return verify_request(signed, self.known["ada"].authority_pem, **usual | others)[0]

    def content(self, statement: SignedStatement, request: SignedRequest, who: str = "north", **others: Any) -> bytes:
        usual: dict[str, Any] = {"at": BORN}
        party = PartyName("town", Role.PROVIDER, who)
        return verify_statement(statement, request, party, self.known["ada"].authority_pem, **usual | others)


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    enrolment, other = (
        Enrolment.create(tmp_path_factory.mktemp("town"), clock=lambda: FOUNDED),
        Enrolment.create(tmp_path_factory.mktemp("other"), clock=lambda: FOUNDED),
    )
    known = {name: enrolment.identity(Role.ANALYST, name) for name in ("ada", "bob")}
    known |= {name: enrolment.identity(Role.PROVIDER, name) for name in ("north", "south")}
    known["north elsewhere"] = other.identity(Role.PROVIDER, "north")
    revoked = enrolment.revocations()
    enrolment.authority.revoke(known["ada"].name)
    return Parties(known, revoked, enrolment.revocations())


def test_a_statement_says_what_its_provider_signed_for_this_request(parties: Parties) -> None:
    request = SignedRequest.from_bytes(parties.request().to_bytes())
    read = parties.read(request)
    assert (read.kind, read.about, read.analyst, read.federation) == (StatementKind.TERMS, "cohort", "ada", "town")
    sent = sign_statement(CONTENT, request, parties.known["north"]).to_bytes()
    assert parties.content(SignedStatement.from_bytes(sent), request) == CONTENT


def test_t39_a_statement_for_another_request_or_party_is_refused(parties: Parties) -> None:
    request = parties.request()
    honest = sign_statement(CONTENT, request, parties.known["north"])
    cases: dict[str, Callable[[], object]] = {
        "kept from an earlier request": lambda: parties.content(honest, parties.request()),
        "about another data set": lambda: parties.content(honest, parties.request(about="labs")),
        "for another analyst": lambda: parties.content(honest, parties.request("bob")),
        "of another provider": lambda: parties.content(honest, request, "south"),
        "of a namesake elsewhere": lambda: parties.content(
            sign_statement(CONTENT, request, parties.known["north elsewhere"]), request
        ),
        "with another content": lambda: parties.content(replace(honest, content=b'{"left":9}'), request),
        "with another's certificate": lambda: parties.content(
            replace(honest, certificate_pem=parties.known["south"].certificate_pem), request, "south"
        ),
    }
    for case in cases.values():
        with pytest.raises(NotTrustedError):
            case()


@given(st.data())
def test_t39_a_statement_or_request_with_any_changed_byte_is_refused(parties: Parties, data: st.DataObject) -> None:
    request = parties.request()
    statement = sign_statement(CONTENT, request, parties.known["north"])
    for sent, read in (
        (request.to_bytes(), lambda content: parties.read(SignedRequest.from_bytes(content))),
        (statement.to_bytes(), lambda content: parties.content(SignedStatement.from_bytes(content), request)),
    ):
        at = data.draw(st.integers(0, 10**6)) % len(sent)  # signatures differ in length
        flipped = sent[:at] + bytes([sent[at] ^ data.draw(st.integers(1, 255))]) + sent[at + 1 :]
        for spoiled in (flipped, sent[:at], sent + b"\0", sent + sent):
            with pytest.raises(DpspcaError):
                read(spoiled)


def test_t39_a_request_is_answered_only_while_it_is_fresh(parties: Parties) -> None:
    signed = parties.request()
    for seconds in (-JOB_SKEW, 0, REQUEST_SECONDS + JOB_SKEW - 1):
        assert parties.read(signed, now=BORN + timedelta(seconds=seconds))
    for seconds in (-JOB_SKEW - 1, REQUEST_SECONDS + JOB_SKEW + 1, 86_400):
        with pytest.raises(NotNowError):
            parties.read(signed, now=BORN + timedelta(seconds=seconds))


def test_t39_a_request_counts_for_the_analyst_who_signed_it(parties: Parties) -> None:
    with pytest.raises(WrongSignerError, match=facts("'bob'", "dpspca://town/analyst/ada")):
        parties.read(parties.request(analyst="bob"))
    with pytest.raises(RevokedError, match=facts("dpspca://town/analyst/ada")):
        parties.read(parties.request(), revoked=parties.after_revocation)
    with pytest.raises(WrongRoleError):
        sign_request(
            StatementRequest.draw(StatementKind.TERMS, "cohort", parties.known["ada"].name, BORN),
            parties.known["north"],
        )
    with pytest.raises(WrongRoleError):
        sign_statement(CONTENT, parties.request(), parties.known["ada"])
    north = parties.known["north"]
    payload = replace(StatementRequest.draw(StatementKind.TERMS, "cohort", north.name, BORN)).to_bytes()
    sign_unchecked = read_key(north.key_pem).sign(payload, ec.ECDSA(SHA256()))
    with pytest.raises(WrongRoleError):
        parties.read(SignedRequest(payload, sign_unchecked, north.certificate_pem))


@pytest.mark.parametrize(
    "changes",
    [
        {"about": ""},
        {"about": "../cohort"},
        {"about": "a" * 64},
        {"kind": StatementKind.RECORD},
        {"federation": "Town"},
        {"analyst": ""},
        {"nonce": b""},
        {"nonce": bytes(17)},
    ],
)
def test_a_request_that_is_not_canonical_is_refused(parties: Parties, changes: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        parties.read(parties.request(**changes))


def test_a_request_of_unknown_kind_or_with_other_parts_is_refused(parties: Parties) -> None:
    good = parties.request().payload
    prefix = good[: good.index(b"\0") + 1]
    parts = joined_bytes.split(good[len(prefix) :], 6)
    for wrong in ([b"rows", *parts[1:]], parts[:5], [*parts, b""], [*parts[:4], b"\0" + parts[4], parts[5]]):
        with pytest.raises(NotTrustedError):
            StatementRequest.from_bytes(prefix + joined_bytes.join(*wrong))
    assert StatementRequest.from_bytes(good).to_bytes() == good


def test_statements_and_requests_stay_true_after_their_certificates_expired(parties: Parties) -> None:
    request = parties.request()
    statement = sign_statement(CONTENT, request, parties.known["north"])
    authority = parties.known["ada"].authority_pem
    assert requester_of(request, authority, BORN)[1] == parties.known["ada"].name
    late = BORN + timedelta(days=400)
    for check in (
        lambda: parties.content(statement, request, at=late),
        lambda: requester_of(request, authority, late),
    ):
        with pytest.raises(NotNowError):
            check()


def test_what_is_too_long_is_not_read() -> None:
    for read in (SignedRequest.from_bytes, SignedStatement.from_bytes):
        with pytest.raises(NotTrustedError, match=facts(2**21 + 1)):
            read(bytes(MAX_STATEMENT_BYTES + 1))
