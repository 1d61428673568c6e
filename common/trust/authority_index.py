"""The history of an authority: the lines of its index, and what follows from them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from dpspca.common.decoding import parse_json
from dpspca.common.names import PartyName


class Reason(StrEnum):
    """Why a certificate was revoked, in the terms of RFC 5280."""

    KEY_COMPROMISE = "keyCompromise"
    AFFILIATION_CHANGED = "affiliationChanged"
    SUPERSEDED = "superseded"
    CESSATION_OF_OPERATION = "cessationOfOperation"
    PRIVILEGE_WITHDRAWN = "privilegeWithdrawn"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One certificate that the authority has issued."""

    name: PartyName
    serial: str
    since: datetime
    until: datetime
    certificate: str = field(default="", repr=False)
    """Empty if an earlier version wrote the entry."""
    revoked: datetime | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class InvitationEntry:
    """One invitation that the authority has made. ``used`` is the serial number of the certificate that it led to."""

    name: PartyName
    id: str
    key: bytes = field(repr=False)
    until: datetime
    used: str | None = None


@dataclass(frozen=True, slots=True)
class IndexState:
    """The certificates by serial number, the invitations by name, and the number of the newest revocation list."""

    certificates: Mapping[str, IndexEntry]
    invitations: Mapping[str, InvitationEntry]
    list_number: int

    @classmethod
    def replay(cls, lines: Iterable[bytes]) -> Self:
        """Read all lines. Raise ValueError, KeyError or TypeError if a line is not one that an authority writes."""
        certificates: dict[str, IndexEntry] = {}
        invited: dict[str, InvitationEntry] = {}
        number = 0
        for line in (parse_json(each, "The index") for each in lines):
            match line:
                case {"act": "issued", "serial": serial}:
                    certificates[serial] = _certificate(line)
                    if (used := line.get("invitation")) is not None:
                        invited[used] = replace(invited[used], used=serial)
                case {"act": "invited", "id": str(name)}:
                    invited[name] = _invitation(line)
                case {"act": "withdrawn", "id": str(name)}:
                    del invited[name]
                case {"act": "revoked", "serial": serial, "at": at, "reason": reason}:
                    certificates[serial] = replace(certificates[serial], revoked=_time(at), reason=Reason(reason))
                case {"act": "published", "number": number}:
                    pass
                case _:
                    raise ValueError
        return cls(certificates, invited, number)

    def of_party(self, party: PartyName) -> list[IndexEntry]:
        """Return a party's certificates that are not revoked, in order of issue."""
        return [each for each in self.certificates.values() if each.name == party and not each.revoked]


def _certificate(line: dict[str, Any]) -> IndexEntry:
    name, since, until = PartyName.parse(line["name"]), _time(line["since"]), _time(line["until"])
    return IndexEntry(name, line["serial"], since, until, str(line.get("certificate", "")))


def _invitation(line: dict[str, Any]) -> InvitationEntry:
    return InvitationEntry(PartyName.parse(line["name"]), line["id"], bytes.fromhex(line["key"]), _time(line["until"]))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
