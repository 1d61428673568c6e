"""What goes over some ports of this machine's loopback interface, as anybody on the way would see it."""

import os
import socket
import struct
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_ALL = 3
_ETHERNET = 14
_SECONDS = 0.2
MISSING = (
    ""
    if sys.platform == "linux" and os.geteuid() == 0 and hasattr(socket, "AF_PACKET")
    else "only root on Linux can listen to the loopback interface"
)
"""Why nothing can be heard here."""


@dataclass
class Heard:
    """The content of packets, one after the other."""

    ports: Collection[int]
    content: bytearray = field(default_factory=bytearray)

    def take(self, packet: bytes) -> None:
        head = packet[_ETHERNET:]
        if len(head) < 40 or head[0] >> 4 != 4 or head[9] != socket.IPPROTO_TCP:
            return
        segment = head[4 * (head[0] & 15) : struct.unpack("!H", head[2:4])[0]]
        if self.ports & set(struct.unpack("!HH", segment[:4])):  # type: ignore[operator]
            self.content += segment[4 * (segment[12] >> 4) :]


@contextmanager
def listening(ports: Collection[int]) -> Iterator[Heard]:
    """Listen until the block ends."""
    heard, ended = Heard(frozenset(ports)), threading.Event()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL)) as taps:
        taps.bind(("lo", 0))
        taps.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**26)
        taps.settimeout(_SECONDS)

        def listen() -> None:
            while not ended.is_set():
                try:
                    heard.take(taps.recv(2**17))
                except TimeoutError:
                    continue

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield heard
        finally:
            ended.set()
            thread.join()
