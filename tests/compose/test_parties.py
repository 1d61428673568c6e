"""A real coordinator and a real provider run by the compose files for production, with volumes that nobody changed."""

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from coordinator_processes import free_port
from files_in_use import put
from local_federation import Enrolment, permissive_policy, spec
from timeouts import TIMEOUT

from dpspca import Federation
from dpspca.common.names import Role
from dpspca.common.trust import slot_of

pytestmark = pytest.mark.slow

PARTIES = Path(__file__).parents[2] / "deploy" / "parties"
KUBERNETES = PARTIES.parent / "kubernetes" / "coordinator"
OWNER = 4711
"""A user of this machine who is not the image's user."""


def composer() -> list[str]:
    with_plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)  # noqa: S607
    return ["docker", "compose"] if with_plugin.returncode == 0 else ["docker-compose"]


@dataclass
class Party:
    """A party that compose runs, and its folder of settings."""

    role: str
    folder: Path
    environment: dict[str, str]

    def compose(self, *words: str) -> str:
        command = [*composer(), "--file", str(PARTIES / f"{self.role}.yaml"), *words]
        done = subprocess.run(command, env=os.environ | self.environment, capture_output=True, text=True, check=False)  # noqa: S603  # our own files
        assert done.returncode == 0, done.stderr
        return done.stdout

    def join(self, office: Path, name: str) -> None:
        """Take one step of the way in: ask for a certificate, or install it. Files travel through a folder."""
        invitation = office / "authority" / "invitations" / f"{self.role}-{name}.invitation"
        shutil.copy(invitation, self.folder / "invitation")
        (self.folder / "invitation").chmod(0o644)
        words = ("join", "/config/invitation", "--folder", "/party", "--exchange", "/post", "--no-wait")
        self.compose("run", "--rm", "-T", "-v", f"{office / 'post'}:/post", self.role, *words)

    def gateway(self, engine: Any) -> str:
        """Return this machine's address as the party's containers see it."""
        label = f"com.docker.compose.project={self.environment['COMPOSE_PROJECT_NAME']}"
        (container,) = engine.containers.list(filters={"label": label})
        (network,) = container.attrs["NetworkSettings"]["Networks"].values()
        found: str = network["Gateway"]
        return found

    def log(self) -> str:
        return self.compose("logs", "--no-color")

    def until(self, words: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while words not in self.log():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.5)


STUDY = """
federation = "town"
coordinator = "hub"
address = "hub.example:7443"
providers = ["north"]
analysts = ["ada"]
"""


def dpspca(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "dpspca", *words], check=True)  # noqa: S603  # our own program


@pytest.fixture
def office(tmp_path: Path) -> Path:
    """The authority, its invitations, and the folder through which requests and certificates travel."""
    folder = tmp_path / "office"
    (folder / "post").mkdir(parents=True)
    (folder / "post").chmod(0o777)  # parties of any user write into it
    (folder / "study.toml").write_text(STUDY)
    dpspca("study", "init", folder / "study.toml", "--authority", folder / "authority")
    return folder


@pytest.fixture
def party(tmp_path: Path, image: str) -> Iterator[Callable[..., Party]]:
    """Make parties, whose containers and volumes are removed at the end."""
    with ExitStack() as stack:

        def made(role: str, settings: str, **environment: str) -> Party:
            folder = tmp_path / f"{role}-{secrets.token_hex(2)}"
            folder.mkdir()
            (folder / "settings.toml").write_text(settings)
            project = f"dpspca-test-{secrets.token_hex(4)}"
            common = {"DPSPCA_IMAGE": image, "DPSPCA_CONFIG": str(folder), "COMPOSE_PROJECT_NAME": project}
            party = Party(role, folder, common | environment)
            stack.callback(party.compose, "down", "--volumes", "--timeout", "5")
            return party

        tmp_path.chmod(0o755)
        yield made


