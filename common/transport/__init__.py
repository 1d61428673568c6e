"""How signed jobs, queries and answers travel: gRPC, frames, limits on what a peer may cause."""

from . import message_parts, provider_stream, rpc, wire
from .log_limits import Rationing, Reporter
from .wire import FRAME, AnswerReader, answer_content

__all__ = [
    "FRAME",
    "AnswerReader",
    "Rationing",
    "Reporter",
    "answer_content",
    "message_parts",
    "provider_stream",
    "rpc",
    "wire",
]
