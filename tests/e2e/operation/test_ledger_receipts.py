"""A ledger restored together with its head file is detected by the signed receipts of other parties."""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from coordinator_processes import CoordinatorProcess, StableEnrolment, retry_while_away, with_providers
from dishonest_peers import dishonest_provider
from facts import facts
from ledgers import Place
from local_federation import Enrolment, RunningFederation, federation, spec
from timeouts import TIMEOUT

from dpspca.client.connection import JobFailedError
from dpspca.common.names import Role
from dpspca.common.privacy import Price
from dpspca.common.trust.receipts import MAX_RECEIPT_BYTES, sign_receipt
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.ledger.entries import Head
from dpspca.provider.ledger.peer_receipts import PeerReceipts
from dpspca.provider.ledger.sqlite import SqliteLedger, verify

SITE = "site-0"
FAR = Head("5" * 32, 10**6, "ab" * 32)
"""Of a ledger that nobody has."""


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return StableEnrolment.create(tmp_path)


@dataclass(frozen=True)
class Provider:
    """A provider whose disks can be changed between its runs."""

    place: Place

    @classmethod
    def at(cls, folder: Path) -> "Provider":
        return cls(Place(folder / "kept" / "ledger.db", folder / "second" / "head"))

    @asynccontextmanager
    async def up(self, running: RunningFederation) -> AsyncIterator[SqliteLedger]:
        """Run it, and yield its ledger once it has been welcomed."""
        with self.place.start() as ledger:
            await running.start(SITE, ledger=ledger)
            try:
                yield ledger
            finally:
                await stop_daemon(running.daemons.pop(SITE))

    def backup_of_disks(self) -> tuple[dict[Path, bytes], bytes]:
        """Return a backup of all its disks."""
        return self.place.snapshot(), self.place.head.read_bytes()

    def restore(self, backup: tuple[dict[Path, bytes], bytes]) -> None:
        self.place.restore(backup[0])
        self.place.head.write_bytes(backup[1])
        assert verify(self.place.path, self.place.head) == []  # its own disks do not show it

    def end_quarantine(self) -> None:
        with self.place.start() as ledger:
            ledger.end_quarantine("restored after a disk failure", {}, {"cohort": Price()})


async def stop_daemon(daemon: "asyncio.Task[None]") -> None:
    daemon.cancel()
    await asyncio.gather(daemon, return_exceptions=True)


async def answers(running: RunningFederation) -> None:
    """Run a job that only this provider answers."""
    job = await retry_while_away(lambda: running.analyst.submit(spec(), "cohort", [SITE]))
    assert (await job.result()).statement.parties == 1


async def refuses(running: RunningFederation) -> None:
    job = await retry_while_away(lambda: running.analyst.submit(spec(), "cohort", [SITE]))
    with pytest.raises(JobFailedError, match=facts("Refused (quarantined)")):
        await job.result()


