"""The `dpspca outbox` command: list everything that left a provider, for its steward."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from dpspca.cli.arguments import AsJson, DaemonSettingsFile
from dpspca.cli.render import print_table, print_text, to_json
from dpspca.common.checks import check_known
from dpspca.common.errors import InvalidParameterError
from dpspca.common.text import printable
from dpspca.provider.ledger import Release, format_time, read_ledger, release_facts, short_name

OTHER_MESSAGES: Final = {
    "greeting": (
        "At each connection, to the coordinator: the names of the data sets, the number and names of their columns, "
        "the jobs in the ledger that have not ended, and receipts of other providers."
    ),
    "admission": "For each job, before its first query: that it keeps the rules and that its price is reserved.",
    "approval": "For each job that a person has to approve: since when it waits, and until when. Then the decision.",
    "receipt": "With each answer: how many entries the ledger had, and the hash of the last entry.",
    "refusal": "Instead of an admission or an answer: the rule, what was asked, and how much of the budget is left.",
    "heartbeat": "An empty message from time to time.",
    "statement": "To an analyst whom the policy names, signed: the terms of a data set and what is left of its budget; "
    "what the ledger has of one of the analyst's own jobs.",
}
"""The messages of a provider besides answers. None depends on a row: tests compare neighbours (T23, T25, T26)."""


def outbox(
    config: DaemonSettingsFile,
    *,
    data_set: Annotated[str | None, typer.Option(help="Only answers about this data set.")] = None,
    analyst: Annotated[
        str | None, typer.Option(help="Only answers to this analyst: a short name, or the whole dpspca:// name.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only answers from this time on: ISO 8601, such as 2026-01-31 or 2026-01-31T12:00Z, in UTC."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List every answer that ever left the provider: when, to whom, for which signed job, and the hash of its bytes.

    Only answers depend on rows. With --json, the output also describes what else a provider sends.
    """
    start = _time(since) if since is not None else 0
    view = read_ledger(config)
    known = {*view.settings.names, *view.state.data_sets}
    if data_set is not None:
        check_known("data set", data_set, sorted(known))
    every = sorted(view.state.outbox(), key=lambda each: (each.at, each.job, each.position))
    chosen = [
        each
        for each in every
        if each.at >= start
        and data_set in {None, each.data_set}
        and analyst in {None, each.analyst, short_name(each.analyst)}
    ]
    if as_json:
        facts = {"answers": [release_facts(each) for each in chosen], "of": len(every), "gaps": view.gaps}
        typer.echo(to_json(facts | {"analysts": sorted({each.analyst for each in every}), "beside": OTHER_MESSAGES}))
    else:
        _print_outbox(chosen, len(every), view.gaps)
        if analyst is not None:
            _list_known_analysts(analyst, every)


def _print_outbox(chosen: Sequence[Release], every: int, gaps: Sequence[str]) -> None:
    if chosen:
        print_table(
            ("left at or after", "data set", "analyst", "query", "bytes", "SHA-256", "job", "signed job's SHA-256"),
            (
                (
                    format_time(each.at),
                    each.data_set,
                    each.analyst,
                    f"{each.position + 1}, {each.query}",
                    f"{each.bytes:,}",
                    each.sha256,
                    each.job,
                    each.signature_hash,
                )
                for each in chosen
            ),
        )
    size = sum(each.bytes for each in chosen)
    known = "this ledger knows of. More may have left" if gaps else "ever left"
    print_text(
        f"{len(chosen)} answers, {size:,} bytes, of {every} answers that {known}. Each left at the time given or "
        "later, whenever it was asked for, always with the same bytes."
    )
    print_text(
        "Besides answers, a provider sends greetings, admissions, receipts, refusals, heartbeats, and that a job waits "
        "for approval. No row has a "
        "part in any of these."
    )
    for gap in gaps:
        print_text(printable(gap))


def _list_known_analysts(analyst: str, every: Sequence[Release]) -> None:
    """List the analysts who got answers, if the one that was asked for got none: the name may be misspelt."""
    analysts = {each.analyst for each in every}
    if analysts and analyst not in analysts | {short_name(each) for each in analysts}:
        others = ", ".join(sorted(analysts))
        print_text(
            printable(f"No answer that this ledger knows of left to {analyst!r:.80}. Answers left to: {others}.")
        )


def _time(text: str) -> float:
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidParameterError(
            f"--since is {text!r:.60}, which is not a time.", "Write it as 2026-01-31 or 2026-01-31T12:00Z."
        ) from None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
