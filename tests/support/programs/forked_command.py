"""A command `dpspca` for scripts, which starts as a fork (``forked_programs.py``). Scripts start dozens.

The command is a small program that hands its words, folder and streams to the process of tests, passes signals on, and
ends as the fork does.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Final

SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
COMMAND: Final = f"""#!{sys.executable} -IS
import os, signal, socket, sys
import json
asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
asked.connect({{address!r}})
umask = os.umask(0)
os.umask(umask)
socket.send_fds(asked, [json.dumps([sys.argv[1:], os.getcwd(), umask]).encode()], [0, 1, 2])
started = int(asked.recv(32))
for name in {SIGNALS!r}:
    signal.signal(getattr(signal, name), lambda number, _: os.kill(started, number))
code = int(asked.recv(32))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
LONGEST: Final = 2**20


@contextmanager
def forked_command() -> Iterator[Path]:
    """Yield a folder with the command. It works as long as the block runs."""
    if sys.platform != "linux":
        yield Path(sys.executable).parent
        return
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        command, address = Path(folder, "dpspca"), str(Path(folder, "socket"))
        listening.bind(address)
        listening.listen()
        command.write_text(COMMAND.format(address=address), encoding="utf-8")
        command.chmod(0o700)
        Thread(target=_serve, args=[listening], daemon=True).start()
        yield command.parent
        listening.shutdown(socket.SHUT_RDWR)


def _serve(listening: socket.socket) -> None:
    while True:
        try:
            asked, _ = listening.accept()
        except OSError:  # the block ended
            return
        Thread(target=_run, args=[asked], daemon=True).start()


def _run(asked: socket.socket) -> None:
    """Run one program, and send its number and then its exit code."""
    content, streams, _, _ = socket.recv_fds(asked, LONGEST, 3)
    words, where, umask = json.loads(content)
    program = [sys.executable, "-m", "dpspca", *words]
    with subprocess.Popen(  # noqa: S603  # our own program
        program, cwd=where, umask=umask, stdin=streams[0], stdout=streams[1], stderr=streams[2]
    ) as process:
        for each in streams:
            os.close(each)
        with asked:
            asked.send(b"%d" % process.pid)
            asked.send(b"%d" % process.wait())
