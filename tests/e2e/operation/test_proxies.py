"""Parties reach the coordinator through a real HTTP proxy if their settings name one, and only then."""

import asyncio
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from coordinator_processes import free_port
from daemons import daemons
from facts import facts
from local_federation import now, permissive_policy, spec
from timeouts import TIMEOUT

from dpspca.client.enrolment import Joining, StudyOffice
from dpspca.client.federation import AsyncFederation
from dpspca.common.errors import InvalidParameterError
from dpspca.common.names import PartyName, Role
from dpspca.common.storage import Address, files
from dpspca.common.storage.routes import ProxyAddress, Route
from dpspca.common.storage.settings import ProviderSettings, read_settings
from dpspca.common.transport import Mail, MailboxAwayError, MailFolder, RemoteMailbox
from dpspca.common.trust import identity, slot_of
from dpspca.server.mailbox import MailboxServer

PROGRAM = shutil.which("tinyproxy")
VARIABLES = ("http_proxy", "https_proxy", "grpc_proxy", "HTTPS_PROXY", "ALL_PROXY")
ROWS = {"north": {"cohort": np.random.default_rng(3).standard_normal((300, 30))}}
needs_proxy = pytest.mark.skipif(PROGRAM is None, reason="tinyproxy is not installed (Debian's package tinyproxy-bin)")


@dataclass
class Proxy:
    """A running tinyproxy, and its log."""

    port: int
    log: Path

    @property
    def connects(self) -> list[str]:
        """The addresses that clients asked for."""
        return re.findall(r"CONNECT (\S+) HTTP", self.log.read_text())


@contextmanager
def tinyproxy(folder: Path, allowed: int, *more: str) -> Iterator[Proxy]:
    assert PROGRAM
    port, settings, log = free_port(), folder / "tinyproxy.conf", folder / "tinyproxy.log"
    lines = (f"Port {port}", "Listen 127.0.0.1", "Timeout 600", f'LogFile "{log}"', "LogLevel Connect", *more)
    settings.write_text("\n".join((*lines, "Allow 127.0.0.1", f"ConnectPort {allowed}", "")))
    with subprocess.Popen([PROGRAM, "-d", "-c", settings]) as process:  # noqa: S603  # Debian's own
        try:
            yield Proxy(port, log)
        finally:
            process.send_signal(signal.SIGTERM)


def until_it_listens(port: int) -> None:
    end = time.monotonic() + TIMEOUT
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.05)
        else:
            return


