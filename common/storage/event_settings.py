"""The table ``[events]`` in a daemon's settings: where its stream of events goes."""

from dataclasses import dataclass
from typing import Annotated

from dpspca.common.decoding import Rule, between

from .addresses import Address
from .paths import FilePath


def _is_syslog(where: str) -> bool:
    if where.startswith("/"):
        return True
    try:
        Address.parse(where)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class EventSettings:
    """Where events go. A file that reaches ``mebibytes`` is renamed, and ``files`` older ones are kept."""

    file: FilePath | None = None
    mebibytes: Annotated[int, between(1, 2**20)] = 64
    files: Annotated[int, between(1, 1000)] = 8
    syslog: Annotated[str, Rule("Give a socket, as /dev/log, or HOST:PORT.", _is_syslog)] | None = None
