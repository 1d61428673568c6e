"""Flags with public facts about the rows of a job, for a forecast of it."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from dpspca.client.forecast import Hints
from dpspca.common.checks import check
from dpspca.common.job import Budget

_SCALE: Final = "divided by the mean squared length of a row"


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """Public facts as the command line gives them; None if not given. ``with_public_facts`` makes each an option."""

    rows: Annotated[
        int | None,
        typer.Option(
            help="Number of rows of all providers together. If given: compute the expected error of each method."
        ),
    ] = None
    providers: Annotated[
        int | None, typer.Option(help="For the forecast: number of providers, with equal numbers of rows. Default: 1.")
    ] = None
    leading: Annotated[
        float | None,
        typer.Option(
            help=f"For the forecast: the eigenvalue of the last component, {_SCALE}. Default: all components have "
            "equal eigenvalues and together explain half of that length."
        ),
    ] = None
    following: Annotated[
        float | None,
        typer.Option(
            help=f"For the forecast: the next eigenvalue after the components, {_SCALE}. Default: all others are equal."
        ),
    ] = None
    largest: Annotated[
        float | None,
        typer.Option(help=f"For the forecast: the largest eigenvalue, {_SCALE}. Default: the same as --leading."),
    ] = None
    support: Annotated[
        int | None, typer.Option(help="For the forecast: how many columns take part in the components. Default: all.")
    ] = None
    row_length: Annotated[
        float | None,
        typer.Option(
            help="For the forecast: root of the mean squared length of a row. Default: chosen so that the squared norm "
            "bound is two standard deviations above the mean squared length; 1 if the norm bound is private."
        ),
    ] = None
    target_error: Annotated[
        float | None, typer.Option(help="For the forecast: also compute the epsilon for which the error is this small.")
    ] = None
    plot: Annotated[
        Path | None,
        typer.Option(help="For the forecast: write a plot (PNG) of the error by epsilon. Needs matplotlib."),
    ] = None
    lifetime_epsilon: Annotated[
        float | None,
        typer.Option(help="For the forecast: lifetime budget of a provider's data set, to see what the job leaves."),
    ] = None
    lifetime_delta: Annotated[
        float | None, typer.Option(help="For the forecast: delta of the lifetime budget. Default: that of the job.")
    ] = None

    def hints(self, providers: int) -> Hints | None:
        """Return the facts, or None if none were given. ``providers`` is their number if it is not given."""
        given = list(self._given())
        if not given:
            return None
        check(
            self.rows is not None,
            f"{', '.join(given)}: a forecast needs the number of rows.",
            "Give --rows too: the number of rows of all providers together.",
        )
        assert self.rows is not None
        return Hints(
            rows=self.rows,
            providers=providers if self.providers is None else self.providers,
            leading=self.leading,
            following=self.following,
            largest=self.largest,
            support=self.support,
            row_length=self.row_length,
        )

    def lifetime(self, delta: float) -> Budget | None:
        """Return the lifetime budget, if one was given; ``delta`` is that of the job."""
        check(
            self.lifetime_delta is None or self.lifetime_epsilon is not None,
            "--lifetime-delta is given without --lifetime-epsilon.",
            "Give both, or leave it out.",
        )
        if self.lifetime_epsilon is None:
            return None
        return Budget(self.lifetime_epsilon, delta if self.lifetime_delta is None else self.lifetime_delta)

    def _given(self) -> Iterator[str]:
        return ("--" + name.replace("_", "-") for name, value in asdict(self).items() if value is not None)
