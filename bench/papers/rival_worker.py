"""Fit another library's PCA to stored rows. ``rivals.py`` runs this in a separate environment without this project.

    python rival_worker.py JOB.json ROWS.npz

The job names the library, epsilon, the bound on a row's norm, how many components and the seed; the components and the
seconds of the fit go to standard output as JSON.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def diffprivlib(rows: Any, job: dict[str, Any]) -> Any:  # noqa: ANN401  # arrays
    """Treat rows as centred, like our methods do, so that the whole epsilon is for the components."""
    from diffprivlib.models import PCA  # noqa: PLC0415  # each library alone

    pca = PCA(job["components"], epsilon=job["epsilon"], data_norm=job["norm_bound"], centered=True,
              random_state=job["seed"])  # fmt: skip
    return pca.fit(rows).components_


def opendp(rows: Any, job: dict[str, Any]) -> Any:  # noqa: ANN401  # arrays
    """Set the origin to zero, so that nothing is spent on a mean. One changed row is a distance of two."""
    import opendp.prelude as dp  # noqa: PLC0415

    dp.enable_features("contrib", "idealized-numerics")
    count, dimension = rows.shape
    domain = dp.numpy.array2_domain(
        size=count, num_columns=dimension, norm=job["norm_bound"], p=2, origin=np.zeros(dimension), T=float
    )
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows * np.minimum(1.0, job["norm_bound"] / norms)
    fit = dp.sklearn.decomposition.make_private_pca(
        domain, dp.symmetric_distance(), unit_epsilon=float(job["epsilon"]), num_components=job["components"]
    )
    return fit(rows).Vt[: job["components"]]


FITS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {"diffprivlib": diffprivlib, "opendp": opendp}


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123
        job = json.load(file)
    rows = np.load(sys.argv[2])["rows"]
    start = time.perf_counter()
    components = FITS[job["library"]](rows, job)
    seconds = time.perf_counter() - start
    print(json.dumps({"components": np.asarray(components).tolist(), "seconds": seconds}))


if __name__ == "__main__":
    main()
