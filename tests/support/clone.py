"""A provider that is copied while it runs, as a virtual machine is that is resumed twice from one snapshot.

Run as ``clone.py FOLDER SYSTEM QUESTIONS``: it answers the first question of a job, forks, and lets either copy answer
the second. Each copy writes to the folder what is left of its answer without the exact sum: its noise.

- SYSTEM is "own" if each copy reads the system's own randomness. It is "copied" if the system's generator is copied as
  well: then it lives in this process's memory, and both copies read the same bytes from it.
- QUESTIONS is "different" or "same".
"""

import os
import sys
from pathlib import Path
from random import Random
from typing import Final

import numpy as np

from dpspca.common.linalg import thin_qr
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import CovarianceProduct
from dpspca.common.spec import Budget, JobSpec, Schema
from dpspca.provider.entropy import system_entropy
from dpspca.provider.ledger import MemoryLedger
from dpspca.provider.preparation import check_rows
from dpspca.provider.respond import Responder
from dpspca.provider.shard import Shard

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
)


def question(seed: int) -> CovarianceProduct:
    return CovarianceProduct(thin_qr(np.random.default_rng(seed).standard_normal((DIMENSION, COLUMNS)))[0])


def main(folder: Path, system: str, questions: str) -> None:
    if system == "copied":
        os.urandom = Random(1).randbytes
    shard = Shard(check_rows(np.random.default_rng(7).standard_normal((40, DIMENSION))), SPEC.norm_bound, threads=1)
    provider = Responder(SPEC, shard, MemoryLedger(), system_entropy)
    provider.respond(0, question(0))
    child = os.fork()
    is_child = child == 0
    asked = question(1 if is_child and questions == "different" else 2)
    noise = provider.respond(1, asked) - shard.evaluate(asked)
    np.save(folder / f"{'second' if is_child else 'first'}.npy", noise)
    if is_child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
