"""A coordinator with a valid certificate that sends an analyst too much, and the analyst's program that receives it.

The program is the one that analysts run. It runs in a separate process, so that its memory can be measured.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from local_federation import Enrolment, server_credentials

from dpspca.common.names import Role
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

SERVICE: Final = pb.DESCRIPTOR.services_by_name["AnalystService"].full_name
DPSPCA: Final = (sys.executable, "-m", "dpspca")

Replies = Iterable[bytes]
Script = Mapping[str, Callable[[], Replies]]
"""The replies to each method, message by message. A method that is not listed gets no replies."""


@dataclass(frozen=True)
class ProgramResult:
    """Exit code, output and peak memory of a program."""

    code: int
    out: str
    err: str
    most_memory: int


@asynccontextmanager
async def serving_replies(enrolment: Enrolment, script: Script, compressed: bool = False) -> AsyncIterator[str]:  # noqa: FBT002
    """Run such a coordinator and yield its address."""
    hub = enrolment.identity(Role.COORDINATOR, "hub")
    method = grpc.unary_stream_rpc_method_handler
    handlers = {
        each.name: method(_replying(script.get(each.name, tuple)))
        for each in pb.DESCRIPTOR.services_by_name["AnalystService"].methods
    }
    compression = grpc.Compression.Gzip if compressed else grpc.Compression.NoCompression
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)], compression=compression)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    port = server.add_secure_port("127.0.0.1:0", server_credentials(hub))
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def _replying(replies: Callable[[], Replies]) -> Callable[[Any, Any], AsyncIterator[bytes]]:
    async def reply(_: Any, context: Any) -> AsyncIterator[bytes]:
        try:
            for each in replies():
                yield each
        except RuntimeError as problem:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(problem))

    return reply


def analyst_folder(enrolment: Enrolment) -> Path:
    """Return the folder of an analyst whose settings lack only the coordinator's address."""
    enrolment.identity(Role.ANALYST, "ada")
    return enrolment.folder


async def run_analyst(enrolment: Enrolment, address: str, words: Sequence[str], seconds: float) -> ProgramResult:
    """Run the program with that coordinator. Kill it after ``seconds`` seconds."""
    folder = analyst_folder(enrolment)
    (folder / "ada.toml").write_text(f'coordinator = "{address}"\nidentity = "analyst-ada"\n')
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = await asyncio.create_subprocess_exec(
            *DPSPCA, *words, "--config", "ada.toml", cwd=folder, stdout=out, stderr=err
        )
    most = 0
    waiting = asyncio.ensure_future(process.wait())
    deadline = asyncio.get_running_loop().time() + seconds
    while not waiting.done():
        most = max(most, _peak(process.pid))
        if asyncio.get_running_loop().time() > deadline:
            process.kill()
        await asyncio.wait([waiting], timeout=0.05)
    return ProgramResult(await waiting, (folder / "out").read_text(), (folder / "err").read_text(), most)


def _peak(process: int) -> int:
    """Return the peak memory of a process in bytes; 0 if it is gone."""
    try:
        told = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((1024 * int(row.split()[1]) for row in told.splitlines() if row.startswith("VmHWM")), 0)
