"""The two forms of certificates, the authority's own and a party's. The same code defines how each is written and read.

A certificate is accepted only if its extensions equal those that the authority would write for that name and key. So
it holds exactly one URI, which alone states the role, and no unknown extension is ever skipped. All keys are ECDSA on
P-256 with SHA-256, which every TLS 1.3 library accepts.

Pure: it opens no file, and the time is an argument.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Self, TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dpspca.common.errors import (
    InvalidParameterError,
    InvalidTypeError,
    MalformedProofError,
    NotTrustedError,
    WrongSignerError,
    require_trust,
)
from dpspca.common.names import COORDINATOR_HOST, PartyName, Role, check_name, shortened

from . import external_ca
from .external_ca import UNREADABLE

PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey
PublicKey: TypeAlias = ec.EllipticCurvePublicKey

CLOCK_SKEW: Final = timedelta(minutes=5)
"""The most that two parties' clocks may differ."""
MAX_LIFE: Final = timedelta(days=90)
MAX_PEM_BYTES: Final = 1 << 16

Extensions: TypeAlias = list[tuple[x509.ExtensionType, bool]]
_ASK: Final = "Ask the authority's operator for a new certificate."


def new_key() -> PrivateKey:
    """Make a key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: PrivateKey) -> bytes:
    """Write a private key, unencrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_key(pem: bytes) -> PrivateKey:
    """Read a private key."""
    with readable("The key"):
        key = load_pem_private_key(pem, None)
    require_trust(
        isinstance(key, PrivateKey),
        "The private key is not an ECDSA key on the curve P-256.",
        "Make keys with `dpspca join`.",
    )
    assert isinstance(key, PrivateKey)
    public_key_of(key)
    return key


def public_key_of(holder: PrivateKey | x509.Certificate | x509.CertificateSigningRequest) -> PublicKey:
    """Return the public key. Refuse any curve but P-256."""
    with readable("The public key"):
        key = holder.public_key()
    good = isinstance(key, PublicKey) and isinstance(key.curve, ec.SECP256R1)
    require_trust(good, "The key is not an ECDSA key on the curve P-256.", "Make keys with `dpspca join`.")
    assert isinstance(key, PublicKey)
    return key


def same_key(one: PublicKey, other: PublicKey) -> bool:
    """Whether two public keys are equal."""
    first, second = (key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint) for key in (one, other))
    return first == second


def whole_second(moment: datetime) -> datetime:
    """Round a time down to whole seconds, as certificates hold it. Refuse a time without a time zone."""
    if moment.utcoffset() is None:
        raise InvalidTypeError(f"The time {moment} has no time zone.", "Give an aware datetime, in UTC.")
    return moment.replace(microsecond=0)


@dataclass(frozen=True, slots=True)
class Issuer:
    """An authority's certificate and private key."""

    certificate: x509.Certificate
    key: PrivateKey = field(repr=False)

    @classmethod
    def new(cls, federation: str, now: datetime, life: timedelta) -> Self:
        """Make a key and a self-signed certificate for it."""
        key = new_key()
        name = _common_name(check_name("the federation", federation))
        draft = _draft(name, key.public_key(), now, life).issuer_name(name)
        return cls(_sign(draft, _authority_extensions(key.public_key()), key), key)

    @classmethod
    def read(cls, certificate_pem: bytes, key_pem: bytes) -> Self:
        """Read both. Refuse them if the certificate is for another key."""
        certificate, key = read_authority(certificate_pem), read_key(key_pem)
        fits = same_key(key.public_key(), public_key_of(certificate))
        require_trust(
            fits, "The authority's certificate is for another key.", "Restore both from one backup.", WrongSignerError
        )
        return cls(certificate, key)


