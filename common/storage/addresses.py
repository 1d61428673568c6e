"""Where a coordinator listens, and where its database is."""

import re
from typing import Final, Self

from dpspca.common.errors import InvalidParameterError

_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9])?):([0-9]{1,5})")
_LAST_PORT: Final = 65_535
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104  # compared with, not listened on


class Address(str):
    """Where a coordinator listens: a host and a port, HOST:PORT; an IPv6 address stands in brackets."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Check the form of an address. It does not check whether anybody listens there."""
        found = _ADDRESS.fullmatch(text) if isinstance(text, str) else None
        if not found or int(found[3]) > _LAST_PORT:
            raise InvalidParameterError(
                f"{text!r:.120} is not an address.",
                f"Write HOST:PORT, as in 127.0.0.1:7443 or [::1]:7443, with a port of at most {_LAST_PORT}.",
            )
        return cls(text)

    @property
    def host(self) -> str:
        """The host; an IPv6 address without its brackets."""
        return self.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port; 0 stands for any that is free."""
        return int(self.rpartition(":")[2])

    @property
    def from_here(self) -> "Address":
        """Where the machine that listens there reaches it itself."""
        host, _, port = self.rpartition(":")
        return Address(f"{_EVERYWHERE.get(host, host)}:{port}")


class DatabaseUrl(str):
    """A PostgreSQL database. Its password belongs into the user's ~/.pgpass."""

    __slots__ = ()
