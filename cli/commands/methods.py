"""The `dpspca methods` command: list the methods with their privacy units, accounting and options."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import typer

from dpspca.cli.arguments import OPTIONS_WITH_FLAGS, AsJson
from dpspca.cli.render import print_text, to_json
from dpspca.client.jobs import DEFAULT_METHOD
from dpspca.common.algorithms import CATALOGUE, Method, Option
from dpspca.common.job import Accounting


def methods(*, as_json: AsJson = False) -> None:
    """List the methods, with the privacy units, the accounting and the options of each."""
    if as_json:
        typer.echo(to_json({"methods": [facts(name, entry) for name, entry in CATALOGUE.items()]}))
        return
    for line in _lines():
        print_text(line)


def facts(name: str, entry: Method) -> dict[str, Any]:
    """Return a method's description as plain values."""
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


def _lines() -> Iterator[str]:
    for name, entry in CATALOGUE.items():
        mark = " (default)" if name == DEFAULT_METHOD else ""
        yield f"{name}{mark}: {entry.summary}."
        yield f"  Units: {', '.join(entry.units)}. Accounting: {_accounting(entry)}."
        yield from (f"  {_flag(each)}: {_option(each)}" for each in entry.options)
        yield ""
    yield "Choose a method with --method, with `method` and `options` in a job's file, or with method= in Python."


def _accounting(entry: Method) -> str:
    """List the kinds of accounting. If published accounting covers only some units, name these."""
    if Accounting.PUBLISHED not in entry.accounting or set(entry.units) <= set(entry.published):
        return ", ".join(entry.accounting)
    return f"{Accounting.EXACT}, and {Accounting.PUBLISHED} for {', '.join(entry.published)}"


def _flag(option: Option) -> str:
    return f"--{option.name}" if option.name in OPTIONS_WITH_FLAGS else f"--option {option.name}=..."


def _option(option: Option) -> str:
    kind = " or ".join(option.choices) or option.kind
    need = "; required" if option.required else "" if option.default is None else f"; default {_flag_value(option)}"
    return f"{option.help} {kind[0].upper()}{kind[1:]}{need}."


def _flag_value(option: Option) -> str:
    """Return a default in the form that the flag takes."""
    return str(option.default).lower() if isinstance(option.default, bool) else str(option.default)