def write_party(
    issuer: Issuer, party: PartyName, public: PublicKey, now: datetime, life: timedelta
) -> x509.Certificate:
    """Certify that a public key belongs to a party."""
    federation = federation_of(issuer.certificate)
    require_trust(
        party.federation == federation,
        f"{party} is not in the federation {federation}.",
        "Ask the authority of its federation.",
    )
    if not timedelta() < life <= MAX_LIFE:
        raise InvalidParameterError(
            f"A certificate cannot be valid for {life.days} days.", f"Give 1 to {MAX_LIFE.days} days."
        )
    if now + life > issuer.certificate.not_valid_after_utc:
        raise InvalidParameterError(
            f"The authority's certificate expires earlier, at {issuer.certificate.not_valid_after_utc}.",
            "Ask for fewer days, or set up a new authority.",
        )
    draft = _draft(_common_name(party.name), public, now, life).issuer_name(issuer.certificate.subject)
    return _sign(draft, _party_extensions(party, public, issuer.key.public_key()), issuer.key)


def write_request(key: PrivateKey, party: PartyName) -> bytes:
    """Write a request for a certificate: a name, a public key, and a signature with that key."""
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(party.uri)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(_common_name(party.name))
    return builder.add_extension(names, critical=False).sign(key, SHA256()).public_bytes(Encoding.PEM)


def read_request(pem: bytes) -> tuple[PartyName, PublicKey]:
    """Read a request's name and key. Refuse a request for anything more."""
    remedy = "Make a new one with `dpspca join`."
    with readable("The request"):
        require_trust(
            len(pem) <= MAX_PEM_BYTES,
            f"The request is {len(pem)} bytes long; at most {MAX_PEM_BYTES} are allowed.",
            remedy,
        )
        request = x509.load_pem_x509_csr(pem)
        extensions = [each.value for each in request.extensions]
        signed = request.is_signature_valid
    require_trust(signed, "The request is not signed with the key that it contains.", remedy, WrongSignerError)
    only = extensions[0] if len(extensions) == 1 else None
    named = isinstance(only, x509.SubjectAlternativeName)
    require_trust(named, "The request asks for more than a name.", remedy, MalformedProofError)
    assert isinstance(only, x509.SubjectAlternativeName)
    require_trust(
        len(list(only)) == 1, f"The request asks for {len(list(only))} names; there must be exactly one.", remedy
    )
    return _party_named_in(only), public_key_of(request)


def read_authority(pem: bytes) -> x509.Certificate:
    """Read an authority's own certificate. The caller must know that it is the right authority's.

    It is signed with its own key, in exactly the form that this module writes, or by an organisation's CA. The form of
    the latter is the organisation's, within limits (``external_ca.require_form``). In both cases it is the one
    certificate that parties trust: its signer cannot sign for parties.
    """
    authority = read_certificate(pem, "The authority's certificate")
    public = public_key_of(authority)
    if authority.issuer != authority.subject:
        external_ca.require_form(authority, extensions_of(authority))
    else:
        _require_issued(authority, authority)
        good = extensions_of(authority) == _authority_extensions(public)
        require_trust(good, "This is not the certificate of an authority.", "Take authority.pem from the operator.")
    federation_of(authority)
    return authority


