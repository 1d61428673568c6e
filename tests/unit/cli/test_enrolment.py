"""Enrolment: whom a party trusts, and the errors for missing steps that a party and the operator see."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from commands import Ended, commands_in

from dpspca.common.names import PartyName, Role
from dpspca.common.trust import identity as identities
from dpspca.common.trust.authority import Authority

NORTH = "dpspca://town/provider/north"
FINGERPRINT = r"([0-9A-F]{2}:){31}[0-9A-F]{2}"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ended]:
    return commands_in(tmp_path, monkeypatch, capfd)


@pytest.fixture
def authority(here: Callable[..., Ended]) -> str:
    """Found a federation, sign the request of north, and return the authority's fingerprint."""
    made: str = here("ca", "init", "authority", "town", "--json").facts["authority"]
    assert here("identity", "request", "north", NORTH, "--out", "north.csr").code == 0
    assert here("ca", "sign", "authority", "north.csr", "--out", "north.crt").code == 0
    return made


def enrolled(folder: Path, since: datetime, days: int) -> None:
    """Enrol north with an authority whose clock shows ``since``."""
    ours = Authority.init(folder / "authority", "town", lambda: since)
    request = identities.request(folder / "north", PartyName("town", Role.PROVIDER, "north"))
    identities.install(folder / "north", ours.sign(request, days=days), ours.certificate_pem)


def test_operator_and_party_see_the_same_fingerprint_to_compare(here: Callable[..., Ended], authority: str) -> None:
    assert re.fullmatch(FINGERPRINT, authority)
    assert f"authority {authority}\n" in here("ca", "show", "authority").out
    installed = here("identity", "install", "north", "north.crt")
    assert installed.out.splitlines()[1] == f"authority {authority}"
    assert installed.err.startswith("Compare the authority's fingerprint with ")
    assert here("identity", "show", "north", "--json").facts["authority"] == authority


@pytest.mark.skipif(shutil.which("openssl") is None, reason="compares with openssl")
def test_the_fingerprint_equals_that_of_openssl(here: Callable[..., Ended], authority: str, tmp_path: Path) -> None:
    assert here("ca", "show", "authority", "--json").facts == {"federation": "town", "authority": authority}
    order = ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", "authority/authority.pem"]
    output = subprocess.run(order, cwd=tmp_path, capture_output=True, text=True, check=True).stdout  # noqa: S603  # our own words
    assert output.strip().rpartition("=")[2] == authority


@pytest.mark.parametrize(
    "form", [str, str.lower, lambda output: output.replace(":", ""), lambda output: output.replace(":", " ")]
)
def test_install_accepts_the_fingerprint_in_any_notation(
    form: Callable[[str], str], here: Callable[..., Ended], authority: str
) -> None:
    installed = here("identity", "install", "north", "north.crt", "--authority", form(authority))
    assert (installed.code, installed.err) == (0, "")


def test_install_refuses_an_authority_with_another_fingerprint(
    here: Callable[..., Ended], authority: str, tmp_path: Path
) -> None:
    pretender = here("ca", "init", "elsewhere", "town", "--json").facts["authority"]
    here("ca", "sign", "elsewhere", "north.csr", "--out", "false.crt")
    message = here("identity", "install", "north", "false.crt", "--authority", authority).error_line
    assert message.startswith(f"The certificate comes with another authority, {pretender}. Do not install it")
    assert not (tmp_path / "north" / "identity.pem").exists()
    assert here("identity", "install", "north", "north.crt", "--authority", authority).code == 0


@pytest.mark.parametrize("text", ["AB", "x" * 64, "AB:" * 31])
def test_install_refuses_a_partial_fingerprint(text: str, here: Callable[..., Ended]) -> None:
    message = here("identity", "install", "north", "north.crt", "--authority", text).error_line
    assert re.search("not an authority's fingerprint.*`dpspca ca show`", message)


@pytest.mark.usefixtures("authority")
def test_a_renewal_does_not_ask_to_compare_a_known_authority(here: Callable[..., Ended]) -> None:
    here("identity", "install", "north", "north.crt")
    here("identity", "renew", "north", "--out", "again.csr")
    here("ca", "sign", "authority", "again.csr", "--out", "again.crt")
    assert here("identity", "install", "north", "again.crt").err == ""


