"""A provider starts and works normally, whatever its file of other providers' receipts contains.

The file is a help to others, and no duty: what cannot be read counts for nothing, and the log says so in words.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from damage import damaged
from fuzz_parties import fuzz_parties, welcome
from hypothesis import given
from hypothesis import strategies as st
from ledgers import quick_folder
from messages import few
from provider_harness import ProviderHarness

from dpspca.common.storage import files
from dpspca.common.trust.receipts import sign_receipt
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.ledger.entries import Head
from dpspca.provider.ledger.peer_receipts import MOST_LEDGERS, MOST_PEERS, PeerReceipts

ODD: Final = [0, 1, 2**31, 2**63 - 1, 2**64 - 1]
"""Numbers of entries that a receipt may state."""
UNKNOWN: Final = "f" * 32
"""A ledger that is in no file of these tests."""


def receipt(of: str, ledger: str, entries: int) -> pb.HeldReceipt:
    return pb.HeldReceipt(
        provider=of, receipt=sign_receipt(fuzz_parties().identities[of], Head(ledger, entries, "b" * 64))
    )


@cache
def kept() -> bytes:
    """Return the content of an honest file."""
    held = [receipt(of, ledger * 32, 7) for of in ("south", "east") for ledger in "ac"]
    return pb.HeldReceipts(held=held).SerializeToString()


LETTERS: Final = st.text(max_size=8)
RECEIPTS: Final = st.builds(
    pb.Receipt,
    ledger=st.sampled_from(["a" * 32, ""]) | LETTERS,
    entries=st.sampled_from(ODD),
    hash=LETTERS,
    certificate=st.binary(max_size=8),
    signature=st.binary(max_size=8),
)
HELD: Final = st.builds(
    pb.HeldReceipt, provider=st.sampled_from(["north", "south", "hub", ""]) | LETTERS, receipt=st.none() | RECEIPTS
)
MADE_UP: Final = st.lists(HELD, max_size=6).map(lambda held: pb.HeldReceipts(held=held).SerializeToString())
CONTENTS: Final = st.one_of(
    st.binary(max_size=60), st.deferred(lambda: damaged(kept())), MADE_UP, MADE_UP.map(lambda made: kept() + made)
)


@contextmanager
def written(content: bytes) -> Iterator[Path]:
    with quick_folder() as folder:
        path = folder / "peers"
        path.touch(0o600)
        path.write_bytes(content)
        yield path


@pytest.mark.slow
@given(CONTENTS)
def test_t36_any_file_of_held_receipts_is_read_and_new_ones_are_kept(content: bytes) -> None:
    with written(content) as path:
        peers = PeerReceipts(path)
        require_little(peers)
        require_keeps(peers)
        again = PeerReceipts(path)  # as the provider reads it when it starts again
        assert [*map(bytes_of, again.held())] == [*map(bytes_of, peers.held())]


@few
@given(CONTENTS)
def test_t36_a_provider_answers_whatever_the_file_holds(content: bytes) -> None:
    """It also sends the coordinator the receipts that it read. The coordinator checks their signatures."""
    harness = ProviderHarness()
    with written(content) as path:
        harness.settings.peers = PeerReceipts(path)
        signed = receipt("south", UNKNOWN, 3)
        farewell = pb.Farewell(job="whatever", state="done", receipts=[signed])
        harness.run_conversation([welcome(), pb.ToProvider(farewell=farewell)])
        harness.require_consistent()
        assert bytes_of(signed) in map(bytes_of, PeerReceipts(path).held())


def test_t36_of_too_many_receipts_in_a_file_only_the_limit_is_read(tmp_path: Path) -> None:
    many = [pb.HeldReceipt(provider=f"p{number}", receipt=pb.Receipt(ledger="a")) for number in range(1000)]
    path = tmp_path / "peers"
    path.touch(0o600)
    path.write_bytes(pb.HeldReceipts(held=many).SerializeToString())
    require_little(PeerReceipts(path))


def a_link(path: Path) -> None:
    elsewhere = path.with_name("elsewhere")
    spoilt(elsewhere)
    path.symlink_to(elsewhere)


def open_to_others(path: Path) -> None:
    path.write_bytes(kept())
    path.chmod(0o644)


def too_long(path: Path) -> None:
    path.touch(0o600)
    with path.open("r+b") as file:
        file.truncate(2**30)


def spoilt(path: Path) -> None:
    path.touch(0o600)
    path.write_bytes(b"\xff" * 100)


@pytest.mark.parametrize("made", [Path.mkdir, a_link, open_to_others, too_long, spoilt])
def test_t36_an_invalid_file_of_receipts_is_refused_and_ignored(
    made: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made(tmp_path / "peers")
    with caplog.at_level(logging.WARNING):
        peers = PeerReceipts(tmp_path / "peers")
    assert peers.held() == []
    (said,) = caplog.messages
    assert said.startswith(f"The receipts of other providers in {tmp_path / 'peers'} cannot be read: ")
    require_keeps(peers)


def test_a_missing_file_causes_no_log_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    peers = PeerReceipts(tmp_path / "peers")
    require_keeps(peers)
    assert [*map(bytes_of, PeerReceipts(tmp_path / "peers").held())] == [*map(bytes_of, peers.held())]
    assert caplog.messages == []


def require_little(peers: PeerReceipts) -> None:
    assert len(peers.held()) <= MOST_PEERS * MOST_LEDGERS


def require_keeps(peers: PeerReceipts) -> None:
    """Require that a new receipt is kept."""
    me, new = fuzz_parties().identities["north"], receipt("south", UNKNOWN, 3)
    peers.keep([new], me.name, me.authority_pem)
    assert bytes_of(new) in map(bytes_of, peers.held())


def bytes_of(held: pb.HeldReceipt) -> bytes:
    return held.SerializeToString(deterministic=True)


def test_an_oversized_receipt_does_not_fill_the_greeting(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    long = pb.HeldReceipt(provider="east", receipt=pb.Receipt(ledger="x" * 4_000_000))
    held = [pb.HeldReceipt(provider="x" * 4_000_000), long, receipt("south", "a" * 32, 7)]
    files.create(tmp_path / "peers", pb.HeldReceipts(held=held).SerializeToString())
    assert [each.provider for each in PeerReceipts(tmp_path / "peers").held()] == ["south"]
    assert f"Ignored 2 of 3 receipts in {tmp_path / 'peers'}" in caplog.text


def test_a_damaged_receipt_does_not_displace_a_true_one(tmp_path: Path) -> None:
    spoilt, true = receipt("south", "a" * 32, 7), receipt("south", "a" * 32, 8)
    spoilt.receipt.entries = 2**64 - 1
    files.create(tmp_path / "peers", pb.HeldReceipts(held=[spoilt]).SerializeToString())
    peers, north = PeerReceipts(tmp_path / "peers"), fuzz_parties().identities["north"]
    peers.keep([true], north.name, north.authority_pem)
    assert [each.receipt.entries for each in peers.held()] == [8]
