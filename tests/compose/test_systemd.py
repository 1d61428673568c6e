"""The units of deploy/systemd on machines that run systemd, installed as their page says: what an operator sees.

One machine is the coordinator's and one a provider's. The authority and the analyst are programs of this machine.
"""

import asyncio
import io
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from coordinator_processes import wait_for_answers
from facts import names_facts
from local_federation import permissive_policy, spec
from machines import COPY, Machine, blocks, machines
from pyarrow import parquet
from timeouts import TIMEOUT

from dpspca import AsyncFederation, Federation
from dpspca.common.algorithms import catalogue
from dpspca.common.job import Schema
from dpspca.common.privacy.costs import cost_units

pytestmark = pytest.mark.nightly

DEPLOY = Path(__file__).parents[2] / "deploy"
PAGE = DEPLOY / "systemd" / "README.md"
BASE = "dpspca-machine-base"
PACKAGES = ("systemd", "systemd-sysv")
COORDINATOR, PROVIDER = "dpspca-coordinator", "dpspca-provider"
SETTINGS = "/etc/dpspca/provider.toml"
AS_DAEMON = ("runuser", "-u", "dpspca", "--", "/opt/dpspca/bin/dpspca")
COLUMNS = 6
SHORT = spec(schema=Schema(COLUMNS), explained_variance=False, options={"sparsity": 3, "rounds": 2})
LONG = spec(
    schema=Schema(COLUMNS), explained_variance=False, options={"sparsity": 3, "rounds": 200}, answer_seconds=2 * TIMEOUT
)
STUDY = """
federation = "town"
coordinator = "hub"
address = "{address}:7443"
mailbox = "{address}:7444"
providers = ["north"]
analysts = ["ada"]
"""
FORBIDDEN = """
import ctypes, mmap, os, socket
def unshare():
    if ctypes.CDLL(None).unshare(0x10000000):
        raise OSError
acts = {
    "write to /etc": lambda: open("/etc/dpspca/new", "w"),
    "write beside its state": lambda: open("/var/lib/new", "w"),
    "look into a home": lambda: os.listdir("/home"),
    "see other processes": lambda: os.stat("/proc/1"),
    "open a disk": lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(8, 0)),
    "write memory and run it": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC),
    "send raw packets": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "ask the kernel about networks": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "give files away": lambda: os.chown(os.environ["STATE_DIRECTORY"], 0, 0),
    "make a name space": unshare,
}
for name, act in acts.items():
    try:
        act()
    except OSError:
        continue
    print("could", name)
"""
LIBRARIES = """
import adbc_driver_postgresql.dbapi, distributed, duckdb, h5py, pgenlib, psycopg, pyarrow.parquet, zarr
"""
"""What reads rows of some kind, or has a cluster read them."""


