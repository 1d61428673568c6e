"""A provider that is copied while it runs, like a virtual machine that is resumed twice from one snapshot.

Run as ``forked_provider.py FOLDER SYSTEM QUERIES``. It answers the first query of a job, forks, and lets each copy
answer the second. Each copy subtracts the exact sum from its answer and writes the rest, its noise, to the folder.

- SYSTEM is "own" if each copy reads the randomness of its system. It is "copied" if the system's generator is copied as
  well: then the generator is in this process's memory, and both copies read the same bytes from it.
- QUERIES is "different" or "same": whether the copies answer the same second query.
"""

import os
import sys
from pathlib import Path
from random import Random
from typing import Final

import numpy as np

from dpspca.common.algorithms import catalogue
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.linalg import thin_qr
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.release.entropy import system_entropy
from dpspca.provider.release.responder import Responder

DIMENSION: Final = 2000
COLUMNS: Final = 5
SPEC: Final = JobSpec(
    schema=Schema(DIMENSION),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=4.0,
    components=COLUMNS,
    explained_variance=False,
    options={"sparsity": DIMENSION, "rounds": 3},
    method="dps-pca",
)


def query(seed: int) -> CovarianceProduct:
    return CovarianceProduct(thin_qr(np.random.default_rng(seed).standard_normal((DIMENSION, COLUMNS)))[0])


def main(folder: Path, system: str, queries: str) -> None:
    if system == "copied":
        os.urandom = Random(1).randbytes
    shard = Shard(check_rows(np.random.default_rng(7).standard_normal((40, DIMENSION))), SPEC.norm_bound, threads=1)
    provider = Responder(catalogue.plan(SPEC), shard, MemoryLedger(), system_entropy)
    provider.respond(0, query(0))
    child = os.fork()
    is_child = child == 0
    asked = query(1 if is_child and queries == "different" else 2)
    noise = provider.respond(1, asked) - shard.evaluate(asked)
    np.save(folder / f"{'second' if is_child else 'first'}.npy", noise)
    if is_child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
