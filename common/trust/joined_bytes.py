"""Byte strings joined into one, so that it can be taken apart again in one way only. Pure.

Each part follows its length. What is signed is written so: two different lists of parts never give the same bytes.
"""

from typing import Final

LENGTH_BYTES: Final = 4


def join(*parts: bytes) -> bytes:
    """Join parts, each after its length."""
    return b"".join(len(part).to_bytes(LENGTH_BYTES) + part for part in parts)


def split(content: bytes, most: int) -> list[bytes]:
    """Take apart what ``join`` wrote, or raise ``ValueError``.

    It stops at the first part beyond ``most``, in case there are millions of tiny ones.
    """
    parts: list[bytes] = []
    start = 0
    while start < len(content):
        begin = start + LENGTH_BYTES
        end = begin + int.from_bytes(content[start:begin])
        if end > len(content) or begin > len(content) or len(parts) == most:
            raise ValueError(f"is cut short, or has more than {most} parts")
        parts.append(content[begin:end])
        start = end
    return parts
