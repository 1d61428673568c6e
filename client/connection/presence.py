"""Who is connected, since when, and why others are not, as the coordinator reports it. No promise depends on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from dpspca.common.errors import InvalidDataError, RefusedError
from dpspca.common.names import check_name
from dpspca.common.trust import EXPIRED, REVOKED
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

from .bounds import ANSWER_SECONDS, parties_of
from .calls import CoordinatorLink
from .errors import AwayError, FederationError, TooMuchError, UnreadableReplyError

CONNECTED: Final = "connected"
AWAY: Final = "away"
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether a party is connected. ``since`` is when it connected, or else when its last connection ended."""

    role: str
    name: str
    state: str
    """connected, away, revoked, expired, or unknown: the coordinator knows nothing of it."""
    since: datetime | None
    since_start: bool
    """Whether it has not been connected since the coordinator started, which was ``since``."""
    data_sets: tuple[str, ...]
    certificate_until: datetime | None

    @classmethod
    def of(cls, message: pb.Party) -> "Presence":
        """Read the coordinator's message."""
        return cls(
            role=message.role,
            name=check_name("the party", message.name),
            state=message.state,
            since=_moment(message.since),
            since_start=message.since_start,
            data_sets=tuple(check_name("a data set", each) for each in message.data_sets),
            certificate_until=_moment(message.certificate_until),
        )

    @property
    def is_connected(self) -> bool:
        """Whether it can be asked now."""
        return self.state == CONNECTED

    @property
    def absence(self) -> str:
        """Say in a few words why it is missing, and since when."""
        when = "" if self.since is None else f" {self.since:%Y-%m-%d %H:%M:%S} UTC"
        away = f"not connected since{when}" if when else "not connected"
        if self.since_start:
            away = f"not connected since the coordinator started at{when}"
        return {
            REVOKED: f"its certificate was revoked; {away}",
            EXPIRED: f"its certificate has expired; {away}",
            UNKNOWN: f"unknown to the coordinator: check the name; {away}",
        }.get(self.state, away)


async def presences(stub: pb_grpc.PartyServiceStub, link: CoordinatorLink, providers: Sequence[str]) -> list[Presence]:
    """Ask about these providers. Return an empty list if the coordinator cannot or will not say."""
    names = dict.fromkeys(check_name("a provider", each) for each in providers)
    if not names:
        return []

    async def asked() -> dict[str, Presence]:
        call = stub.Parties(pb.PartiesRequest(providers=[*names]), timeout=ANSWER_SECONDS)
        replies = link.stream(call, parties_of(len(names)))
        return {each.name: each async for message in replies if (each := Presence.of(message)).name in names}

    try:
        found = await link.retry(asked)
    except (AwayError, TooMuchError, UnreadableReplyError):
        raise
    except FederationError:  # it does not know such calls
        return []
    return [*found.values()]


def require_admissible(found: Sequence[Presence]) -> None:
    """Refuse a job for providers that the coordinator refuses, so that it does not wait for them."""
    revoked = [each for each in found if each.state == REVOKED]
    if revoked:
        listed = " ".join(f"{each.name}: {each.absence}." for each in revoked)
        raise RefusedError(
            f"The coordinator refuses {len(revoked)} of these providers. {listed}",
            "Nothing was sent. Leave such a provider out, or run the job when it has a new certificate and is "
            "connected. The authority's operator knows why it was revoked.",
        )


def _moment(seconds: float) -> datetime | None:
    """Read a time from the coordinator; zero stands for none."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    except (OverflowError, ValueError, OSError):
        raise InvalidDataError(
            f"The coordinator sent {seconds!r} as a time, which is out of range.",
            "Do not trust this coordinator, and tell its operator.",
        ) from None
