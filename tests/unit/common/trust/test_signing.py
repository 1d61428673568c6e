"""A provider accepts a job only as its analyst signed it, if it is addressed to the provider and valid now."""

import itertools
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from facts import facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.errors import (
    DpspcaError,
    InvalidParameterError,
    InvalidTypeError,
    MalformedJobError,
    NotNowError,
    NotTrustedError,
    RevokedError,
    WrongAudienceError,
    WrongRoleError,
    WrongSignerError,
)
from dpspca.common.names import PartyName, Role
from dpspca.common.privacy.lattice import MAX_PROVIDERS
from dpspca.common.trust import signing
from dpspca.common.trust.certificates import read_key
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.signing import MAX_JOB_LIFE, JobEnvelope, SignedJob, sign, verify

SPEC = b'{"components":2,"norm_bound":1.0}'
OSLO = PartyName("north", Role.PROVIDER, "oslo")
BERGEN = PartyName("north", Role.PROVIDER, "bergen")
GOOD: dict[str, Any] = {
    "spec": SPEC,
    "federation": "north",
    "audience": ("bergen", "oslo"),
    "data_set": "cohort-7",
    "issued_at": 1_000_000,
    "expires_at": 1_003_600,
    "nonce": "00112233445566778899aabbccddeeff",
}


def envelope(**changes: Any) -> JobEnvelope:
    return JobEnvelope(**GOOD | changes)


class Scene:
    """An analyst of a federation, and a provider that verifies jobs."""

    def __init__(self, north: Any) -> None:
        self.north = north
        self.ada = north.enrol("analyst", "ada")
        self.revoked = north.revocations()

    def draw(self, audience: Any = (OSLO, BERGEN), life: timedelta = timedelta(hours=1)) -> JobEnvelope:
        return JobEnvelope.draw(SPEC, audience, "cohort-7", now=self.north.now, life=life)

    def verify(self, signed: SignedJob, me: PartyName = OSLO, **changes: Any) -> tuple[JobEnvelope, PartyName]:
        given = {"now": self.north.now, "revoked": self.revoked} | changes
        return verify(signed, self.north.pem, me=me, **given)

    def sign_bytes(self, payload: bytes, by: Identity | None = None) -> SignedJob:
        """Sign any bytes with an analyst's key."""
        identity = by or self.ada
        return SignedJob(
            payload, read_key(identity.key_pem).sign(payload, ec.ECDSA(SHA256())), identity.certificate_pem
        )


@pytest.fixture
def scene(north: Any) -> Scene:
    return Scene(north)


def test_a_signed_job_is_verified_as_the_analyst_signed_it(scene: Scene) -> None:
    drawn = scene.draw()
    signed = SignedJob.from_bytes(sign(drawn, scene.ada).to_bytes())
    adas = replace(drawn, analyst="ada")
    assert scene.verify(signed) == (adas, scene.ada.name)
    assert scene.verify(signed, BERGEN) == (adas, scene.ada.name)
    assert drawn.spec == SPEC
    assert drawn.audience == ("bergen", "oslo")
    assert signed.job_id == sha256(adas.to_bytes()).hexdigest()


def test_t07_no_analyst_can_sign_another_s_job(scene: Scene) -> None:
    eve, job = scene.north.enrol("analyst", "eve"), sign(scene.draw(), scene.ada)
    with pytest.raises(WrongSignerError, match=facts("eve", "ada")):
        scene.verify(scene.sign_bytes(job.payload, eve))
    with pytest.raises(NotTrustedError, match=facts("ada")):
        sign(JobEnvelope.from_bytes(job.payload), eve)
    with pytest.raises(WrongSignerError, match=facts("ada")):
        scene.verify(scene.sign_bytes(scene.draw().to_bytes()))
    again = sign(JobEnvelope.from_bytes(job.payload), scene.ada)
    assert (again.job_id, scene.verify(again)) == (job.job_id, scene.verify(job))


def test_the_coordinator_can_verify_a_job_without_being_in_its_audience(scene: Scene) -> None:
    hub = PartyName("north", Role.COORDINATOR, "hub")
    assert scene.verify(sign(scene.draw(), scene.ada), hub)[1] == scene.ada.name


def test_t07_a_signed_job_with_any_changed_byte_is_refused(scene: Scene) -> None:
    content = sign(scene.draw(), scene.ada).to_bytes()
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        with pytest.raises(DpspcaError):
            scene.verify(SignedJob.from_bytes(bytes(flipped)))


