"""Entry point of `python -m dpspca`, which is the same as the command `dpspca`."""

from dpspca.cli.main import main

if __name__ == "__main__":
    main()
