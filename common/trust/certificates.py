"""What a certificate of this federation looks like: written and read by the same few lines, so that both must agree.

There are two forms, the authority's own and a party's. Reading is by comparison: a certificate is accepted only if
its extensions are, one for one, those that the authority writes for that name and key. So there is exactly one URI
among its names, from which alone the role is read; nothing unknown is ever skipped over. Keys are ECDSA on P-256
with SHA-256 throughout: what TLS 1.3 libraries of every make accept.

Pure: no file is touched and the time is an argument.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Self, TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dpspca.common.errors import InvalidParameterError, InvalidTypeError, NotTrustedError, require_trust
from dpspca.common.names import COORDINATOR_HOST, PartyName, Role, check_name, shortened

PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey
PublicKey: TypeAlias = ec.EllipticCurvePublicKey

CLOCK_SKEW: Final = timedelta(minutes=5)
"""How far two parties' clocks may be apart."""
MAX_LIFE: Final = timedelta(days=90)
MAX_PEM_BYTES: Final = 1 << 16

Extensions: TypeAlias = list[tuple[x509.ExtensionType, bool]]
_ASK: Final = "Ask the federation's operator for a new certificate."
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    KeyError,  # older versions, at a kind of text that they do not know
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
    CryptographyDeprecationWarning,  # where warnings are errors: a form that the library still reads, but not for long
)


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
    require_trust(isinstance(key, PrivateKey), "The key is not of the kind used here.", "Make keys with `dpspca`.")
    assert isinstance(key, PrivateKey)
    public_key_of(key)
    return key


def public_key_of(holder: PrivateKey | x509.Certificate | x509.CertificateSigningRequest) -> PublicKey:
    """Take the public key out; any but P-256 is refused."""
    with readable("The public key"):
        key = holder.public_key()
    good = isinstance(key, PublicKey) and isinstance(key.curve, ec.SECP256R1)
    require_trust(good, "The key is not an ECDSA key on the curve P-256.", "Make keys with `dpspca`.")
    assert isinstance(key, PublicKey)
    return key


def same_key(one: PublicKey, other: PublicKey) -> bool:
    """Tell whether two public keys are one."""
    first, second = (key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint) for key in (one, other))
    return first == second


def whole_second(moment: datetime) -> datetime:
    """Round a time down to what a certificate can hold; a time without a zone is refused."""
    if moment.utcoffset() is None:
        raise InvalidTypeError("A time was given without its time zone.", "Give an aware datetime, in UTC.")
    return moment.replace(microsecond=0)


@dataclass(frozen=True, slots=True)
class Issuer:
    """What makes an authority: its certificate and its key."""

    certificate: x509.Certificate
    key: PrivateKey = field(repr=False)

    @classmethod
    def new(cls, federation: str, now: datetime, life: timedelta) -> Self:
        """Make a key and certify it by itself."""
        key = new_key()
        name = _common_name(check_name("the federation", federation))
        draft = _draft(name, key.public_key(), now, life).issuer_name(name)
        return cls(_signed(draft, _authority_extensions(key.public_key()), key), key)

    @classmethod
    def read(cls, certificate_pem: bytes, key_pem: bytes) -> Self:
        """Read both, and refuse a pair that does not belong together."""
        certificate, key = read_authority(certificate_pem), read_key(key_pem)
        fits = same_key(key.public_key(), public_key_of(certificate))
        require_trust(fits, "The authority's key is not its certificate's.", "Restore both from one backup.")
        return cls(certificate, key)


def write_party(
    issuer: Issuer, party: PartyName, public: PublicKey, now: datetime, life: timedelta
) -> x509.Certificate:
    """Certify that a public key belongs to a party."""
    federation = federation_of(issuer.certificate)
    require_trust(party.federation == federation, f"{party} is not of the federation {federation}.", "Ask its own.")
    if not timedelta() < life <= MAX_LIFE:
        raise InvalidParameterError(
            f"A certificate was asked for a life of {life.days} days.", f"Give 1 to {MAX_LIFE.days} days."
        )
    if now + life > issuer.certificate.not_valid_after_utc:
        raise InvalidParameterError("The authority ends before the certificate would.", "Set up a new authority.")
    draft = _draft(_common_name(party.name), public, now, life).issuer_name(issuer.certificate.subject)
    return _signed(draft, _party_extensions(party, public, issuer.key.public_key()), issuer.key)


def write_request(key: PrivateKey, party: PartyName) -> bytes:
    """Ask for a certificate: a name, a key, and proof of holding it. Nothing else is asked for, or would be given."""
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(party.uri)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(_common_name(party.name))
    return builder.add_extension(names, critical=False).sign(key, SHA256()).public_bytes(Encoding.PEM)


