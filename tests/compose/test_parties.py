"""A real coordinator and a real provider run by the compose files for production, with volumes that nobody changed."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from coordinator_processes import free_port
from files_in_use import put
from local_federation import Enrolment, now, permissive_policy, spec
from timeouts import TIMEOUT

from dpspca import Federation
from dpspca.client.enrolment import StudyOffice
from dpspca.common.names import Role
from dpspca.common.transport import MailboxAwayError, RemoteMailbox
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


@pytest.mark.nightly
def test_two_real_parties_join_and_renew_by_the_mailbox(tmp_path: Path, party: Callable[..., Party]) -> None:
    """As deploy/README.md says: the coordinator's `join` publishes the mailbox, and the provider's settings name it."""
    if not is_free(MAILBOX_PORT):
        pytest.skip(f"port {MAILBOX_PORT} of this machine is in use")
    host, port = own_address(), free_port()
    mailbox = f"{host}:{MAILBOX_PORT}"
    folder = tmp_path / "authority"
    (tmp_path / "study.toml").write_text(f'mailbox = "{mailbox}"\n' + STUDY.replace("hub.example:7443", f"hub:{port}"))
    dpspca("study", "init", tmp_path / "study.toml", "--authority", folder)
    common = 'identity = "/party/identity"\nrevocations = "/party/revoked.pem"\n'
    hub = party(
        "coordinator",
        f'{common}listen = "0.0.0.0:7443"\nmailbox = "0.0.0.0:7444"\nmailbox_folder = "/party/mailbox"\n'
        'journal = "/party/journal.db"\n',
        DPSPCA_PORT=str(port),
        DPSPCA_MAILBOX_PORT=str(MAILBOX_PORT),
    )
    north = party(
        "provider",
        f'{common}coordinator = "{host}:{port}"\nmailbox = "{mailbox}"\npolicy = "policy.toml"\n'
        'ledger = "/party/ledger/ledger.db"\n[data_sets]\ncohort = "/rows/cohort.npy"\n',
        DPSPCA_ROWS=str(tmp_path / "rows"),
    )
    (tmp_path / "rows").mkdir()
    np.save(tmp_path / "rows" / "cohort.npy", np.random.default_rng(0).standard_normal((200, 30)))
    put(north.folder / "policy.toml", permissive_policy("row-replace-one"))
    office = StudyOffice(folder, now)
    with ThreadPoolExecutor() as threads:
        joining = [threads.submit(joins, each, folder) for each in (hub, north)]
        until_requests_wait(office, 2, joining)
        dpspca("study", "sign", "--authority", folder, "--yes")
        for each in joining:
            each.result(TIMEOUT)
    for each, words in ((hub, "mailbox on"), (north, "Connected to")):
        each.compose("up", "--detach")
        each.until(words)
    renew = ("exec", "-T", "provider", "dpspca", "identity", "renew", "--config", "/config/settings.toml", "--no-wait")
    north.compose(*renew)
    dpspca("study", "sign", "--authority", folder, "--yes")
    assert "valid until" in north.compose(*renew)


MAILBOX_PORT = 7444
"""Where `join` listens in the container of the coordinator: the port of the study file, which compose publishes."""


def own_address() -> str:
    """Return an address of this machine that containers can reach. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        try:
            trial.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but its own")
        found: str = trial.getsockname()[0]
        return found


def is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("0.0.0.0", port))  # noqa: S104  # as compose does
        except OSError:
            return False
    return True


def joins(who: Party, authority: Path) -> None:
    """Join by the mailbox, and wait for the certificate."""
    (invitation,) = (authority / "invitations").glob(f"{who.role}-*.invitation")
    put(who.folder / "invitation", invitation.read_text())
    ports = ("--service-ports",) if who.role == "coordinator" else ()
    who.compose("run", "--rm", "-T", *ports, who.role, "join", "/config/invitation", "--folder", "/party")


def until_requests_wait(office: StudyOffice, count: int, joining: list[Future[None]]) -> None:
    assert office.study.mailbox_route
    mailbox, end = RemoteMailbox(office.study.mailbox_route), time.monotonic() + TIMEOUT
    waiting = 0
    while waiting < count:
        assert time.monotonic() < end
        assert not any(each.done() for each in joining), [each.exception() for each in joining if each.done()]
        with suppress(MailboxAwayError):
            waiting = len(office.candidates(mailbox))
        time.sleep(0.5)


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
