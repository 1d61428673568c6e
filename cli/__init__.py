"""The `dpspca` command line: it reads arguments, calls other packages and prints."""
