"""A receipt is valid for the provider that signed it, at any time, and for nobody else."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from local_federation import Enrolment

from dpspca.common.errors import NotTrustedError
from dpspca.common.names import Role
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.receipts import MAX_RECEIPT_BYTES, sign_receipt, verify_receipt
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.ledger.entries import Head

HEAD = Head("5" * 32, 1234, "ab" * 32)


@dataclass(frozen=True)
class FuzzParties:
    north: Identity
    south: Identity
    ada: Identity
    north_elsewhere: Identity
    """A party of another federation with the same name."""

    def accept(self, receipt: pb.Receipt) -> bool:
        try:
            verify_receipt(receipt, self.north.name, self.north.authority_pem)
        except NotTrustedError:
            return False
        return True


@pytest.fixture(scope="module")
def fuzz_parties(tmp_path_factory: pytest.TempPathFactory) -> FuzzParties:
    enrolment, other = (Enrolment.create(tmp_path_factory.mktemp(name)) for name in ("town", "other"))
    return FuzzParties(
        enrolment.identity(Role.PROVIDER, "north"),
        enrolment.identity(Role.PROVIDER, "south"),
        enrolment.identity(Role.ANALYST, "north"),
        other.identity(Role.PROVIDER, "north"),
    )


def test_a_serialised_receipt_states_the_head_that_was_signed(fuzz_parties: FuzzParties) -> None:
    receipt = pb.Receipt.FromString(sign_receipt(fuzz_parties.north, HEAD).SerializeToString())
    assert fuzz_parties.accept(receipt)
    assert Head(receipt.ledger, receipt.entries, receipt.hash) == HEAD
    assert receipt.ByteSize() < MAX_RECEIPT_BYTES / 4


def test_each_receipt_is_signed_with_the_current_key_of_its_identity(fuzz_parties: FuzzParties, tmp_path: Path) -> None:
    """The cached key is used only for the identity that it belongs to."""
    renewed = Enrolment.create(tmp_path).identity(Role.PROVIDER, "north")
    for _ in range(2):
        for identity in (fuzz_parties.north, fuzz_parties.south, renewed):
            verify_receipt(sign_receipt(identity, HEAD), identity.name, identity.authority_pem)


def test_a_receipt_stays_valid_after_its_certificate_is_revoked(tmp_path: Path) -> None:
    enrolment = Enrolment.create(tmp_path)
    old = enrolment.identity(Role.PROVIDER, "north", days=1)
    receipt = sign_receipt(old, HEAD)
    enrolment.authority.revoke(old.name)
    renewed = Enrolment(tmp_path / "renewed", enrolment.authority).identity(Role.PROVIDER, "north")
    assert renewed.certificate_pem != old.certificate_pem
    verify_receipt(receipt, renewed.name, renewed.authority_pem)


def test_t12_another_party_s_receipt_is_refused(fuzz_parties: FuzzParties) -> None:
    for other in (fuzz_parties.south, fuzz_parties.ada, fuzz_parties.north_elsewhere):
        assert not fuzz_parties.accept(sign_receipt(other, HEAD))


def test_t12_a_receipt_signed_with_another_key_is_refused(fuzz_parties: FuzzParties) -> None:
    assert not fuzz_parties.accept(
        sign_receipt(replace(fuzz_parties.south, certificate_pem=fuzz_parties.north.certificate_pem), HEAD)
    )
    disguised = replace(
        fuzz_parties.south, name=fuzz_parties.north.name, certificate_pem=fuzz_parties.north.certificate_pem
    )
    assert not fuzz_parties.accept(sign_receipt(disguised, HEAD))
    assert not fuzz_parties.accept(sign_receipt(replace(fuzz_parties.south, name=fuzz_parties.north.name), HEAD))


def test_t12_a_receipt_with_any_flipped_bit_is_refused(fuzz_parties: FuzzParties) -> None:
    receipt = sign_receipt(fuzz_parties.north, HEAD)
    for part in ("ledger", "hash"):
        text = getattr(receipt, part)
        for at in range(len(text)):
            changed = f"{text[:at]}{chr(ord(text[at]) ^ 1)}{text[at + 1 :]}"
            assert not fuzz_parties.accept(_with(receipt, **{part: changed}))
    for bit in range(64):
        assert not fuzz_parties.accept(_with(receipt, entries=receipt.entries ^ 1 << bit))
    for bit in range(8 * len(receipt.signature)):
        flipped = bytearray(receipt.signature)
        flipped[bit // 8] ^= 1 << bit % 8
        assert not fuzz_parties.accept(_with(receipt, signature=bytes(flipped)))


def test_t12_a_truncated_or_padded_receipt_is_refused(fuzz_parties: FuzzParties) -> None:
    receipt = sign_receipt(fuzz_parties.north, HEAD)
    for part in ("signature", "certificate"):
        whole = getattr(receipt, part)
        for changed in (b"", whole[:-40], whole[: len(whole) // 2], whole + bytes(MAX_RECEIPT_BYTES)):
            assert not fuzz_parties.accept(_with(receipt, **{part: changed}))
    for part in ("ledger", "entries", "hash", "certificate", "signature"):
        lacking = _with(receipt)
        lacking.ClearField(part)  # type: ignore[arg-type]
        assert not fuzz_parties.accept(lacking)
    assert not fuzz_parties.accept(pb.Receipt())


def test_t12_bytes_cannot_move_between_the_fields_of_a_receipt(fuzz_parties: FuzzParties) -> None:
    receipt = sign_receipt(fuzz_parties.north, HEAD)
    assert not fuzz_parties.accept(_with(receipt, ledger=receipt.ledger[:-1], hash=receipt.ledger[-1] + receipt.hash))
    assert not fuzz_parties.accept(_with(receipt, ledger=receipt.hash, hash=receipt.ledger))


def _with(receipt: pb.Receipt, **changes: object) -> pb.Receipt:
    made = pb.Receipt()
    made.CopyFrom(receipt)
    for name, value in changes.items():
        setattr(made, name, value)
    return made
