"""The `dpspca ledger` commands, for stewards and operators. Only `end-quarantine` and `vouch` write to it."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, Final, TextIO

import typer

from dpspca.cli.arguments import CHECK_CODES, EXIT_CODES, AsJson, DaemonSettingsFile, Force
from dpspca.cli.render import print_output, print_table, print_text, to_json
from dpspca.common.checks import check
from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.privacy import format_up
from dpspca.common.storage import PRIVATE, ProviderSettings, read_settings, require_own
from dpspca.common.text import printable
from dpspca.provider.ledger import (
    QUARANTINE_REMEDY,
    SHORT_LENGTH,
    LedgerReader,
    decision_entry_facts,
    export,
    file_errors,
    ledger_job_facts,
    ledger_paths,
    quarantine_facts,
    read_ledger,
    read_ledger_state,
    short_name,
    verify,
)

from .end_quarantine import end_quarantine
from .vouch import vouch

CHECK_FAILED: Final = 1
EXPORT_WARNING: Final = (
    "Keep it private: it shows which jobs ran, for whom, and when rows changed. With the key of the names of rows, "
    "somebody could test guesses of a row."
)
DATE: Final = len("2026-01-31")

ledger = typer.Typer(
    name="ledger", no_args_is_help=True, help="Show, verify or export a provider's ledger, or end its quarantine."
)
ledger.command("end-quarantine", epilog=EXIT_CODES)(end_quarantine)
ledger.command("vouch", epilog=EXIT_CODES)(vouch)


@ledger.command("show", epilog=EXIT_CODES)
def _show(config: DaemonSettingsFile, *, as_json: AsJson = False) -> None:
    """List the jobs that sent queries, how they ended and what they cost, and show the state of the ledger.

    Also list what persons decided about jobs, and every quarantine.
    """
    view = read_ledger(config)
    jobs = [ledger_job_facts(name, job) for name, job in view.state.jobs.items()]
    decisions = [decision_entry_facts(each) for each in view.decisions]
    quarantines = [quarantine_facts(each) for each in view.quarantines]
    if as_json:
        facts = {"file": str(view.path), "head": asdict(view.state.head), "quarantine": view.quarantine_reason}
        typer.echo(to_json(facts | {"quarantines": quarantines, "decisions": decisions, "jobs": jobs}))
        return
    if jobs:
        print_table(
            ("job", "data set", "analyst", "opened", "state", "answered", "epsilon, delta", "spent mu"),
            map(_job_row, jobs),
        )
    else:
        typer.echo("No job has sent a query yet.")
    if decisions:
        print_table(
            ("job", "data set", "decided", "decision", "person", "account", "reason"), map(_decision_row, decisions)
        )
    for line in _ledger_lines(view, quarantines):
        print_text(printable(line))


def _job_row(job: dict[str, Any]) -> tuple[str, ...]:
    return (
        job["job"][:SHORT_LENGTH],
        job["data_set"],
        short_name(job["analyst"]),
        job["opened"][:DATE],
        job["state"],
        f"{job['answered']} of {job['asked']}",
        f"{format_up(job['epsilon'])}, {format_up(job['delta'])}",
        format_up(job["spent"]["mu"], 4),
    )


def _decision_row(each: dict[str, Any]) -> tuple[str, ...]:
    return (
        each["job"][:SHORT_LENGTH],
        each["data_set"],
        each["decided"],
        each["verdict"],
        each["person"],
        each["login"],
        printable(each["reason"]),
    )


def _ledger_lines(view: LedgerReader, quarantines: Sequence[dict[str, Any]]) -> Iterator[str]:
    head = view.state.head
    yield f"Ledger {head.ledger}: {head.entries} entries, the last with hash {head.hash}."
    for each in quarantines:
        yield f"{each['at']} {each['kind']}: {each['reason']}"
        for name, spent in each.get("counted", {}).items():
            yield f"  {name}: mu {format_up(spent['mu'], 4)} counts as spent in addition to the jobs listed."
    if view.quarantine_reason:
        yield (
            "QUARANTINED: no job is answered, because the ledger may lack entries about what was spent. "
            f"{view.quarantine_reason} {QUARANTINE_REMEDY}"
        )


@ledger.command("verify", epilog=CHECK_CODES)
def _verify(config: DaemonSettingsFile, *, as_json: AsJson = False) -> None:
    """Check the chain of entries, the kept answers and the head file, and report every problem."""
    require_own(ProviderSettings, config)
    path, head_path = ledger_paths(read_settings(ProviderSettings, config), config)
    try:
        head = asdict(
            read_ledger_state(path).head
        )  # read first, so that the entries verified next are at least as many
    except DpspcaError:
        head = None
    with file_errors(head_path):
        problems = verify(path, head_path)
    passed = not problems
    facts = {"file": str(path), "head_file": str(head_path), "passed": passed, "problems": problems, "head": head}
    print_output(facts, *map(printable, problems or [_no_problems_line(head)]), as_json=as_json)
    if not passed:
        raise typer.Exit(CHECK_FAILED)


def _no_problems_line(head: dict[str, Any] | None) -> str:
    assert head is not None
    return (
        f"All is well up to entry {head['entries']}, with hash {head['hash']}: every entry is as it was written and "
        "follows from those before it, the kept answers are those that were stored, and the head file remembers "
        "nothing that is missing here."
    )


@ledger.command("export", epilog=EXIT_CODES)
def _export(
    config: DaemonSettingsFile,
    *,
    out: Annotated[
        Path | None, typer.Option(help="File to write. If left out: standard output.", show_default=False)
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write every entry with its hash, as one JSON object per line, so that other programs can check the chain.

    Keep the export private. It shows which jobs ran, for whom, and when rows changed. With the key of the names of
    rows, which is in another file, somebody who knows all rows but one could test guesses of that row. To show others
    what left, use `dpspca outbox` and `dpspca budget`.
    """
    path = read_ledger(config).path
    if out:
        count = _write_lines(out, path, replace=force)
        print_output({"file": str(out), "entries": count}, f"{out}: {count} entries. {EXPORT_WARNING}", as_json=as_json)
    elif as_json:
        typer.echo(to_json({"entries": list(export(path))}))
    else:
        for entry in export(path):
            typer.echo(_line(entry))


def _write_lines(out: Path, path: Path, *, replace: bool) -> int:
    """Write a file completely or not at all. Only its owner may read it, like the ledger. Return how many entries."""
    plain = out.is_file() and not out.is_symlink()
    check(plain or not os.path.lexists(out), f"{out} is a folder, a link, a pipe or a device.", "Name another file.")
    check(replace or not plain, f"{out} already exists.", "Name another file with --out, or overwrite it with --force.")
    draft = out.with_name(f".{out.name}.{token_hex(8)}")
    try:
        draft.touch(PRIVATE, exist_ok=False)
        with draft.open("w", encoding="utf-8") as file:
            count = _write_entries(path, file)
        draft.replace(out)
    except OSError as problem:
        raise InvalidParameterError(f"{out} cannot be written: {problem.strerror}.", "Choose another file.") from None
    finally:
        draft.unlink(missing_ok=True)
    return count


def _write_entries(path: Path, file: TextIO) -> int:
    count = 0
    for count, entry in enumerate(export(path), start=1):  # noqa: B007  # the last number is the count
        file.write(_line(entry) + "\n")
    return count


def _line(entry: Mapping[str, Any]) -> str:
    """Return an entry in the form that its hash was computed over, with the hash added."""
    return json.dumps(entry, sort_keys=True, separators=(",", ":"))