@dataclass(frozen=True)
class Town:
    """A federation of machines."""

    hub: Machine
    north: Machine
    folder: Path

    @property
    def daemons(self) -> list[tuple[Machine, str]]:
        return [(self.hub, COORDINATOR), (self.north, PROVIDER)]

    @property
    def address(self) -> str:
        return f"{self.hub.address()}:7443"

    @property
    def ada(self) -> Path:
        return self.folder / "ada" / "identity"

    def dpspca(self, *words: str) -> None:
        subprocess.run([sys.executable, "-m", "dpspca", *words], cwd=self.folder, check=True)  # noqa: S603  # our own

    def sign(self, requests: int, mailbox: str) -> None:
        """Sign what is asked for, once so many requests are in the coordinator's mailbox."""
        deadline = time.monotonic() + TIMEOUT
        while self.hub.tried("sh", "-c", f"ls {mailbox}/*.request | wc -l")[1].splitlines()[-1] != str(requests):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        self.dpspca("study", "sign", "--yes")

    def enrol(self) -> None:
        """Do what the page says before the settings are written. All parties wait for one signing."""
        (self.folder / "study.toml").write_text(STUDY.format(address=self.hub.address()))
        self.dpspca("study", "init", "study.toml")
        invitations = self.folder / "authority" / "invitations"
        for machine, _ in self.daemons:
            machine.put_folder(f"{COPY}/deploy/systemd", DEPLOY / "systemd")
            machine.put_folder(COPY, invitations)
            (install,) = blocks(PAGE, "Install")
            machine.script("".join(line for line in install.splitlines(keepends=True) if "/opt/dpspca" not in line))
        with ThreadPoolExecutor() as parties:
            joining = [
                parties.submit(self.hub.script, blocks(PAGE, "A coordinator")[0]),
                parties.submit(self.north.script, blocks(PAGE, "A provider")[0]),
                parties.submit(self.dpspca, "join", str(invitations / "analyst-ada.invitation")),
            ]
            self.sign(3, "/etc/dpspca/joined/mailbox")
        for each in joining:
            each.result()

    def start(self) -> None:
        """Write settings, policy and rows, and start both daemons, as the page says."""
        draw = np.random.default_rng(1)
        table, text = io.BytesIO(), io.StringIO()
        names = [f"c{number}" for number in range(COLUMNS)]
        parquet.write_table(pa.table(dict(zip(names, draw.standard_normal((COLUMNS, 300)), strict=True))), table)
        np.savetxt(text, draw.standard_normal((200, COLUMNS)), delimiter=",", header=",".join(names), comments="")
        self.north.put("/srv/dpspca/cohort.parquet", table.getvalue())
        self.north.put("/srv/dpspca/labs.csv", text.getvalue().encode())
        self.north.put("/etc/dpspca/policy.toml", permissive_policy("row-replace-one", "cohort", "labs").encode())
        for (machine, unit), heading in zip(self.daemons, ("A coordinator", "A provider"), strict=True):
            _, settings, start = blocks(PAGE, heading)
            machine.put(f"/etc/dpspca/{unit.removeprefix('dpspca-')}.toml", settings.encode())
            *lines, health = start.splitlines()
            machine.script("\n".join(lines))
            machine.until_it_works("sh", "-c", health)

    def spent(self) -> int:
        """Return what the provider's ledger says was spent of the cohort's budget."""
        facts = json.loads(self.north.run(*AS_DAEMON, "budget", "--config", SETTINGS, "--json"))
        return sum(each["spent"]["units"] for each in facts["data_sets"] if each["data_set"] == "cohort")


@pytest.fixture(scope="module")
def base(engine: Any) -> str:
    """Build the image of a machine from Debian's packages, once."""
    if not engine.images.list(BASE):
        if shutil.which("mmdebstrap") is None or os.geteuid() != 0:
            pytest.skip("only root, with mmdebstrap, can make a machine of Debian's packages")
        subprocess.run([DEPLOY / "base-image", BASE, *PACKAGES], check=True)  # noqa: S603  # our own script
    return BASE


