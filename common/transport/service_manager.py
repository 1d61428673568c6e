"""Tells the service manager that started a daemon how the daemon stands: ready, reloading, stopping, alive.

This is the protocol of systemd's ``sd_notify``: datagrams to the socket that NOTIFY_SOCKET names. Without a service
manager nothing is sent. Edge: reads the environment and opens a socket.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

_SOCKET: Final = "NOTIFY_SOCKET"
_WATCHDOG: Final = "WATCHDOG_USEC"

_log = logging.getLogger(__name__)


class ServiceManager:
    """The service manager of this process, if it has one."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get(_SOCKET, "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        interval = environment.get(_WATCHDOG, "")
        self._pause = int(interval) / 2e6 if interval.isascii() and interval.isdigit() and address else 0.0

    def ready(self, status: str) -> None:
        """Say that the daemon is up, or up again after a reload."""
        line = " ".join(status.split())  # a message has one line for each of its parts
        self._send(f"READY=1\nSTATUS={line}")

    def reloading(self) -> None:
        """Say that settings are being read again."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}\nSTATUS=Reading the settings again.")

    def stopping(self) -> None:
        """Say that the daemon ends."""
        self._send("STOPPING=1")

    async def keep_alive(self) -> None:
        """Say regularly that the event loop runs, if the service manager restarts daemons that do not say so."""
        while self._pause:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self._pause)
        await asyncio.Event().wait()

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.sendto(message.encode(), self._address)
        except OSError as problem:
            _log.warning("The service manager cannot be notified: %s", problem.strerror or problem)
