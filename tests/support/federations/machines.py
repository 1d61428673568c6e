"""Machines whose first process is systemd, for tests of units: containers, set up by the commands of a page.

systemd needs three things that an engine does not give by itself: a tree of control groups that it may write to, mounts
that reach other processes (credentials), and the rights to make name spaces and to look at the processes in them.
Packages are those of an image of dpspca, in a volume: no machine installs them again.
"""

import io
import re
import secrets
import tarfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timeouts import TIMEOUT

INSTALLED = "/opt/dpspca"
COPY = "/srv"
"""Where root has what it would have in a copy of the repository."""
BOOT = f"""
umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && mount --make-rshared / || exit 1
python=$(readlink {INSTALLED}/bin/python3)  # in the image it may be elsewhere than here
[ -e "$python" ] || ln -s /usr/bin/python3 "$python"
exec /lib/systemd/systemd
"""
RIGHTS = ["SYS_ADMIN", "SYS_PTRACE"]
UNCONFINED = ["seccomp=unconfined", "apparmor=unconfined"]


@dataclass(frozen=True)
class Machine:
    """A machine that has booted."""

    container: Any

    def tried(self, *words: str, user: str = "root") -> tuple[int, str]:
        code, output = self.container.exec_run(list(words), user=user, workdir=COPY if user == "root" else "/")
        return code, output.decode()

    def run(self, *words: str) -> str:
        code, output = self.tried(*words)
        assert code == 0, output
        return output

    def script(self, text: str) -> str:
        """Run lines as an operator types them, until one fails."""
        return self.run("sh", "-exc", text)

    def until_it_works(self, *words: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while (done := self.tried(*words))[0] != 0:
            assert time.monotonic() < deadline, done[1]
            time.sleep(0.5)

    def put(self, path: str, content: bytes) -> None:
        """Write a file that everybody can read, as an editor does, and the folders above it."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        assert self.container.put_archive("/", buffer.getvalue())

    def put_folder(self, path: str, folder: Path) -> None:
        for file in folder.iterdir():
            self.put(f"{path}/{file.name}", file.read_bytes())

    def address(self) -> str:
        self.container.reload()
        (network,) = self.container.attrs["NetworkSettings"]["Networks"].values()
        found: str = network["IPAddress"]
        return found

    # --- Units ---

    def shown(self, unit: str, key: str) -> str:
        """Return what systemd knows of a unit."""
        return self.run("systemctl", "show", "--property", key, "--value", unit).strip()

    def until(self, unit: str, **wanted: str) -> None:
        """Wait until a unit is as wanted."""
        deadline = time.monotonic() + TIMEOUT
        while (seen := {key: self.shown(unit, key) for key in wanted}) != wanted:
            assert time.monotonic() < deadline, f"{seen}\n{self.journal(unit)}"
            time.sleep(0.2)

    def until_it_says(self, unit: str, words: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while words not in self.journal(unit):
            assert time.monotonic() < deadline, self.journal(unit)
            time.sleep(0.2)

    def journal(self, unit: str, *words: str) -> str:
        """Return the messages of a unit, without times."""
        return self.run("journalctl", "--unit", unit, "--output", "cat", "--no-pager", "--quiet", *words)

    def status(self, unit: str) -> dict[str, str]:
        """Return what the kernel says of a unit's main process."""
        lines = self.run("cat", f"/proc/{self.shown(unit, 'MainPID')}/status").splitlines()
        return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


@contextmanager
def machines(engine: Any, base: str, image: str, *names: str) -> Iterator[list[Machine]]:
    """Boot machines of a base image in a network of their own, with names that lead to each other.

    They have what is installed in an image of dpspca. All is removed at the end.
    """
    project = f"dpspca-test-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        network = engine.networks.create(project)
        stack.callback(network.remove)
        volume = engine.volumes.create(project)
        stack.callback(volume.remove)
        # The engine fills an empty volume with what an image has in its place.
        engine.containers.create(image, volumes={project: {"bind": INSTALLED}}).remove()
        made = []
        for name in names:
            endpoint = engine.api.create_endpoint_config(aliases=[name])
            container = engine.containers.run(
                base,
                ["sh", "-c", BOOT],
                name=f"{project}-{name}",
                network=project,
                networking_config={project: endpoint},
                cap_add=RIGHTS,
                security_opt=UNCONFINED,
                cgroupns="private",
                environment={"container": "docker"},
                volumes={project: {"bind": INSTALLED, "mode": "ro"}},
                tmpfs={"/run": "", "/tmp": ""},  # noqa: S108  # in the container
                mem_limit="2g",
                stop_signal="SIGRTMIN+3",
                detach=True,
            )
            stack.callback(container.remove, force=True, v=True)
            made.append(Machine(container))
        for machine in made:
            _wait_until_booted(machine)
        yield made


def _wait_until_booted(machine: Machine) -> None:
    deadline = time.monotonic() + TIMEOUT
    while machine.tried("systemctl", "is-system-running")[1].strip() != "running":
        machine.container.reload()
        assert machine.container.status == "running", machine.container.logs().decode()
        assert time.monotonic() < deadline, machine.tried("systemctl", "--failed", "--no-pager")
        time.sleep(0.2)


def blocks(page: Path, heading: str) -> list[str]:
    """Return the blocks under a heading of a page, each with its lines."""
    return blocks_of(section(page, heading))


def section(page: Path, heading: str) -> str:
    """Return what is under a heading of a page."""
    (found,) = re.findall(
        rf"^## {heading}\n(.*?)(?=^## |\Z)", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    return str(found)


def blocks_of(text: str) -> list[str]:
    """Return the blocks in a part of a page, also in items of its lists, each with its lines."""
    return [textwrap.dedent(block) for block in re.findall(r"^ *```\w+\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)]
