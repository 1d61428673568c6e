"""A query in the form in which it is sent to providers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from dpspca.common.plan import Step
from dpspca.common.queries import Content, RowQuery
from dpspca.common.transport import wire
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

SHORT_CONTENT: Final = 2**16
"""Bytes of a query that are sent with its announcement: one message less to wait for."""


@dataclass(frozen=True, slots=True)
class OutgoingQuery:
    """A query as it is sent: short content comes with its announcement, longer content in frames."""

    ask: pb.Ask
    step: Step
    digest: str
    content: Content
    """What is sent in frames."""

    @classmethod
    def of(cls, signed: bytes, position: int, step: Step, query: RowQuery) -> Self:
        announced, content = query.announcement, query.content()
        short = len(content) <= SHORT_CONTENT
        extent = announced.extent
        ask = pb.Ask(
            signed_job=signed,
            position=position,
            kind=announced.kind,
            dimension=extent.dimension,
            columns=extent.columns,
            nonzero_rows=extent.nonzero_rows,
            block=extent.block,
            blocks=extent.blocks,
            centred=announced.centred,
            threshold=announced.threshold,
            power=announced.power,
            content=bytes(content) if short else b"",
        )
        return cls(ask, step, query.digest(), b"" if short else content)

    @property
    def frames(self) -> Iterator[memoryview]:
        """Cut the content anew for every provider."""
        return wire.frames(self.content)

    @property
    def size(self) -> int:
        """Bytes that each provider is sent."""
        return self.ask.ByteSize() + len(self.content)
