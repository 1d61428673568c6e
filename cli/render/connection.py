"""Connects a command to a federation, and reports when the coordinator goes away and comes back."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from dpspca.client.connection import RETRY_SECONDS
from dpspca.client.federation import AsyncFederation
from dpspca.common.storage import AnalystSettings, require_own

from . import absent_providers

Reply = TypeVar("Reply")


def connected(
    config: Path, work: Callable[[AsyncFederation], Awaitable[Reply]], retry_seconds: float = RETRY_SECONDS
) -> Reply:
    """Connect to the federation as the settings say, do the work, and disconnect."""
    require_own(AnalystSettings, config)

    async def whole() -> Reply:
        async with AsyncFederation.connect(
            config, retry_seconds=retry_seconds, notify=absent_providers.print_message
        ) as federation:
            return await work(federation)

    return asyncio.run(whole())
