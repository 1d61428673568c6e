"""Example jobs of every method, for the test suites that cover all methods.

The first job of each method is used by every contract test: it accepts sparse rows, and its first answer is short.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from local_federation import spec

from dpspca.common.algorithms import AUTO
from dpspca.common.job import PRIVATE_BOUND, Accounting, Budget, Centering, JobSpec, Scaling, Schema
from dpspca.common.privacy.units import PrivacyUnit


@dataclass(frozen=True)
class Examples:
    """The example jobs of a method, over rows or over shares of a symmetric matrix, as the unit of each job says.

    ``audited`` holds the options for a small audit.
    """

    jobs: Mapping[str, JobSpec]
    audited: Mapping[str, Any] = field(default_factory=dict)


auto = partial(spec, method="auto", options={})
gauss = partial(spec, method="analyze-gauss", options={})
entries, spectral = PrivacyUnit.ENTRY, PrivacyUnit.SPECTRAL
noisy = partial(spec, method="noisy-power", unit=entries, options={"rounds": 3})
iterated = partial(spec, method="power-iteration", unit=entries, options={"rounds": 3})
streaming = partial(spec, method="streaming-power", options={"rounds": 3})
perturbed = partial(spec, method="output-perturbation", options={"privacy": "approximate"}, budget=Budget(4.0, 1e-13))
pure = partial(spec, method="output-perturbation", options={"privacy": "pure"}, budget=Budget(4.0, 1e-30))
drawn = partial(spec, method="ppca", options={}, budget=Budget(4.0, 1e-30))
projection = partial(spec, method="range-projection", options={})

quickly_audited = partial(
    spec,
    schema=Schema(60),
    budget=Budget(20.0, 1e-2),
    norm_bound=1.0,
    components=4,
    explained_variance=False,
    answer_seconds=600,
    options={"sparsity": 20, "rounds": 2},
)
"""The default job of an audit without mean and variance and with three rounds fewer: a fifth of the work."""

EXAMPLES: dict[str, Examples] = {
    "auto": Examples(
        {
            "plain": auto(),
            "nothing explained": auto(explained_variance=False),
            "noisy count": auto(unit=PrivacyUnit.ROW_ADD_REMOVE),
            "private mean": auto(centering=Centering.PRIVATE, mean_bound=9.0),
            "private mean without a bound": auto(centering=Centering.PRIVATE, mean_bound=PRIVATE_BOUND),
            "private bound": auto(norm_bound=PRIVATE_BOUND, options={"fewer": True}),
            "in stages": auto(schema=Schema(120), budget=Budget(40.0, 1e-3)),
            "a picture": auto(options={"picture": True}),
            "pairs of rows": auto(centering=Centering.PAIRS),
            "private scales": auto(
                scaling=Scaling.PRIVATE, centering=Centering.PRIVATE, mean_bound=PRIVATE_BOUND, norm_bound=PRIVATE_BOUND
            ),
            "pairs of columns": auto(schema=Schema(310), budget=Budget(40.0, 1e-3)),
            "no matrix of all columns": auto(schema=Schema(1001), budget=Budget(40.0, 1e-3), options={"matrix": False}),
        }
    ),
    "dps-pca": Examples(
        {
            "plain": spec(),
            "one component": spec(components=1),
            "every column in the support": spec(options={"sparsity": 30, "rounds": 2}),
            "as many rounds as the budget affords": spec(budget=Budget(0.5, 1e-6), options={"sparsity": 6}),
            "published start": spec(options={"sparsity": 6, "rounds": 2, "start": "published"}, seed=7),
            "published accounting": spec(accounting=Accounting.PUBLISHED, options={"sparsity": 6, "rounds": 3}),
            "nothing but rounds": spec(explained_variance=False),
            "improved loop": spec(options={"sparsity": AUTO}),
            "noisy count": spec(unit=PrivacyUnit.ROW_ADD_REMOVE),
            "named columns": spec(schema=Schema.of([f"gene {number}" for number in range(30)])),
            "rows streamed and not squared": spec(schema=Schema(120), options={"sparsity": 6, "rounds": 2}),
            "public mean": spec(centering=Centering.PUBLIC, public_mean=(0.5,) * 30),
            "private mean": spec(centering=Centering.PRIVATE, mean_bound=9.0),
            "private mean by a noisy count": spec(
                unit=PrivacyUnit.ROW_ADD_REMOVE, centering=Centering.PRIVATE, mean_bound=9.0, explained_variance=False
            ),
        },
        {"sparsity": 20, "rounds": 2},
    ),
    "analyze-gauss": Examples(
        {
            "plain": gauss(),
            "nothing explained": gauss(explained_variance=False),
            "noisy count": gauss(unit=PrivacyUnit.ROW_ADD_REMOVE),
            "published accounting": gauss(accounting=Accounting.PUBLISHED, budget=Budget(1.0, 1e-3)),
            "public mean": gauss(centering=Centering.PUBLIC, public_mean=(0.5,) * 30),
            "private mean": gauss(centering=Centering.PRIVATE, mean_bound=9.0),
            "pruned": gauss(options={"sparsity": AUTO}),
        }
    ),
    "mod-sulq": Examples(
        {
            "plain": gauss(method="mod-sulq"),
            "nothing explained": gauss(method="mod-sulq", explained_variance=False),
            "noisy count": gauss(method="mod-sulq", unit=PrivacyUnit.ROW_ADD_REMOVE),
            "published accounting": gauss(method="mod-sulq", accounting=Accounting.PUBLISHED),
            "private mean": gauss(method="mod-sulq", centering=Centering.PRIVATE, mean_bound=9.0),
        }
    ),
    "sulq": Examples(
        {
            "plain": gauss(method="sulq"),
            "nothing explained": gauss(method="sulq", explained_variance=False),
            "noisy count": gauss(method="sulq", unit=PrivacyUnit.ROW_ADD_REMOVE),
            "published accounting": gauss(method="sulq", accounting=Accounting.PUBLISHED),
            "public mean": gauss(method="sulq", centering=Centering.PUBLIC, public_mean=(0.5,) * 30),
        }
    ),
    "streaming-power": Examples(
        {
            "plain": streaming(),
            "as many rounds as the budget affords": streaming(options={}),
            "one round of all rows": streaming(options={"rounds": 1}),
            "blocks of a given size": streaming(options={"rounds": 2, "block_rows": 1}),
            "no more columns than components": streaming(options={"rounds": 2, "columns": 2}, explained_variance=False),
            "every column there is": streaming(components=1, options={"rounds": 2, "columns": 30}),
            "rows streamed and not squared": streaming(schema=Schema(120)),
            "public mean": streaming(centering=Centering.PUBLIC, public_mean=(0.5,) * 30),
            "private mean": streaming(centering=Centering.PRIVATE, mean_bound=9.0),
        },
        {"rounds": 2},
    ),
    "range-projection": Examples(
        {
            "plain": projection(),
            "nothing explained": projection(explained_variance=False),
            "one component": projection(components=1),
            "pruned": projection(options={"cut": 0.2}),
            "as many directions as columns": projection(components=3, options={"oversampling": 27}),
            "no more directions than components": projection(options={"oversampling": 0}),
            "named columns": projection(schema=Schema.of([f"gene {number}" for number in range(30)])),
            "rows streamed and not squared": projection(schema=Schema(120)),
        }
    ),
    "output-perturbation": Examples(
        {
            "plain": perturbed(),
            "nothing explained": perturbed(explained_variance=False),
            "add or remove": perturbed(unit=PrivacyUnit.ROW_ADD_REMOVE),
            "published accounting": perturbed(accounting=Accounting.PUBLISHED),
            "pure": pure(),
            "pure, add or remove": pure(unit=PrivacyUnit.ROW_ADD_REMOVE),
            "pure, published accounting": pure(accounting=Accounting.PUBLISHED),
            "one component": pure(components=1),
            "every direction": pure(components=30),
            "public mean": pure(centering=Centering.PUBLIC, public_mean=(0.5,) * 30),
            "private mean": pure(centering=Centering.PRIVATE, mean_bound=9.0),
        }
    ),
    "ppca": Examples(
        {
            "plain": drawn(),
            "nothing explained": drawn(explained_variance=False),
            "add or remove": drawn(unit=PrivacyUnit.ROW_ADD_REMOVE),
            "published accounting": drawn(accounting=Accounting.PUBLISHED),
            "published accounting, add or remove": drawn(
                unit=PrivacyUnit.ROW_ADD_REMOVE, accounting=Accounting.PUBLISHED
            ),
            "a chain": drawn(options={"sampler": "gibbs"}),
            "a chain, add or remove": drawn(options={"sampler": "gibbs"}, unit=PrivacyUnit.ROW_ADD_REMOVE),
            "one component": drawn(components=1),
            "every direction": drawn(components=30),
            "private mean": drawn(centering=Centering.PRIVATE, mean_bound=9.0),
        }
    ),
    "noisy-power": Examples(
        {
            "plain": noisy(),
            "as many rounds as the budget affords": noisy(options={}),
            "one round, no more columns than components": noisy(options={"rounds": 1, "columns": 2}),
            "every column there is": noisy(components=1, options={"rounds": 2, "columns": 30}),
            "no eigenvalues": noisy(explained_variance=False),
            "low rank": noisy(options={"rounds": 2, "low_rank": True}),
            "published accounting": noisy(accounting=Accounting.PUBLISHED),
            "Laplace noise": noisy(options={"rounds": 2, "noise": "laplace"}, budget=Budget(4.0, 1e-30)),
            "named columns": noisy(schema=Schema.of([f"gene {number}" for number in range(30)])),
            "spectral": noisy(unit=spectral),
            "spectral, published accounting": noisy(unit=spectral, accounting=Accounting.PUBLISHED),
            "spectral, Laplace noise": noisy(unit=spectral, options={"rounds": 2, "noise": "laplace"}),
            "spectral, published Laplace noise": noisy(
                unit=spectral, options={"rounds": 2, "noise": "laplace"}, accounting=Accounting.PUBLISHED
            ),
            "rows": noisy(unit=PrivacyUnit.ROW_REPLACE_ONE),
            "rows, noisy count": noisy(unit=PrivacyUnit.ROW_ADD_REMOVE),
            "rows, nothing explained": noisy(unit=PrivacyUnit.ROW_REPLACE_ONE, explained_variance=False),
            "rows, pruned": noisy(unit=PrivacyUnit.ROW_REPLACE_ONE, options={"rounds": 3, "sparsity": AUTO}),
            "rows, Laplace noise": noisy(
                unit=PrivacyUnit.ROW_ADD_REMOVE, options={"rounds": 2, "noise": "laplace"}, budget=Budget(4.0, 1e-30)
            ),
            "rows, private mean": noisy(
                unit=PrivacyUnit.ROW_REPLACE_ONE, centering=Centering.PRIVATE, mean_bound=9.0, rows_per_person=2
            ),
        },
        {"rounds": 2, "columns": 4},
    ),
    "power-iteration": Examples(
        {
            "plain": iterated(),
            "as many rounds as the budget affords": iterated(options={}),
            "one component, no eigenvalue": iterated(components=1, explained_variance=False),
            "no last eigenvalue": iterated(explained_variance=False),
            "a bound on the coherence": iterated(options={"rounds": 3, "coherence": 30}),
            "private rounds": iterated(options={"private_rounds": True}, norm_bound=2000.0),  # so that they are few
            "published accounting": iterated(accounting=Accounting.PUBLISHED, options={"rounds": 2}),
            "published accounting, a bound": iterated(
                accounting=Accounting.PUBLISHED, options={"rounds": 2, "coherence": 30}
            ),
            "spectral": iterated(unit=spectral),
            "rows": iterated(unit=PrivacyUnit.ROW_REPLACE_ONE),
            "rows, noisy count": iterated(unit=PrivacyUnit.ROW_ADD_REMOVE),
            "rows, public mean": iterated(
                unit=PrivacyUnit.ROW_REPLACE_ONE, centering=Centering.PUBLIC, public_mean=(0.5,) * 30
            ),
            "rows, nothing explained": iterated(unit=PrivacyUnit.ROW_REPLACE_ONE, explained_variance=False),
        },
        {"rounds": 2},
    ),
}


def of_persons(name: str, jobs: Mapping[str, JobSpec]) -> dict[str, JobSpec]:
    """Return a method's first job over rows with units of persons; three rows per person if it adds noise to sums."""
    first = next((job for job in jobs.values() if job.unit.is_row and job.schema.names is None), None)
    if first is None or name == "streaming-power":  # a person could be in several blocks
        return {}
    own = 1 if name in {"range-projection", "output-perturbation", "ppca"} else 3
    exchanged = replace(first, unit=PrivacyUnit.PERSON_REPLACE_ONE, rows_per_person=own)
    if name == "range-projection":  # the number of rows has to be public
        return {"persons exchanged": exchanged}
    return {"persons exchanged": exchanged, "persons": replace(exchanged, unit=PrivacyUnit.PERSON_ADD_REMOVE)}


