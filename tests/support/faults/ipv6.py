"""A mark for tests that need an IPv6 address of this machine."""

import socket

import pytest


def _has_ipv6() -> bool:
    """Tell whether a socket can listen on the loopback address of IPv6."""
    try:
        with socket.socket(socket.AF_INET6) as listening:
            listening.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="This machine has no IPv6.")
