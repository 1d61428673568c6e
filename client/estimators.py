"""A scikit-learn estimator: a federation behind ``fit`` and ``transform``, in one process or over a network."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np

from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import FloatArray, column_names
from dpspca.common.errors import InvalidParameterError, InvalidTypeError, MissingExtraError
from dpspca.common.matrix_queries import EntryTotal
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import ColumnSums, CompressedCovariance, Count
from dpspca.common.spec import Accounting, Budget, Centering, JobSpec, Scalar, Schema, check, check_bound, choice
from dpspca.provider.preparation import check_rows, numeric

from .blocking import Federation, progress_of
from .simulation import Watcher, simulate

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingExtraError(
        "The estimators need scikit-learn, which is not installed.", "Install it with: pip install 'dpspca[sklearn]'"
    ) from None

Adjacency: TypeAlias = Literal[
    "replace-one", "add-remove", "person-replace-one", "person-add-remove", "entry", "spectral"
]

_UNITS: Final = {
    "replace-one": PrivacyUnit.ROW_REPLACE_ONE,
    "add-remove": PrivacyUnit.ROW_ADD_REMOVE,
    **{unit.value: unit for unit in PrivacyUnit},
}
"""The names that jobs use are understood as well."""
USUAL_SPARSITY: Final = 50
_BESIDE: Final = (Count, ColumnSums, CompressedCovariance, EntryTotal)
"""Questions before and after the components are found, which are no rounds."""


class DPSPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Differentially private principal component analysis, sparse by default.

    Two parameters have no default because no default could be honest: ``norm_bound``, what is publicly known about how
    long a row can be (longer rows are shortened to it), and ``adjacency``, whether the promise is about one row being
    replaced by another ("replace-one": the number of rows is public) or added or removed ("add-remove").

    Parameters
    ----------
    n_components : int
        How many components.
    sparsity : int or "auto"
        How many features may take part, all components together; as many as there are features at most. "auto" is 50,
        or all of fewer features. Only methods that make sparse components look at it.
    method : str
        The algorithm, by its name in the catalogue, which ``dpspca algorithms`` prints and docs/algorithms.md compares:
        "dps-pca", "analyze-gauss" and others.
    options : mapping, optional
        What only the method knows, by the names in the catalogue. What is a parameter here (``sparsity``, ``n_iter``,
        ``start``) is not repeated in it.
    epsilon, delta : float
        The privacy budget of one fit. Smaller is more private. Every further fit on the same rows, those inside a
        cross-validation included, costs as much again.
    norm_bound : float
        Bound on a row's Euclidean length, after centring. Never read off the data. For the adjacencies "entry" and
        "spectral", the change of the matrix that is hidden.
    adjacency : {"replace-one", "add-remove", "person-replace-one", "person-add-remove", "entry", "spectral"}
        Which data sets count as neighbours. With the names that begin with "person" a person is protected with all
        their rows, and ``fit`` has to be told whose each row is. The last two protect less than a row, and few methods
        have them.
    rows_per_person : int
        How many rows of one person are protected together, at as many times the noise. Where a person is the unit,
        the first so many of each are used, and no others; else that nobody has more is your word.
    n_iter : int or "auto"
        Rounds; "auto" lets the budget decide. A method that has none refuses a number.
    center : {None, "private", "public"}
        Take no mean off; estimate it privately (a tenth of the budget; needs ``mean_bound``); or take off
        ``public_mean``.
    mean_bound : float
        Bound on a row's length before centring, for the private mean.
    public_mean : array of shape (n_features,)
        A mean known from elsewhere.
    explained_variance : bool
        Ask, at a twentieth of the budget, what the components explain.
    accounting : {"exact", "published"}
        The least noise that the budget allows, or the paper's own formula, for methods that have one.
    start : {"dense", "published"}
        Start from all features, or as published from ``sparsity`` random ones, which mostly misses the right ones.
        Only "dps-pca" has it; other methods refuse "published".
    random_state : None, int or RandomState
        None for a result that may be released. Anything else makes the run repeatable, noise included: such a result
        is for tests only, and ``privacy_`` says so.
    watch : callable
        Called with a ``Progress`` after every answer.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        Orthonormal rows; the largest entry of each is positive.
    support_ : array of int
        Indices of the features that take part in any component.
    explained_variance_, explained_variance_ratio_ : array of shape (n_components,) or None
        With noise, by design; none is below zero, and their sum is at most ``norm_bound`` squared, as with the truth
        (of a matrix, they are eigenvalues, and are not cut).
    explained_variance_std_ : float or None
        Standard deviation of that noise: variances not well above it say nothing.
    mean_ : array of shape (n_features,) or None
        What was taken off.
    n_iter_ : int
        Rounds: how many answers the components were made of. One, where the method asks for a matrix at once.
    privacy_ : PrivacyStatement
        What was promised; ``privacy_.text`` for people, ``privacy_.to_dict()`` for programs. ``privacy_.warnings`` says
        what has to be known of this fit before it is relied on; ``fit`` gives each as a ``DpspcaWarning`` as well.
    model_ : Model
        All of this in one value that can be stored.
    """

    def __init__(  # noqa: PLR0913  # an estimator's parameters are its constructor's, by scikit-learn's rule
        self,
        n_components: int = 5,
        *,
        sparsity: int | Literal["auto"] = "auto",
        method: str = "dps-pca",
        options: Mapping[str, Scalar] | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        norm_bound: float | None = None,
        adjacency: Adjacency | None = None,
        rows_per_person: int = 1,
        n_iter: int | Literal["auto"] = "auto",
        center: Literal["private", "public"] | None = None,
        mean_bound: float | None = None,
        public_mean: Any = None,  # noqa: ANN401  # any array of numbers
        explained_variance: bool = True,
        accounting: Literal["exact", "published"] = "exact",
        start: Literal["dense", "published"] = "dense",
        random_state: int | np.random.RandomState | None = None,
        watch: Watcher | None = None,
    ) -> None:
        self.n_components = n_components
        self.sparsity = sparsity
        self.method = method
        self.options = options
        self.epsilon = epsilon
        self.delta = delta
        self.norm_bound = norm_bound
        self.adjacency = adjacency
        self.rows_per_person = rows_per_person
        self.n_iter = n_iter
        self.center = center
        self.mean_bound = mean_bound
        self.public_mean = public_mean
        self.explained_variance = explained_variance
        self.accounting = accounting
        self.start = start
        self.random_state = random_state
        self.watch = watch

    def fit(  # noqa: PLR0913  # rows, whose they are, or where they are
        self,
        X: Any = None,  # noqa: ANN401  # scikit-learn's signature
        y: Any = None,  # noqa: ANN401
        *,
        persons: Any = None,  # noqa: ANN401  # a sequence of names or numbers
        federation: Federation | None = None,
        dataset: str | None = None,
        providers: Sequence[str] | None = None,
    ) -> Self:
        """Fit to the rows of X, dense or sparse, or to a federation's data set, at the price of (epsilon, delta).

        ``persons`` has a name or number for each row of X: whose it is. It goes with the adjacencies of persons.

        Over a federation there is no X: ``dataset`` names what the providers offer, and ``providers`` those that are
        asked, all of whom have to answer; left out, whoever offers it now. Noise is made by the providers, so
        ``random_state`` makes nothing repeatable but the start.
        """
        if federation is None:
            self._fit_rows(X, persons)
        else:
            check(
                persons is None,
                "Persons and a federation are given.",
                "Leave persons out: providers know whose rows they have.",
            )
            self._fit_federation(X, federation, dataset, providers)
        self.components_ = self.model_.components
        self.support_ = self.model_.support
        self.explained_variance_ = self.model_.explained_variance
        self.explained_variance_ratio_ = self.model_.explained_variance_ratio
        self.explained_variance_std_ = self.model_.explained_variance_std
        self.mean_ = self.model_.mean
        self.privacy_ = self.model_.statement
        self._n_features_out = len(self.components_)
        return self

    def _fit_rows(self, X: Any, persons: Any) -> None:  # noqa: ANN401  # whatever was given
        rows = check_rows(_numbers(X)).matrix
        validate_data(self, X, skip_check_array=True)
        start_seed, noise_seed = self._seeds()
        names = getattr(self, "feature_names_in_", None)
        spec = self._spec(Schema(rows.shape[1], None if names is None else tuple(names)), start_seed)
        check(
            persons is not None or not spec.unit.is_person,
            f"adjacency is {self.adjacency!r}, and it is not known whose each row is.",
            "Give fit(X, persons=...): one name or number for each row.",
        )
        whose = None if persons is None else [persons]
        self.model_ = simulate([rows], spec, noise_seed=noise_seed, watch=self.watch, persons=whose)
        self.n_iter_ = _rounds(spec)

    def _fit_federation(
        self,
        X: Any,  # noqa: ANN401  # nothing
        federation: Federation,
        dataset: str | None,
        providers: Sequence[str] | None,
    ) -> None:
        check(X is None, "Rows and a federation are given.", "Leave X out: the providers hold the rows.")
        dataset = federation.only_data_set() if dataset is None else dataset
        schema, names = federation.describe(dataset, providers)
        start_seed, _ = self._seeds()
        spec = replace(self._spec(schema, start_seed), minimum_parties=len(names))
        job = federation.submit(spec, dataset, names)
        for progress in progress_of(job):
            if self.watch:
                self.watch(progress)
        self.model_ = job.result()
        self.n_iter_ = _rounds(spec)
        self.n_features_in_ = schema.dimension
        if schema.names:
            self.feature_names_in_ = np.array(schema.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def transform(self, X: Any) -> FloatArray:  # noqa: ANN401  # scikit-learn's signature
        """Project rows onto the components. It spends nothing, and protects nobody whose rows are in X."""
        check_is_fitted(self)
        rows = check_rows(_numbers(X), least=1).matrix
        validate_data(self, X, skip_check_array=True, reset=False)
        return self.model_.transform(rows)

    def inverse_transform(self, X: Any) -> FloatArray:  # noqa: ANN401  # scikit-learn's signature
        """Map scores back to features."""
        check_is_fitted(self)
        return self.model_.inverse_transform(np.asarray(X, dtype=np.float64))

    def _spec(self, schema: Schema, seed: int) -> JobSpec:
        """Put the parameters into a job, which checks them."""
        return JobSpec(
            schema=schema,
            unit=_unit(self.adjacency),
            budget=Budget(self.epsilon, self.delta),
            norm_bound=check_bound("norm_bound", self.norm_bound),
            components=self.n_components,
            algorithm=self.method,
            accounting=choice(Accounting, "accounting", self.accounting),
            centering=Centering.NONE if self.center is None else choice(Centering, "center", self.center),
            mean_bound=self.mean_bound,
            public_mean=self.public_mean,
            explained_variance=self.explained_variance,
            rows_per_person=self.rows_per_person,
            seed=seed,
            options=self._options(schema.dimension),
        )

    def _options(self, columns: int) -> dict[str, Scalar]:
        """Give the method what it has an option for; the defaults of the others must not stand in its way."""
        entry, own = catalogue.find(str(self.method)), self.options or {}
        if not isinstance(own, Mapping):
            raise InvalidTypeError(f"options is {own!r:.80}, no mapping.", "Give names and values.")
        rounds = None if self.n_iter == "auto" else self.n_iter
        sparsity = min(USUAL_SPARSITY, columns) if self.sparsity == "auto" else self.sparsity
        parameters: dict[str, tuple[str, Scalar]] = {
            "sparsity": ("sparsity", sparsity),
            "rounds": ("n_iter", rounds),
            "start": ("start", self.start),
        }
        for name, usual in (("rounds", None), ("start", "dense")):  # a sparsity means nothing to the other methods
            parameter, value = parameters[name]
            if value != usual and not entry.option(name):
                raise InvalidParameterError(
                    f"{parameter} is {value!r:.80}, and {self.method} has no such option.",
                    f"Leave {parameter} out, or choose one of: {', '.join(_having(name))}.",
                )
        for name in sorted(parameters.keys() & own.keys()):
            parameter = parameters[name][0]
            raise InvalidParameterError(f"options has {name!r}, which is a parameter.", f"Give {parameter}= instead.")
        return {name: value for name, (_, value) in parameters.items() if entry.option(name)} | dict(own)

    def _seeds(self) -> tuple[int, int | None]:
        """Give a seed for the start, which is public, and one for the noise only where a run must repeat."""
        if self.random_state is None:
            return secrets.randbits(63), None
        try:
            state = check_random_state(self.random_state)
        except ValueError as problem:
            raise InvalidParameterError(
                f"random_state: {problem}.", "Give None, an integer or a RandomState."
            ) from None
        start, noise = state.randint(0, 2**31 - 1, size=2)
        return int(start), int(noise)

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401  # scikit-learn publishes no types
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _rounds(spec: JobSpec) -> int:
    """Count the planned answers that components are made of: all but those before and after they are found."""
    return sum(step.question not in _BESIDE for step in catalogue.plan(spec))


def _having(option: str) -> list[str]:
    return [name for name, entry in catalogue.CATALOGUE.items() if entry.option(option)]


def _unit(adjacency: str | None) -> PrivacyUnit:
    if not isinstance(adjacency, str) or adjacency not in _UNITS:
        raise InvalidParameterError(
            f"adjacency is {adjacency!r}, so it is not clear what is promised to whom.",
            "Choose 'replace-one' (one row may be another; the number of rows is public) or 'add-remove' (one row may "
            "be there or not); 'person-replace-one' or 'person-add-remove' (the same of a person with all their rows); "
            "few methods have 'entry' and 'spectral', which protect less than a row.",
        )
    return _UNITS[adjacency]


def _numbers(rows: Any) -> Any:  # noqa: ANN401  # whatever holds numbers
    """Turn an array of Python objects that are numbers into numbers; scikit-learn's callers expect it."""
    check(rows is not None, "No rows are given.", "Give X; or a federation and the name of one of its data sets.")
    if isinstance(rows, str | PathLike):
        raise InvalidTypeError(
            f"X is {str(rows)!r:.80}, and no table of numbers.",
            "Read the file first, with numpy.load or pandas.read_csv for one.",
        )
    if hasattr(rows, "tocsr") or column_names(rows) or np.ma.is_masked(rows):
        return rows
    array = np.asarray(rows)
    return numeric(array) if array.dtype.kind == "O" else array