EXAMPLES = {name: replace(each, jobs={**each.jobs, **of_persons(name, each.jobs)}) for name, each in EXAMPLES.items()}

RELATIVES = {
    "dps-pca": {
        *("one component", "every column in the support", "as many rounds as the budget affords", "published start"),
        *("published accounting", "rows streamed and not squared"),
    },
    "mod-sulq": {"published accounting"},
    "sulq": {"published accounting"},
    "streaming-power": {
        *("as many rounds as the budget affords", "one round of all rows", "blocks of a given size"),
        *("every column there is", "rows streamed and not squared"),
    },
    "range-projection": {
        *("one component", "pruned", "as many directions as columns", "no more directions than components"),
        "rows streamed and not squared",
    },
    "output-perturbation": {"one component", "every direction"},
    "ppca": {
        *("published accounting", "published accounting, add or remove", "one component", "every direction"),
    },
    "noisy-power": {
        *("as many rounds as the budget affords", "one round, no more columns than components", "low rank"),
        *("every column there is", "no eigenvalues", "spectral, published accounting"),
        "spectral, published Laplace noise",
    },
    "power-iteration": {
        *("as many rounds as the budget affords", "one component, no eigenvalue", "no last eigenvalue"),
        *("published accounting", "published accounting, a bound"),
    },
}
"""Jobs that ask the same kinds of queries, with the same kinds of noise, as another of their method."""
