"""Parties of a study enrol as real processes: in few commands, whatever the mailbox does, and whoever is killed."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

import numpy as np
import pytest
from coordinator_processes import free_port
from facts import a_line_names
from live import COMMAND, started
from local_federation import now, permissive_policy
from pages import commands
from timeouts import TIMEOUT

from dpspca.client.enrolment.signing import StudyOffice
from dpspca.common.storage import Address
from dpspca.common.transport import MailFolder
from dpspca.common.trust import SLOT_FILE, Identity
from dpspca.server.mailbox import unproven_tls

pytestmark = pytest.mark.slow
"""Each starts several processes."""

PARTIES = ("coordinator-hub", "provider-north", "provider-south", "provider-east", "analyst-ada")
STUDY = """
federation = "town"
coordinator = "hub"
address = "127.0.0.1:{address}"
mailbox = "127.0.0.1:{mailbox}"
providers = ["north", "south", "east"]
analysts = ["ada"]
invitation_days = 90
"""
KILLED_WHILE_SIGNING = """
import os, sys
from dpspca.cli import main
from dpspca.common.trust.authority import Authority

fatal, moment = int(sys.argv.pop(1)), sys.argv.pop(1)
record, count = Authority._record, 0

def mortal(self, act, **details):
    global count
    count += act == "issued"
    if act == "issued" and (count, moment) == (fatal, "before"):
        os.kill(os.getpid(), 9)
    record(self, act, **details)
    if act == "issued" and (count, moment) == (fatal, "after"):
        os.kill(os.getpid(), 9)

