"""The least that a job over gRPC can cost: the same messages over the same connections, and nothing else.

Bare ``grpc.aio`` with mutual TLS: peers hold one long-lived stream each to a hub. A job is a number of rounds. In each,
the hub sends every peer a query (an announcement, then frames of one MiB) and every peer sends an answer back, both of
given sizes. Nobody computes anything. With COMMITS, each sender or receiver of a whole message first commits it to an
SQLite file, synced to disk. With DUTIES, everybody does the work of ``federation_duties.py``, which no job can omit.
The client that started the job gets a message for each round, and the result.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# dpspca sets the TLS version, which gRPC reads only when it is loaded, so gRPC comes second.
from federation_cases import Case
from federation_duties import HubDuties, PeerDuties

from dpspca.common.names import COORDINATOR_HOST
from dpspca.common.trust.identity import Identity

# isort: split
import grpc
import grpc.aio

FRAME: Final = 2**20
OPTIONS: Final = (
    ("grpc.max_receive_message_length", 4 * FRAME),
    ("grpc.max_send_message_length", 4 * FRAME),
)
SERVICE: Final = "bare.Floor"
COMMITS: Final = 1
DUTIES: Final = 2


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a job's messages, in bytes."""

    announcement: int
    queries: tuple[int, ...]
    answer: int
    result: int


class Store:
    """Messages in an SQLite file, each synced to disk before it counts."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE IF NOT EXISTS messages (content BLOB)")

    def commit(self, content: bytes | memoryview) -> None:
        self._connection.execute("INSERT INTO messages VALUES (?)", (content,))

    def close(self) -> None:
        self._connection.close()


class CoordinatorProcess:
    """Sends queries and receives answers. Every peer has its own stream."""

    def __init__(self, sizes: Sizes, store: Store, duties: HubDuties) -> None:
        self._sizes = sizes
        self._store = store
        self._duties = duties
        self._peers: list[grpc.aio.ServicerContext[bytes, bytes]] = []
        self._content = memoryview(os.urandom(max(*sizes.queries, sizes.result, sizes.announcement)))

    def handlers(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Connect": grpc.stream_stream_rpc_method_handler(self._connect),
                "Run": grpc.unary_stream_rpc_method_handler(self._run),
            },
        )

    async def _connect(self, _: AsyncIterator[bytes], context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
        """Keep a peer's stream, which running jobs read and write."""
        await context.write(b"welcome")
        self._peers.append(context)
        await asyncio.Event().wait()

    async def _run(self, asked: bytes, _: Any) -> AsyncIterator[bytes]:  # noqa: ANN401  # the call's context
        mode = asked[0]
        query = self._duties.begin() if mode & DUTIES else self._content
        for size in self._sizes.queries:
            await asyncio.gather(*(self._exchange(peer, query[:size], mode) for peer in self._peers))
            if mode & DUTIES:
                query = self._duties.advance()
            yield b"round"
        for frame in frames(self._content[: self._sizes.result]):
            yield frame

    async def _exchange(self, peer: "grpc.aio.ServicerContext[bytes, bytes]", query: memoryview, mode: int) -> None:
        if mode & COMMITS:
            self._store.commit(query)
        await peer.write(bytes([mode]) + bytes(self._content[: self._sizes.announcement]))
        for frame in frames(query):
            await peer.write(frame)
        answer = []
        reader = self._duties.reader() if mode & DUTIES else None
        for sequence in range(len(range(0, self._sizes.answer, FRAME))):
            frame = await peer.read()
            if reader:
                reader.add(sequence, frame)
            if mode & COMMITS:
                answer.append(frame)
        if mode & COMMITS:
            self._store.commit(b"".join(answer))


@asynccontextmanager
async def hub(folder: Path, sizes: Sizes, case: Case) -> AsyncIterator[str]:
    """Run a hub, and yield its address."""
    me = Identity.load(folder / "hub")
    server = grpc.aio.server(options=OPTIONS)
    credentials = grpc.ssl_server_credentials([(me.key_pem, me.certificate_pem)], me.authority_pem, True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    with closing(Store(folder / "hub.db")) as store:
        server.add_generic_rpc_handlers([CoordinatorProcess(sizes, store, HubDuties(folder, case)).handlers()])
        await server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await server.stop(grace=1)


@asynccontextmanager
async def peers(folder: Path, address: str, sizes: Sizes, case: Case, *names: str) -> AsyncIterator[str]:
    """Run peers in one event loop."""
    connected = [asyncio.Event() for _ in names]
    running = [
        asyncio.create_task(_peer(folder, address, sizes, PeerDuties(folder, case, name), ready))
        for name, ready in zip(names, connected, strict=True)
    ]
    try:
        await asyncio.gather(*(ready.wait() for ready in connected))
        yield ""
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _peer(folder: Path, address: str, sizes: Sizes, duties: PeerDuties, connected: asyncio.Event) -> None:
    content = memoryview(os.urandom(sizes.answer))
    with closing(Store(folder / f"{duties.name}.db")) as store:
        async with dial(folder, duties.name, address) as channel:
            stream = channel.stream_stream(f"/{SERVICE}/Connect")()
            await stream.read()
            connected.set()
            while True:
                for position, size in enumerate(sizes.queries):
                    mode = (await stream.read())[0]
                    query = await whole(stream, size)
                    if mode & COMMITS:
                        store.commit(b"".join(query))
                    answer = duties.answer(position, query) if mode & DUTIES else content
                    if mode & COMMITS:
                        store.commit(answer)
                    if mode & DUTIES:
                        duties.vouch()
                    for frame in frames(answer):
                        await stream.write(frame)


def dial(folder: Path, name: str, address: str) -> grpc.aio.Channel:
    me = Identity.load(folder / name)
    credentials = grpc.ssl_channel_credentials(me.authority_pem, me.key_pem, me.certificate_pem)
    options = (*OPTIONS, ("grpc.ssl_target_name_override", COORDINATOR_HOST))
    return grpc.aio.secure_channel(address, credentials, options=options)


async def run(channel: grpc.aio.Channel, rounds: int, mode: int) -> list[float]:
    """Run a job, and return the times of its start, of each round's end, and of the result's arrival."""
    moments = [time.perf_counter()]
    replies = aiter(channel.unary_stream(f"/{SERVICE}/Run")(bytes([mode])))
    for _ in range(rounds):
        await anext(replies)
        moments.append(time.perf_counter())
    async for _ in replies:
        pass
    return [*moments, time.perf_counter()]


def frames(content: memoryview) -> Iterator[bytes]:
    return (bytes(content[start : start + FRAME]) for start in range(0, len(content), FRAME))


async def whole(stream: Any, size: int) -> Sequence[bytes]:  # noqa: ANN401  # either side's
    """Read the frames of one message."""
    return [await stream.read() for _ in range(0, size, FRAME)]
