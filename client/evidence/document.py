"""The file of evidence: what is in it, its one canonical form, and the signature of the analyst who collected it.

It is one line of JSON with sorted keys and no spaces. A reader accepts it only if writing what was read gives the same
bytes. So a file that was cut, that gives a key twice, or that has its keys in another order is refused. The signature
covers everything else in the file. Of the two forms that an ECDSA signature has, only one is accepted, so that not even
the signature can be changed without notice.

Statements are kept by provider and kind. A later version may add kinds; this one refuses kinds that it does not know,
because it could not check them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from dpspca.common.decoding import STORED, decode, given_fields, parse_form, written
from dpspca.common.errors import DpspcaError, InvalidDataError, NotTrustedError, require_trust
from dpspca.common.trust import Identity, holder_of, read_certificate, read_key

FORMAT: Final = "dpspca-evidence-1"
MAX_BYTES: Final = 2**28
"""More than the evidence of a job of 128 providers takes."""
_PURPOSE: Final = b"dpspca evidence of a job, version 1\0"
_METHOD: Final = ec.ECDSA(SHA256())
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of the curve P-256."""
_UNREADABLE: Final = "This file is damaged, or it is not an evidence file that this version of dpspca can read."
_NO_EVIDENCE: Final = (
    "Give the file that `dpspca evidence JOB` wrote. If it is that file, get it again from whoever collected it."
)
_CHANGED: Final = "Get the file again from whoever collected it. Do not rely on this one."


@dataclass(frozen=True, slots=True)
class Outcome:
    """The coordinator's report of one provider."""

    asked: int
    answered: int
    reason: str


@dataclass(frozen=True, slots=True)
class Reported:
    """The coordinator's report of the job. No provider signed it."""

    state: str
    answered: int
    providers: Mapping[str, Outcome]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """The model file that resulted, as its collector has it."""

    sha256: str
    size: int

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Describe a file."""
        return cls(sha256(content).hexdigest(), len(content))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that is known about a job. Signed bytes are in hexadecimal."""

    authority: str
    """The authority's certificate, in PEM: all others are signed by it."""
    collector: str
    """The certificate of the analyst who collected and signed this, in PEM."""
    collected_at: int
    job: str
    promise: Mapping[str, str | int | float | bool | None]
    """The numbers of the privacy statement, which follow from the job."""
    statement: str
    """The privacy statement in words, as the collector's version of dpspca puts it."""
    reported: Reported
    requests: Mapping[str, str]
    """For each kind of statement, the signed request that providers replied to."""
    statements: Mapping[str, Mapping[str, str]]
    """For each provider and each kind, the signed statement."""
    model: StoredModel | None
    software: str
    bill_of_materials: str | None
    """SHA-256 of the bill of materials of the collector's software, if it was given."""
    software_digest: str | None = None
    """See ``installed_digest``. Earlier evidence has none."""
    signature: str = ""

    def signed_by(self, identity: Identity) -> Self:
        """Return this evidence with the signature of its collector."""
        raw = read_key(identity.key_pem).sign(self._signed_bytes(), _METHOD)
        first, second = decode_dss_signature(raw)
        return replace(self, signature=encode_dss_signature(first, min(second, _ORDER - second)).hex())

    def require_signature(self) -> None:
        """Refuse evidence that its collector did not sign, or whose signature or certificates have another form."""
        for pem in (self.collector, self.authority):
            exact = read_certificate(pem.encode()).public_bytes(Encoding.PEM).decode() == pem
            require_trust(exact, "A certificate is not in its canonical form.", _CHANGED)
        _, key = holder_of(self.collector.encode(), self.authority.encode())
        try:
            signature = bytes.fromhex(self.signature)
            first, second = decode_dss_signature(signature)
            exact = signature.hex() == self.signature and encode_dss_signature(first, second) == signature
            if second > _ORDER // 2 or not exact:
                raise ValueError  # noqa: TRY301  # handled like a wrong signature
            key.verify(signature, self._signed_bytes(), _METHOD)
        except (InvalidSignature, ValueError):
            raise NotTrustedError("The collector's signature over the file does not hold.", _CHANGED) from None

    def to_bytes(self) -> bytes:
        """Return the file."""
        return written(self, FORMAT) + b"\n"

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read a file. Refuse any bytes but those that writing it gives."""
        if len(content) > MAX_BYTES:
            raise InvalidDataError(f"The file has {len(content)} bytes; at most {MAX_BYTES} are read.", _CHANGED)
        try:
            read = decode(cls, parse_form(content, FORMAT), STORED)
            own = read.to_bytes()
        except DpspcaError:
            raise InvalidDataError(_UNREADABLE, _NO_EVIDENCE) from None
        if own != content:
            raise InvalidDataError(
                "The file is not in the canonical form of evidence: it was cut or changed.", _CHANGED
            )
        return read

    def _signed_bytes(self) -> bytes:
        whole = {name: value for name, value in given_fields(self).items() if name != "signature"}
        signed = {"format": FORMAT, **whole}
        return _PURPOSE + json.dumps(signed, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
