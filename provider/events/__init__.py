"""What happens at a provider, told to programs that watch it: one JSON object for each event."""

from .kinds import EVENTS, emit_fact

__all__ = ["EVENTS", "emit_fact"]