@pytest.mark.usefixtures("authority")
def test_errors_name_the_missing_step(here: Callable[..., Ended], tmp_path: Path) -> None:
    assert here("identity", "show", "north").error_line == (
        "There is no certificate in north yet. Install what the operator signed with `dpspca identity install`."
    )
    (tmp_path / "empty").mkdir(mode=0o700)
    asked = "Make one with `dpspca identity request`, and have it signed."
    assert here("identity", "show", "empty").error_line == f"There is no certificate in empty yet. {asked}"
    missing = "No request in {} waits for a certificate. "
    assert here("identity", "install", "empty", "north.crt").error_line == missing.format("empty") + asked
    here("identity", "install", "north", "north.crt")
    again = here("identity", "install", "north", "north.crt").error_line
    assert again.startswith(missing.format("north") + "To renew the certificate, make one with `dpspca identity renew`")


@pytest.mark.usefixtures("authority")
@pytest.mark.parametrize("name", ["identity.pem", "waiting.pem"])
def test_an_identity_file_with_other_content_is_named_by_path(
    name: str, here: Callable[..., Ended], tmp_path: Path
) -> None:
    (tmp_path / "north" / name).write_bytes(b"nonsense")
    (tmp_path / "north" / name).chmod(0o600)
    order = ("show", "north") if name == "identity.pem" else ("install", "north", "north.crt")
    message = here("identity", *order).error_line
    assert message.startswith(
        f"north/{name} does not hold the expected PEM blocks. Restore it from a backup, or move it away"
    )


@pytest.mark.parametrize(
    ("since", "days", "message", "in_force"),
    [
        (-3, 1, "EXPIRED at ", False),
        (3, 1, "NOT YET VALID: ", False),
        (-3, 30, "valid until ", True),
    ],
)
def test_identity_show_reports_whether_the_certificate_is_in_force(
    *, since: int, days: int, message: str, in_force: bool, here: Callable[..., Ended], tmp_path: Path
) -> None:
    enrolled(tmp_path, datetime.now(UTC) + timedelta(days=since), days)
    shown = here("identity", "show", "north")
    assert shown.out.startswith(f"{NORTH} {message}")
    assert here("identity", "show", "north", "--json").facts["in_force"] is in_force


def test_doctor_reports_a_clock_behind_the_certificate(here: Callable[..., Ended], tmp_path: Path) -> None:
    enrolled(tmp_path, datetime.now(UTC) + timedelta(days=3), 30)
    (tmp_path / "north.toml").write_text(
        'coordinator = "127.0.0.1:1"\nidentity = "north"\nrevocations = "revoked.pem"\npolicy = "policy.toml"\n'
        '[data_sets]\ncohort = "rows.csv"\n'
    )
    checks = json.loads(here("doctor", "--config", "north.toml", "--json").out)["checks"]
    (clock,) = [each for each in checks if each["name"] == "clock"]
    assert clock["passed"] is False
    assert clock["details"].endswith("Set the clock.")


@pytest.mark.usefixtures("authority")
def test_t32_a_party_is_enrolled_once_and_the_error_says_what_to_do(here: Callable[..., Ended], tmp_path: Path) -> None:
    (first,) = here("ca", "list", "authority", "--json").facts["certificates"]
    again = here("ca", "sign", "authority", "north.csr", "--out", "same.crt")
    assert again.err.startswith("This request was signed before. The certificate is the same")
    assert (tmp_path / "same.crt").read_bytes() == (tmp_path / "north.crt").read_bytes()
    here("identity", "request", "pretender", NORTH, "--out", "pretender.csr")
    taken = here("ca", "sign", "authority", "pretender.csr", "--out", "again.crt").error_line
    assert taken.startswith(f"{NORTH} is already enrolled, with serial number {first['serial']}, and")
    assert "the party runs `dpspca identity renew`" in taken
    assert not (tmp_path / "again.crt").exists()
    assert here("ca", "list", "authority", "--json").facts["certificates"] == [first]
    here("ca", "revoke", "authority", NORTH)
    anew = here("ca", "sign", "authority", "pretender.csr", "--out", "anew.crt", "--json")
    assert (anew.code, anew.facts["others"]) == (0, [])
    assert anew.err.startswith(f"{NORTH} had certificates before. The last was revoked on 20")
    nothing = here("ca", "revoke", "authority", "north").error_line
    assert "Give a serial number or a full name as `dpspca ca list` shows it" in nothing


