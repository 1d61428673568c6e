"""Differentially private sparse principal component analysis of rows that stay with their providers."""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpspca.common.version import __version__

# gRPC has no option to refuse TLS 1.2, but when it is imported it reads which TLS 1.2 cipher suites to allow. These two
# work with RSA keys only, and the keys of all parties are on elliptic curves, so parties can only agree on TLS 1.3. If
# gRPC was imported before, the setting would have no effect, so it is left out. A coordinator itself refuses TLS 1.2.
if "grpc" not in sys.modules:
    os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256"

if TYPE_CHECKING:
    from dpspca.client.blocking import Federation as Federation
    from dpspca.client.described_jobs import load_dictionary as load_dictionary
    from dpspca.client.estimator import DPSPCA as DPSPCA
    from dpspca.client.federation import AsyncFederation as AsyncFederation
    from dpspca.client.files import load_model as load_model
    from dpspca.client.files import save_model as save_model
    from dpspca.client.forecast import Forecast as Forecast
    from dpspca.client.forecast import forecast as forecast
    from dpspca.client.simulation import Progress as Progress
    from dpspca.client.simulation import simulate as simulate
    from dpspca.common.dictionary import Dictionary as Dictionary
    from dpspca.common.errors import DpspcaError as DpspcaError
    from dpspca.common.errors import DpspcaWarning as DpspcaWarning
    from dpspca.common.errors import RowsWarning as RowsWarning
    from dpspca.common.job import AutoCentering as AutoCentering
    from dpspca.common.job import Budget as Budget
    from dpspca.common.job import Centering as Centering
    from dpspca.common.job import JobSpec as JobSpec
    from dpspca.common.job import Schema as Schema
    from dpspca.common.job import Span as Span
    from dpspca.common.privacy.units import PrivacyUnit as PrivacyUnit
    from dpspca.common.results import Model as Model


# Imported on first use: a provider's daemon needs no estimator, and the estimator needs the packages of an extra.
_HOMES = {
    "DPSPCA": "dpspca.client.estimator",
    "AsyncFederation": "dpspca.client.federation",
    "Federation": "dpspca.client.blocking",
    "Forecast": "dpspca.client.forecast",
    "forecast": "dpspca.client.forecast",
    "Progress": "dpspca.client.simulation",
    "simulate": "dpspca.client.simulation",
    "AutoCentering": "dpspca.common.job",
    "Dictionary": "dpspca.common.dictionary",
    "DpspcaError": "dpspca.common.errors",
    "DpspcaWarning": "dpspca.common.errors",
    "RowsWarning": "dpspca.common.errors",
    "Centering": "dpspca.common.job",
    "load_dictionary": "dpspca.client.described_jobs",
    "load_model": "dpspca.client.files",
    "save_model": "dpspca.client.files",
    "Model": "dpspca.common.results",
    "PrivacyUnit": "dpspca.common.privacy.units",
    "Budget": "dpspca.common.job",
    "JobSpec": "dpspca.common.job",
    "Schema": "dpspca.common.job",
    "Span": "dpspca.common.job",
}

__all__ = [
    "DPSPCA",
    "AsyncFederation",
    "AutoCentering",
    "Budget",
    "Centering",
    "Dictionary",
    "DpspcaError",
    "DpspcaWarning",
    "Federation",
    "Forecast",
    "JobSpec",
    "Model",
    "PrivacyUnit",
    "Progress",
    "RowsWarning",
    "Schema",
    "Span",
    "__version__",
    "forecast",
    "load_dictionary",
    "load_model",
    "save_model",
    "simulate",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any of the exported values
    if name not in _HOMES:
        raise AttributeError(f"module 'dpspca' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
