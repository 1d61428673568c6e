"""Lets `python -m dpspca` do what `dpspca` does."""

from dpspca.cli.main import main

if __name__ == "__main__":
    main()
