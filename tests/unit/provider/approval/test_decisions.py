"""A decision is signed by the provider's key, is about one job, and counts as the policy says now."""

import itertools
from dataclasses import fields, replace
from pathlib import Path

import pytest
from facts import facts
from local_federation import Enrolment

from dpspca.common.errors import InvalidParameterError, NotTrustedError, RefusedError
from dpspca.common.names import Role
from dpspca.common.trust.identity import Identity
from dpspca.provider.approval.decisions import (
    APPROVE,
    MOST_REASON,
    REJECT,
    ApprovalStatus,
    NotApprovedError,
    RejectedError,
    approval_status,
    make_decision,
    read_decision,
    require_approved,
    require_signed,
    write_decision,
)
from dpspca.provider.ledger.entries import Decided
from dpspca.provider.policy.approval import ApprovalRule

RULE = ApprovalRule(("maria", "ben"), 1)
FOUR_EYES = ApprovalRule(("maria", "ben"), 2)


def decision(me: Identity, verdict: str = APPROVE, person: str = "maria", reason: str = "why") -> Decided:
    return make_decision(
        me,
        job="a" * 64,
        data_set="cohort",
        verdict=verdict,
        person=person,
        login="m",
        reason=reason,
        decided_at=5,
        expires_at=9,
    )


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


@pytest.fixture
def me(enrolment: Enrolment) -> Identity:
    return enrolment.identity(Role.PROVIDER, "north")


def test_a_decision_is_verified_and_comes_back_from_its_text(me: Identity) -> None:
    made = decision(me)
    require_signed(made, me.name, me.authority_pem)
    assert read_decision(write_decision(made)) == made


def test_a_decision_with_any_field_changed_is_refused(me: Identity) -> None:
    made = decision(me)
    for each in fields(Decided):
        old = getattr(made, each.name)
        if each.name == "certificate":
            old = old.replace("CERTIFICATE-", "-")  # what stands around a certificate is not part of it
        for new in [old + 1] if isinstance(old, int) else [old + "0", "", "\0" + old]:
            with pytest.raises(RefusedError):
                require_signed(replace(made, **{each.name: new}), me.name, me.authority_pem)
    moved = replace(made, data_set="cohor", verdict="tapprove")
    with pytest.raises(NotTrustedError):
        require_signed(moved, me.name, me.authority_pem)


def test_a_decision_of_another_provider_or_federation_is_refused(
    enrolment: Enrolment, me: Identity, tmp_path: Path
) -> None:
    south = enrolment.identity(Role.PROVIDER, "south")
    with pytest.raises(NotTrustedError, match=facts(south.name, me.name)):
        require_signed(decision(south), me.name, me.authority_pem)
    (tmp_path / "other").mkdir()
    stranger = Enrolment.create(tmp_path / "other").identity(Role.PROVIDER, "north")
    with pytest.raises(RefusedError):
        require_signed(decision(stranger), me.name, me.authority_pem)


def test_a_rejection_needs_a_reason_and_reasons_are_short(me: Identity) -> None:
    for verdict, reason in ((REJECT, " "), (APPROVE, "x" * (MOST_REASON + 1)), ("perhaps", "why")):
        with pytest.raises(InvalidParameterError):
            decision(me, verdict, reason=reason)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"job": 3}', "[" * 5000])
def test_text_that_is_not_a_decision_is_refused(text: str) -> None:
    with pytest.raises(RefusedError):
        read_decision(text)


def test_a_rejection_is_final_in_any_order(me: Identity) -> None:
    made = [decision(me, APPROVE), decision(me, APPROVE, "ben"), decision(me, REJECT, "ben")]
    for order in itertools.permutations(made):
        for rule in (None, RULE, FOUR_EYES):
            assert approval_status(order, rule) is ApprovalStatus.REJECTED
            with pytest.raises(RejectedError, match=facts("ben", "why")):
                require_approved(order, rule)


def test_four_eyes_are_two_persons_and_only_those_whom_the_policy_names_now(me: Identity) -> None:
    maria, again, ben, eve = (
        decision(me, person=person, reason=why)
        for person, why in (("maria", ""), ("maria", "again"), ("ben", ""), ("eve", ""))
    )
    assert approval_status([], None) is ApprovalStatus.APPROVED
    assert approval_status([maria], RULE) is ApprovalStatus.APPROVED
    for made in ([], [maria], [maria, again], [maria, eve]):
        assert approval_status(made, FOUR_EYES) is ApprovalStatus.WAITING
        with pytest.raises(NotApprovedError):
            require_approved(made, FOUR_EYES)
    assert approval_status([maria, ben], FOUR_EYES) is ApprovalStatus.APPROVED
    assert approval_status([maria, ben], ApprovalRule(("ben",), 1)) is ApprovalStatus.APPROVED
    assert approval_status([maria], ApprovalRule(("ben",), 1)) is ApprovalStatus.WAITING
    require_approved([maria, ben], FOUR_EYES)
