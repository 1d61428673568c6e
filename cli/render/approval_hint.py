"""Say before a job is signed that it may expire before a person at a provider has approved it."""

import asyncio
from collections.abc import Sequence
from typing import Final

from dpspca.client.connection import validity_of
from dpspca.client.federation import AsyncFederation
from dpspca.common.errors import DpspcaError
from dpspca.common.plan import Plan
from dpspca.common.trust import MAX_JOB_LIFE

from .absent_providers import print_message

SECONDS: Final = 5.0
"""How long the providers' terms are waited for."""
_HOUR: Final = 3600


async def hint_at_validity(
    federation: AsyncFederation, plan: Plan, data_set: str, providers: Sequence[str] | None
) -> None:
    """Print a hint if a person has to approve the job, and may take longer than the job is valid.

    It is only a hint. So nothing is said if the providers' terms cannot be read soon.
    """
    valid = validity_of(plan).total_seconds()
    if valid >= MAX_JOB_LIFE:
        return
    try:
        async with asyncio.timeout(SECONDS):
            stated = await federation.terms(data_set, providers)
    except (DpspcaError, TimeoutError):
        return
    asking = [each.party.name for each in stated if each.conditions.approvals_needed]
    if asking:
        print_message(
            f"A person has to approve the job at: {', '.join(sorted(asking))}. The job is valid for {valid / _HOUR:g} "
            f"hours. To give them longer, sign it with --valid-hours, at most {MAX_JOB_LIFE // _HOUR}."
        )
