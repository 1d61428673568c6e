"""Carries an analyst's request for statements to providers, and their replies back. It understands neither.

The coordinator checks that the caller signed the request, so that it does not spread a stranger's messages. Whether a
provider has anything to say, and whether a statement is true, is between the provider and the analyst.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from dpspca.common.errors import DpspcaError, NotTrustedError, RefusedError
from dpspca.common.names import PartyName
from dpspca.common.privacy import MAX_PROVIDERS
from dpspca.common.transport import rpc
from dpspca.common.trust import SignedRequest, verify_request
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.jobs import Link, Roster

STATEMENT_SECONDS: Final = 20.0
"""Time limit for a provider to reply; afterwards it counts as a provider without a reply."""
AT_ONCE: Final = 8
"""Providers that one request waits for at a time, because their replies stay in memory until the caller reads them."""


async def statements(
    door: rpc.CallerCheck, roster: Roster, caller: PartyName, request: pb.StatementsRequest
) -> AsyncIterator[pb.Statement]:
    """Yield the reply of each named provider that is connected."""
    digest = _verified(door, caller, request)
    named = set(request.providers)
    links = [link for link in roster.links if link.name in named]
    for start in range(0, len(links), AT_ONCE):
        some = links[start : start + AT_ONCE]
        for link, statement in zip(some, await _replies(some, request.signed_request, digest), strict=True):
            yield pb.Statement(provider=link.name, signed_statement=statement)


def _verified(door: rpc.CallerCheck, caller: PartyName, request: pb.StatementsRequest) -> str:
    """Return the digest of a request, or refuse one that the caller did not sign."""
    if len(request.providers) > MAX_PROVIDERS:
        raise RefusedError(
            f"{len(request.providers)} providers are named; at most {MAX_PROVIDERS} may be.", "Name fewer."
        )
    signed = SignedRequest.from_bytes(request.signed_request)
    revoked = rpc.read_own(door.revocations)
    _, analyst = verify_request(signed, door.authority_pem, now=door.clock(), revoked=revoked)
    if analyst != caller:
        raise NotTrustedError(f"The request was signed by {analyst}, not by {caller}.", "Sign it yourself.")
    return signed.digest


async def _replies(links: Sequence[Link], request: bytes, digest: str) -> list[bytes]:
    return await asyncio.gather(*(_reply(link, request, digest) for link in links))


async def _reply(link: Link, request: bytes, digest: str) -> bytes:
    """Return a provider's reply, or nothing if it sends none in time."""
    try:
        async with asyncio.timeout(STATEMENT_SECONDS):
            return await link.inquire(request, digest)
    except (TimeoutError, DpspcaError):
        return b""
