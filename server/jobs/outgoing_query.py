"""A query as the coordinator sends it to providers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from dpspca.common.plan import Step
from dpspca.common.queries import Content, RowQuery
from dpspca.common.transport import wire
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

SHORT_CONTENT: Final = 2**16
"""The most bytes of content that are sent with the query's announcement, which saves a message."""


@dataclass(frozen=True, slots=True)
class OutgoingQuery:
    """A query to send: short content goes with its announcement, longer content in frames."""

    message: pb.Query
    step: Step
    digest: str
    content: Content
    """The content to send in frames; empty if it goes with the announcement."""

    @classmethod
    def of(cls, signed: bytes, position: int, step: Step, query: RowQuery) -> Self:
        announced, content = query.announcement, query.content()
        short = len(content) <= SHORT_CONTENT
        extent = announced.extent
        message = pb.Query(
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
            scaled=announced.scaled,
            content=bytes(content) if short else b"",
        )
        return cls(message, step, query.digest(), b"" if short else content)

    @property
    def frames(self) -> Iterator[memoryview]:
        """Cut the content into frames, once for each provider."""
        return wire.frames(self.content)

    @property
    def size(self) -> int:
        """Bytes that are sent to each provider."""
        return self.message.ByteSize() + len(self.content)
