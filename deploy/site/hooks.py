# ruff: noqa: INP001  # loaded by MkDocs, by its path
"""What MkDocs does not do by itself: generated pages, pages from outside of docs/, and formulas without a script.

Links in docs/ are those that work in the repository. Links that leave docs/ are turned here into links within the site;
a link to anything that the site does not have ends the build.
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
TAKEN_IN: Final = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
}
"""Files at the top of the repository, and the pages that they are."""

SAMPLES: Final = "deploy/samples"
SETTINGS_PAGE: Final = "reference/settings.md"
HOME_OF: Final = {page: name for name, page in TAKEN_IN.items()}
LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")
CODE: Final = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
BLOCK_FORMULA: Final = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
FORMULA: Final = re.compile(r"(?<![\\$\w])\$([^$\n]+(?:\n[^$\n]+)?)\$(?!\w)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the files at the top of the repository."""
    for path in sorted(GENERATED.rglob("*.md")):
        name = path.relative_to(GENERATED).as_posix()
        files.append(File.generated(config, name, content=path.read_text(encoding="utf-8")))
    for name, page in TAKEN_IN.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links to the repository into links within the site, and formulas into MathML, but not inside of code."""
    parts = CODE.split(markdown)
    inside = [LINK.sub(lambda link: _within_the_site(link, page.file.src_uri), part) for part in _rejoined(parts)]
    return "".join(_with_formulas(part) if not part.startswith("`") else part for part in CODE.split("".join(inside)))


def _rejoined(parts: list[str]) -> list[str]:
    """Keep blocks of code apart. Code within a line stays with its line: it may be the text of a link."""
    joined = [""]
    for part in parts:
        if part.startswith("```"):
            joined += [part, ""]
        else:
            joined[-1] += part
    return joined


def _within_the_site(link: re.Match[str], page: str) -> str:
    """Give the link as it has to be on the site."""
    text, target, anchor = link[1], link[2], link[3] or ""
    if not target:
        return link[0]
    home = HOME_OF.get(page, join("docs", page))
    file = normpath(join(dirname(home), target))
    if file in TAKEN_IN:
        file = TAKEN_IN[file]
    elif file.startswith(SAMPLES):
        name = Path(file).stem if file.endswith(".toml") else ""
        file, anchor = SETTINGS_PAGE, f"#{name}" if name else ""
    elif file.startswith("docs/") and not (ROOT / file).is_dir():
        file = file.removeprefix("docs/")
    elif (ROOT / file).exists():
        return text if text.startswith("`") else f"`{file}`"  # a file of the repository that is no page
    return f"[{text}]({relpath(file, dirname(page) or '.')}{anchor})"


def _with_formulas(text: str) -> str:
    """Render formulas as MathML, which browsers draw without a script from elsewhere."""
    text = BLOCK_FORMULA.sub(lambda found: _mathml(found[1], "block"), text)
    return FORMULA.sub(lambda found: _mathml(found[1], "inline"), text)


def _mathml(formula: str, display: str) -> str:
    return convert(" ".join(formula.split()), display=display)
