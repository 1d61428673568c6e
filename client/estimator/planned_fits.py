"""What an estimator says about a fit beforehand, from public facts alone."""

from collections.abc import Mapping, Sequence
from inspect import signature
from os import PathLike
from typing import Any

from dpspca.client.described_jobs import whole_and_chosen
from dpspca.client.forecast import Answers, Forecast, Hints, answer, forecast, require_rows
from dpspca.common.algorithms import catalogue
from dpspca.common.checks import check, check_known
from dpspca.common.dictionary import Dictionary
from dpspca.common.job import Budget, JobSpec, Schema

from .estimator_values import KnownRows
from .unit_names import unit_named


class PlansFits:
    """Forecasts the fits of an estimator. It looks at no data and spends nothing."""

    unit: str | None
    dictionary: Dictionary | str | PathLike[str] | None
    features: Sequence[str] | None

    def plan(self, columns: int, *, rows: int, **hints: Any) -> Forecast:  # noqa: ANN401  # those of dpspca.forecast
        """Forecast a fit to this many rows and columns, by every method. See ``dpspca.forecast`` for the hints."""
        return forecast(self._planned(columns, rows, hints), rows=rows, **hints)

    def answers(
        self,
        columns: int,
        *,
        rows: int,
        target_error: float | None = None,
        lifetime: Budget | None = None,
        **hints: Any,  # noqa: ANN401  # those of dpspca.forecast
    ) -> Answers:
        """Say which epsilon a target for the error needs, what one provider more would bring, and what would be left.

        These are the answers of ``dpspca plan --rows``. ``lifetime`` is the budget of all jobs together.
        """
        plan = catalogue.plan(self._planned(columns, rows, hints))
        return answer(plan, Hints(rows=rows, **hints), target_error=target_error, lifetime=lifetime)

    def _planned(self, columns: int, rows: int, hints: Mapping[str, Any]) -> JobSpec:
        known = [name for name in signature(forecast).parameters if name not in {"spec", "rows"}]
        for name in hints:
            check_known("hint", name, known)
        require_rows(unit_named(self.unit))
        schema, known_features = Schema(columns), whole_and_chosen(self.dictionary, self.features)
        if known_features is not None:
            schema = Schema.of(known_features[1].columns)
            check(
                columns == schema.dimension,
                f"The features of the dictionary make {schema.dimension} columns, and {columns} were given.",
                f"Give {schema.dimension}: a category has a column for each level.",
            )
        return self._spec(schema, 0, KnownRows(hints.get("providers", 1), rows))

    def _spec(self, schema: Schema, seed: int, known_rows: KnownRows) -> JobSpec:
        """Return the job spec for these parameters."""
        raise NotImplementedError