@pytest.fixture(scope="module")
def town(engine: Any, base: str, image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with machines(engine, base, image, "coordinator.example", "north.example") as (hub, north):
        made = Town(hub, north, tmp_path_factory.mktemp("town"))
        made.enrol()
        made.start()
        yield made


def probe(machine: Machine, unit: str, script: str) -> str:
    """Run a script in the place of a daemon, with all that its unit says of rights. Return what it printed.

    It prints a last line itself, so that silence is no answer.
    """
    text = (DEPLOY / "systemd" / f"{unit}.service").read_text(encoding="utf-8")
    kept = [line for line in text.splitlines() if not line.startswith(("Type=", "ExecStart=", "Restart", "Watchdog"))]
    begin = kept.index("[Service]") + 1
    kept[begin:begin] = ["Type=oneshot", "ExecStart=/opt/dpspca/bin/python3 /opt/probe.py"]
    name = f"probe-{secrets.token_hex(4)}"
    machine.put(f"/etc/systemd/system/{name}.service", "\n".join(kept).encode())
    machine.put("/opt/probe.py", f"{script}print('done')\n".encode())
    machine.run("systemctl", "daemon-reload")
    code, _ = machine.tried("systemctl", "start", name)
    printed = machine.journal(name, "--identifier", "python3")
    assert code == 0, printed
    return printed


def test_both_daemons_are_active_and_say_how_they_are(town: Town) -> None:
    for machine, unit in town.daemons:
        assert machine.shown(unit, "ActiveState") == "active"
        assert machine.shown(unit, "UnitFileState") == "enabled"
        assert machine.shown(unit, "NRestarts") == "0"
    assert names_facts(town.hub.shown(COORDINATOR, "StatusText"), "0.0.0.0:7443")
    assert names_facts(town.north.shown(PROVIDER, "StatusText"), "coordinator.example:7443")
    for machine, unit in town.daemons:
        machine.run(*AS_DAEMON, "doctor", "--config", f"/etc/dpspca/{unit.removeprefix('dpspca-')}.toml")


def test_the_key_reaches_the_daemon_alone_and_no_disk(town: Town) -> None:
    for machine, unit in town.daemons:
        folder = f"/run/credentials/{unit}.service"
        assert machine.run("stat", "--file-system", "--format=%T", folder).strip() in {"ramfs", "tmpfs"}
        assert machine.run("stat", "--format=%U %a", f"{folder}/identity.pem").split() == ["dpspca", "400"]
        assert machine.tried("cat", f"{folder}/identity.pem", user="nobody")[0] != 0
        assert machine.tried("ls", "/etc/dpspca/joined", user="dpspca")[0] != 0
        found = machine.run("sh", "-c", "grep -rlD skip 'PRIVATE KEY' /etc /home ~root /run /srv /tmp /var")
        assert set(found.split()) == {"/etc/dpspca/joined/identity/identity.pem", f"{folder}/identity.pem"}


def test_both_daemons_have_no_rights(town: Town) -> None:
    for machine, unit in town.daemons:
        status = machine.status(unit)
        assert set(status["Uid"].split()) == {machine.run("id", "--user", "dpspca").strip()}
        assert {int(status[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


@pytest.mark.parametrize("unit", [COORDINATOR, PROVIDER])
def test_a_unit_refuses_what_its_daemon_never_does(town: Town, unit: str) -> None:
    (machine,) = [each for each, name in town.daemons if name == unit]
    assert probe(machine, unit, FORBIDDEN) == "done\n"


def test_all_that_reads_rows_loads_under_the_providers_unit(town: Town) -> None:
    assert probe(town.north, PROVIDER, LIBRARIES) == "done\n"


def test_jobs_run_over_parquet_and_over_text_after_a_reload(town: Town) -> None:
    with Federation.connect(town.address, town.ada) as analyst:
        assert analyst.fit(SHORT, "cohort").statement.parties == 1
        town.north.script(f"echo 'labs = \"/srv/dpspca/labs.csv\"' >> {SETTINGS}; systemctl reload {PROVIDER}")
        town.hub.run("systemctl", "reload", COORDINATOR)
        for machine, unit in town.daemons:
            machine.until_it_says(unit, "were read again")
            machine.until(unit, ActiveState="active", SubState="running")
        deadline = time.monotonic() + TIMEOUT
        while {each.data_set for each in analyst.data_sets()} != {"cohort", "labs"}:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert analyst.fit(SHORT, "labs").statement.parties == 1


def test_killed_daemons_restart_and_their_job_goes_on(town: Town) -> None:
    before, price = town.spent(), cost_units(catalogue.plan(LONG).events)

    async def perform() -> int:
        async with AsyncFederation.connect(town.address, town.ada) as analyst:
            job = await analyst.submit(LONG, "cohort")
            await wait_for_answers(job, 2)
            for machine, unit in town.daemons:
                await asyncio.to_thread(machine.run, "systemctl", "kill", "--signal=KILL", unit)
            assert 0 < await asyncio.to_thread(town.spent) - before < price
            return (await job.result()).statement.parties

    assert asyncio.run(perform()) == 1
    for machine, unit in town.daemons:
        assert machine.shown(unit, "NRestarts") == "1"
    town.north.run(*AS_DAEMON, "ledger", "verify", "--config", SETTINGS)
    assert town.spent() - before == price


def test_a_daemon_that_hangs_is_restarted(town: Town) -> None:
    """A busy machine may be taken for a daemon that hangs, after so few seconds."""
    folder = f"/etc/systemd/system/{PROVIDER}.service.d"
    town.north.put(f"{folder}/override.conf", b"[Service]\nWatchdogSec=10\n")
    town.north.script(f"systemctl daemon-reload; systemctl restart {PROVIDER}")
    hanging = town.north.shown(PROVIDER, "MainPID")
    town.north.run("systemctl", "kill", "--signal=STOP", "--kill-whom=main", PROVIDER)
    town.north.until_it_says(PROVIDER, "Watchdog timeout")
    town.north.until(PROVIDER, ActiveState="active")
    assert town.north.shown(PROVIDER, "MainPID") not in {hanging, "0"}
    town.north.script(f"rm -r {folder}; systemctl daemon-reload; systemctl restart {PROVIDER}")


def test_a_timer_renews_certificates_as_the_page_says(town: Town) -> None:
    """It is started by hand, because a month has to go by otherwise. So has the request for a new certificate."""
    scripts = blocks(PAGE, "Renew certificates")
    for (machine, unit), script in zip(reversed(town.daemons), scripts, strict=False):
        machine.script(script)
        role = unit.removeprefix("dpspca-")
        before = machine.shown(unit, "MainPID")
        machine.run("systemctl", "start", f"dpspca-renew@{role}.service")
        assert machine.shown(unit, "MainPID") == before, machine.journal(
            f"dpspca-renew@{role}.service"
        )  # nothing was due
        config = f"/etc/dpspca/joined/{role}.toml"
        machine.run("/opt/dpspca/bin/dpspca", "identity", "renew", "--config", config, "--no-wait")
        town.sign(1, "/etc/dpspca/mailbox")
        machine.run("systemctl", "start", f"dpspca-renew@{role}.service")
        machine.until(unit, ActiveState="active", SubState="running")
        assert machine.shown(unit, "MainPID") != before
        installed = machine.run("cat", "/etc/dpspca/joined/identity/identity.pem")
        assert machine.run("cat", f"/run/credentials/{unit}.service/identity.pem") == installed
        assert machine.shown(f"dpspca-renew@{role}.timer", "ActiveState") == "active"


def test_certificates_are_renewed_as_the_page_says(town: Town) -> None:
    at_provider, at_coordinator = blocks(PAGE, "Renew certificates")[2:]
    with ThreadPoolExecutor() as parties:
        renewing = [parties.submit(town.hub.script, at_coordinator), parties.submit(town.north.script, at_provider)]
        town.sign(2, "/etc/dpspca/mailbox")
    for each in renewing:
        each.result()
    for machine, unit in town.daemons:
        installed = machine.run("cat", "/etc/dpspca/joined/identity/identity.pem")
        assert machine.run("cat", f"/run/credentials/{unit}.service/identity.pem") == installed
    town.north.until_it_works(*AS_DAEMON, "health", "--config", SETTINGS)
    with Federation.connect(town.address, town.ada) as analyst:
        assert analyst.fit(SHORT, "cohort").statement.parties == 1


def test_the_journal_has_sober_lines(town: Town) -> None:
    for machine, unit in town.daemons:
        said = machine.journal(unit, "--identifier", "dpspca").splitlines()
        assert 0 < len(said) < 200
        assert not [line for line in said if line.startswith("<") or "Traceback" in line or "bug" in line]
        assert machine.journal(unit, "--identifier", "dpspca", "--priority", "err") == ""


def test_stopped_daemons_leave_no_key_and_a_ledger_that_opens(town: Town) -> None:
    for machine, unit in town.daemons:
        machine.run("systemctl", "stop", unit)
        assert [machine.shown(unit, key) for key in ("ActiveState", "Result", "ExecMainStatus")] == [
            "inactive", "success", "0"
        ]  # fmt: skip
        assert machine.tried("ls", f"/run/credentials/{unit}.service")[0] != 0
        assert "stopped" in machine.journal(unit).splitlines()[-5:]
    town.north.run(*AS_DAEMON, "ledger", "verify", "--config", SETTINGS)
    assert town.spent() > 0
