"""The interface of an algorithm: it yields a query, receives the noisy sum over all providers, and returns a model.

An algorithm is a pure generator. It does not know who carries its queries, and the caller need not know what they are
for. The same generator runs in one process, over a network, and again from the journal after a crash.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .queries import RowQuery
from .results import Model


@dataclass(frozen=True, eq=False, slots=True)
class Aggregate:
    """The sum of all providers' answers, in the units of the data, and the standard deviation of its noise.

    ``noise_std`` is an upper bound for entries to which some providers added no noise because they contribute nothing.
    """

    values: NDArray[np.float64]
    noise_std: float
    parties: int


Algorithm: TypeAlias = Generator[RowQuery, Aggregate, Model]
Ask: TypeAlias = Callable[[RowQuery], Aggregate]


def drive(algorithm: Algorithm, ask: Ask) -> Model:
    """Run an algorithm to its end: pass each query to ``ask`` and send the answer back.

    If ``ask`` raises, the algorithm is closed and the error is raised again.
    """
    try:
        query = next(algorithm)
        while True:
            query = algorithm.send(ask(query))
    except StopIteration as end:
        model: Model = end.value
        return model
    finally:
        algorithm.close()
