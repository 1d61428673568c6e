"""What ever left a provider, for those who answer for it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from dpspca.common.errors import InvalidParameterError
from dpspca.common.spec import check
from dpspca.provider.accounts import Release

from .flags import AsJson, OwnSettings
from .looking import look, moment, short_name
from .output import print_table, printable, say, to_json

BESIDE: Final = {
    "greeting": (
        "At each connection, to the coordinator: the names of the data sets, how many columns they have and what these "
        "are called, which jobs the ledger holds that are not over, and receipts of other providers."
    ),
    "admission": "Of each job before its first question: that it keeps the rules, and is promised what it costs.",
    "receipt": "With each answer: how many entries the ledger had, and the hash of the last.",
    "refusal": "In the place of an admission or an answer: which rule, what was asked, and what of the budget is left.",
    "heartbeat": "Nothing, every so often.",
}
"""What else a provider sends. No row has a part in any of it: tests compare neighbours (T23, T25, T26)."""


def outbox(
    config: OwnSettings,
    *,
    data_set: Annotated[str | None, typer.Option(help="Of this data set alone.")] = None,
    analyst: Annotated[str | None, typer.Option(help="To this analyst alone, by name or in full.")] = None,
    since: Annotated[
        str | None, typer.Option(help="From this time on: ISO 8601, such as 2026-01-31 or 2026-01-31T12:00Z; UTC.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List every answer that ever left: when, to whom, under which signature, and the hash of its bytes.

    Answers are all that rows have a part in. What else a provider sends, --json says in words.
    """
    start = _time(since) if since is not None else 0
    looked = look(config)
    known = {*looked.settings.names, *looked.books.data_sets}
    check(
        data_set is None or data_set in known,
        f"There is no data set {data_set!r:.80} here, and never was.",
        f"There are: {', '.join(sorted(known))}." if known else "Nothing has left yet.",
    )
    every = sorted(looked.books.outbox(), key=lambda each: (each.at, each.job, each.position))
    chosen = [
        each
        for each in every
        if each.at >= start
        and data_set in {None, each.data_set}
        and analyst in {None, each.analyst, short_name(each.analyst)}
    ]
    if as_json:
        facts = {"answers": [_release_facts(each) for each in chosen], "of": len(every), "gaps": looked.gaps}
        typer.echo(to_json(facts | {"analysts": sorted({each.analyst for each in every}), "beside": BESIDE}))
    else:
        _print_outbox(chosen, len(every), looked.gaps)
        if analyst is not None:
            _say_who_else(analyst, every)


def _release_facts(sent: Release) -> dict[str, Any]:
    return {
        "at": moment(sent.at),
        "job": sent.job,
        "data_set": sent.data_set,
        "analyst": sent.analyst,
        "question": sent.position + 1,
        "name": sent.question,
        "bytes": sent.bytes,
        "sha256": sent.sha256,
        "signed_job_sha256": sent.signature_hash,
    }


def _print_outbox(chosen: Sequence[Release], every: int, gaps: Sequence[str]) -> None:
    if chosen:
        print_table(
            ("left from", "data set", "analyst", "question", "bytes", "SHA-256", "job", "signed job's SHA-256"),
            (
                (
                    moment(each.at),
                    each.data_set,
                    each.analyst,
                    f"{each.position + 1}, {each.question}",
                    f"{each.bytes:,}",
                    each.sha256,
                    each.job,
                    each.signature_hash,
                )
                for each in chosen
            ),
        )
    size = sum(each.bytes for each in chosen)
    known = "this ledger knows of, and more may have left" if gaps else "ever left"
    say(
        f"{len(chosen)} answers, {size:,} bytes, of {every} answers that {known}. Each left at the time given or "
        "after it, whenever it was asked for and with the same bytes."
    )
    say("Beside answers a provider sends greetings, admissions, receipts, refusals and heartbeats; no row is in any.")
    for gap in gaps:
        say(printable(gap))


def _say_who_else(analyst: str, every: Sequence[Release]) -> None:
    """Say to whom answers left, where none ever did to the one who was asked for: the name may be a slip."""
    analysts = {each.analyst for each in every}
    if analysts and analyst not in analysts | {short_name(each) for each in analysts}:
        others = ", ".join(sorted(analysts))
        say(printable(f"No answer that this ledger knows of left to {analyst!r:.80}, but to: {others}."))


def _time(text: str) -> float:
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidParameterError(
            f"--since is {text!r:.60}.", "Write it as 2026-01-31 or 2026-01-31T12:00Z."
        ) from None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
