"""How signed jobs, queries and answers are sent: gRPC, frames, and limits on what a peer may cause."""

from . import message_parts, provider_stream, rpc, wire
from .log_limits import LogLimiter, SummaryWriter
from .metrics_page import MetricsPage
from .service_manager import ServiceManager
from .wire import FRAME, AnswerReader, answer_content

__all__ = [
    "FRAME",
    "AnswerReader",
    "LogLimiter",
    "MetricsPage",
    "ServiceManager",
    "SummaryWriter",
    "answer_content",
    "message_parts",
    "provider_stream",
    "rpc",
    "wire",
]
