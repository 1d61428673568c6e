"""The authority's work with a study: invite its parties, show whose requests wait, and sign them."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from dpspca.common.checks import check
from dpspca.common.choices import near_miss
from dpspca.common.errors import DpspcaError, InvalidParameterError, NotTrustedError
from dpspca.common.names import PartyName, Role, shortened
from dpspca.common.storage import Study, files
from dpspca.common.transport import MAX_IN_SLOT, Mail, Mailbox, slot_in
from dpspca.common.trust import (
    Authority,
    IndexEntry,
    Invitation,
    Reply,
    is_slot,
    read_request,
    request_fingerprint,
    slot_of,
)

STUDY_FILE: Final = "study.toml"
INVITATIONS: Final = "invitations"


class RequestKind(StrEnum):
    """Why a party asks for a certificate."""

    ENROLS = "enrols"
    RENEWS = "renews"
    SIGNED_BEFORE = "signed before"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A request that was found, what it asks for, and why it is refused, if it is."""

    source: str
    content: bytes = field(repr=False)
    kind: RequestKind
    party: PartyName | None = None
    key: str = ""
    days: int = 0
    problem: DpspcaError | None = None

    def refused(self, problem: DpspcaError) -> Self:
        """Return this request as a refused one."""
        return replace(self, kind=RequestKind.REFUSED, problem=problem)


def open_authority(folder: Path, clock: Callable[[], datetime]) -> Authority:
    """Open the authority of a folder. If there is none, say how to create one."""
    check(
        folder.is_dir(),
        f"There is no authority in {folder}.",
        "Create it with `dpspca study init`, or name its folder with --authority.",
    )
    return Authority.open(folder, clock)


