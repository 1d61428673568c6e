"""Sources of random words: a protocol, the one pure source that satisfies it, and the key of each draw.

``WordSource`` is all that the noise needs: independent uniform 32-bit words. ``KeyStream`` spreads a 32-byte key
into such words with AES-256 in counter mode: somebody who distinguishes them from uniform words has broken AES. It is a
pure function of its key.

Every draw for a release has a key of its own. ``keyed_stream`` makes it with HMAC-SHA-256 from random bytes and the
draw's full name: the job, the provider's seat, the position in the plan, the query's digest, and the purpose of the
words. HMAC is a pseudo-random function, so if nobody knows the random bytes, two facts hold. Draws with different names
have independent words *even if their random bytes are the same*, as they are in two copies of a virtual machine whose
system generator was copied too. And if the random bytes are fresh, the words are fresh, whatever the name.

Noise that may be released needs random bytes that nobody knows: ``dpspca.provider.release.entropy`` reads them from the
operating system for each draw. A key derived from a seed is for tests and rehearsals whose numbers never leave the
machine: anybody who knows the seed can subtract the noise.
"""

import hmac
from collections.abc import Callable
from dataclasses import astuple, dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final, Protocol, Self, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from dpspca.common.errors import InvalidParameterError

KEY_BYTES: Final = 32
WORD_BYTES: Final = 4

_BLOCK_BYTES: Final = 16
_ZEROS: Final = bytes(1 << 17)  # encrypted in cache-sized pieces; the ciphertext is the keystream


class WordSource(Protocol):
    """Something that yields independent, uniform 32-bit words."""

    def words(self, count: int) -> NDArray[np.uint32]:
        """Return the next ``count`` words in an array that the caller owns; no word is ever returned twice."""
        ...


class KeyStream:
    """AES-256-CTR keystream, from counter zero, read as little-endian 32-bit words.

    Equal keys give equal words on every machine, however the calls divide them. So a key must start only one stream,
    ever. Two threads must not use a stream at the same time.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise InvalidParameterError(
                f"A keystream needs a key of {KEY_BYTES} bytes, not {len(key)}.",
                "Make the stream of a draw with `keyed_stream`; a test may use KeyStream.repeatable(seed, label).",
            )
        # A fixed nonce is sound because a key starts one stream only.
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(_BLOCK_BYTES))).encryptor()

    @classmethod
    def repeatable(cls, seed: int, label: str) -> Self:
        """Return the stream of a seed and a label. For tests of samplers; NEVER for a release.

        The key is SHA-256 of both. They are separated by a NUL, which the digits of a seed cannot contain.
        """
        return cls(sha256(f"dpspca repeatable keystream\0{label}\0{seed:d}".encode()).digest())

    def words(self, count: int) -> NDArray[np.uint32]:
        """Return the next ``count`` words, in an array that the caller owns."""
        size = count * WORD_BYTES
        buffer = np.empty(size + _BLOCK_BYTES - 1, np.uint8)  # the cipher asks for room for all but one byte of a block
        for start in range(0, size, len(_ZEROS)):
            self._encryptor.update_into(_ZEROS[: size - start], buffer.data[start:])
        return buffer[:size].view("<u4").astype(np.uint32, copy=False)


class Purpose(StrEnum):
    """Purposes of the words of a draw. Words for different purposes are independent."""

    NOISE = "noise that is added to an answer"
    MECHANISM = "an answer that is a private mechanism by itself"
    AUDIT = "an audit's own random numbers, which are not released"


@dataclass(frozen=True, slots=True)
class Draw:
    """The full name of one draw. Two draws that need different words differ in at least one field.

    ``job`` is the job's name, ``seat`` this provider's place among the job's providers, ``position`` the query's
    place in the plan, and ``query`` the digest of the query's whole content.
    """

    job: str
    seat: int
    position: int
    query: str
    purpose: Purpose

    def name(self) -> bytes:
        """Encode all fields, each after its length, so that no two draws have the same name."""
        fields = [str(field).encode() for field in astuple(self)]
        return b"".join(len(field).to_bytes(8) + field for field in fields)


Entropy: TypeAlias = Callable[[Draw], WordSource]
"""Returns the words for a draw. A release passes the draw's full name, and keeps none of the words."""


def keyed_stream(randomness: bytes, draw: Draw) -> KeyStream:
    """Return the stream of one draw, keyed with random bytes and the draw's name."""
    return KeyStream(hmac.digest(randomness, b"dpspca draw\0" + draw.name(), "sha256"))


def repeatable_entropy(seed: int) -> Entropy:
    """Return entropy that gives draws with the same name the same words, for rehearsals: NEVER for a release.

    The seed replaces the system's randomness; nothing else differs.
    """
    randomness = sha256(f"dpspca repeatable entropy\0{seed:d}".encode()).digest()

    def words(draw: Draw) -> KeyStream:
        return keyed_stream(randomness, draw)

    return words
