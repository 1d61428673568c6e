"""Commands report in one line what is missing, expired, unreadable or open to others, and what to do."""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from commands import Ended, commands_in
from dishonest_peers import reissued
from facts import names_facts
from local_federation import Enrolment, now, permissive_policy

from dpspca.common.names import Role
from dpspca.common.storage import files
from dpspca.common.trust.identity import IDENTITY_FILE

JOB = "--components 2 --sparsity 4 --norm-bound 12 --unit row-replace-one --epsilon 4 --delta 1e-6 --centering none"
PARTIES = {"hub": Role.COORDINATOR, "north": Role.PROVIDER, "ada": Role.ANALYST}
NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def enrolment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a federation that does not run. Each party also has an identity that has expired."""
    found = Enrolment.create(tmp_path_factory.mktemp("town"))
    folder = found.folder
    (folder / "revoked.pem").write_bytes(found.authority.revocation_list())
    np.save(folder / "rows.npy", np.eye(4))
    (folder / "policy.toml").write_text(permissive_policy())
    for name, role in PARTIES.items():
        true = found.identity(role, name)
        old = reissued(found, true, since=now() - timedelta(days=3))
        (folder / f"old-{role}-{name}").mkdir(mode=0o700)
        whole = old.key_pem + old.certificate_pem + old.authority_pem
        files.create(folder / f"old-{role}-{name}" / IDENTITY_FILE, whole)
        for age in ("", "old-"):
            (folder / f"{age}{name}.toml").write_text(settings(role, f"{age}{role}-{name}"))
    return folder


def settings(role: Role, identity: str, address: str = NOBODY) -> str:
    where = "listen" if role is Role.COORDINATOR else "coordinator"
    common = f'{where} = "{address}"\nidentity = "{identity}"\n'
    if role is Role.ANALYST:
        return common
    return f'{common}revocations = "revoked.pem"\n' + (
        'policy = "policy.toml"\n[data_sets]\ncohort = "rows.npy"\n' * (role is Role.PROVIDER)
    )


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], enrolment: Path) -> Callable[..., Ended]:
    return commands_in(enrolment, monkeypatch, capfd)


@pytest.mark.parametrize(("name", "key"), [("hub", "listen"), ("north", "coordinator"), ("ada", "coordinator")])
def test_port_0_is_refused_with_the_name_of_the_key(
    name: str, key: str, here: Callable[..., Ended], enrolment: Path
) -> None:
    role = PARTIES[name]
    (enrolment / "port-0.toml").write_text(settings(role, f"{role}-{name}", "127.0.0.1:0"))
    health = here("health", "--config", "port-0.toml")
    assert health.code == 1
    assert health.out.startswith(f"{key} is 127.0.0.1:0, but port 0 cannot be connected to. ")
    (port,) = here("doctor", "--config", "port-0.toml").failed_checks
    assert health.out.startswith(port.partition("port: ")[2])


@pytest.mark.parametrize(
    ("command", "program"), [("coordinator start", "hub"), ("provider start", "north"), ("jobs list", "ada")]
)
def test_commands_refuse_an_expired_certificate_with_the_remedy(
    command: str, program: str, here: Callable[..., Ended]
) -> None:
    message = here(*command.split(), "--config", f"old-{program}.toml").error_line
    assert message.startswith("The certificate of dpspca://town/")
    assert "Renew it" in message


def test_health_and_doctor_report_an_expired_certificate(here: Callable[..., Ended]) -> None:
    health = here("health", "--config", "old-north.toml")
    assert health.code == 1
    assert re.match(r"The certificate of \S+ expired at .* Renew it", health.out)
    certificate, port = here("doctor", "--config", "old-north.toml").failed_checks
    assert names_facts(certificate, "certificate", "expired")
    assert names_facts(port, "port", "127.0.0.1:1", os.strerror(errno.ECONNREFUSED))


@pytest.mark.parametrize(
    ("role", "other"),
    [
        (Role.COORDINATOR, "analyst/ada"),
        (Role.COORDINATOR, "provider/north"),
        (Role.PROVIDER, "analyst/ada"),
        (Role.PROVIDER, "coordinator/hub"),
    ],
)
def test_an_identity_of_another_role_is_refused_at_start_and_check(
    role: Role, other: str, here: Callable[..., Ended], enrolment: Path
) -> None:
    (enrolment / "other-role.toml").write_text(settings(role, other.replace("/", "-")))
    refused = here(role, "start", "--config", "other-role.toml").error_line
    assert refused.startswith(f"dpspca://town/{other} does not have the role {role}. ")
    checked = here("config", "check", "other-role.toml", "--json")
    assert checked.code == 1
    assert json.loads(checked.out)["problems"] == [f"other-role.toml: identity: {refused}"]


@pytest.mark.parametrize("name", PARTIES)
def test_config_check_accepts_the_right_identity_and_a_missing_one(
    name: str, here: Callable[..., Ended], enrolment: Path
) -> None:
    assert here("config", "check", f"{name}.toml").code == 0
    (enrolment / "early.toml").write_text(settings(PARTIES[name], "none-yet"))
    assert here("config", "check", "early.toml").code == 0


STATES: dict[str, tuple[str, int, int, str]] = {
    "no identity": ("nowhere", 0o700, 0o600, "nowhere cannot be used: No such file or directory. Check the path"),
    "nobody there": ("copy", 0o700, 0o600, "The coordinator cannot be reached (UNAVAILABLE"),
    "an open folder": (
        "copy",
        0o750,
        0o600,
        "copy is not a folder that only this user can use. Become its owner and run `chmod 700 copy`.",
    ),
    "an open key": ("copy", 0o700, 0o640, "Other users can read copy/identity.pem, or own it. Run `chmod 600"),
}
"""Which identity is named, the modes of its folder and file, and what is said."""
COMMANDS = ["jobs list", "datasets", "jobs watch abc", f"run {JOB} --data-set cohort"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("identity", "folder", "file", "message"), STATES.values(), ids=STATES.keys())
def test_errors_for_an_analyst_are_one_line_with_a_remedy(
    identity: str, folder: int, file: int, message: str, command: str, here: Callable[..., Ended], enrolment: Path
) -> None:
    shutil.rmtree(enrolment / "copy", ignore_errors=True)
    shutil.copytree(enrolment / "analyst-ada", enrolment / "copy")
    (enrolment / "copy" / IDENTITY_FILE).chmod(file)
    (enrolment / "copy").chmod(folder)
    (enrolment / "bad.toml").write_text(settings(Role.ANALYST, identity))
    assert here(*command.split(), "--config", "bad.toml").error_line.startswith(message)


@pytest.mark.parametrize("command", [*COMMANDS, "coordinator start", "provider start"])
def test_every_program_names_a_missing_settings_file(command: str, here: Callable[..., Ended]) -> None:
    message = here(*command.split(), "--config", "none.toml").error_line
    assert names_facts(message, "none.toml", os.strerror(errno.ENOENT))


def test_config_check_reports_unreadable_settings(here: Callable[..., Ended]) -> None:
    ended = here("config", "check", "none.toml", "--json")
    assert ended.code == 1
    output = json.loads(ended.out)
    assert (output["passed"], output["program"]) == (False, None)
    assert output["problems"] == ["none.toml cannot be read: No such file or directory. Give the path of a file."]
    assert here("config", "check", "none.toml").code == 1


SAMPLES = Path(__file__).parents[3] / "deploy" / "samples"


@pytest.mark.parametrize(
    ("what", "message"),
    [("policy", "is a policy, not a settings file. Check it with `dpspca policy check"), ("job", "is a job")],
)
def test_config_check_names_the_kind_of_another_file(what: str, message: str, here: Callable[..., Ended]) -> None:
    ended = here("config", "check", SAMPLES / f"{what}.toml", "--json")
    assert ended.code == 1
    assert json.loads(ended.out)["program"] is None
    (problem,) = json.loads(ended.out)["problems"]
    assert message in problem
    assert str(SAMPLES / f"{what}.toml`") in problem


def test_a_file_that_is_not_text_is_named_by_path(here: Callable[..., Ended], enrolment: Path) -> None:
    (enrolment / "binary.toml").write_bytes(bytes(range(256)))
    (problem,) = json.loads(here("config", "check", "binary.toml", "--json").out)["problems"]
    assert names_facts(problem, "binary.toml", "UTF-8")


def test_a_file_that_is_not_a_model_is_named_by_path(here: Callable[..., Ended], enrolment: Path) -> None:
    (enrolment / "rows.csv").write_text("a,b\n1,2\n")
    assert here("model", "show", "rows.csv").error_line.startswith("rows.csv: The bytes do not hold a model")
