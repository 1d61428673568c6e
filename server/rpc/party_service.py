"""Says to analysts and to the operator which parties are connected, since when, and why others are not.

Analysts may learn this of providers whose names they give: it says whether a job about them can go on. All parties of a
federation may know who is revoked, because the list is not secret. The coordinator's operator sees all parties.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final

import grpc.aio

from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.names import PartyName, Role, check_name
from dpspca.common.privacy import MAX_PROVIDERS
from dpspca.common.transport import rpc
from dpspca.common.trust import RevocationList, certificate_status, newest_certificate
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc
from dpspca.server.jobs import Roster

CONNECTED: Final = "connected"
AWAY: Final = "away"
UNKNOWN: Final = "unknown"

Connections = Callable[[], Iterable[tuple[PartyName, bytes]]]
"""Returns the party and the certificate of every open connection."""


class PartyService(pb_grpc.PartyServiceServicer):
    """Tells who is connected."""

    def __init__(self, door: rpc.CallerCheck, roster: Roster, connections: Connections) -> None:
        self._door = door
        self._roster = roster
        self._connections = connections

    async def Parties(  # noqa: N802  # the name of the rpc
        self, request: pb.PartiesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.Party]:
        """Send what is known of the providers that an analyst names, or of all parties to the coordinator itself."""
        caller = await self._door.admit(context, "Parties")
        revoked = rpc.read_own(self._door.revocations)
        if caller.role is not Role.COORDINATOR:
            _require_named(request.providers)
        for name in dict.fromkeys(request.providers or sorted(self._known)):
            yield self._provider(name, revoked)
        if not request.providers:
            for party in self._analysts(revoked):
                yield party

    @property
    def _known(self) -> set[str]:
        return {*self._roster.presence.names, *self._roster.receipts}

    def _provider(self, name: str, revoked: RevocationList) -> pb.Party:
        roster, began = self._roster, self._roster.presence.began
        link, seen, receipt = roster.link_of(name), roster.presence.of(name), roster.receipts.get(name)
        shown = [seen.certificate if seen else b"", receipt.certificate if receipt else b""]
        problem, until = self._standing(link.certificate if link else newest_certificate(shown), revoked)
        since = seen.since if seen else None
        return pb.Party(
            role=Role.PROVIDER,
            name=name,
            state=problem or (CONNECTED if link else AWAY if any(shown) else UNKNOWN),
            since=began if since is None else since,
            since_start=since is None,
            data_sets=sorted(link.data_sets) if link else (),
            certificate_until=until,
        )

    def _analysts(self, revoked: RevocationList) -> Iterable[pb.Party]:
        """Yield the analysts with an open connection. One is open while a command of theirs runs."""
        newest: dict[str, bytes] = {}
        for party, certificate in self._connections():
            if party.role is Role.ANALYST:
                newest[party.name] = newest_certificate([newest.get(party.name, b""), certificate])
        for name, certificate in sorted(newest.items()):
            until = self._standing(certificate, revoked)[1]
            yield pb.Party(role=Role.ANALYST, name=name, state=CONNECTED, certificate_until=until)

    def _standing(self, certificate: bytes, revoked: RevocationList) -> tuple[str | None, float]:
        """Return the fault of a certificate, if any, and until when it is valid; 0 if that is not known."""
        try:
            standing = certificate_status(certificate, self._door.authority_pem, self._door.clock(), revoked)
        except DpspcaError:  # there is none
            return None, 0.0
        return standing.problem, standing.until.timestamp()


def _require_named(providers: Sequence[str]) -> None:
    if not providers or len(providers) > MAX_PROVIDERS:
        raise RefusedError(
            f"{len(providers)} providers are named.", f"Name the providers to ask about, at most {MAX_PROVIDERS}."
        )
    for each in providers:
        check_name("a provider", each)
