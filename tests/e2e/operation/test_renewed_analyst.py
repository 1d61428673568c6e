"""A client that stays open goes on with the certificate that was installed meanwhile."""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from local_federation import Enrolment, federation, now, spec

from dpspca.client.federation import AsyncFederation
from dpspca.common.errors import DpspcaError, NotNowError
from dpspca.common.names import PartyName, Role
from dpspca.common.trust import CurrentIdentity, identity

BEA = PartyName("town", Role.ANALYST, "bea")


def renew(enrolment: Enrolment, home: Path) -> None:
    """Install a new certificate, and revoke the one before, which shows that it is not used any more."""
    authority = enrolment.authority
    before = [each for each in authority.list() if each.name == BEA]
    made = authority.admit(identity.renew_request(home))
    identity.install(home, made, authority.certificate_pem)
    authority.revoke(before[-1].serial)


def test_an_open_client_uses_the_renewed_certificate(tmp_path: Path) -> None:
    """Also for a job that it submitted before, and to sign another one."""

    async def scene() -> None:
        enrolment = Enrolment.create(tmp_path)
        async with federation(enrolment, ["site-0"]) as running:
            enrolment.identity(Role.ANALYST, BEA.name)
            home = tmp_path / "analyst-bea"
            async with AsyncFederation(running.coordinator.address, CurrentIdentity(home).get) as bea:
                job = await bea.submit(spec(), "cohort", ["site-0"])
                assert (await job.result()).statement.parties == 1
                await asyncio.to_thread(renew, enrolment, home)
                running.revoked.append(enrolment.revocations())
                assert (await job.status()).state == "done"
                assert [each.job for each in await bea.jobs()] == [job.name]
                second = await bea.submit(spec(), "cohort", ["site-0"])
                assert (await second.result()).statement.parties == 1

    asyncio.run(scene())


def test_a_client_past_the_end_of_its_certificate_recovers(tmp_path: Path) -> None:
    """Its own clock is late, so that it refuses by itself."""
    late = [timedelta()]

    def clock() -> datetime:
        return now() + late[0]

    async def scene() -> None:
        enrolment = Enrolment.create(tmp_path)
        async with federation(enrolment, []) as running:
            enrolment.identity(Role.ANALYST, BEA.name, days=1)
            home = tmp_path / "analyst-bea"
            async with AsyncFederation(
                running.coordinator.address, CurrentIdentity(home).get, clock, retry_seconds=0
            ) as bea:
                await bea.jobs()
                late[0] = timedelta(days=2)
                enrolment.authority.revoke(BEA)
                running.revoked.append(enrolment.revocations())
                with pytest.raises(DpspcaError):
                    await bea.jobs()
                with pytest.raises(NotNowError):
                    bea._link.check_usable()
                home_again = Enrolment(tmp_path / "again", enrolment.authority)
                home_again.identity(Role.ANALYST, BEA.name)
                (home / "identity.pem").write_bytes((tmp_path / "again/analyst-bea/identity.pem").read_bytes())
                assert await bea.jobs() == []
                bea._link.check_usable()

    asyncio.run(scene())


@pytest.mark.parametrize("left", ["another party", "nonsense"])
def test_a_client_does_not_turn_into_another_party(left: str, tmp_path: Path) -> None:
    async def scene() -> None:
        enrolment = Enrolment.create(tmp_path)
        async with federation(enrolment, []) as running:
            enrolment.identity(Role.ANALYST, BEA.name)
            enrolment.identity(Role.ANALYST, "eve")
            home = tmp_path / "analyst-bea"
            other = (tmp_path / "analyst-eve" / "identity.pem").read_bytes()
            async with AsyncFederation(running.coordinator.address, CurrentIdentity(home).get) as bea:
                before = bea._identity
                (home / "identity.pem").write_bytes(other if left == "another party" else b"nonsense")
                assert await bea.jobs() == []
                assert bea._identity == before

    asyncio.run(scene())
