"""The `dpspca` command: composition roots only."""
