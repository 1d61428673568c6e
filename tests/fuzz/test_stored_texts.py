"""Any content of a file that people write or carry is read, or refused with a reason."""

import base64
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pytest
from damage import DEEP, altered, damaged, require_reason, written
from fuzz_parties import PLAIN, fuzz_parties
from hypothesis import given
from hypothesis import strategies as st
from ledgers import quick_folder
from local_federation import Enrolment, now
from messages import few
from steward import POLICY, SETTINGS

from dpspca.client.simulation import simulate
from dpspca.common.errors import CorruptModelError
from dpspca.common.names import PartyName, Role
from dpspca.common.results import Model
from dpspca.common.storage.settings import read_any_settings
from dpspca.common.trust import identity as identities
from dpspca.common.trust.authority import INDEX_FILE, Authority
from dpspca.common.trust.certificates import read_authority, read_key, read_request
from dpspca.common.trust.identity import IDENTITY_FILE, Identity
from dpspca.common.trust.revocations import RevocationList, peer_of
from dpspca.provider.policy.file import read_policy
from dpspca.provider.policy.rules import faults

# --- Models -----------------------------------------------------------------------------------------------------------


@cache
def model() -> tuple[dict[str, Any], bytes]:
    """Return a model's header and its numbers."""
    rows = np.random.default_rng(0).standard_normal((60, 6))
    header, _, body = simulate([rows, rows], PLAIN, noise_seed=1).to_bytes().partition(b"\n")
    return json.loads(header), body


@given(st.data())
def test_t36_a_damaged_model_is_read_or_refused_with_a_reason(data: st.DataObject) -> None:
    header, body = model()
    line = written(data.draw(altered(header) | st.just(header))).encode()
    whole = data.draw(st.just(line + b"\n" + body) | damaged(line + b"\n" + body))
    require_reason(lambda: Model.from_bytes(whole), CorruptModelError)


def test_t36_a_model_of_infinite_size_is_refused_with_a_reason() -> None:
    header, body = model()
    endless = header | {"shapes": header["shapes"] | {"components": [float("inf")]}}
    require_reason(lambda: Model.from_bytes(json.dumps(endless).encode() + b"\n" + body), CorruptModelError)


# --- Policies and settings --------------------------------------------------------------------------------------------

WORDS: Final = (
    "{",
    "}",
    "[",
    "]",
    "[[",
    "=",
    '"',
    "'''",
    "\n",
    "nan",
    "-inf",
    "1e999",
    "0x_",
    "9" * 5000,
    "[" * 5000,
    "\0",
)
"""Text with and without a meaning in TOML."""


@st.composite
def rewritten(draw: st.DrawFn, text: str) -> bytes:
    """Insert words into a text, replace its values by words, or damage its bytes."""
    for _ in range(draw(st.integers(0, 2))):
        at, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        text = text[:at] + draw(st.sampled_from(WORDS)) + text[end if draw(st.booleans()) else at :]
    if draw(st.booleans()):
        lines = text.split("\n")
        at = draw(st.integers(0, len(lines) - 1))
        value = draw(st.sampled_from(["-1", "1e-400", "true", "[]", "{}", '""', "1979-05-27", "[1, 'a']", '"\\ud800"']))
        lines[at] = f"{lines[at].partition('=')[0]}= {value}"
        text = "\n".join(lines)
    return draw(st.just(text.encode()) | damaged(text.encode()))


COORDINATOR: Final = (
    'listen = "127.0.0.1:0"\nidentity = "here"\nrevocations = "revoked.pem"\njournal = "j.db"\nresult_mebibytes = 4\n'
)


@given(st.sampled_from([SETTINGS, COORDINATOR]).flatmap(rewritten))
def test_t36_any_settings_are_read_or_refused_with_a_reason(content: bytes) -> None:
    with quick_folder() as folder:
        (folder / "settings.toml").write_bytes(content)
        require_reason(lambda: read_any_settings(folder / "settings.toml"))


def test_t36_endlessly_nested_settings_are_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(f"listen = {DEEP}")
    require_reason(lambda: read_any_settings(tmp_path / "settings.toml"))


@given(rewritten(POLICY))
def test_t36_any_policy_is_read_or_refused_with_a_reason(content: bytes) -> None:
    with quick_folder() as folder:
        (folder / "policy.toml").write_bytes(content)
        require_reason(lambda: read_policy(folder / "policy.toml"))
        for fault in faults(content.decode("utf-8", "replace")):
            assert fault.what


