"""Events at a provider, for other programs: one JSON object for each."""

from .kinds import EVENTS, emit_fact

__all__ = ["EVENTS", "emit_fact"]
