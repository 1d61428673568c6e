"""Listens on every address of a host, of IPv4 and IPv6 alike."""

import errno
import socket
from typing import Any, Final

from dpspca.common.errors import InvalidParameterError

_EVERY_ADDRESS: Final = "::"
_NO_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
"""Error numbers with which a machine without IPv6 refuses an IPv6 address."""


def listen(address: str, backlog: int) -> list[socket.socket]:
    """Listen on every address of a host, all with the same port; port 0 picks a free one.

    ``[::]`` stands for every address of both families. A machine without IPv6 may still give ``localhost`` an address
    of it, which is left out if there is another.
    """
    host, _, port = address.rpartition(":")
    made: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(
            host.strip("[]") or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, *_, where in dict.fromkeys(found):  # a hosts file may give a name one address twice
            number = made[0].getsockname()[1] if made else where[1]
            try:
                made.append(_listening(family, (where[0], number, *where[2:]), backlog))
            except OSError as refused:
                if family != socket.AF_INET6 or refused.errno not in _NO_IPV6:
                    raise
        if made:
            return made
    except (OSError, ValueError, OverflowError):
        for each in made:
            each.close()
    raise InvalidParameterError(f"Cannot listen on {address}.", "Choose an address of this machine and a free port.")


def _listening(family: int, where: tuple[Any, ...], backlog: int) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(where[0] != _EVERY_ADDRESS))
        listening.bind(where)
        listening.listen(backlog)
        listening.setblocking(False)  # its signature
    except BaseException:
        listening.close()
        raise
    return listening
