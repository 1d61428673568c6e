"""Enrolment by files: whom a party trusts, and the errors for missing steps that a party and the operator see."""

import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from commands import Ended, commands_in
from facts import names_facts
from organisations import Organisation

from dpspca.client.enrolment import renewal
from dpspca.common.names import PartyName, Role
from dpspca.common.storage import Study
from dpspca.common.trust import identity as identities
from dpspca.common.trust.authority import Authority

NORTH = "dpspca://town/provider/north"
FINGERPRINT = r"([0-9A-F]{2}:){31}[0-9A-F]{2}"
STUDY = """
federation = "town"
coordinator = "hub"
address = "127.0.0.1:7443"
providers = ["north", "south"]
analysts = ["ada"]
analyst_days = 1
"""
INVITATION = "authority/invitations/provider-north.invitation"
POST = ("--exchange", "post")

Here = Callable[..., Ended]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    return commands_in(tmp_path, monkeypatch, capfd)


@pytest.fixture
def authority(here: Here, tmp_path: Path) -> str:
    """Found a federation whose parties exchange files, and return the authority's fingerprint."""
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "post").mkdir()
    return str(here("study", "init", "study.toml", "--json").facts["authority"])


def join(here: Here, *more: str, invitation: str = INVITATION, folder: str = "north") -> Ended:
    return here("join", invitation, "--folder", folder, *POST, "--no-wait", *more)


def sign(here: Here) -> Ended:
    return here("study", "sign", *POST, "--yes", "--json")


def outcomes(ended: Ended) -> dict[str, tuple[str, str | None]]:
    return {each["name"]: (each["outcome"], each["problem"]) for each in json.loads(ended.out)["requests"]}


@pytest.fixture
def enrolled(here: Here, authority: str) -> str:
    """Enrol north, and return the authority's fingerprint."""
    join(here)
    assert sign(here).code == 0
    assert join(here, "--json").facts["joined"]
    return authority


def identity_of(folder: Path, since: datetime, days: int) -> None:
    """Enrol north with an authority whose clock shows ``since``."""
    ours = Authority.init(folder / "authority", "town", lambda: since)
    request = identities.request(folder / "north", PartyName("town", Role.PROVIDER, "north"))
    identities.install(folder / "north", ours.sign(request, days=days), ours.certificate_pem)


# --- The way of files -------------------------------------------------------------------------------------------------


def test_five_parties_enrol_by_files_with_one_signing(here: Here, authority: str, tmp_path: Path) -> None:
    invitations = sorted((tmp_path / "authority" / "invitations").iterdir())
    assert [path.stem for path in invitations] == ["analyst-ada", "coordinator-hub", "provider-north", "provider-south"]
    keys = {}
    for path in invitations:
        waiting = join(here, "--json", invitation=str(path), folder=path.stem).facts
        assert (waiting["joined"], waiting["authority"]) == (False, authority)
        keys[waiting["name"]] = waiting["key"]
    signed = sign(here).facts["requests"]
    assert {each["name"]: each["key"] for each in signed} == keys
    assert {each["name"]: each["days"] for each in signed}["dpspca://town/analyst/ada"] == 1
    for path in invitations:
        joined = join(here, "--json", invitation=str(path), folder=path.stem).facts
        assert joined["joined"]
        assert here("config", "check", joined["settings"]).code == ("provider" in path.stem), "no data sets yet"
    assert not list((tmp_path / "post").glob("*.request"))
    assert [each["outcome"] for each in sign(here).facts["requests"]] == []


@pytest.mark.usefixtures("authority")
def test_a_request_that_cannot_be_written_can_be_made_again(here: Here, tmp_path: Path) -> None:
    (tmp_path / "in-the-way").write_text("")
    order = ("join", INVITATION, "--folder", "north", "--no-wait", "--exchange")
    failed = here(*order, "in-the-way/post")
    assert (failed.code, "in-the-way" in failed.err) == (2, True)
    assert here(*order, "post").code == 0


