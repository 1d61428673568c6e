"""The work that no party of a job can omit, for ``federation_floor.py``: the sums of a job, and signed answers.

A peer parses and checks a query, draws noise, answers from its rows, hashes the answer, stores the hash in a head file
and signs it. The hub checks every signature, adds every answer within its bounds, and computes the next query from the
sum. Each is one call of the library, in the order of the messages. Nothing else is done: no policy, budget or plan, no
reports, no recovery. The time that a federation takes beyond this is the most that could be saved.
"""

import math
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
from federation_cases import NORM_BOUND, Case

from dpspca.common.algorithms import catalogue
from dpspca.common.privacy.keystream import Draw, Purpose
from dpspca.common.privacy.noise import DiscreteGaussian
from dpspca.common.queries.base import Announcement, RowQuery
from dpspca.common.transport import wire
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.receipts import sign_receipt, verify_receipt
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard, Strategy
from dpspca.provider.ledger.files import HeadFile
from dpspca.provider.ledger.ledger import Head
from dpspca.provider.release.entropy import system_entropy
from dpspca.server.jobs.sums import LARGEST_ANSWER, aggregate


class PeerDuties:
    """The work of a peer. If a Gram matrix pays, it is made before the first query."""

    def __init__(self, folder: Path, case: Case, name: str) -> None:
        self.name = name
        self._plan = catalogue.plan(case.spec)
        rows = check_rows(case.shard(case.names.index(name)))
        self._shard = Shard(rows, NORM_BOUND, strategy=Strategy.for_plan(rows.dimension, self._plan, is_sparse=False))
        self._identity = Identity.load(folder / name)
        self._head_file = HeadFile(folder / f"{name}.head")
        self._head = Head("floor", 0, "")

    def answer(self, position: int, planned: Sequence[bytes]) -> memoryview:
        """Answer the query at a position of the plan, with noise."""
        step = self._plan[position]
        reader = wire.QueryReader(Announcement(step.query.kind, step.extent), step)
        for sequence, frame in enumerate(planned):
            reader.add(sequence, frame)
        noise = DiscreteGaussian.with_std_at_least(step.noise_std)
        query = reader.query()
        words = system_entropy(Draw("floor", 0, position, query.digest(), Purpose.NOISE))
        answer = noise.sample(math.prod(step.shape), words).reshape(step.shape)
        answer += self._shard.evaluate(query)
        content = wire.answer_content(answer)
        self._head = Head("floor", self._head.entries + 1, sha256(content).hexdigest())
        return content

    def vouch(self) -> None:
        """Store the answer's hash in a head file, and sign it."""
        self._head_file.write(self._head)
        sign_receipt(self._identity, self._head)


class HubDuties:
    """The work of the hub. Peers' signatures are not sent; a similar one is checked instead."""

    def __init__(self, folder: Path, case: Case) -> None:
        self._spec = case.spec
        self._parties = case.providers
        self._plan = catalogue.plan(self._spec)
        signer = Identity.load(folder / case.names[0])
        self._signer, self._authority = signer.name, signer.authority_pem
        self._receipt = sign_receipt(signer, Head("floor", 0, ""))

    def begin(self) -> memoryview:
        """Return the content of the first query."""
        self._method = catalogue.run(catalogue.plan(self._spec))
        self._position = 0
        return self._asked(next(self._method))

    def reader(self) -> wire.AnswerReader:
        """Return a reader that adds one peer's answer to the sum."""
        verify_receipt(self._receipt, self._signer, self._authority)
        return wire.AnswerReader(self._total, LARGEST_ANSWER)

    def advance(self) -> memoryview:
        """Return the content of the next query, or nothing after the last, when the model is computed."""
        answer = aggregate(self._spec, self._plan[self._position], self._total, self._parties)
        self._position += 1
        try:
            return self._asked(self._method.send(answer))
        except StopIteration as end:
            return memoryview(end.value.to_bytes())

    def _asked(self, query: RowQuery) -> memoryview:
        query.digest()
        self._total = np.zeros(self._plan[self._position].shape, dtype=np.int64)
        return memoryview(query.content())
