"""Namespace of the messages."""
