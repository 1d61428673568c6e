"""The `dpspca ledger vouch` command: an operator states what earlier jobs protected."""

from typing import Annotated, Final

import typer

from dpspca.cli.arguments import AsJson, DaemonSettingsFile
from dpspca.cli.render import print_output
from dpspca.common.checks import check
from dpspca.common.text import printable
from dpspca.provider.ledger import SqliteLedger, ledger_paths, read_ledger

from .end_quarantine import require_confirmation

WARNING: Final = (
    "The ledger does not show this. If the jobs protected less, the promise to the people whose data these are is "
    "broken. The statement is written into the ledger and cannot be taken back."
)


def vouch(  # noqa: PLR0913  # a command's flags are its parameters
    config: DaemonSettingsFile,
    *,
    data_set: Annotated[str, typer.Option(help="The data set of the jobs.", show_default=False)],
    protects: Annotated[
        float,
        typer.Option(
            help="The least that any of the jobs protected: rows per person or, if the data set is a matrix, the norm "
            "bound.",
            show_default=False,
        ),
    ],
    reason: Annotated[str, typer.Option(help="Why you are certain, for auditors. It stays in the ledger for good.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """State what the jobs of an earlier version protected. Stop the daemon first.

    Version 0.1.0 did not record how many rows of one person a job protects together, or how large a change of a matrix.
    Such a job counts as protecting one row of a person, or nothing of a matrix. If the policy promises more, the
    provider refuses every job. Give the number that the policy has had since the first job on the data set.
    """
    view = read_ledger(config)
    check(
        not view.quarantine_reason,
        f"The ledger is in quarantine. {view.quarantine_reason}",
        "End the quarantine first: `dpspca ledger end-quarantine`.",
    )
    view.state.to_vouch(data_set, protects, reason)  # refuses before anybody is asked to confirm
    words = f"Every job on the data set '{data_set}' that an earlier version admitted protected {protects:g} or more."
    require_confirmation(iter([words, WARNING]), "Record this?", yes=yes)
    with SqliteLedger(*ledger_paths(view.settings, config)) as writer:
        writer.vouch(data_set, protects, reason)
        number = writer.head().entries
    facts = {"data_set": data_set, "protects": protects, "reason": reason, "entry": number}
    print_output(facts, printable(f"Recorded as entry {number}. Start the provider."), as_json=as_json)
