"""Read an HTML page as a reader and a screen reader would find it. A page that is not well formed fails."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final

VOID: Final = {"meta"}


@dataclass
class Element:
    """An element with its attributes, the tags around it, and all text inside it."""

    tag: str
    attributes: dict[str, str]
    within: tuple[str, ...]
    text: str = ""


@dataclass
class _Reader(HTMLParser):
    elements: list[Element] = field(default_factory=list)
    unclosed: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"an attribute stands twice in {tag}"
        attributes = {name: value or "" for name, value in attrs}
        self.elements.append(Element(tag, attributes, tuple(each.tag for each in self.unclosed)))
        if tag not in VOID:
            self.unclosed.append(self.elements[-1])

    def handle_endtag(self, tag: str) -> None:
        assert self.unclosed, tag
        assert self.unclosed.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for each in self.unclosed:
            each.text += data


def elements_of(page: str) -> list[Element]:
    """Return all elements in order."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert not reader.unclosed
    return reader.elements


def of_tag(page: str, *tags: str) -> list[Element]:
    """Return the elements with one of these tags, in order."""
    return [each for each in elements_of(page) if each.tag in tags]
