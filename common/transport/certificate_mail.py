"""How one party exchanges requests and certificates with the authority through a mailbox.

Nothing that comes out of a mailbox is believed for where it comes from. A certificate is installed only if it is for
the key that waits here, for the name that was asked for, and from the authority that this party knows. Anything else is
ignored, as if the mailbox were empty: it may be an earlier certificate, or a trick.
"""

from dataclasses import dataclass
from pathlib import Path

from dpspca.common.errors import DpspcaError, NotTrustedError
from dpspca.common.trust import Identity, Reply, RevocationList, identity, read_certificate, request_fingerprint

from .mailbox import Mail, Mailbox, has_same_key


@dataclass(frozen=True, slots=True)
class CertificateMail:
    """One party's part of a mailbox. ``folder`` is its identity folder, ``revocations`` its revocation list."""

    folder: Path
    revocations: Path | None
    mailbox: Mailbox
    slot: str

    def send(self, request: bytes) -> str:
        """Leave a request, unless it is there already. The text says which other keys ask in this party's name."""
        held = self.mailbox.requests_of(self.slot)
        if request not in held:
            self.mailbox.put(self.slot, Mail.REQUEST, request)
        others = [_shown_key(each) for each in held if not has_same_key(each, request)]
        return _other_keys(others) if others else ""

    def receive(self, authority_pem: bytes) -> tuple[Identity | None, str]:
        """Install the certificate for the waiting key, and return it if it is there. The text says what was ignored."""
        content = self.mailbox.get(self.slot, Mail.CERTIFICATE)
        if not content:
            return None, ""
        reply = None
        try:
            reply = Reply.from_bytes(content)
            listed = RevocationList.read(reply.revocations_pem, authority_pem)
            made = identity.install(self.folder, reply.certificate_pem, authority_pem)
        except NotTrustedError as problem:
            if reply is not None and self._is_earlier(reply.certificate_pem, authority_pem):
                return None, ""
            return None, f"The mailbox has no certificate for this key yet, but another one: {problem.what}"
        if self.revocations:
            self._keep_list(listed, reply.revocations_pem, authority_pem)
        self._clear()
        return made, ""

    def _is_earlier(self, certificate_pem: bytes, authority_pem: bytes) -> bool:
        """Whether this is the party's present certificate, which waits to be renewed, or one that was revoked.

        Either lies in the mailbox until the authority has signed again. Any other may be a thief's.
        """
        try:
            shown = read_certificate(certificate_pem)
            if identity.is_enrolled(self.folder):
                return shown == read_certificate(Identity.load(self.folder).certificate_pem)
            content = self.mailbox.get(self.slot, Mail.REVOCATIONS)
            return bool(content) and RevocationList.read(content, authority_pem).names(certificate_pem)
        except NotTrustedError:
            return False

    def fetch_revocations(self, authority_pem: bytes) -> RevocationList | None:
        """Install the mailbox's revocation list if it is newer than ours, and return it then."""
        if not self.revocations:
            return None
        content = self.mailbox.get(self.slot, Mail.REVOCATIONS)
        if not content:
            return None
        before = identity.stored_revocations(self.revocations, authority_pem)
        installed = identity.install_revocations(self.revocations, content, authority_pem)
        return None if installed == before else installed

    def _keep_list(self, listed: RevocationList, pem: bytes, authority_pem: bytes) -> None:
        """Keep the list that came with a certificate, unless there is a newer one."""
        assert self.revocations
        before = identity.stored_revocations(self.revocations, authority_pem)
        if before is None or listed.newer_than(before):
            identity.install_revocations(self.revocations, pem, authority_pem)

    def _clear(self) -> None:
        """Take the request out of the mailbox. If that fails, the authority sees that it was signed before."""
        try:
            self.mailbox.put(self.slot, Mail.REQUEST, b"")
        except DpspcaError:
            return


def _shown_key(request: bytes) -> str:
    try:
        return request_fingerprint(request)
    except DpspcaError:
        return "one that cannot be read"


def _other_keys(keys: list[str]) -> str:
    return (
        f"The mailbox also holds a request in this party's name with another key: {', '.join(keys)}. If both come from "
        "one invitation, the authority signs neither. If the key is yours, because you lost the folder of an earlier "
        "`dpspca join`, ask the authority's operator for a new invitation and join with that. If it is not yours, "
        "somebody else has your invitation: tell the operator at once."
    )
