"""An event that could not have happened cannot be written down; what can be is worth what its class says."""

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.errors import DpspcaError, InvalidParameterError, InvalidTypeError
from dpspca.common.privacy.events import Event, GaussianEvent, LaplaceEvent, ParallelEvent, PureEvent, checked_events

sizes = st.floats(min_value=1e-100, max_value=1e100)


@pytest.mark.parametrize(
    ("make", "error", "named"),
    [
        (lambda: GaussianEvent(-1.0, 1.0), InvalidParameterError, "sensitivity"),
        (lambda: GaussianEvent(math.nan, 1.0), InvalidParameterError, "sensitivity"),
        (lambda: GaussianEvent(math.inf, 1.0), InvalidParameterError, "sensitivity"),
        (lambda: GaussianEvent(2**53 + 1, 1.0), InvalidParameterError, "sensitivity"),
        (lambda: GaussianEvent(10**400, 1.0), InvalidParameterError, "sensitivity"),
        (lambda: GaussianEvent("1", 1.0), InvalidTypeError, "sensitivity"),  # type: ignore[arg-type]
        (lambda: GaussianEvent(True, 1.0), InvalidTypeError, "sensitivity"),
        (lambda: GaussianEvent(None, 1.0), InvalidTypeError, "sensitivity"),  # type: ignore[arg-type]
        (lambda: GaussianEvent(np.array([1.0]), 1.0), InvalidTypeError, "sensitivity"),  # type: ignore[arg-type]
        (lambda: GaussianEvent(1.0, 0.0), InvalidParameterError, "std"),
        (lambda: GaussianEvent(0.0, 0.0), InvalidParameterError, "std"),
        (lambda: GaussianEvent(1.0, -1.0), InvalidParameterError, "std"),
        (lambda: GaussianEvent(1.0, math.inf), InvalidParameterError, "std"),
        (lambda: GaussianEvent(1.0, math.nan), InvalidParameterError, "std"),
        (lambda: GaussianEvent(1e200, 1e-200), InvalidParameterError, "std"),
        (lambda: GaussianEvent(1.0, 1.0, -1e-30), InvalidParameterError, "slack"),
        (lambda: GaussianEvent(1.0, 1.0, 1.0), InvalidParameterError, "slack"),
        (lambda: GaussianEvent(1.0, 1.0, math.nan), InvalidParameterError, "slack"),
        (lambda: LaplaceEvent(-1.0, 1.0), InvalidParameterError, "sensitivity"),
        (lambda: LaplaceEvent(1.0, 0.0), InvalidParameterError, "scale"),
        (lambda: LaplaceEvent(1e200, 1e-200), InvalidParameterError, "scale"),
        (lambda: LaplaceEvent(1.0, 1.0, 2.0), InvalidParameterError, "slack"),
        (lambda: PureEvent(-0.1), InvalidParameterError, "epsilon"),
        (lambda: PureEvent(math.inf), InvalidParameterError, "epsilon"),
        (lambda: PureEvent(math.nan), InvalidParameterError, "epsilon"),
        (lambda: ParallelEvent(()), InvalidParameterError, "group"),
        (lambda: ParallelEvent([()]), InvalidTypeError, "groups"),  # type: ignore[arg-type]
        (lambda: ParallelEvent(([],)), InvalidTypeError, "groups"),  # type: ignore[arg-type]
        (lambda: ParallelEvent(((0.1,),)), InvalidTypeError, "float"),  # type: ignore[arg-type]
        (lambda: checked_events([PureEvent(1.0), "free"]), InvalidTypeError, "str"),  # type: ignore[list-item]
        (lambda: checked_events(PureEvent(1.0)), InvalidTypeError, "PureEvent"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_refused_with_its_name_and_a_remedy(
    make: Callable[[], object], error: type[DpspcaError], named: str
) -> None:
    with pytest.raises(error) as caught:
        make()
    assert named in caught.value.what
    assert caught.value.remedy.endswith(".")


@given(sizes, sizes)
def test_worth_is_a_quotient_rounded_up_and_by_no_more_than_one_float(sensitivity: float, width: float) -> None:
    exact = Fraction(sensitivity) / Fraction(width)
    for worth in (GaussianEvent(sensitivity, width).mu, LaplaceEvent(sensitivity, width).epsilon):
        assert Fraction(worth) >= exact
        assert Fraction(math.nextafter(worth, 0.0)) < exact


def test_a_query_that_no_row_can_change_is_free() -> None:
    assert GaussianEvent(0.0, 1.0).mu == 0
    assert LaplaceEvent(0, 1).epsilon == 0


def test_integers_and_numpy_floats_are_numbers() -> None:
    assert GaussianEvent(1, 2).mu == 0.5
    assert GaussianEvent(np.float64(1), np.float64(2)).mu == 0.5


@pytest.mark.parametrize(
    "event", [GaussianEvent(1, 1), LaplaceEvent(1, 1), PureEvent(1), ParallelEvent(((PureEvent(1),), ()))]
)
def test_events_are_values(event: Event) -> None:
    assert hash(event) == hash(event)
    with pytest.raises(FrozenInstanceError):
        setattr(event, fields(event)[0].name, 0.0)
