"""Private PCA by other libraries, for ``accuracy.py``, in an environment of their own: ``make build/peers/.ready``.

    build/peers/bin/python bench/peers.py ROWS.npy LIBRARY COMPONENTS EPSILON NORM_BOUND SEED

prints the components as JSON. A process for each run, so that whoever waits can end one that takes too long.

Both libraries promise epsilon alone, without a delta, and hold all rows in one place: a stronger promise than ours, by
a party that is trusted. Rows are centred, and both are told so; both are given the norm bound.
"""

import json
import sys
import warnings
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Table: TypeAlias = NDArray[np.float64]


def diffprivlib(rows: Table, components: int, epsilon: float, norm_bound: float, seed: int) -> Table:
    """Return what diffprivlib finds, told that the rows are centred. It cites Imtiaz & Sarwate (2016)."""
    from diffprivlib.models import PCA  # noqa: PLC0415  # only one of the two libraries is loaded

    model = PCA(components, epsilon=epsilon, data_norm=norm_bound, centered=True, random_state=seed)
    return np.asarray(model.fit(rows).components_)


def opendp(rows: Table, components: int, epsilon: float, norm_bound: float, seed: int) -> Table:  # noqa: ARG001
    """Return what OpenDP finds around a known origin: direction by direction (Amin et al. 2019). It has no seed."""
    import opendp.prelude as dp  # noqa: PLC0415
    from opendp.extras.sklearn.decomposition import make_private_pca  # noqa: PLC0415

    dp.enable_features("contrib", "idealized-numerics", "honest-but-curious")
    size, columns = rows.shape
    domain = dp.numpy.array2_domain(norm=norm_bound, p=2, origin=0.0, size=size, num_columns=columns, T=float)
    release = make_private_pca(domain, dp.symmetric_distance(), epsilon, num_components=components)
    return np.asarray(release(rows).Vt[:components])


LIBRARIES: Final = {"diffprivlib": diffprivlib, "opendp": opendp}


def main() -> None:
    path, library, components, epsilon, norm_bound, seed = sys.argv[1:]
    warnings.simplefilter("ignore")
    found = LIBRARIES[library](np.load(path), int(components), float(epsilon), float(norm_bound), int(seed))
    print(json.dumps(np.asarray(found, dtype=float).tolist()))


if __name__ == "__main__":
    main()
