"""The command of a steward about files of rows: `dpspca data check`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.filesize import decimal

from dpspca.cli.arguments import CHECK_CODES, AsJson
from dpspca.cli.render import print_table, print_text, to_json
from dpspca.client.data_check import Examined, examine_file, examine_settings
from dpspca.common.checks import check
from dpspca.common.storage import ProviderConfig, read_config, require_own
from dpspca.common.text import printable
from dpspca.provider.data import ColumnFacts, DataSetFacts

CHECK_FAILED: Final = 1
_MOST_COLUMNS: Final = 60
"""A table with more columns shows those with something to say. JSON has all."""

data = typer.Typer(name="data", no_args_is_help=True, help="Check files of rows, on the machine where they are.")


@data.callback()
def _data() -> None:
    pass


@data.command("check", epilog=CHECK_CODES)
def _check(
    rows: Annotated[
        Path | None,
        typer.Argument(help="File, folder or pattern of rows. If left out: --config names them.", show_default=False),
    ] = None,
    *,
    config: Annotated[
        Path | None, typer.Option(help="Settings file (TOML) of the provider.", show_default=False)
    ] = None,
    data_set: Annotated[
        str | None, typer.Option(help="Check this data set of the settings alone.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Describe the rows that a provider would offer: columns, missing values, rows of a person, memory.

    The output tells about rows. It is for the data steward: nothing is sent, and it should not be passed on.
    """
    check((rows is None) != (config is None), "Give either a file of rows or --config.", "See --help.")
    check(data_set is None or config is not None, "--data-set needs --config.", "Add --config FILE.")
    found = [examine_file(rows)] if rows is not None else _of_settings(config or Path(), data_set)
    passed = all(each.passed for each in found)
    if as_json:
        typer.echo(to_json({"passed": passed, "data_sets": [each.to_dict() for each in found]}))
    else:
        for each in found:
            _print(each)
    if not passed:
        raise typer.Exit(CHECK_FAILED)


def _of_settings(config: Path, only: str | None) -> list[Examined]:
    require_own(ProviderConfig, config)
    return list(examine_settings(read_config(ProviderConfig, config), only))


def _print(examined: Examined) -> None:
    heading = f"{examined.name}: {examined.place}" if examined.name else str(examined.place)
    print_text(printable(heading))
    if examined.facts is None:
        print_text(printable(f"FAILED  {examined.problem}"))
        return
    for line in (*_size(examined.facts), *examined.remarks):
        print_text(printable(line))
    shown = _shown(examined.facts.columns)
    print_table(("column", "type", "missing", "unusable", "remark"), [_cells(place, column) for place, column in shown])
    if len(shown) < len(examined.facts.columns):
        print_text(f"{len(examined.facts.columns) - len(shown)} more columns. --json shows all.")


def _size(facts: DataSetFacts) -> Iterator[str]:
    form = ", stored sparse" if facts.is_sparse else ""
    yield f"{facts.rows} rows of {len(facts.columns)} columns{form}. {facts.rows_as_zeros} rows count as zeros."
    if facts.persons is not None:
        whose = facts.persons
        yield f"{whose.persons} persons with at most {whose.most_rows} rows each."
        yield f"{whose.rows_of_nobody} rows of nobody."
    sizes = facts.memory
    yield (
        f"Memory, about: {decimal(sizes.rows)} for the rows, {decimal(sizes.start)} while they are read, "
        f"{decimal(sizes.job)} while a job runs."
    )


def _shown(columns: Sequence[ColumnFacts]) -> list[tuple[int, ColumnFacts]]:
    """Return the columns with their numbers. Of many, return those with something to say."""
    numbered = list(enumerate(columns, start=1))
    if len(columns) <= _MOST_COLUMNS:
        return numbered
    return [each for each in numbered if _is_odd(each[1])][:_MOST_COLUMNS]


def _is_odd(column: ColumnFacts) -> bool:
    return bool(column.missing or column.unusable or column.is_constant or column.is_index)


def _cells(place: int, column: ColumnFacts) -> tuple[str, ...]:
    remarks = {
        "constant": column.is_constant,
        "numbers the rows": column.is_index,
        f"filled with {column.filled_with}": column.filled_with is not None,
    }
    said = ", ".join(remark for remark, holds in remarks.items() if holds)
    return column.name or str(place), column.type, str(column.missing), str(column.unusable), said
