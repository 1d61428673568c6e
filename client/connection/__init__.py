"""The analyst's side of the connection to a coordinator. It limits everything that it reads."""

from . import bounds, probe
from .calls import RETRY_SECONDS, Attempts, CoordinatorLink, Notify, log_warning
from .errors import AwayError, DishonestCoordinatorError, FederationError, JobFailedError, TooMuchError
from .job_checks import require_done, require_fit, validity_of
from .job_models import model_from
from .jobs import AWAITING_APPROVAL, JobList, JobStatus, Offer, OfferList, ParticipantStatus
from .offer_checks import require_data_set, require_providers
from .presence import AWAY, CONNECTED, UNKNOWN, Presence, presences, require_admissible
from .progress import JobProgress, job_progress
from .renewable_channel import RenewableChannel
from .sign_in import require_filled, require_in_force, settings, warn_if_outlived
from .statements import NO_TRUST, Collected, StatementRequests

__all__ = [
    "AWAITING_APPROVAL",
    "AWAY",
    "CONNECTED",
    "NO_TRUST",
    "RETRY_SECONDS",
    "UNKNOWN",
    "Attempts",
    "AwayError",
    "Collected",
    "CoordinatorLink",
    "DishonestCoordinatorError",
    "FederationError",
    "JobFailedError",
    "JobList",
    "JobProgress",
    "JobStatus",
    "Notify",
    "Offer",
    "OfferList",
    "ParticipantStatus",
    "Presence",
    "RenewableChannel",
    "StatementRequests",
    "TooMuchError",
    "bounds",
    "job_progress",
    "log_warning",
    "model_from",
    "presences",
    "probe",
    "require_admissible",
    "require_data_set",
    "require_done",
    "require_filled",
    "require_fit",
    "require_in_force",
    "require_providers",
    "settings",
    "validity_of",
    "warn_if_outlived",
]
