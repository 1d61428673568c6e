"""Version 1 of the messages."""