# --- Certificates, keys and lists -------------------------------------------------------------------------------------


@cache
def requested() -> bytes:
    with TemporaryDirectory() as folder:
        return identities.request(Path(folder) / "new", PartyName("town", Role.PROVIDER, "west"))


@cache
def listed() -> bytes:
    with TemporaryDirectory() as folder:
        enrolment = Enrolment.create(Path(folder))
        enrolment.identity(Role.ANALYST, "eve")
        enrolment.authority.revoke("dpspca://town/analyst/eve")
        return enrolment.authority.revocation_list() + enrolment.authority.certificate_pem


@st.composite
def damaged_pem(draw: st.DrawFn, pem: bytes) -> bytes:
    """Damage a PEM file as text, or the content of one of its blocks."""
    if draw(st.booleans()):
        return draw(damaged(pem))
    blocks = pem.split(b"-----BEGIN ")[1:]
    at = draw(st.integers(0, len(blocks) - 1))
    label, _, rest = blocks[at].partition(b"-----\n")
    content = draw(damaged(base64.b64decode(rest.partition(b"-----")[0])))
    blocks[at] = label + b"-----\n" + base64.encodebytes(content) + b"-----END " + label + b"-----\n"
    return b"".join(b"-----BEGIN " + block for block in blocks)


def read_list(pem: bytes) -> None:
    listed_pem, begin, authority = pem.rpartition(b"-----BEGIN CERTIFICATE")
    RevocationList.read(listed_pem, begin + authority)


def read_peer(pem: bytes) -> None:
    known = fuzz_parties()
    peer_of(pem, known.identities["hub"].authority_pem, known.started_at, known.revoked)


READERS: Final[dict[str, tuple[Callable[[], bytes], Callable[[bytes], object]]]] = {
    "a certificate": (lambda: fuzz_parties().identities["hub"].certificate_pem, read_peer),
    "an authority": (lambda: fuzz_parties().identities["hub"].authority_pem, read_authority),
    "a key": (lambda: fuzz_parties().identities["hub"].key_pem, read_key),
    "a request": (requested, read_request),
    "a revocation list": (listed, read_list),
}


@pytest.mark.parametrize("what", READERS)
@given(data=st.data())
def test_t36_a_damaged_block_is_read_or_refused_with_a_reason(what: str, data: st.DataObject) -> None:
    whole, read = READERS[what]
    pem = data.draw(damaged_pem(whole()))
    require_reason(lambda: read(pem))


@few
@given(st.data())
def test_t36_a_damaged_identity_is_read_or_refused_with_a_reason(data: st.DataObject) -> None:
    ada = fuzz_parties().identities["ada"]
    content = data.draw(damaged_pem(ada.key_pem + ada.certificate_pem + ada.authority_pem))
    with quick_folder() as folder:
        (folder / IDENTITY_FILE).touch(0o600)
        (folder / IDENTITY_FILE).write_bytes(content)
        require_reason(lambda: Identity.load(folder))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    enrolment = Enrolment.create(tmp_path_factory.mktemp("town"))
    enrolment.identity(Role.ANALYST, "eve")
    enrolment.identity(Role.ANALYST, "ada")
    enrolment.authority.revoke("dpspca://town/analyst/eve")
    return enrolment.authority


@given(data=st.data())
def test_t36_a_damaged_index_of_parties_is_read_or_refused_with_a_reason(
    authority: Authority, data: st.DataObject
) -> None:
    index = authority.folder / INDEX_FILE
    lines = index.read_bytes().splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    changed = [*lines[:at], written(data.draw(altered(json.loads(lines[at])))).encode(), *lines[at + 1 :]]
    content = data.draw(st.just(b"\n".join(changed)) | damaged(b"\n".join(lines)))
    with quick_folder() as folder:
        (folder / INDEX_FILE).touch(0o600)
        (folder / INDEX_FILE).write_bytes(content)
        require_reason(Authority(folder, authority._issuer, now).list)


def test_t36_an_index_entry_without_a_name_is_refused_with_a_reason(authority: Authority) -> None:
    act = {"act": "issued", "serial": "1", "name": None, "since": "", "until": ""}
    with quick_folder() as folder:
        (folder / INDEX_FILE).touch(0o600)
        (folder / INDEX_FILE).write_text(written(act))
        require_reason(Authority(folder, authority._issuer, now).list)
