"""Units, events, accounting, calibration, the public lattice and the integer noise on it."""
