"""Daemons count what they do, and a page shows it to whoever reaches the operator's address, whatever callers send."""

import asyncio
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approvals import Site, human_policy
from ipv6 import needs_ipv6
from ledgers import LIMITS, Place, opening, respond
from live import live_parties, started
from local_federation import Enrolment, RunningFederation, federation, now, permissive_policy, spec

from dpspca.client.connection import JobFailedError
from dpspca.client.connection.errors import FederationError
from dpspca.common.names import Role
from dpspca.common.transport import MetricsPage, metrics_page
from dpspca.provider.approval import ApprovalRequest, RequestState
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.jobs import ProviderSetup
from dpspca.provider.metrics import ProviderMetrics
from dpspca.provider.policy import Policy


def number(text: str, series: str) -> float:
    """Return one number of a page; 0 if it is not there."""
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def play(
    folder: Path, scene: Callable[[RunningFederation], Any], names: tuple[str, ...] = ("site-0", "site-1")
) -> None:
    async def perform() -> None:
        async with federation(Enrolment.create(folder), names) as running:
            await scene(running)

    asyncio.run(perform())


def test_a_coordinator_counts_connections_jobs_times_bytes_and_refusals(tmp_path: Path) -> None:
    async def scene(running: RunningFederation) -> None:
        metrics = running.coordinator.metrics
        before = number(metrics.text(), 'dpspca_bytes_total{direction="received"}')
        job = await running.analyst.submit(spec(), "cohort")
        await job.model()
        with pytest.raises(FederationError):
            await running.analyst.job("0" * 64)
        strict = Policy.parse(permissive_policy("row-add-remove"))
        await running.start("site-2", policy=lambda: strict)
        refused = await running.analyst.submit(spec(), "cohort", ["site-2"])
        with pytest.raises(JobFailedError):
            await refused.model()
        text = metrics.text()
        assert number(text, 'dpspca_connections{role="provider"}') == 3
        assert number(text, 'dpspca_connections{role="analyst"}') >= 1
        assert (number(text, "dpspca_providers_connected"), number(text, "dpspca_serving")) == (3, 1)
        assert number(text, 'dpspca_jobs_ended_total{state="done"}') == 1
        assert number(text, 'dpspca_jobs_ended_total{state="failed"}') == 1
        assert number(text, "dpspca_answer_seconds_count") == 2 * len(job.plan)
        assert number(text, 'dpspca_call_seconds_count{method="Submit"}') == 2
        assert number(text, 'dpspca_refusals_total{by="coordinator",code="refused"}') == 1
        assert number(text, 'dpspca_refusals_total{by="provider",code="refused"}') == 1
        assert number(text, 'dpspca_bytes_total{direction="received"}') > before > 0
        assert number(text, 'dpspca_bytes_total{direction="sent"}') > 0
        assert "ada" not in text
        assert job.name not in text

    play(tmp_path, scene)


def test_a_provider_counts_its_budget_and_the_days_of_its_certificate(tmp_path: Path) -> None:
    enrolment = Enrolment.create(tmp_path)
    north, revoked = enrolment.identity(Role.PROVIDER, "north", days=20), enrolment.revocations()
    policy = Policy.parse(permissive_policy())
    rows = np.random.default_rng(0).standard_normal((9, 4))
    sets = {"cohort": check_rows(rows), "closed": check_rows(rows + 1)}
    setup = ProviderSetup("", lambda: north, lambda: revoked, now, sets, lambda: policy)
    text = ProviderMetrics(setup, lambda: False).text()
    whole = number(text, 'dpspca_budget_mu{data_set="cohort"}')
    assert number(text, 'dpspca_budget_left_mu{data_set="cohort"}') == pytest.approx(whole)
    assert whole > 8
    assert "closed" not in text
    assert 19 < number(text, "dpspca_certificate_days") < 20.1
    assert (number(text, "dpspca_provider_connected"), number(text, "dpspca_ledger_quarantined")) == (0, 0)
    for others in ({"cohort": check_rows(100 * rows)}, {"cohort": check_rows(rows[:5])}):
        setup.data_sets = others
        again = ProviderMetrics(setup, lambda: False).text()
        assert _without_days(again) == _without_days(text)  # nothing follows from a row


@pytest.mark.parametrize(
    ("policy", "closed"),
    [
        (permissive_policy(), 0),
        (permissive_policy() + "[data_sets.labs]\n", 1),
        ("[data_sets.cohort]\n", 1),
        ("no policy", 1),
    ],
)
def test_a_quarantine_and_a_closed_policy_show_each_by_itself(tmp_path: Path, policy: str, closed: int) -> None:
    enrolment = Enrolment.create(tmp_path / "town")
    north, revoked = enrolment.identity(Role.PROVIDER, "north"), enrolment.revocations()
    rules, rows = Policy.readable_part(policy)[0], {"cohort": check_rows(np.eye(4))}
    place = Place(tmp_path / "ledger" / "ledger.db", tmp_path / "head" / "head")
    for quarantined in (0, 1):
        with place.start() as ledger:
            setup = ProviderSetup("", lambda: north, lambda: revoked, now, rows, lambda: rules, ledger)
            page = ProviderMetrics(setup, lambda: False).text()
            assert number(page, "dpspca_ledger_quarantined") == quarantined
            assert number(page, "dpspca_policy_unreadable") == closed
            if not quarantined:
                ledger.open(opening(), LIMITS)
                respond(ledger, "job", 0)
        place.head.unlink()


