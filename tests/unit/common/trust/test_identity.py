"""A key never leaves its folder; key and certificate change together, in one step, or not at all."""

import os
import stat
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from facts import facts

from dpspca.common.errors import NotTrustedError, UnsafeFileError, WrongSignerError
from dpspca.common.names import PartyName, Role
from dpspca.common.trust import certificates
from dpspca.common.trust import identity as module
from dpspca.common.trust.certificates import new_key, write_party, write_request
from dpspca.common.trust.identity import CurrentIdentity, Identity, install, renew_request, request

OSLO = PartyName("north", Role.PROVIDER, "oslo")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# The party's own files.


def test_only_its_owner_can_read_a_new_key_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        pem = request(tmp_path / "oslo", OSLO)
    finally:
        os.umask(before)
    assert mode(tmp_path / "oslo") == 0o700
    assert [path.name for path in (tmp_path / "oslo").iterdir()] == ["waiting.pem"]
    assert mode(tmp_path / "oslo" / "waiting.pem") == 0o600
    assert b"PRIVATE" not in pem


def test_an_enrolled_party_has_one_private_file(north: Any) -> None:
    made = north.enrol("provider", "oslo")
    folder = north.folder("provider", "oslo")
    assert [path.name for path in folder.iterdir()] == ["identity.pem"]
    assert mode(folder / "identity.pem") == 0o600
    assert Identity.load(folder) == made
    assert made.name == OSLO
    assert made.authority_pem == north.pem
    assert made.not_after == north.now + timedelta(days=30)
    assert "PRIVATE" not in repr(made)


def test_neither_a_waiting_key_nor_an_identity_is_overwritten(north: Any, tmp_path: Path) -> None:
    request(tmp_path / "oslo", OSLO)
    north.enrol("provider", "oslo")
    for folder, name in (
        (tmp_path / "oslo", PartyName("north", Role.PROVIDER, "bergen")),
        (north.folder("provider", "oslo"), OSLO),
    ):
        before = files_in(folder)
        with pytest.raises(UnsafeFileError):
            request(folder, name)
        assert files_in(folder) == before


def test_requesting_again_returns_the_request_for_the_same_key(north: Any, tmp_path: Path) -> None:
    first = request(tmp_path / "oslo", OSLO)
    assert request(tmp_path / "oslo", OSLO) == first
    install(tmp_path / "oslo", north.authority.sign(first), north.pem)
    lost = north.authority.sign(renew_request(tmp_path / "oslo"))
    assert north.authority.sign(renew_request(tmp_path / "oslo")) == lost
    assert install(tmp_path / "oslo", lost, north.pem).certificate_pem == lost
    assert len(north.authority.list()) == 2


