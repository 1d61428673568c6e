"""A receipt counts for the provider that signed it, whenever that was, and for nobody else."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from town import Town

from dpspca.common.errors import NotTrustedError
from dpspca.common.names import Role
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.receipts import MAX_RECEIPT_BYTES, issue, require_own
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.ledger.entries import Head

HEAD = Head("5" * 32, 1234, "ab" * 32)


@dataclass(frozen=True)
class People:
    north: Identity
    south: Identity
    ada: Identity
    north_elsewhere: Identity
    """Of another federation, which calls itself by the same name."""

    def believed(self, receipt: pb.Receipt) -> bool:
        try:
            require_own(receipt, self.north.name, self.north.authority_pem)
        except NotTrustedError:
            return False
        return True


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> People:
    town, other = (Town.found(tmp_path_factory.mktemp(name)) for name in ("town", "other"))
    return People(
        town.identity(Role.PROVIDER, "north"),
        town.identity(Role.PROVIDER, "south"),
        town.identity(Role.ANALYST, "north"),
        other.identity(Role.PROVIDER, "north"),
    )


def test_a_receipt_says_what_was_signed_and_survives_the_wire(people: People) -> None:
    receipt = pb.Receipt.FromString(issue(people.north, HEAD).SerializeToString())
    assert people.believed(receipt)
    assert Head(receipt.ledger, receipt.entries, receipt.hash) == HEAD
    assert receipt.ByteSize() < MAX_RECEIPT_BYTES / 4


def test_each_receipt_is_signed_with_the_key_of_the_identity_that_gives_it(people: People, tmp_path: Path) -> None:
    """Keys are remembered between two receipts; whose turn it is, and which key is the newest, is not."""
    renewed = Town.found(tmp_path).identity(Role.PROVIDER, "north")
    for _ in range(2):
        for identity in (people.north, people.south, renewed):
            require_own(issue(identity, HEAD), identity.name, identity.authority_pem)


def test_a_receipt_stays_true_when_its_certificate_has_been_renewed_or_revoked(tmp_path: Path) -> None:
    town = Town.found(tmp_path)
    old = town.identity(Role.PROVIDER, "north", days=1)
    receipt = issue(old, HEAD)
    town.authority.revoke(old.name)
    renewed = Town(tmp_path / "renewed", town.authority).identity(Role.PROVIDER, "north")
    assert renewed.certificate_pem != old.certificate_pem
    require_own(receipt, renewed.name, renewed.authority_pem)


def test_t12_another_party_s_receipt_is_refused(people: People) -> None:
    for other in (people.south, people.ada, people.north_elsewhere):
        assert not people.believed(issue(other, HEAD))


def test_t12_a_receipt_under_a_certificate_whose_key_did_not_sign_it_is_refused(people: People) -> None:
    assert not people.believed(issue(replace(people.south, certificate_pem=people.north.certificate_pem), HEAD))
    disguised = replace(people.south, name=people.north.name, certificate_pem=people.north.certificate_pem)
    assert not people.believed(issue(disguised, HEAD))
    assert not people.believed(issue(replace(people.south, name=people.north.name), HEAD))


def test_t12_no_flipped_bit_of_a_receipt_goes_unnoticed(people: People) -> None:
    receipt = issue(people.north, HEAD)
    for part in ("ledger", "hash"):
        text = getattr(receipt, part)
        for at in range(len(text)):
            changed = f"{text[:at]}{chr(ord(text[at]) ^ 1)}{text[at + 1 :]}"
            assert not people.believed(_with(receipt, **{part: changed}))
    for bit in range(64):
        assert not people.believed(_with(receipt, entries=receipt.entries ^ 1 << bit))
    for bit in range(8 * len(receipt.signature)):
        flipped = bytearray(receipt.signature)
        flipped[bit // 8] ^= 1 << bit % 8
        assert not people.believed(_with(receipt, signature=bytes(flipped)))


def test_t12_a_receipt_that_is_cut_short_or_filled_up_is_refused(people: People) -> None:
    receipt = issue(people.north, HEAD)
    for part in ("signature", "certificate"):
        whole = getattr(receipt, part)
        for changed in (b"", whole[:-40], whole[: len(whole) // 2], whole + bytes(MAX_RECEIPT_BYTES)):
            assert not people.believed(_with(receipt, **{part: changed}))
    for part in ("ledger", "entries", "hash", "certificate", "signature"):
        lacking = _with(receipt)
        lacking.ClearField(part)  # type: ignore[arg-type]
        assert not people.believed(lacking)
    assert not people.believed(pb.Receipt())


def test_t12_parts_of_a_receipt_cannot_be_moved_into_each_other(people: People) -> None:
    receipt = issue(people.north, HEAD)
    assert not people.believed(_with(receipt, ledger=receipt.ledger[:-1], hash=receipt.ledger[-1] + receipt.hash))
    assert not people.believed(_with(receipt, ledger=receipt.hash, hash=receipt.ledger))


def _with(receipt: pb.Receipt, **changes: object) -> pb.Receipt:
    made = pb.Receipt()
    made.CopyFrom(receipt)
    for name, value in changes.items():
        setattr(made, name, value)
    return made
