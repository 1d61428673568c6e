"""The programs as an operator runs them: real processes, real certificates, real signals, on loopback."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from local_federation import permissive_policy
from timeouts import PROGRAM_TIMEOUT

from dpspca import load_model
from dpspca.cli.app import app
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.results.statement import TRUST

ROWS = np.random.default_rng(0).standard_normal((4000, 20)) * np.r_[5, 4, np.ones(18)]
JOB = JobSpec(
    schema=Schema(20),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(4.0, 1e-6),
    norm_bound=12.0,
    components=2,
    answer_seconds=30,
    minimum_providers=2,
    options={"sparsity": 4},
    method="dps-pca",
)
STUDY = """federation = "town"
coordinator = "hub"
address = "127.0.0.1:7443"
providers = ["north", "south", "west"]
analysts = ["ada"]
"""
COMMAND = [sys.executable, "-m", "dpspca.cli.main"]


def dpspca(*words: object, folder: Path, code: int = 0) -> str:
    done = subprocess.run(  # noqa: S603  # our own program
        [*COMMAND, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@contextmanager
def started(*words: object, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(  # noqa: S603  # our own program
        [*COMMAND, *map(str, words)], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(20) == 0
        finally:
            process.kill()
            assert process.stderr is not None
            process.stderr.close()


def here(*words: object) -> None:
    """Run a command in this process, because starting a dozen programs would take longer than all the tests."""
    app([str(word) for word in words], standalone_mode=False)


def join(folder: Path, *names: str) -> None:
    """Have parties join by files: they ask, the authority signs, and they take their certificates."""
    exchange = ("--exchange", folder / "post")
    for step in ("ask", "sign", "take"):
        if step == "sign":
            here("study", "sign", "--authority", folder / "authority", *exchange, "--yes")
            continue
        for name in names:
            invitation = folder / "authority" / "invitations" / f"{name}.invitation"
            here("join", invitation, "--folder", folder / name.partition("-")[2], *exchange, "--no-wait")


@pytest.fixture(scope="module")
def enrolment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("town")
    (folder / "study.toml").write_text(STUDY)
    (folder / "post").mkdir()
    here("study", "init", folder / "study.toml", "--authority", folder / "authority")
    join(folder, "coordinator-hub", "provider-north", "provider-south", "analyst-ada")
    hub = 'listen = "127.0.0.1:0"\nidentity = "hub/identity"\nrevocations = "hub/revoked.pem"\n'
    (folder / "hub.toml").write_text(hub)
    for name, rows in zip(("north", "south"), np.array_split(ROWS, 2), strict=True):
        np.save(folder / f"{name}.npy", rows)
    (folder / "job.json").write_text(json.dumps(JOB.to_dict()))
    (folder / "policy.toml").write_text(permissive_policy(JOB.unit))
    return folder


def configure(folder: Path, address: str) -> None:
    for name in ("north", "south"):
        (folder / f"{name}.toml").write_text(
            f'coordinator = "{address}"\nidentity = "{name}/identity"\nrevocations = "{name}/revoked.pem"\n'
            f'policy = "policy.toml"\nledger = "{name}-ledger/ledger.db"\n[data_sets]\ncohort = "{name}.npy"\n'
        )
    (folder / "ada.toml").write_text(f'coordinator = "{address}"\nidentity = "ada/identity"\n')


@pytest.mark.slow
def test_a_federation_of_processes_runs_a_job_and_stops_on_signals(enrolment: Path) -> None:
    with started("coordinator", "start", "--config", "hub.toml", folder=enrolment) as hub:
        assert hub.stderr is not None
        configure(enrolment, hub.stderr.readline().split()[-1])
        with (
            started("provider", "start", "--config", "north.toml", folder=enrolment),
            started("provider", "start", "--config", "south.toml", folder=enrolment),
        ):
            order = ["run", "job.json", "--config", "ada.toml", "--data-set", "cohort"]
            output = dpspca(*order, "--provider", "north", "--provider", "south", folder=enrolment)
    model = load_model(enrolment / "model.dpspca")
    assert {0, 1} <= set(model.support)
    assert model.statement.parties == 2
    assert model.statement.federated
    assert TRUST in " ".join(output.split())


@pytest.mark.slow
def test_a_daemon_answers_about_rows_added_during_the_job(enrolment: Path) -> None:
    """Each round is about a thousand rows of each provider. One has only five hundred at the start."""
    job = replace(JOB, method="streaming-power", options={"rounds": 2, "block_rows": 1000}, answer_seconds=120)
    (enrolment / "streaming.json").write_text(json.dumps(job.to_dict()))
    (enrolment / "arriving").mkdir()
    np.save(enrolment / "arriving" / "1.npy", ROWS[:500])
    with started("coordinator", "start", "--config", "hub.toml", folder=enrolment) as hub:
        assert hub.stderr is not None
        configure(enrolment, hub.stderr.readline().split()[-1])
        south = (
            (enrolment / "south.toml").read_text().replace('cohort = "south.npy"', '[arriving]\ncohort = "arriving"')
        )
        (enrolment / "south.toml").write_text(south)
        with (
            started("provider", "start", "--config", "north.toml", folder=enrolment),
            started("provider", "start", "--config", "south.toml", folder=enrolment),
        ):
            order = ["run", "streaming.json", "--config", "ada.toml", "--data-set", "cohort", "--detach"]
            name = dpspca(*order, "--provider", "north", "--provider", "south", folder=enrolment).split()[-1]
            np.save(enrolment / "arriving" / ".2.npy", ROWS[500:2000])
            (enrolment / "arriving" / ".2.npy").rename(enrolment / "arriving" / "2.npy")
            dpspca("jobs", "result", name, "--config", "ada.toml", "--out", "streamed.dpspca", folder=enrolment)
    model = load_model(enrolment / "streamed.dpspca")
    assert model.statement.parties == 2
    assert model.explained_variance is not None


def test_keys_are_private_and_certificates_can_be_revoked(enrolment: Path) -> None:
    for name in ("hub", "north", "ada"):
        assert (enrolment / name / "identity").stat().st_mode & 0o077 == 0
    join(enrolment, "provider-west")
    assert "dpspca://town/provider/west" in dpspca("study", "show", folder=enrolment)
    exchange = ("--exchange", "post")
    assert "revoked" in dpspca("study", "revoke", "provider/west", *exchange, "--yes", folder=enrolment)
    certificates = json.loads(dpspca("study", "show", "--json", folder=enrolment))["certificates"]
    assert [each["revoked"] is not None for each in certificates if each["name"].endswith("west")] == [True]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("listen = 3", "listen: 3 is not an address"),
        ('colour = "red"', "unknown key 'colour'"),
        ("", "lacks identity, listen, revocations"),
        ("listen = ", "not valid TOML"),
    ],
)
def test_invalid_settings_are_refused(enrolment: Path, text: str, reason: str) -> None:
    more = 'identity = "hub/identity"\nrevocations = "hub/revoked.pem"\n' if text == "listen = 3" else ""
    (enrolment / "bad.toml").write_text(f"{text}\n{more}")
    assert reason in dpspca("coordinator", "start", "--config", "bad.toml", folder=enrolment, code=2)


def test_an_unusable_table_stops_a_provider_before_it_connects(enrolment: Path) -> None:
    np.save(enrolment / "bad.npy", np.full((4, 20), 1j))
    (enrolment / "bad-form.toml").write_text(
        'coordinator = "127.0.0.1:1"\nidentity = "north/identity"\nrevocations = "north/revoked.pem"\n'
        'policy = "policy.toml"\n[data_sets]\ncohort = "bad.npy"\n'
    )
    assert "Complex" in dpspca("provider", "start", "--config", "bad-form.toml", folder=enrolment, code=2)


def test_a_coordinator_keeps_results_up_to_its_setting(enrolment: Path) -> None:
    (enrolment / "small.toml").write_text(
        (enrolment / "hub.toml").read_text() + 'journal = "small.db"\nresult_mebibytes = 1\n'
    )
    wide = replace(JOB, schema=Schema(100_000), minimum_providers=1)
    (enrolment / "wide.json").write_text(json.dumps(wide.to_dict()))
    with started("coordinator", "start", "--config", "small.toml", folder=enrolment) as hub:
        assert hub.stderr is not None
        configure(enrolment, hub.stderr.readline().split()[-1])
        order = ["run", "wide.json", "--config", "ada.toml", "--data-set", "cohort", "--provider", "north"]
        output = dpspca(*order, "--out", "wide", folder=enrolment, code=2)
    assert "1048576" in output


def test_a_job_without_available_provider_fails_with_the_reason(enrolment: Path) -> None:
    (enrolment / "ada.toml").write_text('coordinator = "127.0.0.1:1"\nidentity = "ada/identity"\n')
    order = ["run", "job.json", "--config", "ada.toml", "--data-set", "cohort", "--provider", "north", "--out", "new"]
    assert "UNAVAILABLE" in dpspca(*order, folder=enrolment, code=2)