Authority._record = mortal
main.main()
"""
"""The program, which is killed right before or after it remembers the n-th certificate that it signs."""


class Town:
    """The folders of an authority and of the parties that it invites."""

    def __init__(self, folder: Path, clock: Callable[[], datetime] = now) -> None:
        self.folder = folder
        self.office = folder / "office"
        self.office.mkdir()
        self.commands = 0
        (self.office / "study.toml").write_text(STUDY.format(address=free_port(), mailbox=free_port()))
        self.study = StudyOffice.found(self.office / "study.toml", self.office / "authority", clock)
        self.study.invite(self.study.study.parties)
        self.commands += 1  # `dpspca study init`, in this process

    def run(self, *words: str, answer: str = "") -> "subprocess.CompletedProcess[str]":
        """Run a command at the authority."""
        self.commands += 1
        ended = subprocess.run(  # noqa: S603  # our own program
            [*COMMAND, *words],
            cwd=self.office,
            capture_output=True,
            input=answer,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
        assert ended.returncode == 0, ended.stderr
        return ended

    @contextmanager
    def joining(self, *parties: str) -> Iterator[dict[str, "subprocess.Popen[str]"]]:
        """Run `dpspca join` for these parties, each in a folder of its own."""
        running = {}
        with ExitStack() as stack:
            for name in parties:
                home = self.folder / name
                home.mkdir(exist_ok=True)
                invitation = self.office / "authority" / "invitations" / f"{name}.invitation"
                running[name] = subprocess.Popen(  # noqa: S603  # our own program
                    [*COMMAND, "join", str(invitation), "--folder", ".", "--json"],
                    cwd=home,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                stack.callback(_end, running[name])
                self.commands += 1
            yield running

    def wait_for_requests(self, count: int, mailbox: Path | None = None) -> None:
        """Wait until so many requests are in the mailbox."""
        end = time.monotonic() + TIMEOUT
        while len(list((mailbox or self.folder / "coordinator-hub" / "mailbox").glob("*.request"))) < count:
            assert time.monotonic() < end
            time.sleep(0.05)

    def identity(self, name: str) -> Identity:
        return Identity.load(self.folder / name / "identity")


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town(tmp_path)


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def finish(process: "subprocess.Popen[str]") -> dict[str, object]:
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, err
    return dict(json.loads(out))


def test_the_page_enrols_five_parties_in_seven_commands() -> None:
    """Those that the next test counts."""
    shown = [each.words for each in commands() if each.page == "docs/enrolment.md" and each.in_block]
    ours = [words for words in shown if words[0] in {"study", "join"}][:7]
    assert ours == [
        ("study", "init", "study.toml"),
        *(("join", f"{name}.invitation") for name in PARTIES),
        ("study", "sign"),
    ]


def test_five_parties_enrol_in_seven_commands_and_run_a_job(town: Town) -> None:
    """Init, five times join, sign. The settings that join writes start the daemons."""
    with town.joining(*PARTIES) as running:
        town.wait_for_requests(5)
        assert "Sign 5? [y/N]" in town.run("study", "sign", answer="y\n").stderr
        joined = {name: finish(each) for name, each in running.items()}
    assert town.commands == 7
    assert all(each["joined"] for each in joined.values())
    for name in PARTIES:
        assert b"PRIVATE" not in b"".join(
            path.read_bytes() for path in (town.folder / "coordinator-hub" / "mailbox").iterdir()
        )
        assert str(town.identity(name).name) == f"dpspca://town/{name.replace('-', '/')}"
    for name in PARTIES[1:4]:
        home = town.folder / name
        np.save(home / "rows.npy", np.random.default_rng(0).standard_normal((500, 8)))
        (home / "policy.toml").write_text(permissive_policy("row-add-remove"))
        with (home / "provider.toml").open("a") as settings:
            settings.write('cohort = "rows.npy"\n')
    with ExitStack() as stack:
        hub = town.folder / "coordinator-hub"
        stack.enter_context(started(hub, "coordinator", "start", "--config", "coordinator.toml", until="mailbox on"))
        assert states(hub) == dict.fromkeys(PARTIES[1:4], "away") | {"analyst-ada": "away"}
        for name in PARTIES[1:4]:
            words = ("provider", "start", "--config", "provider.toml")
            stack.enter_context(started(town.folder / name, *words, until="Connected"))
        asked = [*COMMAND, "run", "--config", "analyst.toml", "--data-set", "cohort", "--components", "1"]
        asked += ["--sparsity", "3", "--norm-bound", "4", "--unit", "row-add-remove"]
        asked += ["--epsilon", "4", "--delta", "1e-6", "--centering", "none"]
        ended = subprocess.run(  # noqa: S603  # our own program
            asked, cwd=town.folder / "analyst-ada", capture_output=True, text=True, check=False, timeout=5 * TIMEOUT
        )
        assert ended.returncode == 0, ended.stderr
        assert {each: state for each, state in states(hub).items() if state == "connected"}.keys() >= {*PARTIES[1:4]}


def states(hub: Path) -> dict[str, str]:
    """Return the state of every party that a running coordinator knows: those of its mailbox too."""
    shown = subprocess.run(  # noqa: S603  # our own program
        [*COMMAND, "coordinator", "show", "--config", "coordinator.toml", "--json"],
        cwd=hub,
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT,
    )
    return {f"{each['role']}-{each['name']}": each["state"] for each in json.loads(shown.stdout)["parties"]}


def test_a_slot_says_something_of_its_owner_alone(town: Town) -> None:
    """Anybody may leave anything in their own slot, also somebody else's certificate."""
    with town.joining(*PARTIES) as running:
        town.wait_for_requests(5)
        town.run("study", "sign", "--yes")
        for each in running.values():
            finish(each)
    hub = town.folder / "coordinator-hub"
    north, south, *_ = sorted((hub / "mailbox").glob("provider-*.certificate"))
    north.write_bytes(south.read_bytes())
    south.write_bytes(b"nothing of the kind")
    with started(hub, "coordinator", "start", "--config", "coordinator.toml", until="mailbox on"):
        found = states(hub)
    providers = [state for name, state in found.items() if name.startswith("provider")]
    assert sorted(providers) == ["away", "unknown", "unknown"]