def health(folder: Path) -> int:
    command = [sys.executable, "-m", "dpspca", "health", "--config", "north.toml"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode  # noqa: S603  # our own


@pytest.mark.slow
@needs_proxy
def test_a_job_runs_through_a_proxy_with_credentials(tmp_path: Path) -> None:
    port = free_port()

    async def scene() -> None:
        async with daemons(tmp_path, f"127.0.0.1:{port}", permissive_policy(), ROWS) as town:
            north, settings = town.providers["north"], tmp_path / "north.toml"
            direct = settings.read_text()
            through = f'proxy = "http://127.0.0.1:{proxy.port}"\nproxy_credentials = "secret"\n'
            files.create(tmp_path / "secret", b"ward:wrong\n")
            await asyncio.to_thread(settings.write_text, through + direct)
            north.send(signal.SIGHUP)
            await north.says("HTTP proxy returned response code 4")  # it wants other credentials
            files.replace(tmp_path / "secret", b"ward:moon\n")
            north.send(signal.SIGHUP)
            async with asyncio.timeout(TIMEOUT):
                while north.said.count("Connected") < 2:  # noqa: ASYNC110  # another process
                    await asyncio.sleep(0.05)
            ada = tmp_path / "ada.toml"
            await asyncio.to_thread(ada.write_text, through + ada.read_text())
            async with AsyncFederation.connect(ada) as analyst:
                model = await (await analyst.submit(spec(), "cohort", ["north"])).result()
            assert model.statement.parties == 1
            assert await asyncio.to_thread(health, tmp_path) == 0
            assert set(proxy.connects) == {f"127.0.0.1:{port}"}
            assert len(proxy.connects) >= 3  # provider, analyst, health check
            log = (tmp_path / "north.log").read_text()
            assert f"by the proxy 127.0.0.1:{proxy.port}" in log
            assert "moon" not in log

    with tinyproxy(tmp_path, port, "BasicAuth ward moon") as proxy:
        asyncio.run(scene())


@pytest.mark.slow
@needs_proxy
def test_a_proxy_in_the_environment_redirects_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on the way to another machine, for which gRPC itself would take it: here, one of another loopback name."""
    port = free_port()

    async def scene() -> None:
        async with daemons(tmp_path, f"127.0.0.1:{port}", permissive_policy(), ROWS) as town:
            for where in (town.address, f"127.0.0.2:{port}"):
                async with AsyncFederation(where, town.ada, retry_seconds=0) as analyst:
                    await asyncio.gather(analyst.data_sets(), return_exceptions=True)
            assert proxy.connects == []

    with tinyproxy(tmp_path, port) as proxy:
        for name in VARIABLES:
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        asyncio.run(scene())


@pytest.mark.slow
@needs_proxy
@pytest.mark.parametrize("exception", ["127.0.0.1", "*", "localhost,127.0.0.0/8"])
def test_an_exception_in_the_environment_does_not_go_round_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exception: str
) -> None:
    nobody = free_port()

    async def scene() -> None:
        async with daemons(tmp_path, f"127.0.0.1:{free_port()}", permissive_policy(), {}) as town:
            route = Route.of(address(nobody), ProxyAddress.parse(f"http://127.0.0.1:{proxy.port}"), None)
            async with AsyncFederation(route, town.ada, retry_seconds=0) as analyst:
                await asyncio.gather(analyst.data_sets(), return_exceptions=True)
            assert f"127.0.0.1:{nobody}" in proxy.connects

    with tinyproxy(tmp_path, nobody) as proxy:
        monkeypatch.setenv("no_proxy", exception)
        asyncio.run(scene())


def address(port: int) -> Address:
    return ProxyAddress.parse(f"http://127.0.0.1:{port}").address


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('proxy = "proxy:3128"', "http://HOST:PORT"),
        ('proxy = "https://proxy:3128"', "TLS to the proxy"),
        ('proxy = "http://ward:moon@proxy:3128"', "proxy_credentials"),
        ('proxy = "http://proxy"', "HOST:PORT"),
        ("proxy = 3", "http://HOST:PORT"),
    ],
)
def test_settings_with_a_wrong_proxy_are_refused(tmp_path: Path, line: str, words: str) -> None:
    settings = tmp_path / "north.toml"
    settings.write_text(
        f'{line}\ncoordinator = "hub:1"\nidentity = "i"\nrevocations = "r"\npolicy = "p"\n[data_sets]\ncohort = "c"\n'
    )
    with pytest.raises(InvalidParameterError) as caught:
        read_settings(ProviderSettings, settings)
    assert words in str(caught.value)
    assert "moon" not in str(caught.value)


def test_credentials_have_to_be_in_a_private_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("ward:moon")
    proxy = ProxyAddress.parse("http://proxy.example:3128/")
    files.create(tmp_path / "empty", b"moon\n")
    with pytest.raises(InvalidParameterError, match=facts(tmp_path / "empty", "USER:PASSWORD")):
        Route.of(proxy.address, proxy, tmp_path / "empty")
    (tmp_path / "secret").chmod(0o600)
    route = Route.of(proxy.address, proxy, tmp_path / "secret")
    assert route.credentials == "ward:moon"
    assert "moon" not in repr(route) + str(route)


STUDY = """
federation = "town"
coordinator = "hub"
address = "127.0.0.1:7443"
mailbox = "127.0.0.1:{port}"
providers = ["north"]
analysts = []
proxy = "http://127.0.0.1:{proxy}"
proxy_credentials = "{folder}/secret"
"""


@pytest.mark.slow
@needs_proxy
def test_join_sign_and_renewal_reach_the_mailbox_by_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its credentials, also on this machine, and whatever the environment says."""
    port = free_port()

    async def scene() -> None:
        (tmp_path / "study.toml").write_text(STUDY.format(port=port, proxy=proxy.port, folder=tmp_path))
        files.create(tmp_path / "secret", b"ward:moon\n")
        office = await asyncio.to_thread(StudyOffice.found, tmp_path / "study.toml", tmp_path / "authority", now)
        invitation = office.invite(office.study.parties)[1][0]
        authority = office.authority
        server = MailboxServer(MailFolder(tmp_path / "mailbox"), authority.mailbox_key(), authority.certificate_pem)
        await server.start(Address(f"127.0.0.1:{port}"))
        through = ProxyAddress.parse(f"http://127.0.0.1:{proxy.port}")
        joining = Joining(invitation, tmp_path / "north", None, through, tmp_path / "secret")
        request = joining.request()
        assert await joining.run(request, print, wait=False) is None
        sign = [sys.executable, "-m", "dpspca", "study", "sign", "--yes"]
        await asyncio.to_thread(subprocess.run, sign, cwd=tmp_path, check=True)
        assert await joining.run(request, print, wait=False)
        assert joining.write_settings({"cohort": "rows.csv"}, "policy.toml")
        office.authority.revoke(invitation.party)
        await asyncio.to_thread(subprocess.run, [*sign[:-2], "publish"], cwd=tmp_path, check=True)
        before = len(proxy.connects)
        renew = [sys.executable, "-m", "dpspca", "identity", "renew", "--config", joining.settings, "--if-due"]
        await asyncio.to_thread(subprocess.run, renew, check=True)
        assert len(proxy.connects) > before
        listed = identity.load_revocations(joining.folder / "revoked.pem", authority.certificate_pem)
        assert len(listed.serials) == 1
        await server.stop()

    with tinyproxy(tmp_path, port, "BasicAuth ward moon") as proxy:
        for name in VARIABLES:
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        asyncio.run(scene())
        assert set(proxy.connects) == {f"127.0.0.1:{port}"}


@pytest.mark.slow
@needs_proxy
def test_a_mailbox_behind_a_proxy_that_refuses_says_its_answer(tmp_path: Path) -> None:
    with tinyproxy(tmp_path, free_port()) as proxy:
        until_it_listens(proxy.port)
        route = Route(address(free_port()), address(proxy.port))
        with pytest.raises(MailboxAwayError, match=facts(route.proxy, 403)):
            RemoteMailbox(route).get(slot_of(bytes(32), PartyName("town", Role.PROVIDER, "north")), Mail.CERTIFICATE)
