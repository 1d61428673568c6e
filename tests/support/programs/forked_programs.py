"""Starts the programs of tests as forks of a process that has loaded them: loading takes a second, a fork no time.

The forks are ordinary processes: children of the process that started them, with their own streams, folder and signals.
If a test uses ``subprocess`` in an unusual way (other variables, limits, inherited files), the program is started as
usual. A demonstration starts programs itself; a separate process forks those.

Run as a program, this module is the process that forks on request. Its arguments are the number of a socket, and spaces
that leave room for the command lines of programs.
"""

import atexit
import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from inspect import signature
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, NamedTuple

PACKAGE: Final = "dpspca"
"""Every module of this package that is a program may be run in a fork."""
CODE: Final = "from dpspca.cli import main\n"
"""Code that has this line may be run in a fork."""
SILENT: Final = ("PYTEST_", "DPSPCA_", "COLUMNS", "NO_COLOR", "TMPDIR", "GRPC_VERBOSITY", "KMP_", "_RJEM_")
"""Prefixes of environment variables that have no effect while a program is loaded."""
USUAL: Final = {"preexec_fn": None, "pass_fds": (), "shell": False, "gid": None, "gids": None, "uid": None}
LATE: Final = (
    *("dp_accounting.pld.pld_pmf", "dp_accounting.pld.privacy_loss_distribution", "matplotlib.backends.backend_agg"),
    *("h5py", "pandas", "pyarrow.parquet", "typer._adapters"),
)
"""What many programs load only when they need it: half of the time that a provider takes to start."""
STARTS_OTHERS: Final = "demo"
ROOM: Final = " " * 2**12
"""Room for the command line that the system shows for a process."""
LONGEST: Final = 2**20
READY: Final = b"ready"
SUBREAPER: Final = 36


class Program(NamedTuple):
    """A program to run, with its folder, variables and arguments."""

    module: str
    """Empty for code."""
    code: str
    words: list[str]
    folder: str
    variables: dict[str, str]
    session: bool
    """Whether the program gets its own session."""
    group: bool
    """Whether the program gets its own process group, for signals."""
    umask: int
    """-1 for that of the process that forks."""
    line: list[str]
    """The command line that the system shows for it."""


def fork_programs(asked: socket.socket | None = None) -> None:
    """Make ``subprocess`` in this process start our programs as forks. ``asked`` leads to a forking process, if any."""
    if sys.platform != "linux":
        return
    fork_server = _ForkServer(asked)
    ordinary = subprocess.Popen._execute_child  # type: ignore[attr-defined]  # it is the one place where all starts meet
    named = signature(ordinary)

    def start(self: Any, *given: Any, **others: Any) -> None:
        asked = named.bind(self, *given, **others).arguments
        program = _program(asked, fork_server.variables)
        if program is None:
            ordinary(self, *given, **others)
            return
        ends = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        self.pid = fork_server.fork(program, [usual if end == -1 else end for usual, end in enumerate(ends)])
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[end] for end in pipes))

    subprocess.Popen._execute_child = start  # type: ignore[attr-defined]


def _program(asked: Mapping[str, Any], loaded_with: Mapping[str, str]) -> Program | None:
    """Return the program that ``subprocess`` was asked to start, or None if a fork would not be equivalent."""
    words = asked["args"]
    if isinstance(words, str | bytes) or any(asked.get(name, usual) != usual for name, usual in USUAL.items()):
        return None
    words = [os.fsdecode(word) for word in words]
    if words[0] != sys.executable or asked["executable"] not in {None, sys.executable, os.fsencode(sys.executable)}:
        return None
    variables = dict(os.environ if asked["env"] is None else asked["env"])
    if _relevant(variables) != _relevant(loaded_with):
        return None
    line = words
    if words[1:2] == ["-P"]:
        words = [words[0], *words[2:]]
    match words[1:3]:
        case ["-m", module] if module.partition(".")[0] == PACKAGE:
            code = ""
        case ["-c", code] if CODE in code:
            module = ""
        case _:
            return None
    folder = os.fsdecode(asked["cwd"] or Path.cwd())
    group = asked.get("process_group", -1)
    if group not in {-1, 0}:
        return None
    session, umask = bool(asked["start_new_session"]), asked.get("umask", -1)
    return Program(module, code, words[3:], folder, variables, session, group == 0, umask, line)


def _relevant(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not name.startswith(SILENT)}


class _ForkServer:
    """The connection to the forking process, which is started when first needed."""

    def __init__(self, asked: socket.socket | None) -> None:
        self.variables = dict(os.environ)
        self._turn = threading.Lock()
        self._socket = asked

    def fork(self, program: Program, streams: Sequence[int]) -> int:
        """Start a program as a child of this process."""
        with self._turn:
            if self._socket is None:
                self._socket = _started(self.variables)
            with _adopting():
                socket.send_fds(self._socket, [json.dumps(program).encode()], list(streams))
                return int(self._socket.recv(LONGEST))


