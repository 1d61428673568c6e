"""Where random words come from: a protocol, and the one pure source that satisfies it.

``WordSource`` is all that the noise asks for: independent uniform 32-bit words. ``KeyStream`` spreads a 32-byte key
into such words with AES-256 in counter mode, so telling them from uniform ones means breaking AES. It is a pure
function of its key. Noise that may be released needs a key that nobody knows: ``dpspca.provider.entropy`` draws it
from the operating system. A key chosen here, or derived from a seed, is for tests and for rehearsals whose numbers
never leave the machine: whoever knows the seed can subtract the noise.
"""

from hashlib import sha256
from typing import Final, Protocol, Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from dpspca.common.errors import InvalidParameterError

KEY_BYTES: Final = 32
WORD_BYTES: Final = 4

_BLOCK_BYTES: Final = 16
_ZEROS: Final = bytes(1 << 17)  # what is encrypted, a cache-sized piece at a time: the ciphertext is the keystream


class WordSource(Protocol):
    """Something that yields independent, uniform 32-bit words."""

    def words(self, count: int) -> NDArray[np.uint32]:
        """Return the next ``count`` words in an array that is the caller's own; no word is ever returned twice."""
        ...


class KeyStream:
    """AES-256-CTR keystream, from counter zero, read as little-endian 32-bit words.

    Equal keys give equal words on every machine, however the calls divide them. A key must therefore start one
    stream only, ever. Not safe for use by two threads at once.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise InvalidParameterError(
                f"A keystream needs a key of {KEY_BYTES} bytes, not {len(key)}.",
                "Pass 32 random bytes, or use KeyStream.repeatable(seed, label) for a run that is not released.",
            )
        # A fixed nonce is sound because a key starts one stream only.
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(_BLOCK_BYTES))).encryptor()

    @classmethod
    def repeatable(cls, seed: int, label: str) -> Self:
        """Return the stream that belongs to a seed and a label, for tests and rehearsals: NEVER for a release.

        The key is SHA-256 of both; a NUL, which the digits of a seed cannot hold, divides them without ambiguity.
        """
        return cls(sha256(f"dpspca repeatable keystream\0{label}\0{seed:d}".encode()).digest())

    def words(self, count: int) -> NDArray[np.uint32]:
        """Return the next ``count`` words, in an array of the caller's own."""
        size = count * WORD_BYTES
        buffer = np.empty(size + _BLOCK_BYTES - 1, np.uint8)  # the cipher asks for room for all but one byte of a block
        for start in range(0, size, len(_ZEROS)):
            self._encryptor.update_into(_ZEROS[: size - start], buffer.data[start:])
        return buffer[:size].view("<u4").astype(np.uint32, copy=False)
