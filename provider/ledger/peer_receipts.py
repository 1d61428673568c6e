"""Receipts of other providers' ledgers, kept for them: should the coordinator lose its own, they still bear witness.

They come with the end of each job, and are shown to the coordinator when this provider connects, which hands them on.
Each is signed by the provider that it is about: nobody can make one up, and keeping one costs nothing. What is kept is
bounded, and may be lost; only then is it of no use.
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
"""Of one peer: a ledger that was quarantined and released goes on under another name."""

_log = logging.getLogger(__name__)


class PeerReceipts:
    """The newest receipts of each peer; in a file, if there is one."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = Lock()
        self._kept: dict[str, dict[str, pb.Receipt]] = {}
        self._verified = False
        """What was read is shown as it is, for others judge it; it is judged here before it stands against news."""
        for held in self._read():
            self._take(held)

    def held(self) -> list[pb.HeldReceipt]:
        """Give all of them."""
        with self._lock:
            return list(self._all())

    def keep(self, shown: Iterable[pb.HeldReceipt], me: PartyName, authority_pem: bytes) -> None:
        """Keep those that their providers signed and that say something new."""
        with self._lock:
            self._drop_false(me, authority_pem)
            news = False
            for each in islice(shown, MOST_PEERS):  # a list of all would take far more memory than they have bytes
                if self._is_news(each, me, authority_pem):
                    self._take(each)
                    news = True
            if news and self._path:
                self._write(self._path)

    def _write(self, path: Path) -> None:
        """Write them all down; where that cannot be, they are kept for as long as this process lives."""
        try:
            files.replace(path, pb.HeldReceipts(held=self._all()).SerializeToString())
        except DpspcaError as problem:
            _log.warning("The receipts of other providers are not written down: %s", problem)

    def _drop_false(self, me: PartyName, authority_pem: bytes) -> None:
        """Forget what the file had that nobody signed: a spoilt number of entries would pass for the newest."""
        for held in [] if self._verified else list(self._all()):
            if not _is_true(held, me, authority_pem):
                del self._kept[held.provider][held.receipt.ledger]
        self._kept = {name: known for name, known in self._kept.items() if known}
        self._verified = True

    def _is_news(self, held: pb.HeldReceipt, me: PartyName, authority_pem: bytes) -> bool:
        known = self._kept.get(held.provider, {})
        same = known.get(held.receipt.ledger)
        if held.provider == me.name or (same and same.entries >= held.receipt.entries):
            return False
        if not known and len(self._kept) >= MOST_PEERS:
            return False
        return _is_true(held, me, authority_pem)

    def _take(self, held: pb.HeldReceipt) -> None:
        known = self._kept.setdefault(held.provider, {})
        known.pop(held.receipt.ledger, None)
        # A copy: as part of its message, it would keep that in memory.
        known[held.receipt.ledger] = pb.Receipt.FromString(held.receipt.SerializeToString())
        while len(known) > MOST_LEDGERS:
            del known[next(iter(known))]

    def _all(self) -> Iterator[pb.HeldReceipt]:
        for provider, known in self._kept.items():
            for receipt in known.values():
                yield pb.HeldReceipt(provider=provider, receipt=receipt)

    def _read(self) -> Iterable[pb.HeldReceipt]:
        """Read what was kept. Whatever else is in that file counts for nothing: witnesses are a help, not a duty."""
        try:
            content = files.read(self._path, private=True) if self._path and self._path.exists() else b""
            held = pb.HeldReceipts.FromString(content).held
        except (DecodeError, DpspcaError) as problem:
            _log.warning("The receipts of other providers in %s cannot be read: %s", self._path, problem)
            return []
        kept = [each for each in held if _is_short(each)][: MOST_PEERS * MOST_LEDGERS]
        if len(kept) < len(held):  # all of them go into one message
            _log.warning(
                "Of %d receipts in %s, %d are none, or too many.", len(held), self._path, len(held) - len(kept)
            )
        return kept


def _is_short(held: pb.HeldReceipt) -> bool:
    """Tell whether a receipt is no longer than any is, and of somebody who can have a name."""
    try:
        check_name("a provider", held.provider)
    except DpspcaError:
        return False
    return held.receipt.ByteSize() <= MAX_RECEIPT_BYTES


def _is_true(held: pb.HeldReceipt, me: PartyName, authority_pem: bytes) -> bool:
    """Tell whether the provider that a receipt is about has signed it."""
    try:
        verify_receipt(held.receipt, PartyName(me.federation, Role.PROVIDER, held.provider), authority_pem)
    except DpspcaError as problem:
        _log.warning("A receipt of another provider's is not kept: %s", problem, extra=about(THE_COORDINATOR))
        return False
    return True
