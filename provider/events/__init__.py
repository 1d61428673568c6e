"""What happens at a provider, told to programs that watch it: one JSON object for each event."""

from .kinds import EVENTS, Emit, emit_fact, ignore
from .stream import EventStream

__all__ = ["EVENTS", "Emit", "EventStream", "emit_fact", "ignore"]
