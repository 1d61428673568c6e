"""Receipts of other providers' ledgers: if the coordinator loses its copies, they show how long those ledgers were.

The coordinator sends them at the end of each job. When this provider connects, it sends them back, and the coordinator
passes them on. Each is signed by the provider that it is about, so nobody can forge one, and keeping one costs nothing.
Their number is bounded. If they are lost, this does no harm, but they can no longer help.
"""

import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Final

from google.protobuf.message import DecodeError

from dpspca.common.errors import DpspcaError
from dpspca.common.log_context import THE_COORDINATOR, about
from dpspca.common.names import PartyName, Role, check_name
from dpspca.common.storage import files
from dpspca.common.trust import MAX_RECEIPT_BYTES, verify_receipt
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

MOST_PEERS: Final = 128
MOST_LEDGERS: Final = 2
"""Ledgers of one peer. When a quarantine ends, the ledger continues under another name."""

_log = logging.getLogger(__name__)


class PeerReceipts:
    """The newest receipts of each peer, kept in a file if a path is given."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = Lock()
        self._kept: dict[str, dict[str, pb.Receipt]] = {}
        self._verified = False
        """Whether the receipts from the file were verified. They may be sent unverified, because others verify them,
        but are verified before they are compared with new ones."""
        for held in self._read():
            self._add(held)

    def held(self) -> list[pb.HeldReceipt]:
        """Return all receipts."""
        with self._lock:
            return list(self._all())

    def keep(self, shown: Iterable[pb.HeldReceipt], me: PartyName, authority_pem: bytes) -> None:
        """Keep the receipts that are signed by their providers and newer than the known ones."""
        with self._lock:
            self._drop_false(me, authority_pem)
            news = False
            for each in islice(shown, MOST_PEERS):  # a list of all would take far more memory than their bytes
                if self._is_newer(each, me, authority_pem):
                    self._add(each)
                    news = True
            if news and self._path:
                self._write(self._path)

    def _write(self, path: Path) -> None:
        """Write all receipts to the file. If this fails, they are kept only as long as this process lives."""
        try:
            files.replace(path, pb.HeldReceipts(held=self._all()).SerializeToString())
        except DpspcaError as problem:
            _log.warning("The receipts of other providers could not be written: %s", problem)

    def _drop_false(self, me: PartyName, authority_pem: bytes) -> None:
        """Drop receipts from the file that are not signed: one with a corrupt count could pass for the newest."""
        for held in [] if self._verified else list(self._all()):
            if not _is_signed(held, me, authority_pem):
                del self._kept[held.provider][held.receipt.ledger]
        self._kept = {name: known for name, known in self._kept.items() if known}
        self._verified = True

    def _is_newer(self, held: pb.HeldReceipt, me: PartyName, authority_pem: bytes) -> bool:
        known = self._kept.get(held.provider, {})
        same = known.get(held.receipt.ledger)
        if held.provider == me.name or (same and same.entries >= held.receipt.entries):
            return False
        if not known and len(self._kept) >= MOST_PEERS:
            return False
        return _is_signed(held, me, authority_pem)

    def _add(self, held: pb.HeldReceipt) -> None:
        known = self._kept.setdefault(held.provider, {})
        known.pop(held.receipt.ledger, None)
        # A copy, because a part of a message keeps the whole message in memory.
        known[held.receipt.ledger] = pb.Receipt.FromString(held.receipt.SerializeToString())
        while len(known) > MOST_LEDGERS:
            del known[next(iter(known))]

    def _all(self) -> Iterator[pb.HeldReceipt]:
        for provider, known in self._kept.items():
            for receipt in known.values():
                yield pb.HeldReceipt(provider=provider, receipt=receipt)

    def _read(self) -> Iterable[pb.HeldReceipt]:
        """Read the receipts in the file. Anything else in it is ignored, because receipts are a help, not a duty."""
        try:
            content = files.read(self._path, private=True) if self._path and self._path.exists() else b""
            held = pb.HeldReceipts.FromString(content).held
        except (DecodeError, DpspcaError) as problem:
            _log.warning("The receipts of other providers in %s cannot be read: %s", self._path, problem)
            return []
        kept = [each for each in held if _is_short(each)][: MOST_PEERS * MOST_LEDGERS]
        if len(kept) < len(held):  # bounded, because all of them go into one message
            _log.warning(
                "Ignored %d of %d receipts in %s: invalid, or too many.", len(held) - len(kept), len(held), self._path
            )
        return kept


def _is_short(held: pb.HeldReceipt) -> bool:
    """Say whether a receipt is short enough to be valid, and its provider's name is valid."""
    try:
        check_name("a provider", held.provider)
    except DpspcaError:
        return False
    return held.receipt.ByteSize() <= MAX_RECEIPT_BYTES


def _is_signed(held: pb.HeldReceipt, me: PartyName, authority_pem: bytes) -> bool:
    """Tell whether a receipt is signed by the provider that it is about."""
    try:
        verify_receipt(held.receipt, PartyName(me.federation, Role.PROVIDER, held.provider), authority_pem)
    except DpspcaError as problem:
        _log.warning("Ignored a receipt of another provider: %s", problem, extra=about(THE_COORDINATOR))
        return False
    return True
