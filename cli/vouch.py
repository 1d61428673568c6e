"""How an operator says what jobs protected of which an earlier version of the ledger did not record it."""

from typing import Annotated, Final

import typer

from dpspca.common.spec import check
from dpspca.provider.sqlite_ledger import SqliteLedger

from .daemons import ledger_paths
from .flags import AsJson, OwnSettings
from .looking import look
from .output import printable, tell
from .release import agree

WORD: Final = (
    "The ledger does not show it. If jobs protected less, the promise to those whose data these are is broken. It is "
    "written into the ledger and cannot be taken back."
)


def vouch(  # noqa: PLR0913  # what an operator says
    config: OwnSettings,
    *,
    data_set: Annotated[str, typer.Option(help="The data set that the jobs were about.", show_default=False)],
    protects: Annotated[
        float,
        typer.Option(
            help="The least that any of them protected: how many rows of one person, or of a matrix the norm bound.",
            show_default=False,
        ),
    ],
    reason: Annotated[str, typer.Option(help="Why that is certain, for whoever audits the ledger.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what the jobs of an earlier version protected, with the daemon stopped.

    Version 0.1.0 did not record how many rows of one person a job protects together, or how large a change of a matrix.
    Such a job counts for one row of a person, and of a matrix for nothing, so that a policy that states more is
    refused. If the policy has said the same since the first job on the data set, give that number.
    """
    looked = look(config)
    check(not looked.doubt, f"The ledger is quarantined. {looked.doubt}", "Release it first: `dpspca ledger release`.")
    looked.books.to_vouch(data_set, protects, reason)  # what there is to refuse is refused before anybody is asked
    words = f"Every job on the data set '{data_set}' that an earlier version admitted protected {protects:g} or more."
    agree(iter([words, WORD]), "Record it?", yes=yes)
    with SqliteLedger(*ledger_paths(looked.settings, config)) as writer:
        writer.vouch(data_set, protects, reason)
        number = writer.head().entries
    facts = {"data_set": data_set, "protects": protects, "reason": reason, "entry": number}
    tell(facts, printable(f"Recorded, as entry {number}. Start the provider."), as_json=as_json)