def test_a_provider_counts_jobs_that_wait_for_a_person_and_since_when(tmp_path: Path) -> None:
    enrolment = Enrolment.create(tmp_path / "town")
    site = Site.made(enrolment, "north", human_policy())
    with site.open() as given:
        setup = ProviderSetup("", lambda: site.identity, enrolment.revocations, now, {}, **given)
        assert number(ProviderMetrics(setup, lambda: False).text(), "dpspca_approval_waiting_jobs") == 0
        asked_at = int(now().timestamp()) - 7200
        waits = ApprovalRequest(
            "0" * 64, "dpspca://town/analyst/ada", "cohort", asked_at, 2**40, 2**40, RequestState.WAITING
        )
        given["approvals"].queue.ask(waits, b"signed", 5)
        text = ProviderMetrics(setup, lambda: False).text()
        assert number(text, "dpspca_approval_waiting_jobs") == 1
        assert number(text, "dpspca_approval_waiting_hours") == pytest.approx(2, abs=0.01)


def _without_days(text: str) -> str:
    return re.sub(r"dpspca_(certificate|revocation_list)_days .*", "", text)


# --- The page ---------------------------------------------------------------------------------------------------------


async def asked(address: str, content: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(content)
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_t35_whatever_is_sent_to_the_page_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_page, "READ_SECONDS", 0.3)

    async def scenario() -> None:
        page = MetricsPage(lambda: "a 1\n")
        await page.start("127.0.0.1", 0)
        good = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert (await asked(page.address, good)).endswith(b"\r\n\r\na 1\n")
        assert (await asked(page.address, good)).startswith(b"HTTP/1.1 200 OK\r\n")
        for odd in (b"GET / HTTP/1.1\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n", b"\r\n\r\n", b"\xff\x00\r\n\r\n"):
            assert (await asked(page.address, odd)).startswith(b"HTTP/1.1 404")
        assert await asked(page.address, b"GET /metrics") == b""  # never finished
        assert await asked(page.address, b"x" * 100_000) == b""
        silent = [asked(page.address, b"") for _ in range(40)]
        await asyncio.gather(*silent)
        assert (await asked(page.address, good)).startswith(b"HTTP/1.1 200 OK\r\n")
        await page.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("127.0.0.1:9464", True),
        ("127.9.9.9", True),
        ("[::1]:9464", True),
        ("localhost:9464", True),
        ("evil.example", False),
        ("evil.example:9464", False),
        ("127.0.0.1.evil.example", False),
        ("localhost, evil.example", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_a_name_that_points_to_this_machine_is_not_served(host: str, served: bool) -> None:
    async def scenario() -> None:
        page = MetricsPage(lambda: "a 1\n")
        await page.start("127.0.0.1", 0)
        for heading in (f"Host: {host}\r\n", f"Host: localhost\r\nhOST:{host}\r\n"):
            reply = await asked(page.address, f"GET /metrics HTTP/1.1\r\n{heading}\r\n".encode())
            assert reply.startswith(b"HTTP/1.1 200" if served else b"HTTP/1.1 421"), reply
            assert (b"a 1" in reply) is served
        await page.stop()

    asyncio.run(scenario())


@needs_ipv6
def test_the_address_of_a_page_on_ipv6_can_be_fetched() -> None:
    async def scenario() -> None:
        page = MetricsPage(lambda: "a 1\n")
        await page.start("::1", 0)
        assert page.address.startswith("[::1]:")
        read = await asyncio.to_thread(urllib.request.urlopen, f"http://{page.address}/metrics", timeout=20)
        assert read.read() == b"a 1\n"
        await page.stop()

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def enrolment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("town")
    with live_parties(folder):
        yield folder


@pytest.mark.slow
def test_daemons_serve_metrics_only_if_their_settings_name_an_address(enrolment: Path) -> None:
    west = enrolment / "west.toml"
    west.write_text(west.read_text().replace("[data_sets]", 'metrics = "127.0.0.1:0"\n[data_sets]'))
    with started(enrolment, "provider", "start", "--config", "west.toml", until="metrics on") as line:
        address = line.split()[-1]
        with urllib.request.urlopen(address, timeout=20) as reply:  # noqa: S310  # our own daemon
            text = reply.read().decode()
        assert number(text, "dpspca_certificate_days") > 20
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(address.replace("/metrics", "/"), timeout=20)  # noqa: S310