@pytest.mark.usefixtures("authority")
def test_keys_and_secrets_of_invitations_never_leave_their_machines(here: Here, tmp_path: Path) -> None:
    join(here)
    sign(here)
    join(here)
    sent = b"".join(path.read_bytes() for path in (tmp_path / "post").iterdir())
    assert b"PRIVATE KEY" not in sent
    secret = (tmp_path / INVITATION).read_bytes().split(b"-----")[2]
    assert not any(line and line in sent for line in secret.split())
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "north" / "identity").iterdir()}
    assert modes | {(tmp_path / INVITATION).stat().st_mode & 0o077} == {0}


@pytest.mark.usefixtures("authority")
def test_the_settings_that_join_writes_name_the_given_data_sets(here: Here, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    join(here)
    sign(here)
    joined = join(here, "--data-set", "cohort=rows.csv", "--policy", "rules.toml", "--json").facts
    written = (tmp_path / joined["settings"]).read_text()
    assert f'cohort = "{tmp_path}/rows.csv"' in written
    assert 'policy = "rules.toml"' in written
    assert here("config", "check", joined["settings"]).code == 0
    (tmp_path / joined["settings"]).write_text("# mine\n")
    again = join(here).out
    assert names_facts(again, joined["settings"])
    assert (tmp_path / joined["settings"]).read_text() == "# mine\n"
    assert f"dpspca data check --config {joined['settings']}" in again
    refused = join(here, "--data-set", "cohort")
    assert "names no file" in refused.error_line


@pytest.mark.usefixtures("authority")
def test_signing_asks_first_and_signs_nothing_without_a_yes(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join(here)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = here("study", "sign", *POST)
    assert asked.code == 2
    assert "enrols" in asked.out
    assert "Sign 1? [y/N]" in asked.err
    assert not list((tmp_path / "post").glob("*.certificate"))
    assert here("study", "show", "--json").facts["certificates"] == []


def test_a_study_without_a_mailbox_says_how_files_travel(here: Here, authority: str) -> None:
    assert "--exchange" in here("join", INVITATION).error_line
    assert "--exchange" in here("study", "sign").error_line
    assert authority


@pytest.mark.usefixtures("enrolled")
def test_joining_again_with_the_same_invitation_changes_nothing(here: Here, tmp_path: Path) -> None:
    before = (tmp_path / "north" / "identity" / "identity.pem").read_bytes()
    assert join(here, "--json").facts["joined"]
    assert (tmp_path / "north" / "identity" / "identity.pem").read_bytes() == before
    other = join(here, invitation="authority/invitations/provider-south.invitation")
    assert other.error_line.startswith("north belongs to dpspca://town/provider/north already.")


@pytest.mark.usefixtures("enrolled")
def test_a_new_invitation_wants_a_new_folder_after_a_revocation(here: Here) -> None:
    assert here("study", "revoke", "provider/north", *POST, "--yes").code == 0
    (anew,) = here("study", "invite", "provider/north", "--json").facts["invitations"]
    refused = join(here, invitation=anew["file"])
    assert (refused.code, "--folder" in refused.error_line) == (2, True)
    waiting = join(here, invitation=anew["file"], folder="anew")
    assert (waiting.code, "another one" in waiting.err) == (0, False), "the mailbox still has the revoked certificate"
    assert sign(here).code == 0
    assert join(here, "--json", invitation=anew["file"], folder="anew").facts["joined"]


@pytest.mark.usefixtures("enrolled")
def test_join_does_not_call_a_revoked_party_joined(here: Here, tmp_path: Path) -> None:
    assert here("study", "revoke", "provider/north", *POST, "--yes").code == 0
    (tmp_path / "north" / "revoked.pem").write_bytes((tmp_path / "post" / "revoked.pem").read_bytes())
    refused = join(here)
    assert (refused.code, names_facts(refused.error_line, "revoked", "--folder")) == (2, True)


# --- Whom a party and the operator trust ------------------------------------------------------------------------------


def test_operator_and_party_see_the_same_fingerprint_to_compare(here: Here, enrolled: str) -> None:
    assert re.fullmatch(FINGERPRINT, enrolled)
    assert f"authority {enrolled}\n" in here("study", "show").out
    assert here("identity", "show", "north/identity", "--json").facts["authority"] == enrolled


@pytest.mark.skipif(shutil.which("openssl") is None, reason="compares with openssl")
def test_the_fingerprint_equals_that_of_openssl(authority: str, tmp_path: Path) -> None:
    order = ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", "authority/authority.pem"]
    output = subprocess.run(order, cwd=tmp_path, capture_output=True, text=True, check=True).stdout  # noqa: S603  # our own words
    assert output.strip().rpartition("=")[2] == authority


@pytest.mark.parametrize(
    "form", [str, str.lower, lambda output: output.replace(":", ""), lambda output: output.replace(":", " ")]
)
def test_join_accepts_the_fingerprint_in_any_notation(form: Callable[[str], str], here: Here, authority: str) -> None:
    assert join(here, "--fingerprint", form(authority)).code == 0


def test_join_refuses_an_invitation_of_another_authority(here: Here, authority: str, tmp_path: Path) -> None:
    pretender = here("study", "init", "study.toml", "--authority", "elsewhere", "--json").facts["authority"]
    false = "elsewhere/invitations/provider-north.invitation"
    message = join(here, "--fingerprint", authority, invitation=false).error_line
    assert message.startswith(f"The invitation comes from another authority, {pretender}. Do not use it")
    assert not (tmp_path / "north").exists()


@pytest.mark.parametrize("text", ["AB", "x" * 64, "AB:" * 31])
@pytest.mark.usefixtures("authority")
def test_join_refuses_a_partial_fingerprint(text: str, here: Here) -> None:
    message = join(here, "--fingerprint", text).error_line
    assert re.search("not an authority's fingerprint.*`dpspca study show`", message)


@pytest.mark.usefixtures("authority")
def test_t44_a_certificate_of_another_authority_is_ignored(here: Here, tmp_path: Path) -> None:
    """The mailbox brings a certificate for the right key and name, signed by somebody else."""
    join(here)
    here("study", "init", "study.toml", "--authority", "elsewhere")
    (request,) = (tmp_path / "post").glob("*.request")
    elsewhere = Authority.open(tmp_path / "elsewhere", lambda: datetime.now(UTC))
    false = elsewhere.sign(request.read_bytes()) + elsewhere.certificate_pem + elsewhere.revocation_list()
    request.with_suffix(".certificate").write_bytes(false)
    waiting = join(here, "--json")
    assert waiting.facts["joined"] is False
    assert "not" in waiting.err
    assert not (tmp_path / "north" / "identity" / "identity.pem").exists()
    assert sign(here).code == 0
    assert join(here, "--json").facts["joined"]


@pytest.mark.usefixtures("enrolled")
def test_t44_a_replayed_certificate_and_request_are_ignored(here: Here, tmp_path: Path) -> None:
    """The old certificate cannot take the place of a renewed one; the old request gets nothing new."""
    (old,) = (tmp_path / "post").glob("*.certificate")
    replayed = old.read_bytes()
    (tmp_path / "north" / "provider.toml").write_text(
        'coordinator = "127.0.0.1:1"\nidentity = "identity"\nrevocations = "revoked.pem"\npolicy = "policy.toml"\n'
        '[data_sets]\ncohort = "rows.csv"\n'
    )
    renew = ("identity", "renew", "--config", "north/provider.toml", *POST, "--no-wait", "--json")
    begun = here(*renew)
    assert begun.facts["renewed"] is False
    assert "another one" not in begun.err, "the mailbox has the certificate that is renewed"
    (request,) = (tmp_path / "post").glob("*.request")
    first_renewal = request.read_bytes()
    assert outcomes(sign(here)) == {NORTH: ("renews", None)}
    old.write_bytes(replayed)
    assert here(*renew).facts["renewed"] is False
    assert outcomes(sign(here)) == {NORTH: ("signed before", None)}
    assert "until" in here(*renew).facts
    request.write_bytes(first_renewal)
    count = len(here("study", "show", "--json").facts["certificates"])
    assert outcomes(sign(here)) == {NORTH: ("signed before", None)}
    assert len(here("study", "show", "--json").facts["certificates"]) == count == 2


@pytest.mark.usefixtures("enrolled")
def test_a_timer_renews_if_due_and_installs_what_came(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "north" / "provider.toml").write_text(
        'coordinator = "127.0.0.1:1"\nidentity = "identity"\nrevocations = "revoked.pem"\npolicy = "policy.toml"\n'
        '[data_sets]\ncohort = "rows.csv"\n'
    )
    due = ("identity", "renew", "--config", "north/provider.toml", *POST, "--if-due", "--json")
    requests = list((tmp_path / "post").glob("*.request"))
    until = here(*due).facts["until"]
    assert list((tmp_path / "post").glob("*.request")) == requests
    later = datetime.now(UTC) + timedelta(days=21)  # of 30
    monkeypatch.setattr(renewal, "now", lambda: later)
    assert here(*due).facts == {"renewed": False, "until": until, "problems": []}
    assert outcomes(sign(here)) == {NORTH: ("renews", None)}
    by_hand = tmp_path / "north" / "copy.pem"
    newest = Authority.open(tmp_path / "authority", lambda: datetime.now(UTC)).revocation_list()
    by_hand.write_bytes(newest)
    renewed = here(*due, "--revocations", "north/copy.pem").facts
    assert by_hand.read_bytes() == newest != (tmp_path / "north" / "revoked.pem").read_bytes()
    assert renewed["renewed"]
    assert here(*due, "--revocations", "north/new.pem").facts["problems"] == []
    assert (tmp_path / "north" / "new.pem").read_bytes() == (tmp_path / "north" / "revoked.pem").read_bytes()
    assert renewed["until"] >= until


@pytest.mark.usefixtures("enrolled")
def test_a_renewal_brings_a_copy_of_the_list_up_to_date_too(here: Here, tmp_path: Path) -> None:
    (tmp_path / "north" / "provider.toml").write_text(
        'coordinator = "127.0.0.1:1"\nidentity = "identity"\nrevocations = "revoked.pem"\npolicy = "policy.toml"\n'
        '[data_sets]\ncohort = "rows.csv"\n'
    )
    copied, own = tmp_path / "copy.pem", tmp_path / "north" / "revoked.pem"
    before = own.read_bytes()
    copied.write_bytes(before)
    renew = ("identity", "renew", "--config", "north/provider.toml", *POST, "--no-wait", "--revocations", "copy.pem")
    assert here(*renew, "--json").facts["renewed"] is False
    assert copied.read_bytes() == before
    sign(here)
    assert here(*renew).code == 0
    assert copied.read_bytes() == own.read_bytes() != before


@pytest.mark.usefixtures("authority")
def test_t44_an_impostor_without_an_invitation_is_not_signed(here: Here, tmp_path: Path) -> None:
    party = PartyName("town", Role.PROVIDER, "north")
    (tmp_path / "post" / "mine.request").write_bytes(identities.request(tmp_path / "impostor", party))
    signed = sign(here)
    assert signed.code == 1
    (outcome, problem) = outcomes(signed)[NORTH]
    assert outcome == "refused"
    assert problem
    assert names_facts(problem, NORTH, "no invitation", f"`dpspca study invite {NORTH}`")
    assert here("study", "show", "--json").facts["certificates"] == []


@pytest.mark.usefixtures("authority")
def test_t44_two_keys_that_ask_with_one_invitation_are_both_refused(here: Here, tmp_path: Path) -> None:
    join(here, folder="thief")
    (stolen,) = (tmp_path / "post").glob("*.request")
    stolen.rename(tmp_path / "post" / "thief.request")
    join(here)
    signed = sign(here)
    assert signed.code == 1
    assert [each["outcome"] for each in json.loads(signed.out)["requests"]] == ["refused", "refused"]
    assert here("study", "show", "--json").facts["certificates"] == []


@pytest.mark.usefixtures("enrolled")
def test_t44_a_stolen_invitation_is_not_used_twice_and_says_what_to_do(here: Here) -> None:
    join(here, folder="thief")
    signed = sign(here)
    assert signed.code == 1
    _, problem = outcomes(signed)[NORTH]
    assert problem
    (used,) = here("study", "show", "--json").facts["certificates"]
    assert names_facts(problem, used["serial"], f"`dpspca study revoke {NORTH}`")
    assert here("study", "revoke", "provider/north", *POST, "--yes").code == 0
    assert names_facts(str(outcomes(sign(here))[NORTH][1]), used["serial"])
    anew = here("study", "invite", "provider/north", "--json").facts["invitations"]
    join(here, invitation=anew[0]["file"], folder="anew")
    both = [(each["name"], each["outcome"]) for each in json.loads(sign(here).out)["requests"]]
    assert sorted(both) == [(NORTH, "enrols"), (NORTH, "refused")]
    assert join(here, "--json", invitation=anew[0]["file"], folder="anew").facts["joined"]


@pytest.mark.usefixtures("enrolled")
def test_an_enrolled_party_is_not_invited_again(here: Here) -> None:
    message = here("study", "invite", "provider/north").error_line
    assert message.startswith(f"{NORTH} is enrolled already")
    assert f"dpspca study revoke {NORTH}" in message


@pytest.mark.usefixtures("enrolled")
def test_revoking_delivers_the_list_and_names_unknown_parties(here: Here, tmp_path: Path) -> None:
    before = (tmp_path / "post" / "revoked.pem").read_bytes()
    unknown = here("study", "revoke", "provider/west", *POST).error_line
    assert names_facts(unknown, "'dpspca://town/provider/west'", "`dpspca study show`")
    (revoked,) = here("study", "revoke", "provider/north", *POST, "--json", "--yes").facts["revoked"]
    assert revoked["name"] == NORTH
    assert (tmp_path / "post" / "revoked.pem").read_bytes() != before
    assert here("study", "publish", "--out", "list.pem").code == 0
    assert "X509 CRL" in (tmp_path / "list.pem").read_text()


@pytest.mark.usefixtures("enrolled")
def test_revoking_asks_first_and_revokes_nothing_without_a_yes(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    (held,) = here("study", "show", "--json").facts["certificates"]
    refused = here("study", "revoke", "provider/north", *POST)
    assert (refused.code, names_facts(refused.err, NORTH, held["serial"], "[y/N]", "--yes")) == (2, True)
    assert here("study", "show", "--json").facts["certificates"] == [held]
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert here("study", "revoke", "provider/north", *POST).code == 0
    assert here("study", "show", "--json").facts["certificates"][0]["revoked"]


@pytest.mark.parametrize("name", ["north", "provider/nroth", "analyst/north"])
@pytest.mark.usefixtures("enrolled")
def test_the_party_that_was_meant_is_named_with_its_role(name: str, here: Here) -> None:
    assert names_facts(here("study", "revoke", name, *POST, "--yes").error_line, "'provider/north'")


def test_an_organisation_s_ca_vouches_for_the_authority(here: Here, tmp_path: Path) -> None:
    """The authority asks the CA, and a party that knows the CA refuses every other authority."""
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "post").mkdir()
    organisation, other = (Organisation(datetime.now(UTC)) for _ in range(2))
    (tmp_path / "ca.pem").write_bytes(organisation.pem)
    (tmp_path / "other.pem").write_bytes(other.pem)
    assert here("study", "init", "study.toml", "--ca-request", "authority.csr").code == 0
    assert not (tmp_path / "authority" / "authority.pem").exists()
    (tmp_path / "authority.crt").write_bytes(organisation.sign((tmp_path / "authority.csr").read_bytes()))
    refused = here("study", "certify", "authority.crt", "--root", "other.pem")
    assert names_facts(refused.error_line, "'CN=town'")
    invited = here("study", "certify", "authority.crt", "--root", "ca.pem", "--json").facts["invitations"]
    assert len(invited) == 4
    assert names_facts(join(here, "--root", "other.pem").error_line, "'CN=town'")
    assert not (tmp_path / "north").exists()
    join(here, "--root", "ca.pem")
    assert sign(here).code == 0
    assert join(here, "--json").facts["joined"]


# --- Errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("show",), ("sign", *POST), ("revoke", "provider/north"), ("publish",)])
def test_a_study_without_an_authority_names_how_to_create_it(command: tuple[str, ...], here: Here) -> None:
    assert names_facts(here("study", *command).error_line, "authority", "`dpspca study init`", "--authority")


@pytest.mark.usefixtures("authority")
def test_errors_name_the_missing_step(here: Here, tmp_path: Path) -> None:
    join(here)
    waiting = here("identity", "show", "north/identity").error_line
    assert names_facts(waiting, "north/identity", "`dpspca join`", "same invitation")
    (tmp_path / "empty").mkdir(mode=0o700)
    unasked = here("identity", "show", "empty").error_line
    assert names_facts(unasked, "empty", "`dpspca join`")
    assert "same invitation" not in unasked
    (tmp_path / "not.invitation").write_text("hello")
    assert names_facts(join(here, invitation="not.invitation").error_line, "not.invitation", "0 invitations")


@pytest.mark.usefixtures("authority")
@pytest.mark.parametrize("name", ["identity.pem", "waiting.pem"])
def test_an_identity_file_with_other_content_is_named_by_path(name: str, here: Here, tmp_path: Path) -> None:
    join(here)
    (tmp_path / "north" / "identity" / name).write_bytes(b"nonsense")
    (tmp_path / "north" / "identity" / name).chmod(0o600)
    assert join(here).error_line.startswith(
        f"north/identity/{name} does not hold the expected PEM blocks. Restore it from a backup."
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('federation = "town"\n', "lacks address, analysts, coordinator, providers"),
        (STUDY + "mail_box = 1\n", "'mailbox'"),
        (STUDY + 'mailbox = "127.0.0.1:7443"\n', "port of its own"),
        (STUDY.replace("7443", "0"), "fixed port"),
        (STUDY.replace('"north", "south"', '"north", "north"'), "each of them once"),
        (STUDY.replace('"ada"', '"Ada"'), "a-z"),
        (STUDY + "certificate_days = 91\n", "1 to 90"),
        (STUDY.replace('["ada"]', '"ada"'), "in brackets"),
    ],
)
def test_a_mistake_in_a_study_file_is_named_and_founds_nothing(
    content: str, message: str, here: Here, tmp_path: Path
) -> None:
    (tmp_path / "study.toml").write_text(content)
    assert message in here("study", "init", "study.toml").error_line
    assert not (tmp_path / "authority").exists()


def test_the_sample_of_a_study_is_a_study(tmp_path: Path, here: Here) -> None:
    (tmp_path / "study.toml").write_text(here("config", "sample", "study").out)
    read = Study.read(tmp_path / "study.toml")
    assert [party.name for party in read.parties] == ["hub", "north", "south", "east", "ada"]
    assert read.certificate_days == read.analyst_days == 30


@pytest.mark.parametrize(
    ("since", "days", "message", "in_force"),
    [
        (-3, 1, "EXPIRED at ", False),
        (3, 1, "NOT YET VALID: ", False),
        (-3, 30, "valid until ", True),
    ],
)
def test_identity_show_reports_whether_the_certificate_is_in_force(
    *, since: int, days: int, message: str, in_force: bool, here: Here, tmp_path: Path
) -> None:
    identity_of(tmp_path, datetime.now(UTC) + timedelta(days=since), days)
    shown = here("identity", "show", "north")
    assert shown.out.startswith(f"{NORTH} {message}")
    assert here("identity", "show", "north", "--json").facts["in_force"] is in_force


def test_doctor_reports_a_clock_behind_the_certificate(here: Here, tmp_path: Path) -> None:
    identity_of(tmp_path, datetime.now(UTC) + timedelta(days=3), 30)
    (tmp_path / "north.toml").write_text(
        'coordinator = "127.0.0.1:1"\nidentity = "north"\nrevocations = "revoked.pem"\npolicy = "policy.toml"\n'
        '[data_sets]\ncohort = "rows.csv"\n'
    )
    checks = json.loads(here("doctor", "--config", "north.toml", "--json").out)["checks"]
    (clock,) = [each for each in checks if each["name"] == "clock"]
    assert clock["passed"] is False
    assert clock["details"].endswith("Set the clock.")


def test_an_unreadable_revocation_list_is_named_by_path(here: Here, tmp_path: Path) -> None:
    identity_of(tmp_path, datetime.now(UTC), 30)
    (tmp_path / "revoked.pem").write_text("nonsense")
    (tmp_path / "north.toml").write_text(
        'coordinator = "127.0.0.1:1"\nidentity = "north"\nrevocations = "revoked.pem"\npolicy = "policy.toml"\n'
        '[data_sets]\ncohort = "rows.csv"\n'
    )
    message = here("provider", "start", "--config", "north.toml").error_line
    assert message.startswith("revoked.pem: The revocation list cannot be read. ")
    checks = json.loads(here("doctor", "--config", "north.toml", "--json").out)["checks"]
    assert any(message in each["details"] for each in checks)
