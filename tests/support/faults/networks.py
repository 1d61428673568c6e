"""Two network namespaces for a test, joined by a link that can be cut, slowed down, or made to lose one direction."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

NEAR, FAR = "near", "far"
ADDRESSES = {NEAR: "10.213.0.1", FAR: "10.213.0.2"}
NOBODY = "02:00:00:00:00:99"
"""A hardware address that no device has: packets to it are lost without an error."""


def missing() -> str:
    """Return what this machine lacks to make a link; empty if it can."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    absent = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if absent:
        return f"{' and '.join(absent)} of iproute2 not found"
    try:
        with linked() as link:
            link.slow_down(1000)
    except subprocess.CalledProcessError as problem:
        return f"this kernel does not let us: {problem.stderr.strip()}"
    return ""


@dataclass(frozen=True)
class Link:
    """Two namespaces and the link between them."""

    names: dict[str, str]

    def within(self, side: str) -> Sequence[str]:
        """Return the command prefix that runs a program on one side."""
        return ("ip", "netns", "exec", self.names[side])

    def cut(self) -> None:
        """Take the link down, as if its cable were unplugged."""
        _ip("-n", self.names[NEAR], "link", "set", NEAR, "down")

    def mend(self) -> None:
        """Bring the link up again in both directions."""
        _ip("-n", self.names[NEAR], "link", "set", NEAR, "up")
        for side in ADDRESSES:
            _ip("-n", self.names[side], "neigh", "flush", "dev", side, "nud", "all")

    def lose_all_from(self, side: str) -> None:
        """Silently lose everything that a side sends. It still receives."""
        other = ADDRESSES[FAR if side == NEAR else NEAR]
        _ip("-n", self.names[side], "neigh", "replace", other, "lladdr", NOBODY, "dev", side, "nud", "permanent")

    def slow_down(self, bytes_a_second: int) -> None:
        """Limit the bandwidth in each direction."""
        for side, name in self.names.items():
            rate = f"{8 * bytes_a_second}bit"
            _run("tc", "-n", name, "qdisc", "replace", "dev", side, "root", "tbf", "rate", rate, *TBF)

    def sent(self, side: str) -> int:
        """Return the number of bytes that a side has sent over the link."""
        counted = _run(*self.within(side), "cat", f"/sys/class/net/{side}/statistics/tx_bytes")
        return int(counted)


TBF = ("burst", "1600", "latency", "60s")
"""Send one packet at a time, and drop packets that wait longer than a minute."""


@contextmanager
def linked() -> Iterator[Link]:
    """Create two namespaces and a link between them, and remove both at the end."""
    names = {side: f"dpspca-{os.getpid()}-{side}" for side in ADDRESSES}
    with ExitStack() as undoing:
        for name in names.values():
            _ip("netns", "add", name)
            undoing.callback(_ip, "netns", "del", name)
        peer = ("peer", "name", FAR, "netns", names[FAR])
        _ip("link", "add", NEAR, "netns", names[NEAR], "type", "veth", *peer)
        for side, name in names.items():
            _ip("-n", name, "address", "add", f"{ADDRESSES[side]}/30", "dev", side)
            _ip("-n", name, "link", "set", side, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield Link(names)


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, check=True, text=True).stdout  # noqa: S603  # our own words
