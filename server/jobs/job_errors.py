"""Why a job fails at the coordinator."""

from dpspca.common.errors import DpspcaError


class TooFewProvidersError(DpspcaError):
    """Too few providers are left to continue."""

    code = "too-few-providers"


class PlanExceededError(DpspcaError):
    """The method asked for more queries than its plan has. This is a bug in the method."""

    code = "plan-exceeded"


class ReplayError(DpspcaError):
    """Replaying the journal leads to another query than the recorded one."""

    code = "replay"
