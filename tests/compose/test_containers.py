"""A federation in real containers: who can reach whom, the rights of each, and what happens when one is killed."""

import io
import json
import os
import re
import secrets
import signal
import subprocess
import tarfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from facts import a_line_names
from timeouts import PROGRAM_TIMEOUT, TIMEOUT

from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit

pytestmark = pytest.mark.slow

DEPLOY = Path(__file__).parents[2] / "deploy"
PROVIDERS = ("north", "south", "east")
DAEMONS = ("coordinator", *PROVIDERS)
USER = "10001:10001"
PORT = 7443
QUERIES = 202
LONG_JOB = JobSpec(
    schema=Schema(40),
    unit=PrivacyUnit.ROW_ADD_REMOVE,
    budget=Budget(1.0, 1e-6),
    norm_bound=28.3,
    components=2,
    minimum_providers=2,
    options={"sparsity": 10, "rounds": QUERIES - 2},
    method="dps-pca",
)

LISTEN = """
import socket
door = socket.create_server(("", 0))
print(door.getsockname()[1], flush=True)
while True:
    door.accept()[0].close()
"""
KNOCK = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def opens(place):
    try:
        socket.create_connection(place, timeout=2).close()
    except OSError:
        return False
    return True
places = json.loads(sys.argv[1])
print(json.dumps(list(ThreadPoolExecutor(len(places)).map(opens, places))))
"""
Place = tuple[str, int]


@dataclass(frozen=True)
class Stack:
    """A federation that compose started."""

    engine: Any
    project: str
    image: str

    def containers(self, **more: Any) -> list[Any]:
        return self.engine.containers.list(all=True, filters=self.own(**more))

    def own(self, service: str = "") -> dict[str, list[str]]:
        labels = [f"com.docker.compose.project={self.project}"]
        return {"label": [*labels, f"com.docker.compose.service={service}"] if service else labels}

    def party(self, service: str) -> Any:
        (found,) = self.containers(service=service)
        found.reload()
        return found

    def address(self, service: str, line: str) -> str:
        return self.party(service).attrs["NetworkSettings"]["Networks"][f"{self.project}_{line}"]["IPAddress"]

    def submit(self, spec: JobSpec) -> Iterator[str]:
        """Run a job as the analyst. Yield the output line by line until the end."""
        ada = self.party("ada")
        assert ada.put_archive("/party", archive("job.json", json.dumps(spec.to_dict()).encode()))
        before = len(ada.logs().splitlines())
        ada.start()
        yield from (line.decode().rstrip() for line in islice(ada.logs(stream=True, follow=True), before, None))
        assert ada.wait()["StatusCode"] == 0

    @contextmanager
    def listener(self, network: str) -> Iterator[tuple[Any, int]]:
        """Run a container in a network that accepts every connection. Yield it and its port."""
        container = self.engine.containers.run(self.image, [LISTEN], **as_python(), network=network, detach=True)
        lines = container.logs(stream=True, follow=True)
        try:
            yield container, int(next(lines))
        finally:
            container.remove(force=True)
            deque(lines, maxlen=0)  # only what is read to its end is closed


def as_python() -> dict[str, Any]:
    return {"entrypoint": ["python3", "-c"], "init": True}


def archive(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        entry.uid, entry.gid = map(int, USER.split(":"))
        tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def told(container: Any, *command: str) -> str:
    code, output = container.exec_run(list(command))
    assert code == 0, output
    return output.decode()


def opens(container: Any, places: Sequence[Place]) -> list[bool]:
    """Return which addresses accept a connection from inside a container."""
    return json.loads(told(container, "python3", "-c", KNOCK, json.dumps(places)))


def attached(container: Any, what: str = "IPAddress") -> str:
    """Return the address of a container that is in one network, or its gateway."""
    container.reload()
    (network,) = container.attrs["NetworkSettings"]["Networks"].values()
    return network[what]


def open_sockets(container: Any) -> set[int]:
    """Return the ports with a listening socket, except those of the engine's own name server."""
    waiting = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}
    ports = set()
    for protocol, state in waiting.items():
        for line in told(container, "cat", f"/proc/net/{protocol}").splitlines()[1:]:
            _, local, _, standing, *_ = line.split()
            address, port = local.split(":")
            if standing == state and address != "0B00007F":  # 127.0.0.11, which only the container itself reaches
                ports.add(int(port, 16))
    return ports


