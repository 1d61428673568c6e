"""The `dpspca approval` commands: a steward sees the jobs that wait for approval, and approves or rejects them.

They work on the provider's machine, for anybody who can read its key, whether its daemon runs or not.
"""

import sys
from typing import Annotated, Any, Final

import typer

from dpspca.cli.arguments import EXIT_CODES, AsJson, DaemonSettingsFile
from dpspca.cli.render import print_output, print_table, print_text, to_json
from dpspca.client.steward import ApprovalOffice
from dpspca.common.approval_record import APPROVE, REJECT
from dpspca.common.checks import check
from dpspca.common.errors import RefusedError
from dpspca.common.text import printable
from dpspca.provider.approval import lines
from dpspca.provider.ledger import SHORT_LENGTH, short_name

approval = typer.Typer(
    name="approval",
    no_args_is_help=True,
    help="List the jobs that wait for a person's approval, and decide about them.",
)

Name = Annotated[
    str, typer.Argument(metavar="JOB", help="The job's name, or enough of its first characters.", show_default=False)
]
Person = Annotated[
    str | None,
    typer.Option(help="The person who decides: one of the policy's approvers. If left out: the name of your account."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
_LATER: Final = "The provider has not recorded it yet. It does so within seconds if it runs, or when it starts."


@approval.command("list", epilog=EXIT_CODES)
def _list(
    config: DaemonSettingsFile,
    *,
    every: Annotated[bool, typer.Option("--all", help="Also list jobs that no longer wait.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the jobs that wait for approval, oldest first."""
    found = ApprovalOffice.of(config).requests(every=every)
    if as_json:
        typer.echo(to_json({"requests": found}))
        return
    if not found:
        typer.echo("No job waits for approval.")
        return
    print_table(
        ("job", "analyst", "data set", "state", "waits since", "until", "decided by"),
        (
            (
                each["job"][:SHORT_LENGTH],
                short_name(each["analyst"]),
                each["data_set"],
                each["state"],
                each["waits_since"],
                each["waits_until"],
                ", ".join(f"{one['person']}: {one['verdict']}" for one in each["decisions"]),
            )
            for each in found
        ),
    )
    for each in found:
        if "queue_problem" in each:
            print_text(f"Job {each['job'][:SHORT_LENGTH]}: {each['queue_problem']}")


@approval.command("show", epilog=EXIT_CODES)
def _show(job: Name, config: DaemonSettingsFile, *, as_json: AsJson = False) -> None:
    """Explain a job: who asks what, what it costs, what is left of the budgets, and what would be sent."""
    office = ApprovalOffice.of(config)
    _print_facts(office.facts(office.find(job)), as_json=as_json)


@approval.command("approve", epilog=EXIT_CODES)
def _approve(  # noqa: PLR0913  # a command's flags are its parameters
    job: Name,
    config: DaemonSettingsFile,
    *,
    person: Person = None,
    reason: Annotated[
        str | None, typer.Option(help="Why. The analyst sees it in evidence, and the ledger keeps it.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Approve a job. Shows the job in words and asks you to confirm. The decision is signed and kept in the ledger."""
    office = ApprovalOffice.of(config)
    request = office.find(job)
    person = office.decider(request, APPROVE, person)
    if not yes:
        _confirm(office.facts(request), "Approve this job?")
    _print_decision(office.decide(request, APPROVE, person, reason or ""), as_json=as_json)


@approval.command("reject", epilog=EXIT_CODES)
def _reject(  # noqa: PLR0913  # a command's flags are its parameters
    job: Name,
    config: DaemonSettingsFile,
    *,
    reason: Annotated[str, typer.Option(help="Why. The analyst sees it, and the ledger keeps it.", show_default=False)],
    person: Person = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Reject a job for good. Shows the job in words and asks you to confirm.

    A job that runs already ends at its next query; what was asked stays spent.
    """
    office = ApprovalOffice.of(config)
    request = office.find(job)
    person = office.decider(request, REJECT, person)
    if not yes:
        _confirm(office.facts(request), "Reject this job for good?")
    _print_decision(office.decide(request, REJECT, person, reason), as_json=as_json)


def _confirm(facts: dict[str, Any], question: str) -> None:
    """Show a job, and refuse to go on unless the person who decides confirms."""
    for line in lines(facts):
        typer.echo(printable(line), err=True)
    typer.echo(f"{question} [y/N] ", err=True, nl=False)
    agreed = sys.stdin.readline().strip().lower() in {"y", "yes"}
    check(agreed, "Not confirmed, so nothing was decided.", "Answer y, or give --yes.")


def _print_facts(facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(to_json(facts))
        return
    for line in lines(facts):
        print_text(printable(line))


def _print_decision(facts: dict[str, Any], *, as_json: bool) -> None:
    if facts["problem"]:
        raise RefusedError(f"The decision does not count. {facts['problem']}", "Nothing has changed.")
    what = "approved" if facts["verdict"] == APPROVE else "rejected"
    lines = [f"Job {facts['job']} was {what} by {facts['person']}."]
    if not facts["taken"]:
        lines.append(_LATER)
    elif facts["state"] == "waiting":
        lines.append(f"It still waits: {facts['approvals_needed']} different persons have to approve it.")
    print_output(facts, *map(printable, lines), as_json=as_json)
