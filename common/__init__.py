"""What every party must agree on: pure code, without clock, file, socket or global random state."""