def read_request(pem: bytes) -> tuple[PartyName, PublicKey]:
    """Take the two things a request may ask for, its name and its key; a request for anything more is refused."""
    remedy = "Make a new one with `dpspca identity request`."
    with readable("The request"):
        require_trust(len(pem) <= MAX_PEM_BYTES, "The request is too long to be one.", remedy)
        request = x509.load_pem_x509_csr(pem)
        extensions = [each.value for each in request.extensions]
        signed = request.is_signature_valid
    require_trust(signed, "The request is not signed by the key it brings.", remedy)
    only = extensions[0] if len(extensions) == 1 else None
    require_trust(isinstance(only, x509.SubjectAlternativeName), "The request asks for more than a name.", remedy)
    assert isinstance(only, x509.SubjectAlternativeName)
    require_trust(len(list(only)) == 1, "The request asks for several names, or for none.", remedy)
    return _named(only), public_key_of(request)


def read_authority(pem: bytes) -> x509.Certificate:
    """Read an authority's own certificate. That it is the *right* one is for whoever keeps the file to know."""
    authority = read_certificate(pem, "The authority's certificate")
    _require_issued(authority, authority)
    good = extensions_of(authority) == _authority_extensions(public_key_of(authority))
    require_trust(good, "This is not the certificate of an authority.", "Take authority.pem from the operator.")
    federation_of(authority)
    return authority


def federation_of(authority: x509.Certificate) -> str:
    """Say which federation an authority speaks for."""
    with readable("The authority's certificate"):
        names = authority.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return check_name("the federation", names[0].value if len(names) == 1 else None)


def read_certificate(pem: bytes, what: str = "The certificate") -> x509.Certificate:
    """Read exactly one certificate."""
    with readable(what):
        require_trust(len(pem) <= MAX_PEM_BYTES, f"{what} is too long to be one.", _ASK)
        certificates = x509.load_pem_x509_certificates(pem)
    require_trust(len(certificates) == 1, f"{what} is not alone: there are {len(certificates)}.", "Give one.")
    return certificates[0]


def name_in(certificate: x509.Certificate, authority: x509.Certificate) -> PartyName:
    """Say whose certificate this is, if the authority issued it in just this form; time is not looked at."""
    _require_issued(certificate, authority)
    extensions = extensions_of(certificate)
    names = next((value for value, _ in extensions if isinstance(value, x509.SubjectAlternativeName)), None)
    party = _named(names)
    federation = federation_of(authority)
    require_trust(party.federation == federation, f"{party} is not of the federation {federation}.", _ASK)
    expected = _party_extensions(party, public_key_of(certificate), public_key_of(authority))
    good = extensions == expected
    require_trust(good, f"The certificate for {party} does not have the form that its role fixes.", _ASK)
    return party


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Turn every way in which the library finds bytes unreadable into one refusal."""
    try:
        yield
    except _UNREADABLE:
        raise NotTrustedError(f"{what} cannot be read.", "Compare the file with the one that was issued.") from None


def _require_issued(certificate: x509.Certificate, authority: x509.Certificate) -> None:
    try:
        certificate.verify_directly_issued_by(authority)
    except (*_UNREADABLE, InvalidSignature):
        raise NotTrustedError("The certificate was not issued by this federation's authority.", _ASK) from None
    weak = not isinstance(certificate.signature_hash_algorithm, SHA256)
    require_trust(not weak, "The certificate is not signed with SHA-256.", _ASK)


def _named(names: x509.SubjectAlternativeName | None) -> PartyName:
    """Read the one URI; a certificate with no URI, or with two, could be taken for two parties."""
    uris = [name.value for name in names or () if isinstance(name, x509.UniformResourceIdentifier)]
    require_trust(len(uris) == 1, f"There are {len(uris)} URIs among the names; there must be exactly one.", _ASK)
    try:
        return PartyName.parse(uris[0])
    except InvalidParameterError:
        raise NotTrustedError(f"{shortened(uris[0])} is not the name of a party.", _ASK) from None


def extensions_of(signed: x509.Certificate | x509.CertificateRevocationList) -> Extensions:
    """List the extensions, each with whether a reader must understand it."""
    with readable("The certificate or list"):
        return [(each.value, each.critical) for each in signed.extensions]


def _party_extensions(party: PartyName, public: PublicKey, issuer: PublicKey) -> Extensions:
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(party.uri)]
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if party.role is Role.COORDINATOR:  # the only one that others connect to
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
    """Either sign data (a party), or certificates and revocation lists (the authority); never both."""
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


def _signed(draft: x509.CertificateBuilder, extensions: Extensions, key: PrivateKey) -> x509.Certificate:
    for extension, critical in extensions:
        draft = draft.add_extension(extension, critical=critical)
    return draft.sign(key, SHA256())
