"""Listening: on every address of a host, with one port, also on a machine without IPv6."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from facts import facts
from ipv6 import needs_ipv6

from dpspca.common.errors import InvalidParameterError
from dpspca.server.rpc import listen

V4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
V6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))


@contextmanager
def listening(address: str) -> Iterator[list[socket.socket]]:
    made = listen(address, 5)
    try:
        yield made
    finally:
        for each in made:
            each.close()


def named(monkeypatch: pytest.MonkeyPatch, *addresses: Any) -> None:
    """Give every host these addresses."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: list(addresses))


@needs_ipv6
def test_an_address_of_ipv6_is_listened_on() -> None:
    with listening("[::1]:0") as (only,), socket.create_connection(("::1", only.getsockname()[1])):
        assert only.family == socket.AF_INET6


@needs_ipv6
def test_every_address_means_both_families() -> None:
    with listening("[::]:0") as (only,):
        for host in ("::1", "127.0.0.1"):
            socket.create_connection((host, only.getsockname()[1])).close()


@needs_ipv6
def test_a_name_with_two_addresses_is_listened_on_at_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, V4, V6)
    with listening("host:0") as both:
        assert len({each.getsockname()[1] for each in both}) == 1
        assert {each.family for each in both} == {socket.AF_INET, socket.AF_INET6}


def test_an_address_that_a_name_has_twice_is_listened_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, V4, V4)
    with listening("localhost:0") as (only,):
        assert only.family == socket.AF_INET


@pytest.mark.parametrize("reason", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_a_machine_without_ipv6_listens_on_its_other_addresses(reason: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutIpv6(socket.socket):
        def bind(self, address: Any) -> None:
            if self.family == socket.AF_INET6:
                raise OSError(reason, "no IPv6 here")
            super().bind(address)

    monkeypatch.setattr(socket, "socket", WithoutIpv6)
    named(monkeypatch, V6, V4)
    with listening("localhost:0") as (only,):
        assert only.family == socket.AF_INET
    named(monkeypatch, V6)
    with pytest.raises(InvalidParameterError, match=facts("[::1]:0")):
        listen("[::1]:0", 5)


def test_a_port_that_is_taken_is_refused_and_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        named(monkeypatch, (*V4[:4], ("127.0.0.2", port)), (*V4[:4], ("127.0.0.1", port)))
        with pytest.raises(InvalidParameterError, match=facts(f"host:{port}")):
            listen(f"host:{port}", 5)
        socket.create_server(("127.0.0.2", port)).close()
