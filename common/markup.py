"""HTML made of elements. Text is escaped unless it is markup already, so no call can forget to escape a name. Pure."""

import html
import json
from collections.abc import Iterable, Sequence

from .text import visible


class Markup(str):
    """HTML to be written as it is. Any other text is escaped when it becomes part of an element."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: object) -> Markup:
    """Return an element. In an attribute's name, ``_`` stands for ``-``, and a last ``_`` is dropped (``class_``)."""
    return Markup(f"<{tag}{_written(attributes)}>{joined(children)}</{tag}>")


def void(tag: str, **attributes: object) -> Markup:
    """Return an element that has no end tag, such as ``meta``."""
    return Markup(f"<{tag}{_written(attributes)}>")


def joined(parts: Iterable[str]) -> Markup:
    """Return the parts one after the other, with all text escaped."""
    return Markup("".join(part if isinstance(part, Markup) else escaped(part) for part in parts))


def escaped(text: str) -> Markup:
    """Escape text for use between tags and within quotes. Unprintable characters, but line breaks, are replaced."""
    return Markup(html.escape("\n".join(map(visible, text.split("\n")))))


def number(value: float, shown: str) -> Markup:
    """Return a number as people read it, with its exact value for programs. Raise ValueError if it is not finite."""
    return element("data", shown, value=json.dumps(value, allow_nan=False))


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Return a table. The first cell of each row is its heading."""
    head = element("tr", *(element("th", heading, scope="col") for heading in headings))
    lines = (
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in cells))
        for first, *cells in rows
    )
    return element("table", element("caption", caption), element("thead", head), element("tbody", *lines))


def _written(attributes: dict[str, object]) -> str:
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escaped(str(value))}"' for name, value in attributes.items()
    )
