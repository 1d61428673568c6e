"""The command that says which algorithms there are, and what each can be told and can promise."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import typer

from dpspca.common.algorithms.catalogue import CATALOGUE, Entry
from dpspca.common.algorithms.options import Option
from dpspca.common.spec import Accounting

from .flags import AsJson
from .options import SHORT, USUAL
from .output import say, to_json


def algorithms(*, as_json: AsJson = False) -> None:
    """List the algorithms: what each is, which units and accounting it has, and its options."""
    if as_json:
        typer.echo(to_json({"algorithms": [facts(name, entry) for name, entry in CATALOGUE.items()]}))
        return
    for line in _words():
        say(line)


def facts(name: str, entry: Entry) -> dict[str, Any]:
    """Describe an algorithm as plain values."""
    return {
        "name": name,
        "summary": entry.summary,
        "units": list(entry.units),
        "accounting": list(entry.accounting),
        "published_units": [unit for unit in entry.units if unit in entry.published]
        if Accounting.PUBLISHED in entry.accounting
        else [],
        "options": [asdict(each) for each in entry.options],
    }


def _words() -> Iterator[str]:
    for name, entry in CATALOGUE.items():
        usual = ", which a job has that names none" if name == USUAL else ""
        yield f"{name}{usual}: {entry.summary}."
        yield f"  Units: {', '.join(entry.units)}. Accounting: {_accounting(entry)}."
        yield from (f"  {_flag(each)}: {_option(each)}" for each in entry.options)
        yield ""
    yield "Choose one with --algorithm; with `algorithm` and `options` in a job's file; with method= in Python."


def _accounting(entry: Entry) -> str:
    """Name the ways to account for noise, and the units that a paper's own noise is for where those are not all."""
    if Accounting.PUBLISHED not in entry.accounting or set(entry.units) <= set(entry.published):
        return ", ".join(entry.accounting)
    return f"{Accounting.EXACT}, and {Accounting.PUBLISHED} for {', '.join(entry.published)}"


def _flag(option: Option) -> str:
    return f"--{option.name}" if option.name in SHORT else f"--option {option.name}=..."


def _option(option: Option) -> str:
    kind = " or ".join(option.choices) or option.kind
    need = "; needed" if option.required else "" if option.default is None else f"; {_written(option)} if left out"
    return f"{option.help} {kind[0].upper()}{kind[1:]}{need}."


def _written(option: Option) -> str:
    """Write a default as the flag takes it."""
    return str(option.default).lower() if isinstance(option.default, bool) else str(option.default)
