"""A federation whose authority an organisation's CA signed, over real mutual TLS; and analysts' short certificates."""

import asyncio
from datetime import timedelta
from pathlib import Path

from local_federation import SHARDS, Enrolment, federation, noise_for, now, spec
from organisations import Organisation

from dpspca.client.federation import AsyncFederation
from dpspca.common.names import Role


def test_a_job_runs_in_a_federation_under_an_organisation_s_ca(tmp_path: Path) -> None:
    authority = Organisation(now()).authority(tmp_path / "authority", "town")

    async def main() -> None:
        async with federation(Enrolment(tmp_path, authority), ["site-0", "site-1"]) as running:
            model = await running.analyst.fit(spec(), "cohort")
            assert model.statement.parties == 2

    asyncio.run(main())


def test_a_certificate_of_a_day_suffices_for_a_job_and_warns_of_a_longer_one(tmp_path: Path) -> None:
    """A job does not outlive the certificate that signed it. Who signs one that could is told so."""
    enrolment = Enrolment.create(tmp_path)
    told: list[str] = []

    async def main() -> None:
        async with federation(enrolment, list(SHARDS)[:2], words=noise_for(spec())) as running:
            grace = enrolment.identity(Role.ANALYST, "grace", days=1)
            async with AsyncFederation(running.coordinator.address, grace, notify=told.append) as analyst:
                await analyst.fit(spec(), "cohort")
                assert not told
                job = await analyst.submit(spec(), "cohort", life=timedelta(days=3))
                await job.cancel()

    asyncio.run(main())
    (warning,) = told
    assert f"{grace_end(enrolment):%Y-%m-%d}" in warning
    assert "dpspca identity renew" in warning


def grace_end(enrolment: Enrolment) -> object:
    return next(each.until for each in enrolment.authority.list() if each.name.name == "grace")
