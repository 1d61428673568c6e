# ruff: noqa: INP001  # loaded by MkDocs, by its path
"""Hooks for MkDocs: generated pages, pages from outside docs/, and formulas without a script.

Links in docs/ work in the repository. This module converts links that leave docs/ to links within the site. The build
fails if the site does not have the target of a link.
"""

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Final

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
GENERATED: Final = ROOT / "build" / "site-pages"
TOP_LEVEL_PAGES: Final = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
}
"""Files in the top folder of the repository, and the pages that they become."""

SAMPLES: Final = "deploy/samples"
SETTINGS_PAGE: Final = "reference/settings.md"
FILE_OF_PAGE: Final = {page: name for name, page in TOP_LEVEL_PAGES.items()}
LINK: Final = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?!https?:)(?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")
CODE: Final = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
BLOCK_FORMULA: Final = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
FORMULA: Final = re.compile(r"(?<![\\$\w])\$([^$\n]+(?:\n[^$\n]+)?)\$(?!\w)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the files in the top folder of the repository."""
    for path in sorted(GENERATED.rglob("*.md")):
        name = path.relative_to(GENERATED).as_posix()
        files.append(File.generated(config, name, content=path.read_text(encoding="utf-8")))
    for name, page in TOP_LEVEL_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Convert links to the repository to links within the site, and formulas to MathML, except in code."""
    parts = CODE.split(markdown)
    inside = [LINK.sub(lambda link: _within_the_site(link, page.file.src_uri), part) for part in _rejoined(parts)]
    return "".join(_with_formulas(part) if not part.startswith("`") else part for part in CODE.split("".join(inside)))


def _rejoined(parts: list[str]) -> list[str]:
    """Separate blocks of code from text. Code within a line stays with its text, because it may be part of a link."""
    joined = [""]
    for part in parts:
        if part.startswith("```"):
            joined += [part, ""]
        else:
            joined[-1] += part
    return joined


def _within_the_site(link: re.Match[str], page: str) -> str:
    """Return a link of the repository, or a picture, as one within the site."""
    image, text, target, anchor = link["image"], link["text"], link["target"], link["anchor"] or ""
    if not target:
        return link[0]
    home = FILE_OF_PAGE.get(page, join("docs", page))
    file = normpath(join(dirname(home), target))
    if file in TOP_LEVEL_PAGES:
        file = TOP_LEVEL_PAGES[file]
    elif file.startswith(SAMPLES):
        name = Path(file).stem if file.endswith(".toml") else ""
        file, anchor = SETTINGS_PAGE, f"#{name}" if name else ""
    elif file.startswith("docs/") and not (ROOT / file).is_dir():
        file = file.removeprefix("docs/")
    elif (ROOT / file).exists():
        return text if text.startswith("`") else f"`{file}`"  # a file of the repository that has no page
    return f"{image}[{text}]({relpath(file, dirname(page) or '.')}{anchor})"


def _with_formulas(text: str) -> str:
    """Render formulas as MathML, which browsers display without a script."""
    text = BLOCK_FORMULA.sub(lambda found: _mathml(found[1], "block"), text)
    return FORMULA.sub(lambda found: _mathml(found[1], "inline"), text)


def _mathml(formula: str, display: str) -> str:
    return convert(" ".join(formula.split()), display=display)
