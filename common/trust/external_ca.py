"""An organisation's existing CA as the root: it signs the certificate of a federation's authority.

Parties trust the authority's certificate and no other: what else the organisation's CA signs is nothing to them. So the
organisation's CA vouches for the authority once, when it is set up and when a party joins (``require_root``). Pure.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID

from dpspca.common.errors import MalformedProofError, NotTrustedError, WrongSignerError, require_trust

MAX_CHAIN: Final = 8
_MAY_BE_CRITICAL: Final = (x509.BasicConstraints, x509.KeyUsage)
_FOR_TLS: Final = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
_SIGN: Final = (
    "Have the CA sign the request as it is: basicConstraints = critical, CA:TRUE, pathlen:0 and keyUsage = critical, "
    "keyCertSign, cRLSign, and subjectKeyIdentifier = hash."
)
_ROOT: Final = "Give the certificates of the CA, from the one that signed the authority up to its root, in one file."

UNREADABLE: Final = (
    ValueError,
    TypeError,
    KeyError,  # older versions of the library, for a text encoding that they do not know
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
    CryptographyDeprecationWarning,  # if warnings are errors: the library will soon refuse this form
)
"""Errors with which the library rejects bytes."""


def require_form(authority: x509.Certificate, extensions: Sequence[tuple[x509.ExtensionType, bool]]) -> None:
    """Refuse a certificate that an organisation's CA signed, if it is not that of an authority.

    It must be allowed to sign certificates of parties and revocation lists, and no further authorities. It must not
    hold what this program does not know and may not ignore.
    """
    found = {type(value): (value, critical) for value, critical in extensions}
    basic, is_critical = found.get(x509.BasicConstraints, (None, False))
    is_authority = basic == x509.BasicConstraints(ca=True, path_length=0) and is_critical
    require_trust(is_authority, "The CA did not allow the authority to sign certificates of parties alone.", _SIGN)
    usage = found.get(x509.KeyUsage, (None, False))[0]
    signs = isinstance(usage, x509.KeyUsage) and usage.key_cert_sign and usage.crl_sign
    require_trust(signs, "The CA did not allow the authority to sign certificates and revocation lists.", _SIGN)
    unknown = [
        value.oid.dotted_string for value, critical in extensions if critical and type(value) not in _MAY_BE_CRITICAL
    ]
    require_trust(not unknown, f"The authority's certificate has critical extensions: {', '.join(unknown)}.", _SIGN)
    purposes = found.get(x509.ExtendedKeyUsage, (_FOR_TLS, False))[0]
    require_trust({*purposes} >= _FOR_TLS, "The CA allowed the authority other purposes than TLS.", _SIGN)  # type: ignore[misc]  # a list of purposes
    key_id = found.get(x509.SubjectKeyIdentifier, (None, False))[0]
    usual = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    require_trust(key_id in {None, usual}, "The CA gave the authority's key another name than its hash.", _SIGN)
    strong = isinstance(authority.signature_hash_algorithm, SHA256 | SHA384 | SHA512)
    require_trust(strong, "The CA signed with a hash that is too weak.", "Have it sign with SHA-256.")


def require_root(authority: x509.Certificate, roots_pem: bytes, now: datetime) -> str:
    """Refuse an authority that no chain of these certificates leads to, now. Return the name of the root."""
    try:
        known = certificates_in(roots_pem)
    except UNREADABLE:
        raise MalformedProofError("The certificates of the CA cannot be read.", _ROOT) from None
    below = authority
    for _ in range(MAX_CHAIN):
        _require_now(below, now)
        above = next((each for each in known if _has_signed(each, below)), None)
        require_trust(
            above is not None, f"None of these certificates signed that of {_name(below)}.", _ROOT, WrongSignerError
        )
        assert above
        if above.issuer == above.subject:
            _require_now(above, now)
            return _name(above)
        below = above
    raise NotTrustedError(f"The chain has more than {MAX_CHAIN} certificates.", _ROOT)


def certificates_in(pem: bytes) -> list[x509.Certificate]:
    """Read certificates, with all that the library would only read later, and fail then."""
    found = x509.load_pem_x509_certificates(pem)
    for each in found:
        _ = each.subject, each.issuer, each.signature_hash_algorithm
    return found


def _has_signed(above: x509.Certificate, below: x509.Certificate) -> bool:
    """Whether a certificate of a CA signed another."""
    try:
        below.verify_directly_issued_by(above)
        return above.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (*UNREADABLE, InvalidSignature, x509.ExtensionNotFound):
        return False


def _require_now(certificate: x509.Certificate, now: datetime) -> None:
    since, until = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    require_trust(
        since <= now < until,
        f"The certificate of {_name(certificate)} is valid from {since} to {until}, not now.",
        "Ask for a new one.",
    )


def _name(certificate: x509.Certificate) -> str:
    return f"{certificate.subject.rfc4514_string()!a:.120}"
