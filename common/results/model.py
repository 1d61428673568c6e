"""The result of a job: components, explained variance, support and the privacy statement.

A model is stored as one line of JSON followed by raw float64. Reading it back executes no stored code.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from statistics import NormalDist
from typing import Annotated, Any, Final, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import MATRIX, FloatArray
from dpspca.common.checks import check, is_real
from dpspca.common.decoding import STORED, By, between, decode, one_of, parse_json
from dpspca.common.dictionary import Dictionary, prepare_table
from dpspca.common.errors import CorruptModelError, DpspcaError, InvalidDataError, InvalidParameterError
from dpspca.common.frames import column_names, numeric_array, place_of_first
from dpspca.common.job import MAX_DIMENSION
from dpspca.common.names import shortened
from dpspca.common.text import visible

from . import noise_limits
from .column_order import few, order_of
from .decision import Decision
from .notebook import fragment
from .origin import Origin
from .rotation import varimax
from .score_map import ScoreMap
from .statement import NOT_FOR_RELEASE, PrivacyStatement
from .weights import Weighed

FORMAT: Final = "dpspca-model-2"
BEFORE: Final = "dpspca-model-1"
"""The format of version 0.1.0, which journals may hold. One flag said whether the result may be released."""
INTERVAL_LEVEL: Final = 0.95
"""The level of confidence intervals, if nobody says another."""


@dataclass(frozen=True, eq=False, slots=True)
class Model:
    """k components over d features. The rows of ``components`` are orthonormal, and their signs are fixed.

    ``explained_variance`` and its ratio are None if the job did not ask for them. Both are noisy, and the ratios need
    not sum to one; ``explained_variance_std`` is the standard deviation of the noise in each variance. If the privacy
    unit of the statement is that of a symmetric matrix, the numbers are signed eigenvalues, largest absolute value
    first, and there is no ratio. A ratio may be about rows that were clipped further than those of the variances.
    """

    components: FloatArray
    statement: PrivacyStatement
    mean: FloatArray | None = None
    scales: FloatArray | None = None
    """The divisors of columns, after the mean was subtracted. Components are about columns at these scales."""
    explained_variance: FloatArray | None = None
    explained_variance_ratio: FloatArray | None = None
    explained_variance_std: float | None = None
    feature_names: tuple[str, ...] | None = None
    decision: Decision | None = None
    """The method's decision about the structure, if it makes one."""
    loading_std: FloatArray | None = None
    """Standard deviation of the noise of each loading, if it follows from the noise of a released matrix."""
    scores: ScoreMap | None = None
    """How many rows have their scores on the first two components in each cell, where the job asked for a picture."""
    weights: FloatArray | None = None
    """For each provider, the most rows first, its part of all rows and the part by which it counted, if these differ.

    They are those of the last sum that shows components. Other sums may have been weighed more or less.
    """
    dictionary: Dictionary | None = None
    """How raw rows are prepared: the features of the model in their order. ``statement.dictionary`` is the digest of
    the whole dictionary."""
    origin: Origin | None = None
    """Where the model comes from. None in files of earlier versions."""

    def __post_init__(self) -> None:
        rows, columns = _two(self.components.shape)
        self.components.setflags(write=False)
        _check_shape("mean", self.mean, (columns,))
        _check_shape("scales", self.scales, (columns,))
        if self.scales is not None and not (self.scales > 0).all():
            raise _corrupt("A scale is not above zero.")
        _check_shape("explained_variance", self.explained_variance, (rows,))
        _check_shape("explained_variance_ratio", self.explained_variance_ratio, (rows,))
        _check_shape("loading_std", self.loading_std, (rows, columns))
        if self.weights is not None and (self.weights.ndim != MATRIX or self.weights.shape[1:] != (2,)):
            raise _corrupt(f"The weights form an array of shape {self.weights.shape}.")
        if self.feature_names is not None and len(self.feature_names) != columns:
            raise _corrupt(f"There are {len(self.feature_names)} names for {columns} features.")
        if not all(isinstance(name, str) for name in self.feature_names or ()):
            raise _corrupt("A feature's name is not text.")
        if self.dictionary is not None and self.dictionary.columns != self.feature_names:
            raise _corrupt(
                f"The dictionary has the columns {few(self.dictionary.columns)}, which are not those of the model."
            )
        if not isinstance(self.explained_variance_std, float | None):
            raise _corrupt("The noise of the explained variance is no number.")

    @property
    def support(self) -> NDArray[np.intp]:
        """The indices of the features with a nonzero loading in any component."""
        return np.flatnonzero(self.components.any(axis=0))

    @property
    def within_noise(self) -> NDArray[np.bool_]:
        """A mask of the components whose variance cannot be told apart from noise. No variances: all are False."""
        asked_apart = self.decision is not None and self.decision.asked_apart(self.explained_variance_std)
        columns = 0 if asked_apart else self.columns_read_off
        count, noise = len(self.components), self.explained_variance_std
        return noise_limits.within_noise(self.explained_variance, noise, count, columns)

    @property
    def columns_read_off(self) -> int:
        """How many columns the released matrix had that components were read off; 0 if they were found otherwise."""
        knows = self.loading_std is not None
        return noise_limits.columns_read_off(self.decision, self.components.shape[1], knows_loadings=knows)

    @property
    def blind(self) -> bool | None:
        """Whether no component showed above the noise of the largest matrix that was released. None if none was told.

        Then columns that take part may have been missed without a sign of it.
        """
        return None if self.decision is None or self.decision.visible is None else self.decision.visible == 0

    def name_of(self, feature: int) -> str:
        """Return a feature's name for display. Control characters are escaped, because a model may be a stranger's."""
        return f"feature {feature}" if self.feature_names is None else visible(self.feature_names[feature])

    def weighed_by(self, weighed: Weighed | None) -> Self:
        """Return the model with its providers' weights in the last sum that was weighed, if they were not even."""
        return self if weighed is None or weighed.is_even else replace(self, weights=weighed.shares)

    def intervals(self, level: float = INTERVAL_LEVEL) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Return confidence intervals that follow from the known noise: lower and upper ends by name.

        The names are ``loadings`` and ``explained_variance``; one whose noise is not known is left out. An interval
        covers what the same clipped rows would have given without noise. It does not cover what other rows would have
        given, or rows that were not clipped. Methods that clip at a private bound to find components ask for the
        variances apart, and clip fewer rows there. So the intervals of loadings and those of variances are about
        differently clipped rows. Each interval is about a single number, so a share of 1 - ``level`` of them misses.
        The interval of a column outside the support says how large its loading may be; those of the others are about
        the component that columns of the support have among themselves.
        """
        check(is_real(level) and 0 < level < 1, f"level is {level!r:.60}.", "Give a number between 0 and 1.")
        reach = NormalDist().inv_cdf((1 + level) / 2)
        ends: dict[str, tuple[FloatArray, FloatArray]] = {}
        if self.loading_std is not None:
            low, high = self.components - reach * self.loading_std, self.components + reach * self.loading_std
            ends["loadings"] = np.maximum(low, -1.0), np.minimum(high, 1.0)
        if self.explained_variance is not None and self.explained_variance_std is not None:
            spread = reach * self.explained_variance_std
            low, high = self.explained_variance - spread, self.explained_variance + spread
            ends["explained_variance"] = np.maximum(low, 0.0) if self.statement.unit.is_row else low, high
        return ends

    @property
    def plot(self) -> Any:  # noqa: ANN401  # dpspca.client.reports.Plots
        """The plots of this model: ``.scree()``, ``.loadings()``, ``.biplot()``, ``.scores()``, ``.vega_lite(name)``.

        They are found by name when they are first used: a daemon has models, and needs no plots.
        """
        return import_module("dpspca.client.reports").Plots(self)

    def varimax(self) -> Self:
        """Return the model with its components rotated by varimax, so that each has few large loadings.

        The components span the same space and stay orthonormal. The variances are those along the rotated components,
        largest first. ``loading_std`` is None, because the noise of rotated loadings is not known,
        and a picture of scores on other axes is left out.
        """
        rotation = varimax(self.components)
        parts = np.square(rotation.T)
        variances = None if self.explained_variance is None else parts @ self.explained_variance
        order = np.arange(len(rotation)) if variances is None else np.argsort(-np.abs(variances), kind="stable")

        def turned(values: FloatArray | None) -> FloatArray | None:
            return None if values is None else (parts @ values)[order]

        return replace(
            self,
            components=fix_signs((rotation.T @ self.components)[order]),
            explained_variance=turned(self.explained_variance),
            explained_variance_ratio=turned(self.explained_variance_ratio),
            loading_std=None,
            scores=None,
        )

    def with_dictionary(self, dictionary: Dictionary) -> Self:
        """Return the model with what it needs to prepare raw rows. Refuse another dictionary than that of its job."""
        if dictionary.digest() != self.statement.dictionary:
            raise InvalidParameterError(
                f"The model's job names the dictionary {self.statement.dictionary or 'none'}, and this one is "
                f"{dictionary.digest()}.",
                "Give the dictionary of the job. `dpspca dictionary check FILE OTHER` compares two.",
            )
        return replace(self, dictionary=dictionary.with_columns(self.feature_names or ()))

    def transform(self, rows: Any, *, by_position: bool = False, prepared: bool = False) -> FloatArray:  # noqa: ANN401  # dense or sparse
        """Project rows (dense, sparse, or a file of them) onto the components. Privacy does not protect exact scores.

        The columns of a data frame are matched to the features by name. The columns of an array have no names, and must
        be in the order of the features. ``by_position`` takes a data frame's columns in their order, too.

        If the job had a dictionary, raw rows are prepared by it first, as the providers prepared theirs. Their columns
        are the dictionary's features, in its units. A ``RowsWarning`` says if most values of a feature are outside its
        range or are no level. ``prepared`` says that rows are prepared already.
        """
        if (isinstance(rows, str) or hasattr(rows, "__fspath__")) and not prepared:
            files = import_module("dpspca.client.files")  # which reads all kinds of files, with the provider's readers
            found: FloatArray = files.scores_of_file(self, rows, by_position=by_position)
            return found
        if self.statement.dictionary and not prepared:
            return self.transform(self._prepared(rows, by_position=by_position), by_position=True, prepared=True)
        order = None if by_position else self.order_of(column_names(rows))
        rows = _numbers(rows)
        self._check_width(rows.shape[1], self.components.shape[1], "features")
        along = self.components.T if self.scales is None else self.components.T / self.scales[:, None]
        scores = (rows if order is None else rows[:, order]) @ along
        dense = np.asarray(scores.toarray() if isinstance(scores, scipy.sparse.csr_array) else scores)
        return dense if self.mean is None else dense - self.mean @ along

    def _prepared(self, rows: Any, *, by_position: bool) -> FloatArray:  # noqa: ANN401  # any table
        if self.dictionary is None:
            raise InvalidDataError(
                f"Rows have to be prepared with the dictionary {self.statement.dictionary:.12}, which the model lacks.",
                "Call model.with_dictionary(load_dictionary(FILE)), or give --dictionary FILE on the command line. If "
                "the rows are prepared already, call transform(rows, prepared=True).",
            )
        return prepare_table(self.dictionary, rows, by_position=by_position)

    def order_of(self, names: Sequence[str] | None) -> NDArray[np.intp] | None:
        """Return the position of each feature among columns of these names, or None if they are in order already.

        Columns without names (None) are taken in their order. Each feature needs exactly one column, and no column may
        be left over.
        """
        if names is None:
            return None
        if self.feature_names is None:
            raise InvalidDataError(
                f"The rows' columns have names ({few(names)}), but the model's features have none, so columns cannot "
                "be matched to features.",
                "If the columns are in the order of the rows that the model was made from, take them by position: give "
                "an array or by_position=True; on the command line, --by-position.",
            )
        return order_of(names, self.feature_names)

    def inverse_transform(self, scores: FloatArray) -> FloatArray:
        """Map scores back to rows over the features. If the job had a dictionary, these are prepared rows."""
        scores = _numbers(scores)
        self._check_width(scores.shape[1], self.components.shape[0], "components")
        rows = np.asarray(scores @ (self.components if self.scales is None else self.components * self.scales))
        return rows if self.mean is None else rows + self.mean

    def __repr__(self) -> str:
        k, d = self.components.shape
        whole = f"Model: {k} components over {d} features, {len(self.support)} in the support"
        return f"<{whole}>" if self.statement.releasable else f"<{NOT_FOR_RELEASE}. {whole}>"

    def _repr_html_(self) -> str:
        return fragment(self)

    def to_bytes(self) -> bytes:
        """Return the model as bytes: a line of JSON, then the arrays."""
        arrays = {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), np.ndarray)}
        header = {
            "format": FORMAT,
            "shapes": {name: array.shape for name, array in arrays.items()},
            "statement": {f.name: getattr(self.statement, f.name) for f in fields(self.statement)},
            "explained_variance_std": self.explained_variance_std,
            "feature_names": self.feature_names,
            "decision": None if self.decision is None else self.decision.to_dict(),
            "scores": None if self.scores is None else self.scores.to_dict(),
            "dictionary": None if self.dictionary is None else self.dictionary.to_dict(),
            "origin": None if self.origin is None else self.origin.to_dict(),
        }
        body = b"".join(np.ascontiguousarray(array, dtype="<f8").tobytes() for array in arrays.values())
        return json.dumps(header).encode() + b"\n" + body

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        """Read a stored model. Anything unexpected is refused."""
        line, _, body = stored.partition(b"\n")
        try:
            raw = parse_json(line, "The header")
            if "shapes" not in raw and "format" in raw:  # another file of this package
                raise _corrupt(f"The file has the format {shortened(raw['format'])}, which is not that of a model.")
            header = decode(_Header, raw | {"statement": _in_two_words(raw)}, STORED)
            parts: dict[str, Any] = {
                each.name: getattr(header, each.name) for each in fields(header) if each.name not in _NOT_PARTS
            }
            parts |= _arrays(header.shapes, body)
            return cls(**parts)
        except CorruptModelError:
            raise
        except DpspcaError as problem:
            raise _corrupt(f"The bytes do not hold a model: {problem.what}") from None
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
            raise _corrupt("The bytes do not hold a model.") from None

    @staticmethod
    def _check_width(given: int, expected: int, what: str) -> None:
        if given != expected:
            raise InvalidDataError(
                f"The rows have {given} {what}; the model has {expected}.", "Give the columns the model was made from."
            )


def fix_signs(components: FloatArray) -> FloatArray:
    """Choose the sign of each row so that its largest entry is positive. Of equal entries the first decides."""
    largest = np.argmax(np.abs(components), axis=1)
    signs = np.sign(components[np.arange(len(components)), largest])
    return components * np.where(signs == 0, 1.0, signs)[:, None] + 0.0  # no negative zeros


@dataclass(frozen=True, kw_only=True, slots=True)
class _Header:
    """The first line of a model file. What version 0.1.0 did not write has a default."""

    format: Annotated[str, one_of(FORMAT, BEFORE)]
    shapes: dict[str, list[Annotated[int, between(0, MAX_DIMENSION)]]]
    statement: PrivacyStatement
    explained_variance_std: float | None
    feature_names: tuple[str, ...] | None
    decision: Decision | None = None
    scores: Annotated[ScoreMap, By(lambda raw, _: ScoreMap.from_dict(raw))] | None = None
    dictionary: Annotated[Dictionary, By(lambda raw, _: Dictionary.parse(raw))] | None = None
    origin: Origin | None = None


_NOT_PARTS: Final = {"format", "shapes"}


def _in_two_words(header: dict[str, Any]) -> Any:  # noqa: ANN401  # whatever is stored
    """Return the statement, in today's words if version 0.1.0 wrote it.

    Its caveat began with NOT_FOR_RELEASE only for a Markov chain, whose privacy is not proven.
    """
    stated = header["statement"]
    if header["format"] != BEFORE:
        return stated
    kept = {name: value for name, value in stated.items() if name != "releasable"}
    return kept | {
        "fresh_noise": stated["releasable"],
        "proven": not stated.get("caveat", "").startswith(NOT_FOR_RELEASE),
    }


def _numbers(rows: Any) -> Any:  # noqa: ANN401  # dense or sparse
    """Check that this is a two-dimensional table of finite numbers, dense or sparse."""
    table: Any = rows.tocsr() if hasattr(rows, "tocsr") else numeric_array(rows)
    if table.dtype == np.longdouble:
        table = table.astype(np.float64)
    values: Any = getattr(table, "data", table) if scipy.sparse.issparse(table) else table
    if table.ndim != MATRIX or table.dtype.kind not in "fiub":
        raise InvalidDataError(
            f"The rows are not a table of finite numbers: {table.ndim} dimensions, numbers of type {table.dtype}.",
            "Give rows and columns of finite numbers.",
        )
    if not np.isfinite(values).all():
        place = place_of_first(table, ~np.isfinite(values), column_names(rows))
        raise InvalidDataError(
            f"The rows contain NaN or infinity, first in {place}.", "Fill in or drop missing values first."
        )
    return table


def _two(shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) != MATRIX or 0 in shape:
        raise _corrupt(f"The components form an array of shape {shape}.")
    return shape[0], shape[1]


def _check_shape(name: str, array: FloatArray | None, shape: tuple[int, ...]) -> None:
    if array is not None and array.shape != shape:
        raise _corrupt(f"{name} has shape {array.shape}, where {shape} fits the components.")


def _arrays(shapes: dict[str, list[int]], body: bytes) -> dict[str, FloatArray]:
    """Split the body into the arrays that the header announces. Their total length must match exactly."""
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    if min(sizes, default=0) < 0 or 8 * sum(sizes) != len(body):
        raise _corrupt("The length does not fit the arrays it announces.")
    flat = np.frombuffer(body, dtype="<f8").astype(np.float64)
    if not np.isfinite(flat).all():
        raise _corrupt("A number is NaN or infinite.")
    parts = np.split(flat, np.cumsum(sizes)[:-1]) if sizes else []
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def _corrupt(what: str) -> CorruptModelError:
    return CorruptModelError(what, "Use a file written by dpspca, whole and unchanged.")
