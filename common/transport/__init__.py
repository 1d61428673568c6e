"""How signed jobs, queries and answers are sent: gRPC, frames, limits on what a peer may cause; and the mailbox."""

from . import message_parts, provider_stream, rpc, wire
from .certificate_mail import CertificateMail
from .certificate_renewal import SOON, CertificateRenewer, Expiry, catch_up, days_until, ends, is_due, renew_if_due
from .log_limits import LogLimiter, SummaryWriter
from .mailbox import (
    LIST_FILE,
    MAX_BYTES,
    MAX_IN_SLOT,
    Mail,
    Mailbox,
    MailboxAwayError,
    MailFolder,
    RemoteMailbox,
    SlotFullError,
    has_same_key,
    is_loopback,
    slot_in,
)
from .metrics_page import MetricsPage
from .service_manager import ServiceManager
from .wire import FRAME, AnswerReader, answer_content

__all__ = [
    "FRAME",
    "LIST_FILE",
    "MAX_BYTES",
    "MAX_IN_SLOT",
    "SOON",
    "AnswerReader",
    "CertificateMail",
    "CertificateRenewer",
    "Expiry",
    "LogLimiter",
    "Mail",
    "MailFolder",
    "Mailbox",
    "MailboxAwayError",
    "MetricsPage",
    "RemoteMailbox",
    "ServiceManager",
    "SlotFullError",
    "SummaryWriter",
    "answer_content",
    "catch_up",
    "days_until",
    "ends",
    "has_same_key",
    "is_due",
    "is_loopback",
    "message_parts",
    "provider_stream",
    "renew_if_due",
    "rpc",
    "slot_in",
    "wire",
]
