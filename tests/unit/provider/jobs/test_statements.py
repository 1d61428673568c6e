"""A provider states its terms to an analyst whom its policy names, and nothing at all to anybody else."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from facts import names_facts
from ledgers import LIMITS, PRICE, SLACK, Place, opening, respond
from local_federation import Enrolment, now

from dpspca.common.approval_record import APPROVE, REJECT, ApprovalRecord
from dpspca.common.job import Terms
from dpspca.common.ledger_record import LedgerRecord
from dpspca.common.names import PartyName, Role
from dpspca.common.privacy import Price
from dpspca.common.trust import (
    SignedRequest,
    SignedStatement,
    StatementKind,
    StatementRequest,
    sign_request,
    verify_statement,
)
from dpspca.common.trust.identity import Identity
from dpspca.provider.approval import ApprovalQueue, ApprovalRequest, RequestState, make_decision
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.jobs import ProviderSetup, Statements
from dpspca.provider.ledger import Limits
from dpspca.provider.policy import Policy

POLICY = """
[data_sets.cohort]
analysts = ["ada"]
unit = "row-replace-one"
rows_per_person = 1
methods = ["dps-pca"]
accounting = ["exact"]
centering = ["none"]
explained_variance = false
columns = 50
norm_bound = { least = 1.0, most = 12.0 }
minimum_providers = 2
lifetime = { epsilon = 8.0, delta = 1e-5 }
per_analyst = { epsilon = 4.0, delta = 1e-5 }
per_job = { epsilon = 1.0, delta = 1e-6 }
"""
ROWS = np.random.default_rng(1).standard_normal((20, 4))


@dataclass
class PartyDisk:
    """A provider, and whom it may hear from."""

    setup: ProviderSetup
    analysts: dict[str, Identity]

    def ask(self, who: str = "ada", about: str = "cohort", at: datetime | None = None) -> tuple[SignedRequest, bytes]:
        me = self.analysts[who]
        request = sign_request(StatementRequest.draw(StatementKind.TERMS, about, me.name, at or now()), me)
        digest, statement = Statements(self.setup).state(request.to_bytes())
        assert digest == request.digest
        return request, statement

    def state(self, kind: StatementKind, about: str, who: str = "ada") -> bytes:
        """Return the content of a statement, verified as an analyst does, or nothing."""
        me, north = self.analysts[who], self.setup.identity()
        request = sign_request(StatementRequest.draw(kind, about, me.name, now()), me)
        statement = Statements(self.setup).state(request.to_bytes())[1]
        if not statement:
            return b""
        return verify_statement(
            SignedStatement.from_bytes(statement), request, north.name, north.authority_pem, at=now()
        )

    def terms(self, who: str = "ada") -> Terms:
        request, statement = self.ask(who)
        me = self.setup.identity()
        signed = SignedStatement.from_bytes(statement)
        return Terms.from_bytes(verify_statement(signed, request, me.name, me.authority_pem, at=now()))


@pytest.fixture
def home(tmp_path: Path) -> PartyDisk:
    enrolment = Enrolment.create(tmp_path)
    north = enrolment.identity(Role.PROVIDER, "north")
    analysts = {name: enrolment.identity(Role.ANALYST, name) for name in ("ada", "bob", "eve")}
    enrolment.authority.revoke(analysts["eve"].name)
    policy, revoked = Policy.parse(POLICY), enrolment.revocations()
    data_sets = {"cohort": check_rows(ROWS), "closed": check_rows(ROWS + 1)}
    return PartyDisk(ProviderSetup("", lambda: north, lambda: revoked, now, data_sets, lambda: policy), analysts)


def test_an_analyst_whom_the_policy_names_sees_its_terms(home: PartyDisk) -> None:
    terms = home.terms()
    assert (terms.provider, terms.analyst) == ("dpspca://town/provider/north", "dpspca://town/analyst/ada")
    assert (terms.data_set, terms.dimension, terms.columns_digest, terms.refused) == ("cohort", 4, None, None)
    stated = terms.conditions
    assert (stated.methods, stated.columns, stated.minimum_providers) == (("dps-pca",), 50, 2)
    assert (stated.norm_bound.least, stated.norm_bound.most, stated.mean_bound) == (1.0, 12.0, None)
    assert stated.per_analyst
    assert terms.left.units == stated.per_analyst.price.units
    assert (b"lifetime" in terms.to_bytes(), b"bob" in terms.to_bytes()) == (False, False)


def test_t39_others_get_the_answer_for_a_data_set_that_does_not_exist(home: PartyDisk) -> None:
    nothing = b""
    hour = timedelta(hours=1)
    assert home.ask(about="no-such-data-set")[1] == nothing
    assert home.ask("bob")[1] == nothing  # whom the policy does not name
    assert home.ask("eve")[1] == nothing  # whose certificate was revoked
    assert home.ask(about="closed")[1] == nothing  # for which the policy has no table
    assert home.ask(at=now() - hour)[1] == home.ask(at=now() + hour)[1] == nothing
    ada, bob = home.analysts["ada"], home.analysts["bob"]
    theirs = sign_request(StatementRequest.draw(StatementKind.TERMS, "cohort", bob.name, now()), bob)
    for wrong in (
        replace(theirs, certificate_pem=ada.certificate_pem),
        replace(theirs, payload=theirs.payload.replace(b"bob", b"ada")),
        replace(theirs, signature=b""),
    ):
        assert Statements(home.setup).state(wrong.to_bytes()) == (wrong.digest, nothing)
    assert Statements(home.setup).state(b"") == Statements(home.setup).state(bytes(9999)) == ("", nothing)


def test_the_log_says_why_a_reply_is_empty_and_what_to_do(home: PartyDisk, caplog: pytest.LogCaptureFixture) -> None:
    ada = home.analysts["ada"]
    asked = StatementRequest.draw(StatementKind.RECORD, "ab" * 32, ada.name, now())
    assert Statements(home.setup).state(sign_request(asked, ada).to_bytes())[1] == b""
    assert names_facts(caplog.text, "ab" * 6, "ada", "`dpspca outbox`")
    home.setup.data_sets.clear()
    assert home.ask()[1] == b""
    assert names_facts(caplog.text, "'cohort'", "policy", "settings")


def test_t39_a_policy_that_cannot_be_read_or_that_fails_states_nothing(home: PartyDisk) -> None:
    def broken() -> Policy:
        raise RuntimeError("of /somewhere/secret")

    for policy in (lambda: Policy(unreadable=None), Policy, broken):
        other = PartyDisk(replace(home.setup, policy=policy), home.analysts)
        assert other.ask()[1] == b""


def test_terms_follow_the_policy_as_it_is_now(home: PartyDisk) -> None:
    now_named = Policy.parse(POLICY.replace('["ada"]', '["bob"]').replace("least = 1.0", "least = 2.0"))
    home.setup.policy = lambda: now_named
    assert home.ask("ada")[1] == b""
    assert home.terms("bob").conditions.norm_bound.least == 2.0


def test_what_is_left_is_what_the_ledger_has_for_analyst_and_data_set(home: PartyDisk) -> None:
    whole = home.terms().left
    rules = Policy.parse(POLICY).rules("cohort")
    ada, bob = home.analysts["ada"].name, PartyName("town", Role.ANALYST, "bob")
    ledger = home.setup.ledger
    part = Price(whole.units // 4)
    costs = {"units": part.units, "slack_units": 0, "unit": "row-replace-one", "protects": 1.0}
    costs |= {"expires_at": int(now().timestamp()) + 3600}
    limits = Limits(*rules.limits(ada), rules.promise)
    ledger.open(opening("a", analyst=ada.uri, **costs), limits)
    assert home.terms().left == whole - part
    for number in range(2):  # of another analyst: they count only when the data set has less left than ada
        ledger.open(opening(f"b{number}", analyst=bob.uri, **costs), limits)
    assert home.terms().left == whole - part
    ledger.close("a", "done")
    assert home.terms().left == whole


def test_a_job_that_is_over_by_time_frees_what_it_reserved(home: PartyDisk) -> None:
    whole = home.terms().left
    rules, ada = Policy.parse(POLICY).rules("cohort"), home.analysts["ada"].name
    past = int(now().timestamp()) - 1
    job = opening(
        "a", analyst=ada.uri, units=whole.units, slack_units=0, unit="row-replace-one", protects=1.0, expires_at=past
    )
    home.setup.ledger.open(job, Limits(*rules.limits(ada), rules.promise))
    assert home.terms().left == whole


def test_a_ledger_in_quarantine_leaves_nothing_and_says_why(home: PartyDisk, tmp_path: Path) -> None:
    place = Place(tmp_path / "ledger" / "ledger.db", tmp_path / "head")
    with place.start() as ledger:
        ledger.open(opening(), LIMITS)
        respond(ledger, "job", 0)
    place.head.unlink()
    with place.start() as ledger:
        home.setup.ledger = ledger
        terms = home.terms()
        assert (terms.refused, terms.left, terms.further_jobs()) == ("quarantined", Price(), 0)


def test_t39_a_record_is_only_for_the_analyst_who_signed_the_job(home: PartyDisk) -> None:
    name, ada = "a" * 64, home.analysts["ada"]
    ledger = home.setup.ledger
    ledger.open(opening(name, analyst=ada.name.uri), LIMITS)
    respond(ledger, name, 0)

    def ask(who: str, about: str) -> bytes:
        return home.state(StatementKind.RECORD, about, who)

    record = LedgerRecord.from_bytes(ask("ada", name))
    assert (record.job, record.state, record.queries, record.answers) == (name, "open", 1, 1)
    assert (record.spent, record.reserved) == (Price(PRICE, SLACK), opening().price)
    assert record.receipt == ""
    assert ask("bob", name) == ask("eve", name) == ask("ada", "b" * 64) == b""
    ledger.close(name, "done")
    assert LedgerRecord.from_bytes(ask("ada", name)).state == "done"
    home.setup.policy = Policy  # an analyst keeps the right to the record of what was asked
    assert ask("ada", name)


def test_t39_decisions_are_stated_to_the_analyst_of_the_job_alone(home: PartyDisk, tmp_path: Path) -> None:
    admitted, rejected = "a" * 64, "b" * 64
    ada, ledger = home.analysts["ada"].name, home.setup.ledger
    queue = ApprovalQueue(tmp_path / "approvals.db")
    at = int(now().timestamp())
    queue.ask(ApprovalRequest(rejected, ada.uri, "cohort", at, at + 60, at + 60, RequestState.WAITING), b"signed", 5)
    home.setup.approvals = SimpleNamespace(queue=queue)  # type: ignore[assignment]
    for job, verdict in ((admitted, APPROVE), (rejected, REJECT)):
        parts = {"job": job, "data_set": "cohort", "verdict": verdict, "person": "maria", "login": "m.account"}
        moments = {"decided_at": at, "expires_at": at + 60}
        ledger.decide(make_decision(home.setup.identity(), **parts, **moments, reason="see protocol 7"))
    ledger.open(opening(admitted, analyst=ada.uri), LIMITS)
    respond(ledger, admitted, 0)
    ledger.close(admitted, "done")
    for job, verdict in ((admitted, APPROVE), (rejected, REJECT)):
        stated = home.state(StatementKind.APPROVALS, job)
        assert b"m.account" not in stated  # the account of the operating system concerns the provider alone
        record = ApprovalRecord.from_bytes(stated)
        (decision,) = record.decisions
        assert (record.job, record.data_set, record.analyst) == (job, "cohort", ada.uri)
        assert record.state == ("admitted" if verdict == APPROVE else "waiting")  # no daemon took the decision up
        assert (decision.entry > 0, len(decision.entry_hash)) == (True, 64)
        assert (decision.verdict, decision.person, decision.reason) == (verdict, "maria", "see protocol 7")
        assert home.state(StatementKind.APPROVALS, job, "bob") == home.state(StatementKind.APPROVALS, job, "eve") == b""
    assert home.state(StatementKind.APPROVALS, "c" * 64) == b""


def test_a_job_that_nobody_had_to_approve_has_an_empty_record(home: PartyDisk) -> None:
    name = "a" * 64
    home.setup.ledger.open(opening(name, analyst=home.analysts["ada"].name.uri), LIMITS)
    assert ApprovalRecord.from_bytes(home.state(StatementKind.APPROVALS, name)).decisions == ()


def test_terms_name_the_dictionary_by_which_the_rows_were_prepared(home: PartyDisk) -> None:
    assert home.terms().dictionary_digest is None
    held = SimpleNamespace(dictionary=SimpleNamespace(digest=lambda: "ab" * 32))
    home.setup.dictionaries = {"cohort": held}  # type: ignore[dict-item]
    assert home.terms().dictionary_digest == "ab" * 32


def test_t25_terms_do_not_depend_on_a_row(home: PartyDisk) -> None:
    """Neighbouring data sets, and tables of another length, have the same terms."""
    stated = home.terms()
    for rows in (ROWS[1:], np.vstack([ROWS, np.full((1, 4), 1e30)]), 1000 * ROWS):
        home.setup.data_sets = {"cohort": check_rows(rows)}
        assert replace(home.terms(), stated_at=stated.stated_at) == stated


def test_other_policies_than_a_stewards_state_nothing(home: PartyDisk) -> None:
    class Own:
        def rules(self, _: str) -> object:
            return object()

    home.setup.policy = Own  # type: ignore[assignment]
    assert home.ask()[1] == b""
