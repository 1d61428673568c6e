"""Search for a conversation that crashes a provider, with inputs guided by code coverage.

``make fuzz`` runs it. An input is a list of serialised messages, each with its length before it; the words of
``people.py`` stand for what is signed, so that an input means the same in every run.
"""

import logging
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["dpspca"]):
    import dpspca.provider.connection.conversation  # noqa: F401  # to have it instrumented, and all that it uses

HERE = Path(__file__).parents[1]
SUPPORT = HERE / "support"
sys.path += [str(folder) for folder in (SUPPORT, *SUPPORT.iterdir(), HERE / "simulation", HERE / "fuzz")]

from fuzz_parties import seeds  # noqa: E402
from google.protobuf.message import DecodeError, Message  # noqa: E402
from provider_harness import ProviderHarness  # noqa: E402  # after the instrumented modules

from dpspca.protos.dpspca.v1 import federation_pb2 as pb  # noqa: E402

MOST_MESSAGES = 24
LENGTH_BYTES = 2


def written(messages: list[Message]) -> bytes:
    """Return messages as an input."""
    contents = [each.SerializeToString() for each in messages]
    return b"".join(len(each).to_bytes(LENGTH_BYTES) + each for each in contents)


def read(content: bytes) -> list[pb.ToProvider]:
    """Read an input. Bytes that are not a message are skipped."""
    messages, start = [], 0
    while start < len(content) and len(messages) < MOST_MESSAGES:
        begin = start + LENGTH_BYTES
        start = begin + int.from_bytes(content[start:begin])
        with suppress(DecodeError):
            messages.append(pb.ToProvider.FromString(content[begin:start]))
    return messages


def survive(content: bytes) -> None:
    """Run the conversation. Raise any exception that must not occur."""
    harness = ProviderHarness()
    harness.run_conversation(read(content))
    harness.require_consistent()


def main() -> None:
    """Write the seeds into the first folder given, and start."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    corpus = Path(next(word for word in sys.argv[1:] if not word.startswith("-")))
    corpus.mkdir(parents=True, exist_ok=True)
    for number, messages in enumerate(seeds()):
        (corpus / f"seed-{number}").write_bytes(written(list(messages)))
    atheris.Setup(sys.argv, survive)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
