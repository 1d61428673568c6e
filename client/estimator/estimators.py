"""``DPSPCA``, a scikit-learn estimator. It fits to rows in this process or to a federation's data set."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Final, Literal, Self

import numpy as np
from scipy.sparse import issparse

from dpspca.client import component_count
from dpspca.client.blocking import Federation, progress_of
from dpspca.client.described_jobs import whole_and_chosen
from dpspca.client.simulation import Watcher, require_one_index, simulate
from dpspca.common.algorithms import AUTO, catalogue
from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, choice
from dpspca.common.dictionary import Dictionary
from dpspca.common.errors import InvalidParameterError, InvalidTypeError, MissingExtraError
from dpspca.common.frames import numeric_array
from dpspca.common.job import (
    Accounting,
    Budget,
    JobSpec,
    Scalar,
    Scaling,
    Schema,
    Weights,
    check_components,
)

from .estimator_values import (
    ONE_PROVIDER,
    KnownRows,
    bounds_of,
    check_one_source,
    job_of,
    methods_with,
    rounds_of,
    rows_of,
    seeds_of,
    sparsity_of,
)
from .planned_fits import PlansFits
from .unit_names import unit_named

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingExtraError(
        "The estimators need scikit-learn, which is not installed.", "Install it with: pip install scikit-learn"
    ) from None

USUAL_COMPONENTS: Final = 5


class DPSPCA(PlansFits, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Differentially private principal component analysis, sparse by default.

    One parameter has no default, because it is what you promise. ``unit`` is the privacy unit: "row-replace-one"
    protects against one row being replaced by another (the number of rows is public), "row-add-remove" against one row
    being added or removed.

    Parameters
    ----------
    n_components : int or "auto"
        Number of components. "auto" lets the method keep those, of at most 10, that show above the noise and explain
        more than an average feature. For methods that cannot decide it means 5, or as many as there are features.
    sparsity : int, "auto" or None
        Largest number of features in the support of all components together, at most the number of features. "auto"
        lets the method decide; "dps-pca" then uses its improved loop. None sets no limit.
        Methods without sparse components refuse a number.
    method : str
        Name of the method. "auto" decides from public facts and released numbers how to spend the budget, and
        ``model_.decision`` says what it decided. ``dpspca methods`` lists the methods, and docs/methods.md compares
        them.
    options : mapping, optional
        Options that only this method has, by name. Do not repeat ``sparsity``, ``rounds`` or ``start`` here: they are
        parameters.
    epsilon, delta : float
        Privacy budget of one fit. Smaller is more private. Each further fit on the same rows costs as much again; that
        includes the fits of a cross-validation.
    norm_bound : float, "private" or None
        Bound on the Euclidean length of a row after centring. It must be public knowledge: never read it off the data.
        With a dictionary, None takes the bound that follows from it.
        "private" lets the method find one, for a few hundredths of the budget. None does so if the method can, which
        "auto" does; other methods need a number.
        With the units "entry" and "spectral" it bounds the change of the matrix that is hidden.
    unit : {"row-replace-one", "row-add-remove", "person-replace-one", "person-add-remove", "entry", "spectral"}
        Privacy unit: in what two neighbouring data sets differ. The units that begin with "person" protect a person
        with all their rows, and ``fit`` needs ``persons``. "entry" and "spectral" protect less than a row, and few
        methods support them.
    rows_per_person : int
        How many rows of one person are protected together; the noise grows by the same factor. If the unit is a
        person, only the first ``rows_per_person`` rows of each person are used. With other units nothing is left out:
        you declare that nobody has more rows.
    rounds : int or "auto"
        Number of rounds. "auto" derives it from the budget. Methods without rounds refuse a number.
    centering : {None, "private", "public", "pairs", "auto", "auto-or-pairs"}
        None subtracts no mean. "private" estimates it privately, for a seventh of the budget, or a tenth if
        ``mean_bound`` is a number.
        "public" subtracts ``public_mean``. "pairs" uses differences of pairs of rows. "auto" chooses and says why; it
        takes pairs for one provider only, and "auto-or-pairs" for several too, where how they differ may be lost.
    mean_bound : float, "private" or None
        Bound on the length of a row before centring, for the private mean. It must be public knowledge. With a
        dictionary, None takes the bound that follows from it; otherwise "private" and None let the method find one, if
        it can.
    scaling : {None, "private"}
        "private" divides each column by the root of its mean square, found privately for a tenth of the budget: for
        columns of different units. Only "auto" can. Bounds are then about scaled columns, and need not be given.
    public_mean : array of shape (n_features,)
        A mean that is known from elsewhere.
    explained_variance : bool
        Whether to estimate the explained variance, for a twentieth of the budget.
    weights : {"auto", "equal"}
        For a federation. "auto" lets providers with more rows count for more than their rows, as far as that makes the
        result less noisy: their noise is no larger. With "equal", every row counts the same.
    accounting : {"exact", "published"}
        "exact" adds the least noise that the budget allows. "published" follows the formula of the method's paper. With
        "dps-pca" it needs a number as ``sparsity``.
    start : {"dense", "published"}
        Of "dps-pca": from all features, or from ``sparsity`` random ones as in the paper, which often misses. Then
        ``sparsity`` must be a number.
    random_state : None, int or RandomState
        None for a result that may be released. Any other value makes the run repeatable, for tests only.
    dictionary : Dictionary or path, optional
        A shared dictionary. Rows are then raw: their columns are the dictionary's features, in its units, and each row
        is prepared by it. A federation's providers prepare theirs. No ``norm_bound`` is needed, because one follows.
    features : sequence of str, optional
        Which features of the dictionary to use, in this order. None uses all.
    watch : callable
        Called with a ``Progress`` after every answer.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        Orthonormal rows; the largest entry of each is positive.
    support_ : array of int
        Indices of the features with a nonzero loading in any component.
    explained_variance_, explained_variance_ratio_ : array of shape (n_components,) or None
        Variances with privacy noise. As with the true ones, none is below zero and their sum is at most ``norm_bound``
        squared. For a matrix they are eigenvalues, to which no such limits are applied.
    explained_variance_std_ : float or None
        Standard deviation of that noise. A variance that is not well above it is meaningless.
    mean_, scale_ : array of shape (n_features,) or None
        The mean that was subtracted, and what columns were divided by.
    rounds_ : int
        Number of answers that the components were computed from: one for each matrix or product.
    privacy_ : PrivacyStatement
        What was promised: ``privacy_.text`` for people, ``privacy_.to_dict()`` for programs. ``privacy_.warnings``
        lists what to know before you rely on this fit; ``fit`` also issues each as a ``DpspcaWarning``.
    model_ : Model
        All of this as one value that can be stored.
    """

    def __init__(  # noqa: PLR0913  # an estimator's parameters are its constructor's, by scikit-learn's rule
        self,
        n_components: int | Literal["auto"] = "auto",
        *,
        sparsity: int | Literal["auto"] | None = "auto",
        method: str = "auto",
        options: Mapping[str, Scalar] | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        norm_bound: float | Literal["private"] | None = None,
        unit: str | None = None,
        rows_per_person: int = 1,
        rounds: int | Literal["auto"] = "auto",
        centering: Literal["private", "public", "pairs", "auto"] | None = None,
        mean_bound: float | str | None = None,
        scaling: Literal["private"] | None = None,
        public_mean: Any = None,  # noqa: ANN401  # any array of numbers
        explained_variance: bool = True,
        weights: Literal["auto", "equal"] = "auto",
        accounting: Literal["exact", "published"] = "exact",
        start: Literal["dense", "published"] = "dense",
        random_state: int | np.random.RandomState | None = None,
        dictionary: Dictionary | str | PathLike[str] | None = None,
        features: Sequence[str] | None = None,
        watch: Watcher | None = None,
    ) -> None:
        self.n_components = n_components
        self.sparsity = sparsity
        self.method = method
        self.options = options
        self.epsilon = epsilon
        self.delta = delta
        self.norm_bound = norm_bound
        self.unit = unit
        self.rows_per_person = rows_per_person
        self.rounds = rounds
        self.centering = centering
        self.mean_bound = mean_bound
        self.scaling = scaling
        self.public_mean = public_mean
        self.explained_variance = explained_variance
        self.weights = weights
        self.accounting = accounting
        self.start = start
        self.random_state = random_state
        self.dictionary = dictionary
        self.features = features
        self.watch = watch

    def fit(  # noqa: PLR0913  # either rows and persons, or a federation's data set
        self,
        X: Any = None,  # noqa: ANN401  # scikit-learn's signature
        y: Any = None,  # noqa: ANN401
        *,
        persons: Any = None,  # noqa: ANN401  # a sequence of names or numbers
        federation: Federation | None = None,
        data_set: str | None = None,
        providers: Sequence[str] | None = None,
    ) -> Self:
        """Fit to the rows of X, dense or sparse, or to a federation's data set. This spends (epsilon, delta).

        ``persons`` has one name or number for each row of X: the person whom the row is about. Units of persons need
        it, and other units refuse it.

        For a federation leave X out. ``data_set`` names a data set that the providers offer, and may be left out if
        only one is on offer. ``providers`` names the providers to ask, all of which must answer; if left out, these are
        all that offer the data set now. The providers add the noise, so ``random_state`` makes only the start
        repeatable.
        """
        check_one_source({"X": X, "persons": persons}, federation, {"data_set": data_set, "providers": providers})
        if federation is None:
            self._fit_rows(X, persons)
        else:
            self._fit_federation(federation, data_set, providers)
        self.components_ = self.model_.components
        self.support_ = self.model_.support
        self.explained_variance_ = self.model_.explained_variance
        self.explained_variance_ratio_ = self.model_.explained_variance_ratio
        self.explained_variance_std_ = self.model_.explained_variance_std
        self.mean_ = self.model_.mean
        self.scale_ = self.model_.scales
        self.privacy_ = self.model_.statement
        self._n_features_out = len(self.components_)
        return self

    def _fit_rows(self, X: Any, persons: Any) -> None:  # noqa: ANN401  # the caller's values, not yet checked
        known, (start_seed, noise_seed) = self._known(), seeds_of(self.random_state)
        require_one_index(X, persons)
        if known is None:
            X, rows = rows_of(X, least=2)
            validate_data(self, X, skip_check_array=True)
            names = getattr(self, "feature_names_in_", None)
            schema = Schema(rows.shape[1], None if names is None else tuple(names))
            spec = self._spec(schema, start_seed, KnownRows(1, rows.shape[0], issparse(rows)))
        else:
            check(X is not None, "X is None.", "Give X, or a federation and the name of a data set.")
            rows, spec = X, self._spec(Schema.of(known[1].columns), start_seed)
            self._remember(known[1].names)
        check(
            persons is not None or not spec.unit.is_person,
            f"unit is {self.unit!r}, but fit was not given persons.",
            "Call fit(X, persons=...) with one name or number for each row.",
        )
        by_shard, plan = None if persons is None else [persons], catalogue.plan(spec)
        self.model_ = simulate(
            [rows], plan, noise_seed=noise_seed, watch=self.watch, persons=by_shard, dictionary=known and known[0]
        )
        self.rounds_ = rounds_of(plan)

    def _fit_federation(self, federation: Federation, data_set: str | None, providers: Sequence[str] | None) -> None:
        data_set, known = federation.only_data_set() if data_set is None else data_set, self._known()
        offers = federation.offers_of(data_set)
        if known is None:
            schema, names = federation.describe(data_set, providers)
        else:
            schema, names = Schema.of(known[1].columns), list(providers or (each.provider for each in offers))
        start_seed, _ = seeds_of(self.random_state)
        about = KnownRows(len(names) or None, sparse=any(each.is_sparse for each in offers if each.provider in names))
        spec = replace(self._spec(schema, start_seed, about), minimum_providers=max(1, len(names)))
        job = federation.submit(spec, data_set, names or None, dictionary=known and known[0])
        for progress in progress_of(job):
            if self.watch:
                self.watch(progress)
        self.model_ = job.result()
        self.rounds_ = rounds_of(job.plan)
        self._remember(schema.names if known is None else known[1].names, schema.dimension)

    def _remember(self, names: Sequence[str] | None, count: int = 0) -> None:
        """Say which columns rows have, as scikit-learn does."""
        self.n_features_in_ = len(names or ()) or count
        if names:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _known(self) -> tuple[Dictionary, Dictionary] | None:
        return whole_and_chosen(self.dictionary, self.features)

    def transform(self, X: Any) -> FloatArray:  # noqa: ANN401  # scikit-learn's signature
        """Project rows onto the components. This spends no budget, and the scores do not protect the rows of X."""
        check_is_fitted(self)
        if self.model_.dictionary is not None:
            return self.model_.transform(X)
        X, rows = rows_of(X, least=1)
        validate_data(self, X, skip_check_array=True, reset=False)
        return self.model_.transform(rows)

    def inverse_transform(self, X: Any) -> FloatArray:  # noqa: ANN401  # scikit-learn's signature
        """Map scores back to rows of features."""
        check_is_fitted(self)
        return self.model_.inverse_transform(numeric_array(X.toarray() if hasattr(X, "toarray") else X))

    def _spec(self, schema: Schema, seed: int, known_rows: KnownRows = ONE_PROVIDER) -> JobSpec:
        """Return the job spec for these parameters. Its constructor checks them."""
        known = self._known()
        values = {
            "schema": schema,
            "unit": unit_named(self.unit),
            "budget": Budget(self.epsilon, self.delta),
            "dictionary": None if known is None else known[0].digest(),
            "components": self._components(schema.dimension),
            "method": self.method,
            "accounting": choice(Accounting, "accounting", self.accounting),
            "centering": self.centering,
            "scaling": Scaling.NONE if self.scaling is None else choice(Scaling, "scaling", self.scaling),
            "public_mean": self.public_mean,
            "explained_variance": self.explained_variance,
            "weights": choice(Weights, "weights", self.weights),
            "rows_per_person": self.rows_per_person,
            "seed": seed,
            "options": self._options(schema.dimension),
        }
        public = None if known is None else known[1].norm_bound()
        return job_of(values | bounds_of(self, public), known_rows)

    def _components(self, columns: int) -> int:
        """Return the number of components to ask for."""
        if self._decides_components():
            return component_count.automatic(columns, self.sparsity)
        if self.n_components == AUTO:
            return min(USUAL_COMPONENTS, columns)
        if isinstance(self.n_components, bool) or not isinstance(self.n_components, int | np.integer):
            raise InvalidTypeError(
                f"n_components is {self.n_components!r:.60}.", 'Give a whole number, or "auto": those that can be seen.'
            )
        return check_components("n_components", self.n_components, columns)

    def _decides_components(self) -> bool:
        return self.n_components == AUTO and component_count.can_decide(catalogue.find(str(self.method)))

    def _options(self, columns: int) -> dict[str, Scalar]:
        """Return the method's options: ``options``, and those parameters for which the method has an option.

        Raise if a parameter that the method lacks was changed from its default.
        """
        entry, own = catalogue.find(str(self.method)), self.options or {}
        if not isinstance(own, Mapping):
            raise InvalidTypeError(
                f"options is {own!r:.80}, not a mapping.", "Give a dictionary of option names and values."
            )
        rounds = None if self.rounds == "auto" else self.rounds
        parameters: dict[str, tuple[str, Scalar]] = {
            "sparsity": ("sparsity", sparsity_of(self.sparsity, entry, columns, self.unit)),
            "rounds": ("rounds", rounds),
            "start": ("start", self.start),
        }
        usual = {"sparsity": (None, AUTO), "rounds": (None,), "start": ("dense",)}
        for name, (parameter, value) in parameters.items():
            if value not in usual[name] and not entry.option(name):
                raise InvalidParameterError(
                    f"{parameter} is {value!r:.80}, but the method {self.method} has no such option.",
                    f"Leave {parameter} out, or choose a method that has it: {', '.join(methods_with(name))}.",
                )
        for name in sorted(parameters.keys() & own.keys()):
            parameter = parameters[name][0]
            raise InvalidParameterError(
                f"options contains {name!r}, which is a parameter.", f"Give {parameter}= instead."
            )
        if self._decides_components():
            parameters[component_count.OPTION] = ("n_components", True)
        return {name: value for name, (_, value) in parameters.items() if entry.option(name)} | dict(own)

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401  # scikit-learn publishes no types
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