def test_t07_a_truncated_or_extended_job_is_refused(scene: Scene) -> None:
    content = sign(scene.draw(), scene.ada).to_bytes()
    shorter = [content[:end] for end in range(0, len(content), 7)]
    for changed in (*shorter, content[:-1], content[1:], content + b"\0", b"\0" + content, content * 2):
        with pytest.raises(DpspcaError):
            scene.verify(SignedJob.from_bytes(changed))


def test_t07_parts_of_different_jobs_cannot_be_combined(scene: Scene) -> None:
    bob = scene.north.enrol("analyst", "bob")
    one, two, three = sign(scene.draw(), scene.ada), sign(scene.draw(), scene.ada), sign(scene.draw(), bob)
    for payload, signature, certificate in itertools.product((one, two, three), repeat=3):
        mixed = SignedJob(payload.payload, signature.signature, certificate.certificate_pem)
        whole = payload is signature and payload.certificate_pem == certificate.certificate_pem
        if whole:
            scene.verify(mixed)
            continue
        with pytest.raises(NotTrustedError):
            scene.verify(mixed)


def test_a_changed_but_valid_signature_does_not_change_the_job_id(scene: Scene) -> None:
    """With ECDSA anybody can turn (r, s) into (r, n - s), so the ID is the hash of what was signed."""
    signed = sign(scene.draw(), scene.ada)
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    r, s = decode_dss_signature(signed.signature)
    restated = SignedJob(signed.payload, encode_dss_signature(r, order - s), signed.certificate_pem)
    assert scene.verify(restated) == scene.verify(signed)
    assert restated.job_id == signed.job_id


def test_t10_a_job_is_valid_only_for_its_audience_federation_and_time(north: Any, south: Any) -> None:
    """Try every combination of the signer's and the provider's federation, name and time."""
    ada = {"north": north.enrol("analyst", "ada"), "south": south.enrol("analyst", "ada")}
    pems = {"north": north.pem, "south": south.pem}
    revoked = {"north": north.revocations(), "south": south.revocations()}
    hour = timedelta(hours=1)
    accepted = []
    places = itertools.product(("north", "south"), ("north", "south"), ("oslo", "bergen", "pisa"), range(-2, 3))
    for signer, reader, name, hours in places:
        audience = [PartyName(signer, Role.PROVIDER, each) for each in ("oslo", "bergen")]
        drawn = JobEnvelope.draw(SPEC, audience, "cohort", now=north.now, life=hour)
        signed = sign(drawn, ada[signer])
        me, now = PartyName(reader, Role.PROVIDER, name), north.now + hours * hour
        try:
            verify(signed, pems[reader], me=me, now=now, revoked=revoked[reader])
        except (NotTrustedError, WrongAudienceError, NotNowError):
            continue
        accepted.append((signer, reader, name, hours))
    assert accepted == [(each, each, name, 0) for each in ("north", "south") for name in ("oslo", "bergen")]


def test_t10_a_wrong_provider_or_federation_has_its_own_error(scene: Scene, south: Any) -> None:
    signed = sign(scene.draw(), scene.ada)
    with pytest.raises(WrongAudienceError, match=facts("pisa")):
        scene.verify(signed, PartyName("north", Role.PROVIDER, "pisa"))
    with pytest.raises(WrongAudienceError, match=facts("north", "south")):
        scene.verify(signed, PartyName("south", Role.PROVIDER, "oslo"))
    with pytest.raises(NotTrustedError):
        verify(signed, south.pem, me=OSLO, now=scene.north.now, revoked=south.revocations())


def test_t10_an_analyst_cannot_sign_for_another_federation(scene: Scene) -> None:
    elsewhere = envelope(federation="south")
    with pytest.raises(WrongAudienceError):
        sign(elsewhere, scene.ada)
    moment = int(scene.north.now.timestamp())
    forced = envelope(federation="south", issued_at=moment, expires_at=moment + 60)
    for me in (OSLO, PartyName("south", Role.PROVIDER, "oslo")):
        with pytest.raises(WrongAudienceError):
            scene.verify(scene.sign_bytes(forced.to_bytes()), me)


