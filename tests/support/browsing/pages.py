"""The `dpspca` commands that the pages show, in blocks and within sentences, in the order of each page."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
PAGES: Final = [
    *sorted(set(ROOT.glob("*.md")) - {ROOT / "CHANGELOG.md"}),
    *(path for folder in ("deploy", "docs", "examples") for path in sorted((ROOT / folder).rglob("*.md"))),
]
BLOCK: Final = re.compile(r"```(\w*)\n(.*?)```|`(dpspca [^`]+)`", re.DOTALL)
SHELL: Final = ("sh", "console")


@dataclass(frozen=True)
class Command:
    """A command as a page shows it."""

    page: str
    words: tuple[str, ...]
    """Without `dpspca`, and without the file that the output goes to."""
    output: str | None
    """The file that the output goes to."""
    in_block: bool
    """Whether it is in a block, not within a sentence."""

    def __str__(self) -> str:
        return f"dpspca {shlex.join(self.words)}"


def commands() -> Iterator[Command]:
    """Yield all commands of all pages."""
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        for language, block, inline in BLOCK.findall(page.read_text(encoding="utf-8")):
            text = block.replace("\\\n", " ") if language in SHELL else ""
            for line in text.splitlines() or [" ".join(inline.split())]:
                words = shlex.split(line.removeprefix("$ "), comments=bool(text))
                if words[:1] == ["dpspca"]:
                    yield _command(name, words[1:], in_block=bool(text))


def _command(page: str, words: list[str], *, in_block: bool) -> Command:
    if words[-2:-1] == [">"]:
        return Command(page, tuple(words[:-2]), words[-1], in_block)
    return Command(page, tuple(words), None, in_block)
