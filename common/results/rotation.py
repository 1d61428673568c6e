"""Varimax (Kaiser 1958): turn components within their subspace so that each has few large loadings."""

from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray

_MOST_TURNS: Final = 1000
_CLOSE: Final = 1e-12


def varimax(components: FloatArray, most_turns: int = _MOST_TURNS) -> FloatArray:
    """Return the rotation R, k x k and orthogonal, so that the rows of R^T times ``components`` are the turned ones.

    It makes the variance of the squared loadings of each component as large as it can, by repeated singular value
    decompositions. It is a public function of the components, so it costs no privacy.
    """
    columns, count = components.T, len(components)
    rotation, reached = np.eye(count), 0.0
    for _ in range(most_turns):
        turned = columns @ rotation
        ascent = columns.T @ (turned**3 - turned * np.square(turned).mean(axis=0))
        left, sizes, right = np.linalg.svd(ascent)
        rotation = left @ right
        if sizes.sum() <= reached * (1 + _CLOSE):
            break
        reached = float(sizes.sum())
    turned_by: FloatArray = rotation
    return turned_by