def test_t10_a_job_is_valid_from_its_issue_to_its_last_second(scene: Scene) -> None:
    signed = sign(scene.draw(life=timedelta(hours=1)), scene.ada)
    start, end, second = scene.north.now, scene.north.now + timedelta(hours=1), timedelta(seconds=1)
    for now in (start, end - second, start - timedelta(minutes=5)):
        scene.verify(signed, now=now)
    for now in (end, end + timedelta(days=1), start - timedelta(minutes=5) - second):
        with pytest.raises(NotNowError):
            scene.verify(signed, now=now)


def test_the_same_spec_signed_twice_is_two_jobs(scene: Scene) -> None:
    assert sign(scene.draw(), scene.ada).job_id != sign(scene.draw(), scene.ada).job_id


@pytest.mark.parametrize("role", [Role.COORDINATOR, Role.PROVIDER])
def test_only_an_analyst_can_sign_a_job(scene: Scene, role: Role) -> None:
    other = scene.north.enrol(role, "x")
    drawn = scene.draw()
    with pytest.raises(WrongRoleError):
        sign(drawn, other)
    with pytest.raises(WrongRoleError):
        scene.verify(scene.sign_bytes(drawn.to_bytes(), by=other))


def test_a_job_of_a_revoked_or_expired_analyst_is_refused(scene: Scene) -> None:
    signed = sign(scene.draw(life=timedelta(days=2)), scene.ada)
    scene.north.authority.revoke(scene.ada.name)
    with pytest.raises(RevokedError, match=facts(scene.ada.name)):
        scene.verify(signed, revoked=scene.north.revocations())
    brief = scene.north.enrol("analyst", "eve", days=1)
    later = scene.north.now + timedelta(days=1)
    with pytest.raises(NotNowError, match=facts("dpspca://north/analyst/eve")):
        scene.verify(sign(scene.draw(life=timedelta(days=2)), brief), now=later)


def test_t07_a_signed_text_that_is_not_canonical_is_refused(scene: Scene) -> None:
    good = replace(scene.draw(), analyst="ada").to_bytes()
    prefix, fields = signing._ENVELOPE, signing._parts(good[len(signing._ENVELOPE) :], 8)
    spec, federation, audience, data_set, issued, expires, nonce, ada = fields

    def written(*parts: bytes) -> bytes:
        return prefix + signing.join(*parts)

    assert written(*fields) == good
    backwards = signing.join(b"oslo", b"bergen")
    for payload in (
        *(b"", SPEC, prefix, good[len(prefix) :], good[:-1], good + b"\0", b"D" + good[1:]),
        written(*fields, b""),
        written(*fields[:-1]),
        written(b"", federation, audience, data_set, issued, expires, nonce, ada),
        written(spec, b"North", audience, data_set, issued, expires, nonce, ada),
        written(spec, b"n\xc3\xb8rth", audience, data_set, issued, expires, nonce, ada),
        written(spec, federation, backwards, data_set, issued, expires, nonce, ada),
        written(spec, federation, audience * 2, data_set, issued, expires, nonce, ada),
        written(spec, federation, b"", data_set, issued, expires, nonce, ada),
        written(spec, federation, audience[:-1], data_set, issued, expires, nonce, ada),
        written(spec, federation, audience, b"", issued, expires, nonce, ada),
        written(spec, federation, audience, data_set, b"\0" + issued, expires, nonce, ada),
        written(spec, federation, audience, data_set, issued.lstrip(b"\0"), expires, nonce, ada),
        written(spec, federation, audience, data_set, expires, issued, nonce, ada),
        written(spec, federation, audience, data_set, issued, b"\0\0\0\xff" + expires[4:], nonce, ada),
        written(spec, federation, audience, data_set, issued, b"\xff" * 8, nonce, ada),
        written(spec, federation, audience, data_set, issued, expires, nonce[:-1], ada),
        written(spec, federation, audience, data_set, issued, expires, nonce + b"\0", ada),
        written(spec, federation, audience, data_set, issued, expires, nonce, b"Ada"),
        written(spec, federation, audience, data_set, issued, expires, nonce, ada + b"\0"),
        good.replace(b"version 2", b"version 1"),
    ):
        with pytest.raises(MalformedJobError):
            scene.verify(scene.sign_bytes(payload))


def test_t07_a_signer_s_certificate_that_is_not_canonical_is_refused(scene: Scene) -> None:
    signed = sign(scene.draw(), scene.ada)
    for pem in (b"hello\n" + signed.certificate_pem, signed.certificate_pem + b"\n", signed.certificate_pem * 2):
        with pytest.raises(NotTrustedError):
            scene.verify(SignedJob(signed.payload, signed.signature, pem))


