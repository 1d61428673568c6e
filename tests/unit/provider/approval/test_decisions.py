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
    SharedAccountError,
    approval_status,
    make_decision,
    read_decision,
    rejection,
    require_approved,
    require_own_account,
    require_signed,
    write_decision,
)
from dpspca.provider.ledger.entries import Decided
from dpspca.provider.policy.approval import ApprovalRule

RULE = ApprovalRule(("maria", "ben"), 1)
FOUR_EYES = ApprovalRule(("maria", "ben"), 2)


def decision(
    me: Identity, verdict: str = APPROVE, person: str = "maria", reason: str = "why", login: str = ""
) -> Decided:
    return make_decision(
        me,
        job="a" * 64,
        data_set="cohort",
        verdict=verdict,
        person=person,
        login=login or f"account-of-{person}",
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


@pytest.mark.parametrize("reason", ["not covered", "not covered.", " not covered. "])
def test_the_hint_after_a_rejection_is_a_sentence_of_its_own(me: Identity, reason: str) -> None:
    shown = rejection([decision(me, REJECT, "ben", reason=reason)])
    assert str(shown) == f"Rejected by ben: not covered. {shown.remedy}"


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


def test_t42_two_persons_with_one_account_are_one_person(me: Identity) -> None:
    """One person could decide under both names. It is enough if some two approvals differ in person and account."""
    maria, ben = decision(me, login="shared"), decision(me, person="ben", login="shared")
    own, marias_other = decision(me, person="ben", login="own"), decision(me, login="other")
    assert approval_status([maria, ben], FOUR_EYES) is ApprovalStatus.WAITING
    assert approval_status([maria, ben, own], FOUR_EYES) is ApprovalStatus.APPROVED
    assert approval_status([maria, marias_other, ben], FOUR_EYES) is ApprovalStatus.APPROVED
    assert approval_status([maria, ben], RULE) is ApprovalStatus.APPROVED
    with pytest.raises(SharedAccountError, match=facts("maria", "ben", "'shared'", 2)):
        require_own_account(ben, [maria], FOUR_EYES)
    rejects = decision(me, REJECT, "ben", login="shared")
    for later, earlier, rule in ((ben, maria, RULE), (own, maria, FOUR_EYES), (rejects, maria, FOUR_EYES)):
        require_own_account(later, [earlier], rule)
    require_own_account(decision(me, login="shared"), [maria], FOUR_EYES)  # who decides again is not another person
    eve = decision(me, person="eve", login="shared")
    require_own_account(ben, [eve], FOUR_EYES)  # eve's approval does not count