def test_t12_a_restored_ledger_and_head_file_are_detected(
    enrolment: Enrolment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        provider = Provider.at(tmp_path / SITE)
        async with federation(enrolment, names=[]) as running:
            async with provider.up(running):
                await answers(running)
            backup = provider.backup_of_disks()
            async with provider.up(running):
                await answers(running)
            provider.restore(backup)
            with caplog.at_level(logging.ERROR):
                async with provider.up(running) as ledger:
                    reason = str(ledger.quarantine)
                    assert "went back" in reason
                    await refuses(running)
            assert reason in caplog.text
            provider.end_quarantine()
            for _ in range(2):
                async with provider.up(running) as ledger:
                    assert ledger.quarantine is None
                    await answers(running)

    asyncio.run(scenario())


def test_t12_a_backup_from_after_a_quarantine_is_detected(enrolment: Enrolment, tmp_path: Path) -> None:
    async def scenario() -> None:
        provider = Provider.at(tmp_path / SITE)
        async with federation(enrolment, names=[]) as running:
            async with provider.up(running):
                pass
            oldest = provider.backup_of_disks()
            async with provider.up(running):
                for _ in range(3):
                    await answers(running)
            provider.restore(oldest)
            async with provider.up(running):
                await refuses(running)
            provider.end_quarantine()
            newer = provider.backup_of_disks()
            async with provider.up(running):
                await answers(running)
            provider.restore(newer)
            async with provider.up(running) as ledger:
                assert ledger.quarantine is not None
                await refuses(running)

    asyncio.run(scenario())


def test_t12_a_deleted_ledger_and_head_file_are_detected(enrolment: Enrolment, tmp_path: Path) -> None:
    async def scenario() -> None:
        provider = Provider.at(tmp_path / SITE)
        async with federation(enrolment, names=[]) as running:
            async with provider.up(running):
                await answers(running)
            shutil.rmtree(provider.place.path.parent)
            provider.place.head.unlink()
            async with provider.up(running) as ledger:
                assert "another ledger" in str(ledger.quarantine)
                await refuses(running)
            provider.end_quarantine()
            async with provider.up(running):
                await answers(running)

    asyncio.run(scenario())


def test_t12_a_ledger_is_quarantined_once_its_copy_has_answered(enrolment: Enrolment, tmp_path: Path) -> None:
    async def scenario() -> None:
        here, elsewhere = Provider.at(tmp_path / "here"), Provider.at(tmp_path / "elsewhere")
        async with federation(enrolment, names=[]) as running:
            async with here.up(running):
                await answers(running)
            shutil.copytree(tmp_path / "here", tmp_path / "elsewhere")
            async with elsewhere.up(running):
                await answers(running)
            async with here.up(running) as ledger:
                assert ledger.quarantine is not None
                await refuses(running)
            async with elsewhere.up(running) as ledger:
                assert ledger.quarantine is None
                await answers(running)

    asyncio.run(scenario())


def test_t12_a_killed_coordinator_still_knows_the_receipts(enrolment: Enrolment, tmp_path: Path) -> None:
    async def scenario() -> None:
        provider = Provider.at(tmp_path / SITE)
        hub = CoordinatorProcess(enrolment)
        await hub.start()
        async with with_providers(enrolment, hub, names={}) as running:
            async with provider.up(running):
                await answers(running)
            backup = provider.backup_of_disks()
            async with provider.up(running):
                await answers(running)
            await hub.kill()
            provider.restore(backup)
            await hub.start()
            async with provider.up(running) as ledger:
                assert "it went back" in str(ledger.quarantine)
                await refuses(running)
            await hub.kill()

    asyncio.run(scenario())


def test_t12_a_coordinator_keeps_only_a_provider_s_own_receipt(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        me, other = (enrolment.identity(Role.PROVIDER, name) for name in (SITE, "site-1"))
        true = sign_receipt(me, FAR)
        long = pb.Receipt(certificate=true.certificate, signature=bytes(MAX_RECEIPT_BYTES))
        async with (
            federation(enrolment, names=[]) as running,
            dishonest_provider(running.coordinator.address, me) as held,
        ):
            await held.greet()
            for receipt in (
                pb.Receipt(),
                sign_receipt(other, FAR),
                long,
                pb.Receipt(certificate=b"\xff", signature=b"\0"),
            ):
                job = await running.analyst.submit(spec(), "cohort", [SITE])
                await held.answer(await held.query(), (0, b"nonsense"), receipt=receipt)
                with pytest.raises(JobFailedError):
                    await job.result()
                assert running.coordinator.roster.receipts == {}
            job = await running.analyst.submit(spec(), "cohort", [SITE])
            await held.answer(await held.query(), (0, b"nonsense"), receipt=true)
            with pytest.raises(JobFailedError):
                await job.result()
            assert running.coordinator.roster.receipts == {SITE: true}

    asyncio.run(scenario())


# --- Receipts that providers keep for one another ---------------------------------------------------------------------


def test_t12_another_provider_s_receipt_replaces_a_lost_journal(enrolment: Enrolment, tmp_path: Path) -> None:
    """This holds whichever provider connects first."""

    async def scenario(holder_first: bool) -> None:
        home = tmp_path / ("early" if holder_first else "late")
        provider, peers = Provider.at(home / SITE), PeerReceipts(home / "peers")
        home.mkdir(exist_ok=True)
        async with federation(enrolment, names=[]) as running:
            await running.start("site-1", peers=peers)
            async with provider.up(running) as ledger:
                await both_answer(running)
            before, backup = ledger.head().entries, provider.backup_of_disks()
            async with provider.up(running):
                await both_answer(running)
                await wait_until(lambda: heard(peers, SITE, before + 1))
        provider.restore(backup)
        kept = PeerReceipts(home / "peers")  # as the other daemon does when it restarts
        async with federation(enrolment, names=[]) as running:  # a coordinator with an empty journal
            if holder_first:
                await running.start("site-1", peers=kept)
            async with provider.up(running) as ledger:
                if not holder_first:
                    assert ledger.quarantine is None
                    await running.start("site-1", peers=kept)
                await wait_until(lambda: ledger.quarantine)
                assert "it went back" in str(ledger.quarantine)

    for holder_first in (True, False):
        asyncio.run(scenario(holder_first))


async def both_answer(running: RunningFederation) -> None:
    job = await retry_while_away(lambda: running.analyst.submit(spec(), "cohort", [SITE, "site-1"]))
    assert (await job.result()).statement.parties == 2


async def wait_until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not holds():  # noqa: ASYNC110  # there is no event for these changes
            await asyncio.sleep(0.02)


def heard(peers: PeerReceipts, name: str, entries: int) -> bool:
    return any(each.provider == name and each.receipt.entries >= entries for each in peers.held())


def test_t12_a_receipt_without_valid_signature_is_ignored(enrolment: Enrolment) -> None:
    me, eve = (enrolment.identity(Role.PROVIDER, name) for name in ("site-0", "eve"))
    peers = PeerReceipts()
    made_up = [
        pb.HeldReceipt(provider="site-1", receipt=sign_receipt(eve, FAR)),  # eve signs for another provider
        pb.HeldReceipt(provider="site-0", receipt=sign_receipt(me, FAR)),  # a provider's own receipt is not kept
        pb.HeldReceipt(provider="eve", receipt=pb.Receipt(ledger="x", entries=5)),
        pb.HeldReceipt(),
    ]
    peers.keep(made_up, me.name, me.authority_pem)
    assert peers.held() == []
    signed = [
        pb.HeldReceipt(provider="eve", receipt=sign_receipt(eve, replace(FAR, entries=many))) for many in (5, 9, 7)
    ]
    peers.keep(signed, me.name, me.authority_pem)
    assert [each.receipt.entries for each in peers.held()] == [9]
    for ledger in "abc":
        peers.keep(
            [pb.HeldReceipt(provider="eve", receipt=sign_receipt(eve, Head(ledger * 32, 3, "ab" * 32)))],
            me.name,
            me.authority_pem,
        )
    assert [each.receipt.ledger[0] for each in peers.held()] == ["b", "c"]


def test_an_unreadable_file_of_receipts_does_not_stop_a_provider(tmp_path: Path) -> None:
    (tmp_path / "peers").write_bytes(b"\xff\xff\xff")
    (tmp_path / "peers").chmod(0o600)
    assert PeerReceipts(tmp_path / "peers").held() == []


# --- Jobs that ended while a provider was away ------------------------------------------------------------------------


def test_a_provider_learns_on_reconnecting_that_its_job_ended(enrolment: Enrolment, tmp_path: Path) -> None:
    """The other provider has a thousand rounds to answer, so the job is still running when it is cancelled."""

    async def scenario() -> None:
        provider = Provider.at(tmp_path / SITE)
        async with federation(enrolment, names=[]) as running:
            await running.start("site-1")
            async with provider.up(running) as ledger:
                what = spec(minimum_providers=1, answer_seconds=2, options={"sparsity": 6, "rounds": 1000})
                job = await running.analyst.submit(what, "cohort", [SITE, "site-1"])
                await wait_until(
                    lambda: any(map(ledger.standing, ledger.open_jobs()))
                )  # before, nothing is on its disk
            await job.cancel()
            with provider.place.start() as ledger:
                assert len(ledger.open_jobs()) == 1
            async with provider.up(running) as ledger:
                await wait_until(lambda: not ledger.open_jobs())

    asyncio.run(scenario())
