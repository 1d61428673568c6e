# ruff: noqa: INP001  # a script
"""Write the generated reference pages of the site: commands, Python names, settings and messages."""

import argparse
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer

import dpspca
from dpspca.cli.app import app
from dpspca.cli.commands.doctor import Sample

ROOT: Final = Path(__file__).parents[2]


def commands() -> str:
    """Return the page of all commands with their flags, as ``--help`` shows them."""
    return "# Commands\n\nEvery command explains itself with `--help`.\n\n" + "\n".join(
        _one_command("dpspca", typer.main.get_command(app))
    )


def _one_command(path: str, command: Any) -> Iterator[str]:  # noqa: ANN401  # of click, which typer may bring itself
    yield f"## {path}\n"
    yield _prose(command.help or "") + "\n"
    rows = [row for parameter in command.params if (row := _one_parameter(parameter))]
    if rows:
        yield "| Flag or argument | Meaning |\n|---|---|"
        yield from rows
        yield ""
    for name, part in getattr(command, "commands", {}).items():
        yield from _one_command(f"{path} {name}", part)


def _one_parameter(parameter: Any) -> str | None:  # noqa: ANN401  # as above
    text = getattr(parameter, "help", None) or ""
    if getattr(parameter, "hidden", False) or "--install-completion" in parameter.opts:
        return None
    if parameter.param_type_name == "argument":
        spelled = (parameter.metavar or parameter.name or "").upper()
    else:
        spelled = ", ".join([*parameter.opts, *parameter.secondary_opts])
    needed = " **Required.**" if parameter.required else ""
    return f"| `{spelled}` | {_cell(text)}{needed} |"


def names() -> str:
    """Return the page of all names that ``dpspca`` exports, with signatures and docstrings."""
    parts = ["# Python\n\nEverything here is imported from `dpspca` itself.\n"]
    for name in dpspca.__all__:
        thing = getattr(dpspca, name)
        if name.startswith("__"):
            continue
        parts.append(f"## {name}\n")
        parts += _signature(name, thing)
        parts.append(_prose(inspect.getdoc(thing) or "") + "\n")
        if inspect.isclass(thing):
            parts += _methods(name, thing)
    return "\n".join(parts)


def _signature(name: str, thing: object) -> list[str]:
    if not callable(thing):
        return []
    try:
        signature = re.sub(r"<factory>|<object object at \w+>", "...", str(inspect.signature(thing)))
    except ValueError:
        return []
    arguments = signature.replace("dpspca.common.", "").replace("numpy.", "np.")
    return [f"```python\n{name}{arguments}\n```\n"]


def _methods(owner: str, thing: type) -> Iterator[str]:
    for name, member in inspect.getmembers(thing):
        function = member.fget if isinstance(member, property) else member
        home = getattr(function, "__module__", "") or ""
        if name.startswith("_") or not home.startswith("dpspca") or not inspect.isroutine(function):
            continue
        yield f"### {owner}.{name}\n"
        if not isinstance(member, property):
            yield from _signature(name, function)
        yield _prose(inspect.getdoc(function) or "") + "\n"


def settings() -> str:
    """Return the page of sample files, whose comments explain every key."""
    parts = ["# Settings, policies and jobs\n\n`dpspca config sample NAME` prints each of these.\n"]
    for name in Sample:
        text = (ROOT / "deploy" / "samples" / f"{name}.toml").read_text(encoding="utf-8")
        parts.append(f"## {name}\n\n```toml\n{text}```\n")
    return "\n".join(parts)


def messages() -> str:
    """Return the page of messages that parties send each other."""
    parts = ["# Messages\n\nParties use gRPC over TLS 1.3, and both sides present certificates.\n"]
    for path in sorted(ROOT.glob("protos/**/*.proto")):
        text = path.read_text(encoding="utf-8")
        parts.append(f"## {path.name}\n\n```protobuf\n{text}```\n")
    return "\n".join(parts)


def _prose(text: str) -> str:
    """Convert a docstring to Markdown: one backtick for code instead of two, and no HTML."""
    return re.sub(r"``(.+?)``", r"`\1`", inspect.cleandoc(text)).replace("<", "&lt;")


def _cell(text: str) -> str:
    return " ".join(_prose(text).split()).replace("|", "\\|")


PAGES: Final = {"commands": commands, "python": names, "settings": settings, "messages": messages}


def main() -> None:
    """Write all pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site-pages" / "reference")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / f"{name}.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
