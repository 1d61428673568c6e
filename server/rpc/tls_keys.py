"""Loads keys into TLS, and creates a key for connections on which the server's identity does not matter."""

import os
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from dpspca.common.names import COORDINATOR_HOST

OPEN_FILES: Final = Path("/proc/self/fd")
"""Where Linux shows a process's open files, including files in memory."""
_LIFE: Final = timedelta(days=3652)


def load_key(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a key and its certificate into TLS; Python can only read them from a file.

    The file is in memory if the system has such files. Otherwise it is a temporary file that only this user can read.
    """
    with _file_in_memory() or tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(OPEN_FILES / str(file.name) if isinstance(file.name, int) else file.name)


def unproven_tls() -> ssl.SSLContext:
    """Return TLS settings with a key made for this purpose. It proves nothing, and callers must not rely on it."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, COORDINATOR_HOST)])
    draft = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    dated = draft.serial_number(x509.random_serial_number()).not_valid_before(now).not_valid_after(now + _LIFE)
    certificate = dated.sign(key, SHA256()).public_bytes(Encoding.PEM)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.num_tickets = 0
    load_key(made, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate)
    return made


def _file_in_memory() -> BinaryIO | None:
    """Return an unnamed file in memory, if the system has such files and shows them."""
    try:
        return os.fdopen(os.memfd_create("key"), "wb") if OPEN_FILES.is_dir() else None
    except (AttributeError, OSError):  # not Linux, or memfd is forbidden
        return None
