"""What a daemon's log says of connections that ended."""

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from dpspca.common.errors import RefusedError
from dpspca.provider import daemon


def ended(code: grpc.StatusCode, details: str) -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata(), details)


@pytest.mark.parametrize(
    ("problems", "said"),
    [
        ([ended(grpc.StatusCode.UNAUTHENTICATED, "It was revoked.")], "UNAUTHENTICATED, It was revoked."),
        (
            [ended(grpc.StatusCode.INTERNAL, "Internal error from Core")],
            "the coordinator ended it while something was being sent, and so its reason is lost",
        ),
        ([ended(grpc.StatusCode.INTERNAL, "Received RST_STREAM")], "INTERNAL, Received RST_STREAM"),
        ([RefusedError("One.", "Do."), RefusedError("Two.", "Do.")], "One. Do.; Two. Do."),
    ],
)
def test_how_a_connection_ended_is_said_in_a_line(problems: list[Exception], said: str) -> None:
    group = ExceptionGroup("several", [ExceptionGroup("within", [problem]) for problem in problems])
    assert daemon._told(group) == said
