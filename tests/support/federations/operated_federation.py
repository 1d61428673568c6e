"""A federation of real daemons and commands, for drills of what its operators have to do one day.

Each party has a folder of its own, as on a machine of its own, so that a drill can copy, lose and move it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from coordinator_processes import free_port
from files_in_use import put
from local_federation import Enrolment, now
from timeouts import TIMEOUT

from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.names import PartyName, Role
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.trust import identity as identities
from dpspca.common.trust.authority import Authority
from dpspca.common.trust.identity import Identity

COLUMNS = 6
PROVIDERS = ("north", "south")
ROLES = {"hub": Role.COORDINATOR, "ada": Role.ANALYST} | dict.fromkeys(PROVIDERS, Role.PROVIDER)
JOB = JobSpec(
    schema=Schema(COLUMNS),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=6.0,
    components=2,
    options={"sparsity": 3, "rounds": 2},
    method="dps-pca",
    explained_variance=False,
    answer_seconds=TIMEOUT,
)
QUARANTINE = "The ledger is in quarantine"
JOB_AFTER_RELEASE = """from dpspca.cli import main
from dpspca.provider.ledger import history
history.JOB_SKEW = 0
main.main()
"""
"""The program, with a ledger that takes jobs right after a quarantine ended, and not five minutes later."""


@dataclass(frozen=True)
class Software:
    """A version of the program."""

    code: str
    source: Path | None = None
    """The folder of its source, if it is not the version under test."""

    def command(self, *words: str | Path) -> list[str]:
        return [sys.executable, "-c", self.code, *map(str, words)]

    @property
    def environment(self) -> dict[str, str] | None:
        return None if self.source is None else os.environ | {"PYTHONPATH": str(self.source)}


NOW = Software(JOB_AFTER_RELEASE)


@dataclass
class OperatedFederation:
    """The folders of all parties and of the authority, and the daemons that run."""

    folder: Path
    software: Software = NOW
    address: str = field(default_factory=lambda: f"127.0.0.1:{free_port()}")
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def home(self, name: str) -> Path:
        return self.folder / name

    def settings(self, name: str) -> tuple[str, Path]:
        """Return the flag that names a party's settings."""
        return "--config", self.home(name) / "settings.toml"

    # --- Commands ---

    def tried(self, *words: str | Path) -> "subprocess.CompletedProcess[str]":
        """Run a command, whether it succeeds or not."""
        return subprocess.run(  # noqa: S603  # our own program
            self.software.command(*words),
            cwd=self.folder,
            env=self.software.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def run(self, *words: str | Path) -> str:
        done = self.tried(*words)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def facts(self, *words: str | Path) -> Any:
        return json.loads(self.run(*words, "--json"))

    def ledger(self, *words: str | Path, name: str = "north") -> str:
        return self.run("ledger", *words, *self.settings(name))

    # --- Enrolment ---

    @property
    def authority(self) -> Authority:
        return Authority.open(self.folder / "authority", now)

    def found(self) -> None:
        """Create an authority, and identities for all parties."""
        Enrolment.create(self.folder)
        self.publish()
        for name, role in ROLES.items():
            Enrolment(self.home(name), self.authority).identity(role, name)

    def publish(self) -> None:
        put(self.folder / "revoked.pem", self.authority.revocation_list())

    def identity_folder(self, name: str) -> Path:
        return self.home(name) / f"{ROLES[name]}-{name}"

    def identity(self, name: str) -> Identity:
        return Identity.load(self.identity_folder(name))

    def renew(self, name: str) -> None:
        """Give a party a new key, with a certificate for it."""
        folder = self.identity_folder(name)
        certificate = self.authority.sign(identities.renew_request(folder))
        identities.install(folder, certificate, self.authority.certificate_pem)

    def revoke(self, name: str) -> None:
        self.authority.revoke(PartyName(self.authority.federation, ROLES[name], name))
        self.publish()

    # --- Files ---

    def write_files(self) -> None:
        """Write the job, and for each provider rows and a policy that allows some such jobs."""
        self.write_job()
        policy = self.run("policy", "suggest", "job.json", "--analyst", "ada", "--data-set", "cohort")
        for number, name in enumerate(PROVIDERS):
            np.save(self.home(name) / "rows.npy", np.random.default_rng(number).standard_normal((200, COLUMNS)))
            put(self.home(name) / "policy.toml", policy)

    def write_job(self) -> None:
        """Write the job with the keys of the present software. Those of 0.1.0 are in the form that is signed."""
        text = json.dumps(JOB.to_dict()) if self.software is NOW else JOB.to_json()
        (self.folder / "job.json").write_text(text)

    def write_settings(self) -> None:
        """Write the settings of all parties, with an address that is free now."""
        for name, role in ROLES.items():
            lines = [
                f'identity = "{role}-{name}"',
                f'{"listen" if role is Role.COORDINATOR else "coordinator"} = "{self.address}"',
            ]
            if role is not Role.ANALYST:
                lines.append('revocations = "../revoked.pem"')
            if role is Role.PROVIDER:
                lines += ['policy = "policy.toml"', 'ledger = "ledger/ledger.db"', 'ledger_head = "head/ledger-head"']
                lines += ["[data_sets]", 'cohort = "rows.npy"']
            (self.home(name) / "settings.toml").write_text("\n".join(lines) + "\n")

    def copy(self, source: str, target: str) -> None:
        """Copy a folder with its modes, as a backup does, in the place of what is there."""
        shutil.rmtree(self.folder / target, ignore_errors=True)
        shutil.copytree(self.folder / source, self.folder / target)

    # --- Daemons ---

    def open(self) -> None:
        """Write all settings, and start all daemons."""
        self.write_settings()
        for name in ("hub", *PROVIDERS):
            self.start(name)

    def start(self, name: str, *words: str) -> None:
        """Start a daemon and wait until it serves and its log has these words."""
        awaited = ("listening on" if name == "hub" else "onnected to", *words)
        command = self.software.command(ROLES[name], "start", *self.settings(name))
        with self.log_file(name).open("wb") as file:
            self.running[name] = subprocess.Popen(command, env=self.software.environment, stderr=file)  # noqa: S603  # our own
        deadline = time.monotonic() + TIMEOUT
        while not all(each in self.log(name) for each in awaited):
            assert self.running[name].poll() is None, self.log(name)
            assert time.monotonic() < deadline, self.log(name)
            time.sleep(0.05)

    def log_file(self, name: str) -> Path:
        return self.home(name) / "log"

    def log(self, name: str) -> str:
        """Return what a daemon logged since its last start."""
        return self.log_file(name).read_text()

    def stop(self, *names: str) -> None:
        """Stop these daemons, or all."""
        for name in names or tuple(self.running):
            process = self.running.pop(name)
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT) == 0

    def kill(self) -> None:
        """Kill what still runs."""
        for process in self.running.values():
            process.kill()
            process.wait()

    def end_quarantine(self, name: str, count: str) -> None:
        """End the quarantine of a stopped provider's ledger, with a statement of what it lacks."""
        self.ledger(
            "end-quarantine" if self.software is NOW else "release",
            "--reason",
            "a drill",
            "--count",
            f"cohort={count}",
            "--yes",
            name=name,
        )
        time.sleep(1.1)  # a job that was signed in the same second is refused: its answers may be among those lost

    # --- Jobs ---

    def job(self, *providers: str) -> dict[str, Any]:
        """Run a job at these providers, or at all, and return its facts."""
        done = self.tried_job(*providers)
        assert done.returncode == 0, done.stderr
        read: dict[str, Any] = json.loads(done.stdout)
        return read

    def tried_job(self, *providers: str) -> "subprocess.CompletedProcess[str]":
        named = [word for name in providers or PROVIDERS for word in ("--provider", name)]
        words = ("run", "job.json", *self.settings("ada"), "--data-set", "cohort", *named)
        return self.tried(*words, "--out", "model.dpspca", "--force", "--json")

    def spent(self, name: str) -> int:
        """Return what a provider's ledger says was spent, in units that add up."""
        (found,) = self.facts("budget", *self.settings(name))["data_sets"]
        units: int = found["spent"]["units"]
        return units

    def parties(self, model: str = "model.dpspca") -> int:
        """Return how many providers a model is of."""
        read: int = self.facts("model", "show", model)["statement"]["parties"]
        return read


@contextmanager
def opened(folder: Path, founded: Path) -> Iterator[OperatedFederation]:
    """Run a federation that was founded in another folder, in a copy of that."""
    shutil.copytree(founded, folder, dirs_exist_ok=True)
    made = OperatedFederation(folder)
    try:
        made.open()
        yield made
    finally:
        made.kill()