class StudyOffice:
    """An authority's folder with the study that it serves."""

    def __init__(self, folder: Path, clock: Callable[[], datetime]) -> None:
        self.authority = open_authority(folder, clock)
        check(
            (folder / STUDY_FILE).exists(),
            f"{folder} has no study file.",
            f"An earlier version made it: write a study file (`dpspca config sample study`) to {folder / STUDY_FILE}.",
        )
        self.study = Study.read(folder / STUDY_FILE)
        self._folder = folder
        self._key = self.authority.mailbox_key()

    @classmethod
    def found(cls, study: Path, folder: Path, clock: Callable[[], datetime]) -> Self:
        """Create the authority of a study."""
        read, text = Study.read(study), files.read(study)
        Authority.init(folder, read.federation, clock)
        files.create(folder / STUDY_FILE, text)
        return cls(folder, clock)

    @classmethod
    def prepare(cls, study: Path, folder: Path) -> bytes:
        """Make the key of a study's authority, and return the request for an organisation's CA to sign."""
        read, text = Study.read(study), files.read(study)
        asked = Authority.prepare(folder, read.federation)
        files.create(folder / STUDY_FILE, text)
        return asked

    @classmethod
    def certify(cls, folder: Path, certificate: bytes, roots: bytes, clock: Callable[[], datetime]) -> Self:
        """Set up the authority with the certificate that the organisation's CA signed."""
        Authority.certify(folder, certificate, roots, clock)
        return cls(folder, clock)

    def invite(self, parties: Iterable[PartyName]) -> list[tuple[Invitation, Path]]:
        """Make an invitation for each of these parties, and write each to a file of its own."""
        made: list[tuple[Invitation, Path]] = []
        files.make_private_folder(self._folder / INVITATIONS)
        for party in parties:
            invitation = self.authority.invite(
                party, self.study.address, self.study.mailbox or "", days=self.study.invitation_days
            )
            path = self._folder / INVITATIONS / f"{party.role}-{party.name}.invitation"
            files.replace(path, invitation.to_text())
            made.append((invitation, path))
        return made

    def party(self, text: str) -> PartyName:
        """Return the party that an operator names: its whole name, or ROLE/NAME."""
        return PartyName.parse(text if "://" in text else f"dpspca://{self.authority.federation}/{text}")

    def revocable(self, which: str) -> list[IndexEntry]:
        """Return the certificates that a serial number or a party names. If there are none, say who may be meant."""
        entries = [each for each in self.authority.list() if not each.revoked]
        named = self.party(which).uri if "/" in which else which
        found = [each for each in entries if named in {each.serial, each.name.uri}]
        if not found:
            parties = sorted({f"{each.name.role}/{each.name.name}" for each in entries})
            short = which.rpartition("/")[2]
            meant = next((each for each in parties if each.endswith(f"/{short}")), None) or near_miss(which, parties)
            raise InvalidParameterError(
                f"No certificate that is not revoked yet matches {named!r:.120}.",
                f"{f'Did you mean {meant!r}? ' if meant else ''}Give ROLE/NAME, or a serial number as "
                "`dpspca study show` shows it.",
            )
        return found

    @property
    def slots(self) -> list[str]:
        """The slots of all parties that were invited or certified."""
        known = [*(each.name for each in self.authority.invited()), *(each.name for each in self.authority.list())]
        return [slot_of(self._key, party) for party in dict.fromkeys(known)]

    def candidates(self, mailbox: Mailbox) -> list[Candidate]:
        """Return every request in a mailbox. Of two keys that ask in one name at the same time, none is signed.

        Neither is a party enrolled whose slot is full: its own request may have been turned away.
        """
        found = [self._candidate(source, content) for source, content in mailbox.requests(self.slots)]
        open_ones = {(each.party, each.key) for each in found if each.kind in {RequestKind.ENROLS, RequestKind.RENEWS}}
        doubled = {party for party, count in Counter(party for party, _ in open_ones).items() if count > 1}
        slots = Counter(slot_in(each.source) for each in found)
        full = {slot for slot, count in slots.items() if count >= MAX_IN_SLOT}
        return [self._unless_doubtful(each, doubled, full) for each in sorted(found, key=_order)]

    def _unless_doubtful(self, candidate: Candidate, doubled: set[PartyName | None], full: set[str]) -> Candidate:
        """Refuse a request if others ask in its party's name, or may have been turned away."""
        party = candidate.party
        if candidate.problem is not None or party is None:
            return candidate
        if party in doubled:
            return candidate.refused(_two_keys(candidate))
        if candidate.kind is RequestKind.ENROLS and slot_of(self._key, party) in full:
            return candidate.refused(_full_slot(party))
        return candidate

    def _candidate(self, source: str, content: bytes) -> Candidate:
        unknown = Candidate(source, content, RequestKind.REFUSED)
        try:
            asked = read_request(content)
        except DpspcaError as problem:
            return unknown.refused(problem)
        known = replace(
            unknown, party=asked.party, key=request_fingerprint(content), days=self.study.days_for(asked.party)
        )
        try:
            if self.authority.certificate_for(content):
                return replace(known, kind=RequestKind.SIGNED_BEFORE)
            self.authority.examine(content)
        except DpspcaError as problem:
            return known.refused(problem)
        return replace(known, kind=RequestKind.RENEWS if asked.former else RequestKind.ENROLS)

    def sign(self, candidates: Sequence[Candidate], mailbox: Mailbox) -> list[Candidate]:
        """Sign what is not refused, and leave the certificates and a fresh revocation list in the mailbox.

        A certificate is on disk in the authority's folder before it leaves. If this is interrupted, repeat it: what was
        signed is delivered then. Return the candidates as they ended.
        """
        listed = self.authority.revocation_list()
        ended: list[Candidate] = []
        for each in candidates:
            if each.kind is RequestKind.REFUSED or each.party is None:
                ended.append(each)
                continue
            try:
                certificate = self.authority.admit(each.content, days=each.days)
            except DpspcaError as problem:  # something changed since it was shown
                ended.append(each.refused(problem))
                continue
            reply = Reply(certificate, self.authority.certificate_pem, listed)
            self._deliver(each, reply, mailbox)
            ended.append(each)
        self.publish(listed, mailbox)
        return ended

    def _deliver(self, candidate: Candidate, reply: Reply, mailbox: Mailbox) -> None:
        """Leave a certificate beside its request, or in the party's slot if the request had a name of its own."""
        assert candidate.party
        beside = slot_in(candidate.source)
        slot = beside if is_slot(beside) else slot_of(self._key, candidate.party)
        if candidate.kind is RequestKind.SIGNED_BEFORE and _holds(mailbox.get(slot, Mail.CERTIFICATE), reply):
            return
        mailbox.put(slot, Mail.CERTIFICATE, reply.to_bytes())

    def publish(self, listed: bytes, mailbox: Mailbox) -> None:
        """Leave a revocation list in the mailbox."""
        hub = PartyName(self.study.federation, Role.COORDINATOR, self.study.coordinator)
        mailbox.put(slot_of(self._key, hub), Mail.REVOCATIONS, listed)


def _holds(content: bytes, reply: Reply) -> bool:
    try:
        return Reply.from_bytes(content).certificate_pem == reply.certificate_pem
    except NotTrustedError:
        return False


def _two_keys(candidate: Candidate) -> DpspcaError:
    party = candidate.party
    stolen, remedy = "key", f"run `dpspca study revoke {party}`, then `dpspca study invite {party}`"
    if candidate.kind is RequestKind.ENROLS:
        stolen, remedy = "invitation", f"run `dpspca study invite {party}`: the old invitation is no longer valid then"
    return InvalidParameterError(
        f"Two different keys ask for a certificate of {party}.",
        f"Ask the party which key is its own. If it does not know the other one, somebody stole its {stolen}. In both "
        f"cases, {remedy}. The party joins with the new invitation, in a new folder.",
    )


def _full_slot(party: PartyName) -> DpspcaError:
    return InvalidParameterError(
        f"The mailbox holds {MAX_IN_SLOT} requests for {party}, and takes no more.",
        "Have the coordinator's operator delete this party's *.request from the folder of the mailbox. Then run "
        f"`dpspca study invite {party}`.",
    )


def _order(candidate: Candidate) -> tuple[bool, str, str]:
    """Sort the coordinator last: it ends its mailbox when it has its own certificate."""
    party = candidate.party
    return party is not None and party.role is Role.COORDINATOR, str(party or ""), shortened(candidate.source)