@pytest.mark.nightly
@pytest.mark.parametrize(
    "owner", [pytest.param(None, id="a volume of compose"), pytest.param(OWNER, id="a folder of one's own")]
)
def test_two_real_parties_run_a_job_and_reload(
    tmp_path: Path, engine: Any, office: Path, party: Callable[..., Party], owner: int | None
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder of another user")
    state, (rows,) = {}, [tmp_path / "rows"]
    rows.mkdir()
    if owner:
        (tmp_path / "state").mkdir(mode=0o700)
        os.chown(tmp_path / "state", owner, owner)
        state = {"DPSPCA_STATE": str(tmp_path / "state"), "DPSPCA_USER": f"{owner}:{owner}"}
    port = free_port()
    hub = party(
        "coordinator",
        'listen = "0.0.0.0:7443"\nidentity = "/party/identity"\nrevocations = "/party/revoked.pem"\n'
        'journal = "/party/journal.db"\n',
        DPSPCA_PORT=str(port),
    )
    north = party("provider", "", DPSPCA_ROWS=str(rows), **state)
    for name in ("cohort", "labs"):
        np.save(rows / f"{name}.npy", np.random.default_rng(len(name)).standard_normal((200, 30)))
    put(north.folder / "policy.toml", permissive_policy("row-replace-one", "cohort", "labs"))
    invited = office / "authority" / "invitations" / "analyst-ada.invitation"
    analyst_joins = ("join", invited, "--folder", tmp_path / "ada", "--exchange", office / "post", "--no-wait")
    for _ in range(2):
        hub.join(office, "hub")
        north.join(office, "north")
        dpspca(*analyst_joins)
        dpspca("study", "sign", "--authority", office / "authority", "--exchange", office / "post", "--yes")
    hub.compose("up", "--detach")
    hub.until("listening on")
    settings = (
        f'coordinator = "{hub.gateway(engine)}:{port}"\nidentity = "/party/identity"\n'
        'revocations = "/party/revoked.pem"\npolicy = "policy.toml"\nledger = "/party/ledger/ledger.db"\n'
        '[data_sets]\ncohort = "/rows/cohort.npy"\n'
    )
    (north.folder / "settings.toml").write_text(settings)
    north.compose("up", "--detach")
    north.until("Connected to")
    with Federation.connect(f"127.0.0.1:{port}", tmp_path / "ada" / "identity") as analyst:
        assert analyst.fit(spec(), "cohort").statement.parties == 1
        (north.folder / "settings.toml").write_text(settings + 'labs = "/rows/labs.npy"\n')
        north.compose("kill", "-s", "HUP")
        north.until("were read again")
        deadline = time.monotonic() + TIMEOUT
        while {each.data_set for each in analyst.data_sets()} != {"cohort", "labs"}:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert analyst.fit(spec(), "labs").statement.parties == 1
    north.compose("exec", "-T", "provider", "dpspca", "health", "--config", "/config/settings.toml")
    if owner:
        assert (tmp_path / "state" / "ledger" / "ledger.db").stat().st_uid == owner
        shutil.rmtree(tmp_path / "state")


def test_a_daemon_runs_on_volumes_as_kubernetes_lays_them(tmp_path: Path, engine: Any, image: str) -> None:
    """Volumes of root's with the group's rights (fsGroup), a key that a first container copies, files behind links."""
    enrolment = Enrolment.create(tmp_path / "town")
    me = enrolment.identity(Role.COORDINATOR, "hub").name
    config, hidden = tmp_path / "config", tmp_path / "config" / "..data"
    hidden.mkdir(parents=True)
    (hidden / "settings.toml").write_bytes((KUBERNETES / "settings.toml").read_bytes())
    (hidden / "revoked.pem").write_bytes(enrolment.authority.revocation_list())
    for file in ("settings.toml", "revoked.pem"):
        (config / file).symlink_to(f"..data/{file}")
    key, secret = secrets.token_bytes(32), tmp_path / "secret"
    secret.mkdir()
    identity = (tmp_path / "town" / "coordinator-hub" / "identity.pem").read_bytes()
    for name, content in {
        "identity.pem": identity, "mailbox-key": key, "mailbox-slot": slot_of(key, me).encode(),
    }.items():  # fmt: skip
        (secret / name).write_bytes(content)
        (secret / name).chmod(0o440)
        os.chown(secret / name, 0, 10001)
    tmp_path.chmod(0o755)
    pod = yaml.safe_load((KUBERNETES / "statefulset.yaml").read_text(encoding="utf-8"))["spec"]["template"]["spec"]
    before = [each["command"][2] for each in pod["initContainers"]]
    script = " && ".join([*before, "exec dpspca coordinator start --config /config/settings.toml"])
    volume = "mode=2777,uid=0,gid=10001,size=64m"
    container = engine.containers.run(
        image,
        ["-c", script],
        entrypoint="sh",
        detach=True,
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        tmpfs={"/tmp": "size=64m", "/memory": volume, "/state": volume},  # noqa: S108  # in the container
        volumes=[f"{config}:/config:ro", f"{secret}:/secret:ro"],
    )
    try:
        deadline = time.monotonic() + TIMEOUT
        while b"mailbox on" not in container.logs():
            container.reload()
            assert container.status == "running", container.logs()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert container.exec_run(["dpspca", "health", "--config", "/config/settings.toml"]).exit_code == 0
    finally:
        container.remove(force=True)
