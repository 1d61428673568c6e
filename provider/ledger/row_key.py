"""The key that hides rows in a ledger: without it, names of rows reveal nothing. Pure.

A fingerprint or digest of rows is a hash without a secret. Somebody who knows all of a table but one row could hash
each guess of that row and compare. So a ledger holds HMAC-SHA256 of it under a key that only the provider has. Without
the key, a name is as good as random bits (HMAC is a pseudo-random function). With it, equal rows still have equal
names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hmac import compare_digest, digest
from typing import Any, Final, Self

from .entries import DamagedLedgerError, Fact, Named, Opening

KEY_BYTES: Final = 32
_ROWS: Final = b"dpspca name of rows 1\0"
_CHAIN: Final = b"dpspca hash of an earlier chain 1\0"
_CHECK: Final = b"dpspca key of names of rows 1\0"


@dataclass(frozen=True, slots=True)
class RowKey:
    """A provider's key for the names of rows in its ledger."""

    secret: bytes = field(repr=False)

    @classmethod
    def from_text(cls, content: bytes) -> Self:
        """Read a key as its file has it."""
        try:
            secret = bytes.fromhex(content.decode("ascii"))
        except ValueError:
            secret = b""
        if len(secret) != KEY_BYTES:
            raise DamagedLedgerError("The file with the key of rows is damaged.", "Restore it from a backup.")
        return cls(secret)

    def to_text(self) -> bytes:
        """Return the content of the file of a key."""
        return f"{self.secret.hex()}\n".encode()

    @property
    def check(self) -> str:
        """A value by which a ledger recognises its key. It reveals nothing about the key or any rows."""
        return self._hash(_CHECK, "")

    def name_of(self, identifier: str) -> str:
        """Return the name of rows in the ledger, from a digest or fingerprint of them."""
        return self._hash(_ROWS, identifier)

    def names_of(self, identifiers: Iterable[str]) -> frozenset[str]:
        """Return the names of rows from all their fingerprints."""
        return frozenset(map(self.name_of, identifiers))

    def hide_hash(self, chained: str) -> str:
        """Hide a hash of a chain over unhidden names, because it would show whether a guess of them is right."""
        return self._hash(_CHAIN, chained)

    def was_hidden(self, chained: str, hidden: str | None) -> bool:
        """Tell whether a hash is the one that was hidden."""
        return hidden is not None and compare_digest(self.hide_hash(chained), hidden)

    def hide(self, fact: Fact) -> Mapping[str, Any]:
        """Return the fields of an earlier version's entry that change: names come in place of what identified rows.

        The random bits of the entry are removed, too: they blinded the hash of the old line, which somebody may have
        noted.
        """
        match fact:
            case Opening():
                return {"data_digest": self.name_of(fact.data_digest), "blind": ""}
            case Named():
                return {"rows": sorted(map(self.name_of, fact.rows)), "blind": ""}
            case _:
                return {}

    def _hash(self, purpose: bytes, text: str) -> str:
        return digest(self.secret, purpose + text.encode(), "sha256").hex()