def _started(variables: Mapping[str, str]) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = [sys.executable, __file__, str(theirs.fileno()), ROOM]
    process = subprocess.Popen(words, env=variables, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)  # noqa: S603  # ourselves
    process.returncode = 0  # it ends with this process, and nobody waits for it
    theirs.close()
    assert ours.recv(LONGEST) == READY  # loading takes a while; orphans from that time are not ours
    return ours


@contextmanager
def _adopting() -> Any:
    """Adopt orphans below this process inside the block: the new program is one, and there must be no others."""
    system = ctypes.CDLL(None)
    system.prctl(SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        system.prctl(SUBREAPER, 0, 0, 0, 0)


# --- Within the process that forks ------------------------------------------------------------------------------------


def serve(asked: socket.socket) -> Program | None:
    """Fork for every program requested. Return the program in the new process, and None at the end."""
    while True:
        content, streams, _, _ = socket.recv_fds(asked, LONGEST, 3)
        if not content:
            return None
        read_end, write_end = os.pipe()
        between = _fork()
        if between == 0 and _is_orphan(write_end):
            program = Program(*json.loads(content))
            for each in (read_end, write_end, asked.detach()):
                os.close(each)
            _settle(program, streams)
            return program
        os.close(write_end)
        number = os.read(read_end, 32)
        os.waitpid(between, 0)
        for each in (read_end, *streams):
            os.close(each)
        asked.send(number)


def _is_orphan(write_end: int) -> bool:
    """Fork once more and exit. Return True in the grandchild, once it is a child of the requesting process."""
    me = os.getpid()
    if number := _fork():
        os.write(write_end, b"%d" % number)
        os._exit(0)
    while os.getppid() == me:
        time.sleep(0.001)
    return True


def _fork() -> int:
    """Fork although the linear algebra library has threads: it ends them before, and starts them again after."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _settle(program: Program, streams: Sequence[int]) -> None:
    """Set this process up as if the system had started the program."""
    for usual, end in enumerate(streams):
        os.dup2(end, usual)
    for end in streams:
        if end > 2:  # standard error
            os.close(end)
    if program.session:
        os.setsid()
    if program.group:
        os.setpgid(0, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup, the process that forks ignores it
    _set_command_line(program.line)
    os.chdir(program.folder)
    if program.umask >= 0:
        os.umask(program.umask)
    os.environ.clear()
    os.environ.update(program.variables)
    sys.argv = [program.module or "-c", *program.words]
    sys.path[0] = ""
    tempfile.tempdir = None
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc, assignment]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = _stream(1)  # type: ignore[misc, assignment]
    sys.stderr = sys.__stderr__ = _stream(2, errors="backslashreplace", line_buffering=True)  # type: ignore[misc, assignment]


def _stream(number: int, **others: Any) -> TextIOWrapper:
    return TextIOWrapper(open(number, "wb", closefd=False), **others)


def _set_command_line(line: Sequence[str]) -> None:
    """Replace the command line that the system shows for this process."""
    stat = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    start, end = int(stat[45]), int(stat[46])
    content = b"".join(os.fsencode(word) + b"\0" for word in line)[: end - start]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, content, len(content))


def _with_fork_server(program: Program) -> Program:
    """Start a separate forking process for a program that starts others. In each of its forks, return that program."""
    while program.words[:1] == [STARTS_OTHERS]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if _fork():
            theirs.close()
            fork_programs(ours)
            return program
        ours.close()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for usual in range(3):
            os.dup2(nowhere, usual)  # so that a reader of the program's output does not wait for this process
        program = _forked(theirs)
    return program


def _forked(asked: socket.socket) -> Program:
    program = serve(asked)
    if program is None:
        os._exit(0)
    return program


def main(number: str, _room: str) -> None:
    """Load our programs, and fork on request until the requests end."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # as the program has it before it loads gRPC
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")  # a process with one thread forks safely
    from dpspca.cli.app import whole_program  # noqa: PLC0415

    whole_program()  # it is built once
    for name in LATE:
        import_module(name)
    gc.freeze()  # spare every program the garbage collection of what is loaded
    asked = socket.socket(fileno=int(number))
    asked.send(READY)
    with suppress(KeyboardInterrupt):  # an interrupt from a terminal reaches all processes
        program = _with_fork_server(_forked(asked))
    code = _run(program)
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking apart what it shares with others would take longer than most programs


def _run(program: Program) -> int:
    """Run a program, and return its exit code."""
    try:
        if program.module:
            runpy.run_module(program.module, run_name="__main__", alter_sys=True)
        else:
            exec(compile(program.code, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise
        return ended.code or 0
    return 0


if __name__ == "__main__":
    main(*sys.argv[1:])