@pytest.fixture(scope="module")
def stack(engine: Any, image: str) -> Iterator[Stack]:
    project = f"dpspca-test-{secrets.token_hex(4)}"
    environment = os.environ | {"COMPOSE_PROJECT_NAME": project, "DPSPCA_IMAGE": image}

    def compose(*words: str) -> None:
        subprocess.run([DEPLOY / "compose", *words], env=environment, check=True)  # noqa: S603  # our own script

    try:
        compose("up", "--detach")
        running = Stack(engine, project, image)
        running.party("ada").wait(timeout=120)
        yield running
    finally:
        compose("down", "--volumes", "--timeout", "5")


def test_the_analyst_gets_a_model_of_all_providers_rows(stack: Stack) -> None:
    ada = stack.party("ada")
    assert ada.attrs["State"]["ExitCode"] == 0
    assert a_line_names(ada.logs().decode(), "Price", "3 providers")


def test_healthy_containers_report_it(stack: Stack) -> None:
    assert {stack.party(name).attrs["State"]["Health"]["Status"] for name in DAEMONS} == {"healthy"}


def test_every_container_is_made_without_rights(stack: Stack) -> None:
    containers = stack.containers()
    assert len(containers) == 6
    for container in containers:
        host = container.attrs["HostConfig"]
        assert container.attrs["Config"]["User"] == USER
        assert host["Memory"] == host["MemorySwap"] > 0  # so many bytes, and no swap
        assert host["PidsLimit"] > 0
        assert [each for each in host["Ulimits"] if each["Name"] == "core" and each["Hard"] == 0]
        assert host["ReadonlyRootfs"]
        assert host["CapDrop"] == ["ALL"]
        assert not host["CapAdd"]
        assert not host["Privileged"]
        assert "no-new-privileges:true" in host["SecurityOpt"]
        assert not host["PortBindings"]


