"""The coordinator's services: connections, limits on callers, and the calls of analysts and providers."""

from .analyst_service import RESULT_BYTES, AnalystService
from .call_interceptor import CallInterceptor
from .health import Health
from .listening import listen
from .party_service import PartyService
from .provider_service import HEARTBEAT_SECONDS, ProviderService
from .tls_frontend import TlsFrontend, TlsSettings
from .tls_keys import unproven_tls

__all__ = [
    "HEARTBEAT_SECONDS",
    "RESULT_BYTES",
    "AnalystService",
    "CallInterceptor",
    "Health",
    "PartyService",
    "ProviderService",
    "TlsFrontend",
    "TlsSettings",
    "listen",
    "unproven_tls",
]
