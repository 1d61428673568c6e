"""A model as one HTML file for readers outside the project: no scripts, no requests, every name escaped."""

from .page import page

__all__ = ["page"]