@pytest.mark.parametrize("name", DAEMONS)
def test_every_daemon_runs_without_rights(stack: Stack, name: str) -> None:
    container = stack.party(name)
    status = dict(line.split(":\t", 1) for line in told(container, "cat", "/proc/1/status").splitlines())
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {"10001"}
    assert {int(status[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert status["NoNewPrivs"] == "1"
    code, _ = container.exec_run(["touch", "/here"])
    assert code != 0


def test_only_its_party_and_the_enrolment_mount_a_volume(stack: Stack) -> None:
    users: dict[str, list[str]] = {}
    for container in stack.containers():
        for mount in container.attrs["Mounts"]:
            assert mount["Type"] == "volume"
            users.setdefault(mount["Name"], []).append(container.labels["com.docker.compose.service"])
    assert sorted(map(sorted, users.values())) == [sorted([name, "enrol"]) for name in ("ada", *sorted(DAEMONS))]


def test_the_enrolment_has_no_network(stack: Stack) -> None:
    assert stack.party("enrol").attrs["HostConfig"]["NetworkMode"] == "none"


def test_no_provider_listens_on_any_port(stack: Stack) -> None:
    assert open_sockets(stack.party("coordinator")) == {PORT}
    assert [open_sockets(stack.party(name)) for name in PROVIDERS] == [set()] * 3


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_reaches_the_coordinator(stack: Stack, name: str) -> None:
    assert opens(stack.party(name), [(stack.address("coordinator", name), PORT)]) == [True]


def test_a_provider_cannot_reach_another_or_the_analyst(stack: Stack) -> None:
    lines = ("south", "east", "ada")
    with ExitStack() as listeners:
        doors = [listeners.enter_context(stack.listener(f"{stack.project}_{line}")) for line in lines]
        places = [(attached(listener), port) for listener, port in doors]
        assert opens(stack.party("coordinator"), places) == [True] * 3
        places += [(stack.address("coordinator", line), PORT) for line in lines]
        assert opens(stack.party("north"), places) == [False] * 6


def test_neither_the_analyst_nor_another_provider_can_reach_a_provider(stack: Stack) -> None:
    north, ada = (f"{stack.project}_{line}" for line in ("north", "ada"))
    with stack.listener(north) as (listener, port), stack.listener(ada) as (analyst, _):
        place = (attached(listener), port)
        assert opens(stack.party("coordinator"), [place]) == [True]
        assert [opens(each, [place]) for each in (analyst, stack.party("south"))] == [[False], [False]]


def test_no_party_can_reach_the_outside_or_the_host(stack: Stack) -> None:
    lines = stack.engine.networks.list(filters=stack.own())
    with (
        stack.listener("bridge") as (outside, port),
        stack.listener("host") as (_, machine_port),
        stack.listener("bridge") as (neighbour, _),
    ):
        places = [(attached(outside), port), (attached(outside, "Gateway"), machine_port)]
        assert opens(neighbour, places) == [True, True]
        places += [(line.attrs["IPAM"]["Config"][0]["Gateway"], machine_port) for line in lines]
        assert len(places) == 6
        assert [opens(stack.party(name), places) for name in DAEMONS] == [[False] * 6] * 4


@pytest.mark.nightly
def test_a_provider_killed_in_the_middle_of_a_job_is_left_out_and_named(stack: Stack) -> None:
    lines = stack.submit(replace(LONG_JOB, answer_seconds=30))  # long enough for the others on a busy machine
    next(line for line in lines if line.startswith("10 of"))
    stack.party("east").kill()
    seen = list(lines)
    stack.party("east").start()
    (dropped,) = [line for line in seen if "dropped out:" in line]
    assert re.fullmatch(r"east dropped out: No answer to query \d+ within 30 seconds\.", dropped)
    assert a_line_names("\n".join(seen), "Price", "2 providers")


def test_the_job_waits_for_a_provider_that_stands_still(stack: Stack) -> None:
    lines = stack.submit(replace(LONG_JOB, answer_seconds=60))
    next(line for line in lines if line.startswith("10 of"))
    stack.party("east").kill(signal="STOP")  # the engine's own pause gives up on a busy machine
    stack.party("east").kill(signal="CONT")
    assert a_line_names("\n".join(lines), "Price", "3 providers")


@pytest.mark.nightly
def test_a_provider_that_is_restarted_in_time_takes_part_to_the_end(stack: Stack) -> None:
    lines = stack.submit(replace(LONG_JOB, answer_seconds=60))
    next(line for line in lines if line.startswith("10 of"))
    stack.party("east").restart(timeout=0)
    seen = "\n".join(lines)
    assert "dropped out:" not in seen
    assert a_line_names(seen, "Price", "3 providers")


@pytest.mark.parametrize("name", DAEMONS)
def test_a_daemon_stops_on_sigterm(stack: Stack, name: str) -> None:
    container = stack.party(name)
    begin = time.monotonic()
    container.stop(timeout=TIMEOUT)
    assert time.monotonic() - begin < TIMEOUT / 2
    assert stack.party(name).attrs["State"]["ExitCode"] == 0
    container.start()


@contextmanager
def demo(image: str) -> Iterator["subprocess.Popen[str]"]:
    environment = os.environ | {"DPSPCA_IMAGE": image}
    # Whoever runs the tests in the background ignores interrupts, and so would what they start.
    command = ["env", "--default-signal=INT", DEPLOY / "demo"]
    with subprocess.Popen(  # noqa: S603  # our own script
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        yield process


def assert_nothing_is_left(engine: Any, process: "subprocess.Popen[str]") -> None:
    left = Stack(engine, f"dpspca-demo-{process.pid}", "").own()
    assert engine.containers.list(all=True, filters=left) == []
    assert engine.networks.list(filters=left) == []
    assert engine.volumes.list(filters=left) == []


@pytest.mark.nightly
def test_the_demonstration_shows_its_result_and_leaves_nothing(engine: Any, image: str) -> None:
    with demo(image) as process:
        shown, _ = process.communicate(timeout=PROGRAM_TIMEOUT)  # it starts six containers, whatever else runs here
    assert process.returncode == 0
    assert a_line_names(shown, "Price", "3 providers")
    assert "explained variance" in shown
    assert_nothing_is_left(engine, process)


@pytest.mark.nightly
def test_a_demonstration_that_is_interrupted_leaves_nothing(engine: Any, image: str) -> None:
    with demo(image) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if "job " in line)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert_nothing_is_left(engine, process)