@pytest.mark.parametrize("name", ["waiting.pem", "identity.pem"])
def test_a_link_in_the_place_of_a_key_is_not_followed(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "oslo"
    folder.mkdir(mode=0o700)
    (folder / name).symlink_to(tmp_path / "trap")
    with pytest.raises(UnsafeFileError):
        request(folder, OSLO)
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize("rights", [0o640, 0o604, 0o660, 0o644])
def test_an_identity_that_others_can_read_is_refused(north: Any, rights: int) -> None:
    north.enrol("provider", "oslo")
    folder = north.folder("provider", "oslo")
    (folder / "identity.pem").chmod(rights)
    with pytest.raises(UnsafeFileError, match=facts(f"`chmod 600 {folder / 'identity.pem'}`")):
        Identity.load(folder)


def test_an_identity_in_a_shared_folder_or_behind_a_link_is_refused(north: Any, tmp_path: Path) -> None:
    north.enrol("provider", "oslo")
    folder = north.folder("provider", "oslo")
    folder.chmod(0o755)
    with pytest.raises(UnsafeFileError, match=facts(f"`chmod 700 {folder}`")):
        Identity.load(folder)
    folder.chmod(0o700)
    (folder / "identity.pem").rename(tmp_path / "identity.pem")
    (folder / "identity.pem").symlink_to(tmp_path / "identity.pem")
    with pytest.raises(UnsafeFileError):
        Identity.load(folder)


def test_a_pipe_in_the_place_of_an_identity_does_not_hang_the_reader(north: Any) -> None:
    north.enrol("provider", "oslo")
    path = north.folder("provider", "oslo") / "identity.pem"
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(UnsafeFileError):
        Identity.load(path.parent)


def test_an_identity_with_added_missing_or_reordered_parts_is_refused(north: Any) -> None:
    made = north.enrol("provider", "oslo")
    path = north.folder("provider", "oslo") / "identity.pem"
    key, own, authority = made.key_pem, made.certificate_pem, made.authority_pem
    for content in (
        *(b"", key, key + own, own + key + authority, key + authority + own, b"x" + key + own + authority),
        *(key + own + authority + own, key + own + own, key.replace(b"M", b"N", 1) + own + authority),
    ):
        path.write_bytes(content)
        with pytest.raises(NotTrustedError):
            Identity.load(path.parent)


# Installing and renewing.


def test_only_the_certificate_that_was_asked_for_is_installed(north: Any, south: Any, tmp_path: Path) -> None:
    folder = tmp_path / "oslo"
    asked = request(folder, OSLO)
    before = files_in(folder)
    key = module.read_key(module._read_blocks(folder / "waiting.pem", module._WAITING)[0])
    other_key, other_name, good = (
        write_party(north.issuer, party, public, north.now, timedelta(days=30)).public_bytes(Encoding.PEM)
        for party, public in (
            (OSLO, new_key().public_key()),
            (PartyName("north", Role.COORDINATOR, "oslo"), key.public_key()),
            module.read_request(asked),
        )
    )
    other_authority = south.authority.sign(write_request(key, PartyName("south", Role.PROVIDER, "oslo")))
    for certificate, authority in (
        *((other_key, north.pem), (other_name, north.pem), (other_authority, north.pem)),
        *((good, south.pem), (good, good), (north.pem, north.pem), (good + good, north.pem), (b"", north.pem)),
        *((good, b""), (good, north.pem + south.pem), (other_authority, south.pem)),
    ):
        with pytest.raises(NotTrustedError):
            install(folder, certificate, authority)
        assert files_in(folder) == before
    assert install(folder, good, north.pem).name == OSLO


def test_installing_without_a_request_is_refused(north: Any) -> None:
    made = north.enrol("provider", "oslo")
    with pytest.raises(UnsafeFileError):
        install(north.folder("provider", "oslo"), made.certificate_pem, made.authority_pem)


def test_a_certificate_with_other_line_ends_is_stored_in_canonical_form(north: Any, tmp_path: Path) -> None:
    pem = north.authority.sign(request(tmp_path / "oslo", OSLO))
    install(tmp_path / "oslo", pem.replace(b"\n", b"\r\n"), north.pem.replace(b"\n", b"\r\n"))
    assert Identity.load(tmp_path / "oslo").certificate_pem == pem


def test_a_renewal_replaces_the_key_in_one_step_without_a_restart(north: Any) -> None:
    old = north.enrol("provider", "oslo")
    folder = north.folder("provider", "oslo")
    current = CurrentIdentity(folder)
    north.now += timedelta(days=20)
    pem = north.authority.sign(renew_request(folder))
    assert current.get() is current.get()
    assert current.get() == Identity.load(folder) == old
    new = install(folder, pem, north.pem)
    assert current.get() == new
    assert new.name == old.name
    assert new.key_pem != old.key_pem
    assert new.not_after == old.not_after + timedelta(days=20)


def test_an_interrupted_installation_can_be_repeated(north: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    north.enrol("provider", "oslo")
    folder = north.folder("provider", "oslo")
    pem = north.authority.sign(renew_request(folder))

    def killed(*_: object, **__: object) -> None:
        raise OSError(5, "gone")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(OSError, match=facts("gone")):
            install(folder, pem, north.pem)
    assert Identity.load(folder).certificate_pem == pem
    install(folder, pem, north.pem)
    assert sorted(files_in(folder)) == ["identity.pem"]


def test_an_interrupted_write_leaves_the_old_identity(north: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    old = north.enrol("provider", "oslo")
    folder = north.folder("provider", "oslo")
    pem = north.authority.sign(renew_request(folder))

    def full(_: int) -> None:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UnsafeFileError, match=facts("identity.pem", "no space")):
            install(folder, pem, north.pem)
    assert sorted(files_in(folder)) == ["identity.pem", "waiting.pem"]
    assert Identity.load(folder) == old


def test_a_renewal_cannot_change_the_authority(north: Any) -> None:
    north.enrol("provider", "oslo")
    folder = north.folder("provider", "oslo")
    asked = renew_request(folder)
    (north.root / "again").mkdir()
    pretender = type(north)(north.root / "again", "north")
    with pytest.raises(WrongSignerError):
        install(folder, pretender.authority.sign(asked), pretender.pem)


def test_nothing_is_installed_in_a_shared_folder(north: Any, tmp_path: Path) -> None:
    pem = north.authority.sign(request(tmp_path / "oslo", OSLO))
    (tmp_path / "oslo").chmod(0o755)
    with pytest.raises(UnsafeFileError, match=facts(f"`chmod 700 {tmp_path / 'oslo'}`")):
        install(tmp_path / "oslo", pem, north.pem)


@pytest.mark.parametrize(
    "key", [ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048), ed25519.Ed25519PrivateKey]
)
def test_a_key_of_another_kind_is_refused(key: Any) -> None:
    made = key.generate() if key is ed25519.Ed25519PrivateKey else key
    with pytest.raises(NotTrustedError, match=facts("ECDSA", "P-256")):
        certificates.read_key(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