@given(st.binary(max_size=200) | st.builds(signing._ENVELOPE.__add__, st.binary(max_size=200)))
def test_t36_arbitrary_bytes_are_refused_as_malformed_jobs(content: bytes) -> None:
    for read in (JobEnvelope.from_bytes, SignedJob.from_bytes, lambda it: SignedJob.from_bytes(signing._CARRIER + it)):
        try:
            made = read(content)
        except MalformedJobError:
            continue
        assert made.to_bytes().endswith(content)


def test_t36_a_bomb_of_empty_parts_is_refused_at_once() -> None:
    bomb = bytes(signing.MAX_JOB_BYTES // 2)
    for prefix, read, parts in (
        (signing._CARRIER, SignedJob.from_bytes, 3),
        (signing._ENVELOPE, JobEnvelope.from_bytes, 8),
    ):
        with pytest.raises(MalformedJobError, match=facts(parts)):
            read(prefix + bomb)  # type: ignore[operator]
    with pytest.raises(MalformedJobError):
        SignedJob.from_bytes(signing._CARRIER + bytes(signing.MAX_JOB_BYTES))
    with pytest.raises(MalformedJobError):
        SignedJob.from_bytes(signing._CARRIER + b"\xff\xff\xff\xff")


@given(
    st.binary(min_size=1, max_size=300),
    st.sets(st.from_regex(r"[a-z0-9][a-z0-9.-]{0,62}", fullmatch=True), min_size=1, max_size=9),
    st.integers(0, 2**39),
    st.integers(1, MAX_JOB_LIFE),
    st.binary(min_size=16, max_size=16),
)
def test_an_envelope_survives_writing_and_reading(
    spec: bytes, names: set[str], issued: int, life: int, nonce: bytes
) -> None:
    made = envelope(
        spec=spec,
        audience=tuple(sorted(names)),
        issued_at=issued,
        expires_at=issued + life,
        nonce=nonce.hex(),
    )
    assert JobEnvelope.from_bytes(made.to_bytes()) == made


def test_every_field_changes_the_signed_bytes() -> None:
    changes: list[dict[str, Any]] = [
        {"spec": SPEC + b" "},
        {"federation": "south"},
        {"audience": ("bergen",)},
        {"audience": ("bergen.oslo",)},
        {"data_set": "cohort-8"},
        {"issued_at": 1_000_001},
        {"expires_at": 1_003_601},
        {"nonce": "ff" * 16},
    ]
    assert len({envelope(**each).to_bytes() for each in [{}, *changes]}) == len(changes) + 1


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": b""},
        {"spec": bytes(signing.MAX_SPEC_BYTES + 1)},
        {"federation": ""},
        {"federation": "North"},
        {"data_set": "a/b"},
        {"audience": ()},
        {"audience": ("oslo", "bergen")},
        {"audience": ("oslo", "oslo")},
        {"audience": ("Oslo",)},
        {"audience": tuple(f"{number:04}" for number in range(MAX_PROVIDERS + 1))},
        {"issued_at": -1},
        {"expires_at": 1_000_000},
        {"expires_at": 1_000_001 + MAX_JOB_LIFE},
        {"issued_at": 2**40, "expires_at": 2**40 + 1},
        {"nonce": ""},
        {"nonce": "00" * 15},
        {"nonce": "00" * 17},
        {"nonce": "FF" * 16},
        {"nonce": "0 " * 16},
        {"nonce": "zz" * 16},
        {"nonce": 7},
    ],
)
def test_an_envelope_with_an_invalid_value_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError):
        envelope(**changes)


@pytest.mark.parametrize(
    "changes",
    [{"spec": "text"}, {"audience": ["oslo"]}, {"audience": (7,)}, {"issued_at": 1.5}, {"expires_at": True}],
)
def test_an_envelope_with_a_value_of_the_wrong_type_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidTypeError):
        envelope(**changes)


def test_an_envelope_needs_providers_of_one_federation(scene: Scene) -> None:
    for audience in (
        [],
        [OSLO, PartyName("south", Role.PROVIDER, "pisa")],
        [OSLO, PartyName("north", Role.COORDINATOR, "hub")],
    ):
        with pytest.raises(InvalidParameterError):
            scene.draw(audience)
    assert scene.draw([OSLO, BERGEN, OSLO]).audience == ("bergen", "oslo")
