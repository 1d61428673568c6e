"""Fingerprints of authorities, as people compare them."""

from cryptography.hazmat.primitives.hashes import SHA256

from dpspca.common.checks import check
from dpspca.common.trust import read_authority


def fingerprint(authority_pem: bytes) -> str:
    """Return the SHA-256 fingerprint of an authority, in the form that other programs use too."""
    return read_authority(authority_pem).fingerprint(SHA256()).hex(":").upper()


def read_fingerprint(text: str) -> str:
    """Parse a fingerprint, with or without colons or spaces. Refuse a part, which a forged authority could match."""
    try:
        found = bytes.fromhex(text.replace(":", " "))
    except ValueError:
        found = b""
    check(
        len(found) == SHA256.digest_size,
        f"{text!r:.120} is not an authority's fingerprint.",
        "Give the whole fingerprint that `dpspca study show` prints: 64 hexadecimal digits.",
    )
    return found.hex(":").upper()
