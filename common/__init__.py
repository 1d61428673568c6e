"""Code that must be the same at every party: pure code, without clock, file, socket or global random state."""
