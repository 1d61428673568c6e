"""Settings for all tests."""

import os

from hypothesis import settings

import dpspca  # noqa: F401  # before any test imports gRPC, so that it is held to TLS 1.3

# Lets scikit-learn's array check run instead of skipping; it has to be set before scipy is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# Deterministic examples: a property that fails once fails on every run.
settings.register_profile("dpspca", deadline=None, derandomize=True)
settings.load_profile("dpspca")
