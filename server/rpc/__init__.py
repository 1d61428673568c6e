"""The coordinator's services: connections, limits on callers, calls of analysts and providers."""

from .analyst_service import RESULT_BYTES, AnalystService
from .front import Front, Secrets
from .health import Health
from .provider_service import HEARTBEAT_SECONDS, ProviderService
from .receiving import Receiving

__all__ = [
    "HEARTBEAT_SECONDS",
    "RESULT_BYTES",
    "AnalystService",
    "Front",
    "Health",
    "ProviderService",
    "Receiving",
    "Secrets",
]
