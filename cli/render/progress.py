"""Show how a job at the coordinator goes: who answered, who dropped out and why, and its result.

What the coordinator reports is printed as untrusted text. What providers spent is computed here, from the job.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final

import typer

from dpspca.client.connection import JobProgress, JobStatus, ParticipantStatus, job_progress
from dpspca.client.files import save_model
from dpspca.client.reports import report
from dpspca.common.checks import check
from dpspca.common.job import JobSpec
from dpspca.common.plan import Plan
from dpspca.common.privacy import format_up
from dpspca.common.results import Model
from dpspca.common.text import printable

from . import output

_TIME: Final = "%Y-%m-%d %H:%M:%S"


class Follower:
    """Prints the states of a job as they arrive: each answer and each provider that dropped out once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._start = monotonic()
        self._printed: set[object] = set()
        self._status: JobStatus | None = None

    def follow(self, status: JobStatus, show: output.Show) -> None:
        """Print what is new. The reason for the end of the job is printed elsewhere, not here.

        So a provider that dropped out is reported once the job has gone on without it. Until then its loss may be the
        reason why the job ends.
        """
        self._status = status
        went_on = status.answered if status.state == "running" else -1
        for each in status.participants:
            survived = status.is_final or each.asked <= went_on
            if each.reason and survived and each.reason not in status.reason and self._is_new(each.name):
                typer.echo(printable(f"{each.name} dropped out: {each.reason}"), err=True)
            self._follow_approval(each)
        if self._is_new(status.answered or status.state):
            show(job_progress(self._plan, status, monotonic() - self._start))

    def _follow_approval(self, provider: ParticipantStatus) -> None:
        """Print once that a person at a provider has to approve the job, and once that this was done."""
        awaited = (provider.name, "awaited")
        if provider.awaiting_approval_since:
            if self._is_new(awaited):
                typer.echo(printable(awaiting_line(provider)), err=True)
        elif awaited in self._printed and not provider.reason and self._is_new((provider.name, "approved")):
            typer.echo(printable(f"approved by {provider.name}"), err=True)

    def line(self, now: JobProgress) -> str:
        """Return a line that says who answered and how far the job is."""
        if self._status is None or not now.done:
            return printable(f"{now.done} of {now.total}  {now.name}")
        who = [each.name for each in self._status.participants if each.answered >= now.done]
        return printable(
            f"{now.done} of {now.total}  {now.name}: {', '.join(who)} answered; {output.totals_so_far(now)}"
        )

    def _is_new(self, fact: object) -> bool:
        known = fact in self._printed
        self._printed.add(fact)
        return not known


@contextmanager
def show_job_progress(plan: Plan, *, quiet: bool) -> Iterator[Callable[[JobStatus], None]]:
    """Show a job's states: a progress bar on a terminal, a line for each answer elsewhere."""
    follower = Follower(plan)
    with output.display(quiet=quiet, first="waiting", line=follower.line) as show:
        yield lambda status: None if quiet else follower.follow(status, show)


def awaiting_line(provider: ParticipantStatus) -> str:
    """Say that a person at a provider has to approve the job, since when, and until when if that is known."""
    since = f"since {provider.awaiting_approval_since:{_TIME}} UTC"
    end = provider.awaiting_approval_until
    until = f", until {end:{_TIME}} UTC at most" if end else ""
    return f"waiting for approval by {provider.name} ({since}{until})"


def participants(plan: Plan, status: JobStatus) -> list[dict[str, Any]]:
    """Return for every provider how many queries it was asked and answered, and the most that it spent."""
    return [each.to_dict() | {"epsilon_at_most": plan.epsilon_after(each.asked)} for each in status.participants]


def job_facts(plan: Plan, status: JobStatus) -> dict[str, Any]:
    """Return how a job stands and what it has spent at each provider at most, as plain values."""
    budget = plan.spec.budget
    return status.to_dict() | {
        "participants": participants(plan, status),
        "epsilon_spent": plan.epsilon_after(status.answered),
        "budget": {"epsilon": budget.epsilon, "delta": budget.delta},
    }


def spent_line(facts: Mapping[str, Any]) -> str:
    """Say what a job has spent of its budget, by ``job_facts``."""
    budget = facts["budget"]
    return (
        f"spent at each provider so far, at most: epsilon {format_up(facts['epsilon_spent'], 4)} of "
        f"{format_up(budget['epsilon'])}, at delta {format_up(budget['delta'])}"
    )


def print_participants(facts: list[dict[str, Any]]) -> None:
    """Print the facts from ``participants`` as a table."""
    output.print_table(
        ("provider", "asked", "answered", "epsilon at most", "dropped out"),
        (
            (
                each["name"],
                str(each["asked"]),
                str(each["answered"]),
                format_up(each["epsilon_at_most"], 4),
                each["reason"],
            )
            for each in facts
        ),
    )


class ResultFiles:
    """Where a model and its plots are written. It is tried before the job, so that no model is paid for and then lost.

    An existing file may be a model that was paid for as well, so it is kept unless it may be replaced.
    """

    def __init__(self, model: Path, plots: Path | None, *, replace: bool) -> None:
        self._model = model
        self._replace = replace
        self._folder = output.Folder(model.parent, [model.name])
        self._plots = output.Folder(plots, output.PLOTS) if plots else None
        self._require_new_file("Name another file with --out, or overwrite it with --force.")

    def write(self, plan: Plan, status: JobStatus, model: Model) -> dict[str, Any]:
        """Write the files, and return all facts about a job that is done."""
        remedy = f"The coordinator still has the model: `dpspca jobs result {status.job} --out ANOTHER_FILE`."
        self._require_new_file(remedy)
        files = {"model": self._folder.write(self._model.name, lambda path: save_model(model, path), remedy)}
        drawn, notes = self._plots.write_plots(model) if self._plots else ({}, [])
        return {
            "job": status.job,
            "data_set": status.data_set,
            "participants": participants(plan, status),
            "model": report.to_dict(model),
            "files": files | drawn,
            "notes": [*_missing_result_notes(plan.spec, status, model), *notes],
        }

    def _require_new_file(self, remedy: str) -> None:
        check(self._replace or not self._model.exists(), f"{self._model} already exists.", remedy)


def _missing_result_notes(spec: JobSpec, status: JobStatus, model: Model) -> Iterator[str]:
    """Yield why the result lacks the explained variance, if the job asked for it."""
    left = [each.name for each in status.participants if each.reason and each.answered]
    if spec.explained_variance and model.explained_variance is None and left:
        yield f"The explained variance is not known: {', '.join(left)} dropped out before it was answered."


def print_result(facts: dict[str, Any]) -> None:
    """Print a job's result: the components, who took part at what price, the privacy statement, and the files."""
    output.print_components(facts["model"])
    print_participants(facts["participants"])
    notes = map(printable, facts["notes"])
    output.print_text("\n".join(["", facts["model"]["statement"]["text"], "", *notes, "Written:"]))
    for path in facts["files"].values():
        typer.echo(path)