def write_authority_request(key: PrivateKey, federation: str) -> bytes:
    """Write the request for an authority's certificate, for an organisation's CA to sign."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        _common_name(check_name("the federation", federation))
    )
    for extension, critical in _authority_extensions(key.public_key())[:2]:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


def federation_of(authority: x509.Certificate) -> str:
    """Return the federation whose parties an authority certifies."""
    with readable("The authority's certificate"):
        names = authority.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return check_name("the federation", names[0].value if len(names) == 1 else None)


def read_certificate(pem: bytes, what: str = "The certificate") -> x509.Certificate:
    """Read exactly one certificate."""
    with readable(what):
        require_trust(
            len(pem) <= MAX_PEM_BYTES, f"{what} is {len(pem)} bytes long; at most {MAX_PEM_BYTES} are allowed.", _ASK
        )
        certificates = external_ca.certificates_in(pem)
    require_trust(
        len(certificates) == 1, f"{what} must be one PEM block; there are {len(certificates)}.", "Give exactly one."
    )
    return certificates[0]


def name_in(certificate: x509.Certificate, authority: x509.Certificate) -> PartyName:
    """Return the party of a certificate that the authority issued in exactly this form. Its dates are not checked."""
    _require_issued(certificate, authority)
    extensions = extensions_of(certificate)
    names = next((value for value, _ in extensions if isinstance(value, x509.SubjectAlternativeName)), None)
    party = _party_named_in(names)
    federation = federation_of(authority)
    require_trust(party.federation == federation, f"{party} is not in the federation {federation}.", _ASK)
    expected = _party_extensions(party, public_key_of(certificate), public_key_of(authority))
    good = extensions == expected
    require_trust(
        good, f"The certificate for {party} does not have the form that the authority writes for its role.", _ASK
    )
    return party


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Turn every error with which the library rejects unreadable bytes into one refusal."""
    try:
        yield
    except UNREADABLE:
        raise MalformedProofError(
            f"{what} cannot be read.", "Compare the file with the original that was issued."
        ) from None


def _require_issued(certificate: x509.Certificate, authority: x509.Certificate) -> None:
    try:
        certificate.verify_directly_issued_by(authority)
    except (*UNREADABLE, InvalidSignature):
        raise WrongSignerError("The certificate was not issued by this federation's authority.", _ASK) from None
    weak = not isinstance(certificate.signature_hash_algorithm, SHA256)
    require_trust(not weak, "The certificate is not signed with SHA-256.", _ASK)


def _party_named_in(names: x509.SubjectAlternativeName | None) -> PartyName:
    """Read the one URI. A certificate without a URI names no party, and one with two could name two."""
    uris = [name.value for name in names or () if isinstance(name, x509.UniformResourceIdentifier)]
    require_trust(
        len(uris) == 1, f"The certificate or request holds {len(uris)} URIs; there must be exactly one.", _ASK
    )
    try:
        return PartyName.parse(uris[0])
    except InvalidParameterError:
        raise NotTrustedError(f"{shortened(uris[0])} is not the name of a party.", _ASK) from None


def extensions_of(signed: x509.Certificate | x509.CertificateRevocationList) -> Extensions:
    """List the extensions, each with whether it is critical."""
    with readable("The certificate or list"):
        return [(each.value, each.critical) for each in signed.extensions]


def _party_extensions(party: PartyName, public: PublicKey, issuer: PublicKey) -> Extensions:
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(party.uri)]
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if party.role is Role.COORDINATOR:  # the only role that others connect to
        names.append(x509.DNSName(COORDINATOR_HOST))
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
    return [
        (x509.SubjectAlternativeName(names), False),
        (x509.ExtendedKeyUsage(usages), False),
        (_key_usage(signs_data=True), True),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.SubjectKeyIdentifier.from_public_key(public), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), False),
    ]


def _authority_extensions(public: PublicKey) -> Extensions:
    return [
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_key_usage(signs_data=False), True),
        (x509.SubjectKeyIdentifier.from_public_key(public), False),
    ]


def _key_usage(*, signs_data: bool) -> x509.KeyUsage:
    """Allow a key either to sign data (a party) or to sign certificates and lists (the authority), never both."""
    return x509.KeyUsage(
        digital_signature=signs_data,
        key_cert_sign=not signs_data,
        crl_sign=not signs_data,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _draft(subject: x509.Name, public: PublicKey, now: datetime, life: timedelta) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(whole_second(now) - CLOCK_SKEW)
        .not_valid_after(whole_second(now) + life)
    )


def _sign(draft: x509.CertificateBuilder, extensions: Extensions, key: PrivateKey) -> x509.Certificate:
    for extension, critical in extensions:
        draft = draft.add_extension(extension, critical=critical)
    return draft.sign(key, SHA256())