def test_a_party_that_joins_late_is_served_by_the_running_coordinator(town: Town) -> None:
    """From the folder that its settings name: beside the settings, a container or a service often may not write."""
    with town.joining("coordinator-hub") as running:
        town.wait_for_requests(1)
        town.run("study", "sign", "--yes")
        finish(running["coordinator-hub"])
    hub = town.folder / "coordinator-hub"
    with (hub / "coordinator.toml").open("a") as settings:
        settings.write('mailbox_folder = "state/kept"\n')
    (hub / "state").mkdir()
    (hub / "mailbox").rename(hub / "state" / "kept")
    daemon = started(hub, "coordinator", "start", "--config", "coordinator.toml", until="mailbox on")
    with daemon, town.joining("analyst-ada") as late:
        town.wait_for_requests(1, hub / "state" / "kept")
        town.run("study", "sign", "--yes")
        assert finish(late["analyst-ada"])["joined"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_t44_an_authority_killed_while_it_signs_signs_each_party_once(town: Town, moment: str) -> None:
    """`kill -9` before or after it remembers: the next signing ends with one certificate for each party."""
    with town.joining("coordinator-hub", "provider-north") as running:
        town.wait_for_requests(2)
        killed = subprocess.run(  # noqa: S603  # our own program
            [sys.executable, "-c", KILLED_WHILE_SIGNING, "1", moment, "study", "sign", "--yes"],
            cwd=town.office,
            capture_output=True,
            check=False,
            timeout=TIMEOUT,
        )
        assert killed.returncode == -signal.SIGKILL
        assert all(each.poll() is None for each in running.values()), "nothing was delivered"
        signed = json.loads(town.run("study", "sign", "--yes", "--json").stdout)["requests"]
        joined = {name: finish(each) for name, each in running.items()}
    assert all(each["joined"] for each in joined.values())
    certificates = json.loads(town.run("study", "show", "--json").stdout)["certificates"]
    assert sorted(each["name"] for each in certificates) == sorted(
        f"dpspca://town/{name.replace('-', '/')}" for name in running
    )
    before = {each["outcome"] for each in signed}
    assert before == ({"enrols"} if moment == "before" else {"enrols", "signed before"})


def test_a_party_that_is_killed_while_it_joins_goes_on_with_the_same_key(town: Town) -> None:
    with town.joining("coordinator-hub", "provider-north") as running:
        town.wait_for_requests(2)
        running["provider-north"].kill()
        running["provider-north"].communicate()
        with town.joining("provider-north") as again:
            town.run("study", "sign", "--yes")
            assert finish(again["provider-north"])["joined"]
        finish(running["coordinator-hub"])
    assert len(town.study.authority.list()) == 2


FREQUENT_LOOKS = """
from dpspca.cli import main
from dpspca.common.transport import certificate_renewal

certificate_renewal.LOOK_SECONDS = 0.3
main.main()
"""
"""The program, which looks into the mailbox several times a second."""


class Daemon:
    """A daemon that looks often, and its log."""

    def __init__(self, home: Path, role: str) -> None:
        command = [sys.executable, "-c", FREQUENT_LOOKS, role, "start", "--config", f"{role}.toml"]
        self.log = home / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=home, stderr=log)  # noqa: S603  # our own program

    def says(self, *words: str) -> None:
        """Wait until the log has all these words."""
        end = time.monotonic() + TIMEOUT
        while not all(each in self.log.read_text() for each in words):
            assert time.monotonic() < end, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(TIMEOUT)


def town_of_long_ago(folder: Path, *parties: str) -> Town:
    """Found a town whose parties joined 25 days ago."""
    town = Town(folder, lambda: now() - timedelta(days=25))
    with town.joining(*parties) as running:
        town.wait_for_requests(len(parties))
        mailbox = MailFolder(folder / "coordinator-hub" / "mailbox")
        town.study.sign(town.study.candidates(mailbox), mailbox)
        for each in running.values():
            finish(each)
    return town


def test_daemons_renew_and_fetch_revocations_while_they_run(tmp_path: Path) -> None:
    """Their certificates are 25 days old. They ask, warn and go on; after `study sign` they have new ones."""
    town = town_of_long_ago(tmp_path, "coordinator-hub", "provider-north")
    home = tmp_path / "provider-north"
    np.save(home / "rows.npy", np.zeros((50, 4)))
    (home / "policy.toml").write_text(permissive_policy("row-add-remove"))
    with (home / "provider.toml").open("a") as settings:
        settings.write('cohort = "rows.npy"\n')
    before = town.identity("provider-north")
    with ExitStack() as stack:
        hub = Daemon(tmp_path / "coordinator-hub", "coordinator")
        stack.callback(hub.stop)
        hub.says("mailbox on", "The certificate of dpspca://town/coordinator/hub ends in 4 days")
        north = Daemon(home, "provider")
        stack.callback(north.stop)
        north.says("Connected", "Asked the authority to renew", "The revocation list ends in 4 days")
        town.wait_for_requests(2)
        health = [*COMMAND, "health", "--config", "provider.toml", "--json"]
        told = json.loads(subprocess.run(health, cwd=home, capture_output=True, check=True).stdout)  # noqa: S603  # our own program
        assert told["passed"]
        assert [each.partition(" ends in")[0] for each in told["warnings"]] == [
            "The certificate of dpspca://town/provider/north",
            "The revocation list",
        ]
        signed = json.loads(town.run("study", "sign", "--yes", "--json").stdout)["requests"]
        assert [each["outcome"] for each in signed] == ["renews", "renews"]
        north.says("A renewed certificate is in use")
        hub.says("A renewed certificate is in use")
        assert town.identity("provider-north").not_after > before.not_after + timedelta(days=20)
        told = json.loads(subprocess.run(health, cwd=home, capture_output=True, check=True).stdout)  # noqa: S603  # our own program
        assert (told["passed"], told["warnings"]) == (True, [])
        town.run("study", "revoke", "provider/north", "--yes")
        hub.says("Installed the revocation list")
        north.says("Installed the revocation list")
        end = time.monotonic() + TIMEOUT
        while subprocess.run(health, cwd=home, capture_output=True, check=False).returncode == 0:  # noqa: S603  # our own program
            assert time.monotonic() < end, "a revoked provider is disconnected"


