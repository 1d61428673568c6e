"""How a party reaches the coordinator: directly, or through an HTTP proxy that its settings name. Reads a file."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from dpspca.common.errors import InvalidParameterError

from . import files
from .addresses import Address

_SCHEME = "http://"


class ProxyAddress(str):
    """The address of an HTTP proxy, http://HOST:PORT."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> Self:
        """Check the form of the address. Credentials in it are refused, because settings are not private."""
        given = text if isinstance(text, str) else ""
        if "@" in given:
            raise InvalidParameterError(
                "The address contains credentials.",
                "Write USER:PASSWORD into a file, and name the file in proxy_credentials.",
            )
        if not given.startswith(_SCHEME):
            raise InvalidParameterError(
                f"{text!r:.120} is not the address of a proxy.",
                "Write http://HOST:PORT. TLS to the proxy is not supported.",
            )
        Address.parse(given.removeprefix(_SCHEME).removesuffix("/"))
        return cls(given.removesuffix("/"))

    @property
    def address(self) -> Address:
        """Host and port."""
        return Address(self.removeprefix(_SCHEME))


@dataclass(frozen=True, slots=True)
class Route:
    """The coordinator's address, and the proxy on the way to it if there is one."""

    address: Address
    proxy: Address | None = None
    credentials: str | None = field(default=None, repr=False)
    """USER:PASSWORD for the proxy."""

    @classmethod
    def of(cls, address: Address, proxy: ProxyAddress | None, credentials: Path | None) -> Self:
        """Read the credentials, if there are any."""
        if proxy is None:
            return cls(address)
        return cls(address, proxy.address, None if credentials is None else _read(credentials))

    def __str__(self) -> str:
        return self.address if self.proxy is None else f"{self.address} by the proxy {self.proxy}"


def _read(path: Path) -> str:
    text = files.read(path, private=True).decode("utf-8", "replace").strip()
    if ":" not in text or not text.isprintable():
        raise InvalidParameterError(f"{path} has no credentials for a proxy.", "Write one line: USER:PASSWORD.")
    return text
