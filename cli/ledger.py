"""What a provider's ledger says, for those who answer for the data. All but `release` and `vouch` only read."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, Final, TextIO

import typer

from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.spec import check
from dpspca.common.statement import rounded_up
from dpspca.common.transport.config import ProviderConfig, read_config
from dpspca.common.transport.files import PRIVATE
from dpspca.provider.accounts import Job
from dpspca.provider.entries import WAY_OUT, Entry, Quarantined, Released
from dpspca.provider.ledger_files import files_in_words
from dpspca.provider.sqlite_ledger import export, read_books, verify

from .daemons import ledger_paths
from .flags import CHECK_CODES, EXIT_CODES, AsJson, Force, OwnSettings, require_own
from .looking import SHORT, Looked, amount, amounts, epsilon_of, look, moment, short_name
from .output import print_table, printable, say, tell, to_json
from .release import release
from .vouch import vouch

WRONG: Final = 1
PRIVATELY: Final = "Keep it as private as the rows: it holds hashes of them, with which a guess at a row can be tried."
DATE: Final = len("2026-01-31")

ledger = typer.Typer(
    name="ledger", no_args_is_help=True, help="A provider's ledger: what was promised, paid for and sent."
)
ledger.command("release", epilog=EXIT_CODES)(release)
ledger.command("vouch", epilog=EXIT_CODES)(vouch)


@ledger.command("show", epilog=EXIT_CODES)
def _show(config: OwnSettings, *, as_json: AsJson = False) -> None:
    """List the jobs that were asked something, how they ended and what they cost; and say how the ledger stands."""
    looked = look(config)
    jobs = [_job_facts(name, job) for name, job in looked.books.jobs.items()]
    decisions = [_decision_facts(each) for each in looked.decisions]
    if as_json:
        facts = {"file": str(looked.path), "head": asdict(looked.books.head), "quarantine": looked.doubt}
        typer.echo(to_json(facts | {"decisions": decisions, "jobs": jobs}))
        return
    if jobs:
        print_table(
            ("job", "data set", "analyst", "opened", "state", "answered", "epsilon, delta", "spent mu"),
            map(_job_row, jobs),
        )
    else:
        typer.echo("No job has asked anything yet.")
    for line in _standing_words(looked, decisions):
        say(printable(line))


def _job_facts(name: str, job: Job) -> dict[str, Any]:
    told, own = job.opening, job.account
    return {
        "job": name,
        "data_set": told.data_set,
        "analyst": told.analyst,
        "unit": told.unit,
        "epsilon": told.spec_epsilon,
        "delta": told.spec_delta,
        "opened": moment(job.opened_at),
        "expires": moment(told.expires_at),
        "state": job.state or "open",
        "answered": sum(each.answer is not None for each in job.questions),
        "asked": len(job.questions),
        "spent": amount(own.spent_units, own.spent_slack_units),
        "spent_epsilon": epsilon_of(own.spent_units, own.spent_slack_units, told.spec_delta),
        "reserved": amount(own.reserved_units, own.reserved_slack_units),
        "signed_job_sha256": told.signature_hash,
        "data_digest": told.data_digest,
    }


def _job_row(job: dict[str, Any]) -> tuple[str, ...]:
    return (
        job["job"][:SHORT],
        job["data_set"],
        short_name(job["analyst"]),
        job["opened"][:DATE],
        job["state"],
        f"{job['answered']} of {job['asked']}",
        f"{rounded_up(job['epsilon'])}, {rounded_up(job['delta'])}",
        rounded_up(job["spent"]["mu"], 4),
    )


def _decision_facts(entry: Entry) -> dict[str, Any]:
    facts: dict[str, Any] = {"at": moment(entry.at), "entry": entry.number}
    match entry.fact:
        case Released(reason, counted):
            return facts | {"kind": "released", "reason": reason, "counted": amounts(counted)}
        case Quarantined(reason):
            return facts | {"kind": "quarantined", "reason": reason}
        case other:
            raise AssertionError(other)


def _standing_words(looked: Looked, decisions: Sequence[dict[str, Any]]) -> Iterator[str]:
    head = looked.books.head
    yield f"Ledger {head.ledger}: {head.entries} entries, the last with hash {head.hash}."
    for each in decisions:
        yield f"{each['at']} {each['kind']}: {each['reason']}"
        for name, spent in each.get("counted", {}).items():
            yield f"  Of {name}, mu {rounded_up(spent['mu'], 4)} counts as spent beyond the jobs listed."
    if looked.doubt:
        yield f"QUARANTINED, no job is answered: {looked.doubt} It may have forgotten what was spent. {WAY_OUT}"


@ledger.command("verify", epilog=CHECK_CODES)
def _verify(config: OwnSettings, *, as_json: AsJson = False) -> None:
    """Follow the chain of entries, check the kept answers and the second path, and say what is wrong."""
    require_own(ProviderConfig, config)
    path, head_path = ledger_paths(read_config(ProviderConfig, config), config)
    try:
        head = asdict(read_books(path).head)  # first: what is verified then reaches at least that far
    except DpspcaError:
        head = None
    with files_in_words(head_path):
        problems = verify(path, head_path)
    well = not problems
    facts = {"file": str(path), "second_path": str(head_path), "well": well, "problems": problems, "head": head}
    tell(facts, *map(printable, problems or [_all_well(head)]), as_json=as_json)
    if not well:
        raise typer.Exit(WRONG)


def _all_well(head: dict[str, Any] | None) -> str:
    assert head is not None
    return (
        f"All is well up to entry {head['entries']}, with hash {head['hash']}: every entry is as it was written and "
        "follows from those before it, the kept answers are those that were stored, and the second path remembers "
        "nothing that is missing here."
    )


@ledger.command("export", epilog=EXIT_CODES)
def _export(
    config: OwnSettings,
    *,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the lines. Left out: standard output.", show_default=False)
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write every entry with its hash, a line of JSON each: enough to follow the chain with other programs.

    It is for those who may see the rows: every job's entry holds a hash of them, with which who knows all but one can
    try what that one is. What others may see, `dpspca outbox` and `dpspca budget` show.
    """
    path = look(config).path
    if out:
        count = _write_lines(out, path, replace=force)
        tell({"file": str(out), "entries": count}, f"{out}: {count} entries. {PRIVATELY}", as_json=as_json)
    elif as_json:
        typer.echo(to_json({"entries": list(export(path))}))
    else:
        for entry in export(path):
            typer.echo(_line(entry))


def _write_lines(out: Path, path: Path, *, replace: bool) -> int:
    """Write a file whole or not at all, for its owner alone, as the ledger is."""
    plain = out.is_file() and not out.is_symlink()
    check(plain or not os.path.lexists(out), f"{out} is a folder, a link, a pipe or a device.", "Name another file.")
    check(replace or not plain, f"{out} is there already.", "Name another file with --out, or replace it: --force.")
    draft = out.with_name(f".{out.name}.{token_hex(8)}")
    try:
        draft.touch(PRIVATE, exist_ok=False)
        with draft.open("w", encoding="utf-8") as file:
            count = _pour(path, file)
        draft.replace(out)
    except OSError as problem:
        raise InvalidParameterError(f"{out} cannot be written: {problem.strerror}.", "Choose another file.") from None
    finally:
        draft.unlink(missing_ok=True)
    return count


def _pour(path: Path, file: TextIO) -> int:
    count = 0
    for count, entry in enumerate(export(path), start=1):  # noqa: B007  # how many there were
        file.write(_line(entry) + "\n")
    return count


def _line(entry: Mapping[str, Any]) -> str:
    """Write an entry in the form that its hash was taken of, with the hash in it."""
    return json.dumps(entry, sort_keys=True, separators=(",", ":"))