def test_an_analysts_commands_renew_while_they_connect(tmp_path: Path) -> None:
    """The certificates are 25 days old. One command asks, the authority signs, and the next one installs."""
    town = town_of_long_ago(tmp_path, "coordinator-hub", "analyst-ada")
    before = town.identity("analyst-ada")
    command = [*COMMAND, "datasets", "--config", "analyst.toml", "--json"]
    slot = tmp_path / "analyst-ada" / "identity" / SLOT_FILE
    kept = slot.read_bytes()
    with started(tmp_path / "coordinator-hub", "coordinator", "start", "--config", "coordinator.toml", until="Serving"):
        for renewed in (False, True):
            done = subprocess.run(command, cwd=tmp_path / "analyst-ada", capture_output=True, text=True, check=False)  # noqa: S603  # our own program
            assert (done.returncode, done.stdout) == (0, '{\n  "data_sets": []\n}\n'), done.stderr
            assert (town.identity("analyst-ada").certificate_pem != before.certificate_pem) is renewed
            if not renewed:
                town.run("study", "sign", "--yes")
                slot.write_bytes(b"nonsense")
                done = subprocess.run(  # noqa: S603  # our own program
                    command, cwd=tmp_path / "analyst-ada", capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, done.stderr
                assert a_line_names(done.stderr, "not renewed", SLOT_FILE)
                slot.write_bytes(kept)
    assert town.identity("analyst-ada").not_after > before.not_after + timedelta(days=20)


class LyingMailbox:
    """A coordinator's mailbox that drops, swaps and replays: it holds what it wants."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.held: dict[str, bytes] = {}
        self.drops = 0
        self.swap: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self.address.host, self.address.port, ssl=unproven_tls())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heading = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = heading.split(maxsplit=2)
        size = int(heading.lower().partition("content-length:")[2].split()[0])
        body = await reader.readexactly(size)
        if self.drops:
            self.drops -= 1
            writer.close()
            return
        if method == "PUT":
            self.held[path] = body
            reply = b""
        else:
            reply = self.held.get(self.swap.get(path, path), b"")
        status = "200 OK" if reply or method == "PUT" else "404 Not Found"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(reply)}\r\n\r\n".encode() + reply)
        await writer.drain()
        writer.close()


def test_t44_a_mailbox_that_drops_and_swaps_delays_but_deceives_no_party(town: Town) -> None:
    """It swaps the requests and the certificates of two parties, and drops calls. Nobody gets another's certificate."""
    names = ("provider-north", "provider-south")

    async def main() -> None:
        assert town.study.study.mailbox
        async with LyingMailbox(town.study.study.mailbox) as mailbox:
            mailbox.drops = 3
            with town.joining(*names) as running:
                async with asyncio.timeout(TIMEOUT):
                    while len(mailbox.held) < 2:  # noqa: ASYNC110  # it tells nobody
                        await asyncio.sleep(0.05)
                paths = sorted({path.rpartition("/")[0] for path in mailbox.held})
                for kind in ("request", "certificate"):
                    ours, theirs = (f"{path}/{kind}" for path in paths)
                    mailbox.swap |= {ours: theirs, theirs: ours}
                await asyncio.to_thread(town.run, "study", "sign", "--yes")
                await asyncio.sleep(3)
                swapped = all(each.poll() is None for each in running.values())
                mailbox.swap.clear()
                await asyncio.to_thread(town.run, "study", "sign", "--yes")
                for each in running.values():
                    await asyncio.to_thread(finish, each)
                assert swapped or all(town.identity(name) for name in names)

    asyncio.run(main())
    for name in names:
        assert town.identity(name).name.name == name.rpartition("-")[2]
    assert len(town.study.authority.list()) == 2