@pytest.mark.usefixtures("authority")
def test_signing_a_renewal_lists_the_earlier_certificates(here: Callable[..., Ended]) -> None:
    (first,) = here("ca", "list", "authority", "--json").facts["certificates"]
    here("identity", "install", "north", "north.crt")
    here("identity", "renew", "north", "--out", "again.csr")
    signed = here("ca", "sign", "authority", "again.csr", "--out", "again.crt", "--json")
    assert signed.facts["others"] == [first["serial"]]
    assert signed.err.startswith(f"This renews {NORTH}. Its earlier certificates stay valid")
    assert here("identity", "install", "north", "again.crt").code == 0


@pytest.mark.usefixtures("authority")
def test_a_renewal_after_expiry_is_signed_and_named_a_renewal(here: Callable[..., Ended], tmp_path: Path) -> None:
    enrolled(tmp_path / "past", datetime.now(UTC) - timedelta(days=9), 1)
    here("identity", "renew", "past/north", "--out", "late.csr")
    signed = here("ca", "sign", "past/authority", "late.csr", "--out", "late.crt")
    assert signed.err.startswith(f"This renews {NORTH}, whose last certificate ended on 20")


def test_t32_a_request_with_an_expired_certificate_is_refused(here: Callable[..., Ended], tmp_path: Path) -> None:
    since = datetime.now(UTC) - timedelta(days=9)
    ours = Authority.init(tmp_path / "authority", "town", lambda: since)
    here("identity", "request", "north", NORTH, "--out", "north.csr")
    ours.sign((tmp_path / "north.csr").read_bytes(), days=1)
    (entry,) = ours.list()
    late = here("ca", "sign", "authority", "north.csr", "--out", "north.crt")
    assert late.error_line.startswith(
        f"This request was signed before: the certificate of {NORTH} with serial number {entry.serial} expired at "
        f"{entry.until:%Y-%m-%d %H:%M} UTC, and its key gets no other. If the party has installed"
    )
    assert not (tmp_path / "north.crt").exists()
    assert f"`dpspca ca revoke {NORTH}`" in late.error_line
    here("ca", "revoke", "authority", NORTH)
    here("identity", "request", "anew", NORTH, "--out", "anew.csr")
    assert here("ca", "sign", "authority", "anew.csr", "--out", "anew.crt").code == 0
    assert here("identity", "install", "anew", "anew.crt").code == 0


@pytest.mark.usefixtures("authority")
def test_sign_refuses_a_file_that_is_no_request(here: Callable[..., Ended], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csr")
    assert here("ca", "sign", "authority", "pipe.csr", "--out", "x.crt").error_line.startswith("pipe.csr is not a requ")
    message = here("ca", "sign", "authority", "north.crt", "--out", "x.crt").error_line
    assert message.startswith("north.crt is not a request from `dpspca identity request`.")


@pytest.mark.usefixtures("authority")
def test_an_unreadable_revocation_list_is_named_by_path(here: Callable[..., Ended], tmp_path: Path) -> None:
    here("identity", "install", "north", "north.crt")
    (tmp_path / "revoked.pem").write_text("nonsense")
    (tmp_path / "north.toml").write_text(
        'coordinator = "127.0.0.1:1"\nidentity = "north"\nrevocations = "revoked.pem"\npolicy = "policy.toml"\n'
        '[data_sets]\ncohort = "rows.csv"\n'
    )
    message = here("provider", "start", "--config", "north.toml").error_line
    assert message.startswith("revoked.pem: The revocation list cannot be read. ")
    checks = json.loads(here("doctor", "--config", "north.toml", "--json").out)["checks"]
    assert any(message in each["details"] for each in checks)
