"""The authority's reply: a certificate, its own certificate, and the newest revocation list.

Nothing in it is believed because of where it came from. ``identity.install`` checks the certificate against the
waiting key, the requested name and the authority that the party knows; the list must be signed by that authority.
"""

import re
from dataclasses import dataclass, field
from typing import Final, Self

from dpspca.common.errors import require_trust

MAX_REPLY_BYTES: Final = 1 << 20
"""Room for a revocation list of about twenty thousand entries."""

_REPLY: Final = re.compile(
    rb"(-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----\n)"
    rb"(-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----\n)"
    rb"(-----BEGIN X509 CRL-----\n[A-Za-z0-9+/=\n]+-----END X509 CRL-----\n)"
)


@dataclass(frozen=True, slots=True)
class Reply:
    """The three parts, in PEM. Not yet verified."""

    certificate_pem: bytes = field(repr=False)
    authority_pem: bytes = field(repr=False)
    revocations_pem: bytes = field(repr=False)

    def to_bytes(self) -> bytes:
        """Return the bytes to send or store."""
        return self.certificate_pem + self.authority_pem + self.revocations_pem

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read the three parts."""
        found = _REPLY.fullmatch(content.replace(b"\r\n", b"\n")) if len(content) <= MAX_REPLY_BYTES else None
        require_trust(
            found is not None,
            "The reply is not what `dpspca study sign` writes.",
            "Ask the authority's operator to sign again.",
        )
        assert found
        return cls(*found.groups())
