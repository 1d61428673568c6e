"""A party has one name in one canonical form, which includes its role."""

import re
import string

import pytest
from facts import facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.errors import DpspcaError, InvalidParameterError, InvalidTypeError
from dpspca.common.names import MAX_NAME, PartyName, Role, check_name, shortened

FIRST = string.ascii_lowercase + string.digits
NAMES = st.builds(str.__add__, st.sampled_from(FIRST), st.text(FIRST + ".-", max_size=MAX_NAME - 1))


@given(NAMES, st.sampled_from(Role), NAMES)
def test_a_written_name_reads_back_as_the_same_party(federation: str, role: Role, name: str) -> None:
    party = PartyName(federation, role, name)
    assert PartyName.parse(party.uri) == party
    assert str(party) == party.uri == f"dpspca://{federation}/{role.value}/{name}"


@given(st.text(max_size=100) | st.from_regex(r"dpspca://[^/]*/(provider|analyst)/[^/]*", fullmatch=True))
def test_every_accepted_text_is_in_canonical_form(text: str) -> None:
    try:
        party = PartyName.parse(text)
    except DpspcaError:
        return
    assert party.uri == text


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "dpspca://",
        "dpspca://north/provider",
        "dpspca://north/provider/",
        "dpspca:///provider/oslo",
        "dpspca://north/provider/oslo/",
        "dpspca://north/provider/oslo/x",
        "dpspca://north/provider/oslo?role=analyst",
        "dpspca://north/provider/oslo#x",
        "dpspca://north/provider/oslo\n",
        " dpspca://north/provider/oslo",
        "DPSPCA://north/provider/oslo",
        "dpspca://North/provider/oslo",
        "dpspca://north/Provider/oslo",
        "dpspca://north/operator/oslo",
        "dpspca://north/provider/Oslo",
        "dpspca://north/provider/%6fslo",
        "dpspca://north/provider/..",
        "dpspca://north/provider/-x",
        "dpspca://north/provider/оslo",
        "dpspca://north/provider/oslo\0",
        "dpspca://user@north/provider/oslo",
        "dpspca://north:1/provider/oslo",
        "https://north/provider/oslo",
        "dpspca://north/provider/" + "x" * (MAX_NAME + 1),
    ],
)
def test_t33_a_name_that_is_not_in_canonical_form_is_refused(uri: str) -> None:
    with pytest.raises(InvalidParameterError):
        PartyName.parse(uri)


def test_a_role_given_as_text_becomes_a_role() -> None:
    assert PartyName("north", "analyst", "ada").role is Role.ANALYST  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match=facts("coordinator, provider, analyst")):
        PartyName("north", "root", "ada")  # type: ignore[arg-type]


def test_a_name_must_be_text() -> None:
    with pytest.raises(InvalidTypeError):
        check_name("the party", 7)


def test_untrusted_text_is_shortened_and_escaped() -> None:
    assert shortened("a\nb\x1b[31m\u202e") == r"'a\nb\x1b[31m\u202e'"
    assert len(shortened("x" * 10_000)) == 80


@pytest.mark.parametrize("text", ["x" * 100, "it's " * 20])
def test_a_quotation_that_is_cut_keeps_both_its_marks(text: str) -> None:
    shown = shortened(text)
    assert len(shown) == 80
    assert shown[0] == shown[-1] == repr(text)[0]
    assert "..." in shown
    whole = "x" * 78
    assert shortened(whole) == repr(whole)


def test_values_that_cannot_be_shown_are_described() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    told = {shortened(nested), shortened(int("f" * 5000, 16))}
    assert len(told) == 2
    assert all(re.fullmatch(r"\([a-z ]{9,78}\)", each) for each in told)
