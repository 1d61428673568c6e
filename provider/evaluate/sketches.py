"""One job's sketch at one provider: what it drew, what it was shown, and Y, which never leaves.

Privacy needs a row's change v to be fixed before the directions Omega are drawn. A coordinator that chose Omega along
v, or tried one after the other, would have v counted sqrt(d/p) times as much as it was paid for. Why nobody can, if
this provider alone keeps to its part, whoever else works together:

- Its nonce is 32 uniform bytes that nobody sees before ``Reveal``; what was shown of it is a hash.
- It answers one ``Reveal``, with a list in which its own commitment stands unchanged. No list of nonces but one opens
  the commitments of that list, for that would be a collision of SHA-256: the others' nonces were fixed before they
  could see this one.
- Omega's key is SHA-256, taken for a random oracle, of all nonces in that list and of the job. Nobody can have asked
  for that key before, without having guessed the nonce; so it is uniform, and independent of all that was known, the
  two data sets that are to be told apart among them. AES spreads it, as it does for all noise here.
- An adversary can still break off once it knows Omega, and try again in another job: so ``Reveal`` is what pays.
- Y is drawn once. What was drawn lives in this process's memory alone: after a restart the job is refused, for another
  Y would be another release. ``respond.py`` and the ledger see to one answer for each query.

What a copy of this process does to that (a virtual machine that is cloned, or resumed twice from one snapshot). The
nonce and Y are the only random numbers that are kept from one query to the next, and a copy has them too.

- A copy that was made after ``Commit`` has the same nonce. Who sees it in one copy's ``Reveal`` can choose the other
  nonces for the second copy, and so try one Omega after the other. For each nonce that is tried, the key is uniform and
  independent of the rows (a random oracle), so each Omega stretches v further than was paid for with a probability of
  at most ``directions.STRETCH_TAIL`` = 2^-100. With T tries the second copy's promise holds but for T 2^-100, on top of
  delta: below 1e-12 for T = 2^60. No more is promised.
- Two copies with different lists ask different queries, so the noise of their Y is unrelated (``entropy.py``). Each Y
  is a release of its own, at the price of a release.
- A copy that was made after ``Sketch`` has the same Y. Nothing that is made of Y costs anything, and the noise on a
  projection is keyed with its own query.

Everything that is made of Y afterwards is free. Of the projection M^T U the provider cuts U itself, in integers, so
that no map that anybody sends makes a row of U longer than was paid for.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray, Integers
from dpspca.common.errors import InvalidQueryError, RefusedError
from dpspca.common.privacy import (
    DIRECTION_BITS,
    EMPTY_SLOT,
    NONCE_WORDS,
    ROW_BITS,
    DiscreteGaussian,
    Event,
    GaussianEvent,
    Words,
    WordSource,
    commitment,
    directions,
    directions_key,
    lattice_std,
)
from dpspca.common.queries import (
    MAP_BITS,
    PROJECTION_SHIFT,
    SKETCH_BITS,
    SLOTS,
    WEIGHT_BITS,
    Commit,
    MapQuery,
    Peaks,
    Projection,
    Reveal,
    RowQuery,
    Sketch,
)

from .moments import EXACT_ROWS, DenseRows, SparseRows

Whole: TypeAlias = NDArray[np.int32]

_WIDEST: Final = 8
"""Standard deviations, of rows along Omega and of noise, that a sketch's entry has room for; beyond, it is cut."""
_FURTHEST_SHIFT: Final = 200
"""Factors beyond 2^200 make anything zero or too large, as any larger ones do."""


class SketchAnswers:
    """Answers the queries of ``sketch_queries`` for one job; one after the other, as ``respond.py`` asks them."""

    def __init__(self, rows: Callable[[], DenseRows | SparseRows], job: str, slot: int) -> None:
        """``rows`` makes the integer rows; ``job`` is the digest of what was signed, ``slot`` the place among all."""
        self._rows = rows
        self._job = job
        self._slot = slot
        self._nonce: bytes | None = None
        self._commitments: Words | None = None
        self._sketch: Whole | None = None
        self._sketched = ""

    def admit(self, query: RowQuery) -> None:
        """Refuse a query that does not go with what was drawn and shown before; nothing has happened then."""
        match query:
            case Commit():
                self._check_slot()
            case Reveal():
                self._check_reveal(query)
            case Sketch():
                self._check_sketch(query)
            case MapQuery():
                if len(query.map) != self._kept().shape[1]:
                    raise RefusedError("The map does not fit the sketch.", "Send one of as many columns.")
            case _:
                raise InvalidQueryError(f"A sketch cannot answer '{query.kind}'.", "Ask a query about a sketch.")

    def release(self, query: RowQuery, event: Event | None, words: WordSource) -> Integers:
        """Answer what needs no noise on its answer: random numbers, and what was made of a private sketch."""
        self.admit(query)
        match query:
            case Commit():
                return self._commit(words)
            case Reveal():
                return self._reveal(query)
            case Sketch() if isinstance(event, GaussianEvent):
                return self._draw_sketch(query, event, words)
            case Peaks():
                return self._peaks(query)
            case _:
                raise InvalidQueryError(f"A sketch cannot release '{query.kind}'.", "Report this as a bug.")

    def evaluate(self, query: RowQuery) -> Integers:
        """Answer a projection exactly; it must not leave without noise."""
        self.admit(query)
        if not isinstance(query, Projection):
            raise InvalidQueryError(f"A sketch cannot evaluate '{query.kind}'.", "Report this as a bug.")
        return project(self._rows(), self._kept(), query)

    # --- The directions -----------------------------------------------------------------------------------------------

    def _check_slot(self) -> None:
        if not 0 <= self._slot < SLOTS:
            raise RefusedError(
                f"This provider is number {self._slot + 1} in the job's audience.", f"Name at most {SLOTS} providers."
            )

    def _check_reveal(self, query: Reveal) -> None:
        """Show the nonce for one list alone, in which everybody else is as fixed as we are."""
        if query.entry(self._slot) != commitment(self._job, self._slot, self._drawn()):
            raise RefusedError("This provider's commitment is not in the list.", "Send what providers committed to.")
        if self._commitments is not None and (self._commitments != query.listed).any():
            raise RefusedError("Another list of commitments was final.", "Send that one.")

    def _check_sketch(self, query: Sketch) -> None:
        """Hold every nonce against its commitment."""
        nonce, commitments = self._drawn(), self._commitments
        if commitments is None:
            raise _lost()
        if query.entry(self._slot) != nonce:
            raise RefusedError("This provider's nonce is not in the list.", "Send what providers revealed.")
        for slot in range(SLOTS):
            shown, fixed = query.entry(slot), commitments[slot].astype("<u4").tobytes()
            opened = shown if fixed == EMPTY_SLOT else commitment(self._job, slot, shown)
            if opened != fixed:
                raise RefusedError(
                    f"What stands in place {slot + 1} is not what was committed to there.",
                    "A provider that left before it revealed ends the job: submit a new one.",
                )
        if self._sketched not in {"", query.digest()}:
            raise RefusedError("Another sketch was made for this job.", "A sketch is made once.")

    def _commit(self, words: WordSource) -> Integers:
        """Draw the nonce, once."""
        if self._nonce is None:
            self._nonce = words.words(NONCE_WORDS).astype("<u4").tobytes()
        return self._in_slot(commitment(self._job, self._slot, self._nonce))

    def _reveal(self, query: Reveal) -> Integers:
        self._commitments = query.listed
        return self._in_slot(self._drawn())

    def _in_slot(self, entry: bytes) -> Integers:
        answer = np.zeros((SLOTS, NONCE_WORDS), dtype=np.int64)
        answer[self._slot] = np.frombuffer(entry, dtype="<u4")
        return answer

    def _drawn(self) -> bytes:
        if self._nonce is None:
            raise _lost()
        return self._nonce

    # --- The sketch ---------------------------------------------------------------------------------------------------

    def _draw_sketch(self, query: Sketch, event: GaussianEvent, words: WordSource) -> Integers:
        """Make Y, once, noise first; answer Y^T Y."""
        if self._sketch is None:
            rows = self._rows()
            law = DiscreteGaussian.with_std_at_least(lattice_std(event.std))
            noisy = law.sample(rows.count * query.columns, words).reshape(rows.count, query.columns)
            key = directions_key(self._job, query.listed)
            add_sketch(noisy, rows, directions(key, query.dimension, query.columns))
            self._sketch, self._sketched = coarse(noisy, event.std), query.digest()
        return gram_of(self._sketch)

    def _kept(self) -> Whole:
        if self._sketch is None:
            raise _lost()
        return self._sketch

    def _peaks(self, query: Peaks) -> Integers:
        """Look at the largest entries, each column's, and at the longest row."""
        largest = np.zeros(query.map.shape[1], dtype=np.int64)
        longest = 0.0
        sketch = self._kept()
        for start in range(0, len(sketch), EXACT_ROWS):
            seen = weights(sketch[start : start + EXACT_ROWS], query.map)
            np.maximum(largest, np.abs(seen).max(axis=0).astype(np.int64), out=largest)
            longest = max(longest, float(np.square(seen).sum(axis=1).max()))
        answer = np.zeros((SLOTS, len(largest) + 1), dtype=np.int64)
        answer[self._slot] = [*largest, _root_above(int(longest))]
        return answer


def add_sketch(noise: Integers, rows: DenseRows | SparseRows, omega: FloatArray) -> None:
    """Add M Omega to noise, exactly: a row has norm 2^17, a column of Omega below 2^27, for 2^24 entries below 2^15."""
    for start in range(0, rows.count, rows.block_rows):
        block = slice(start, min(start + rows.block_rows, rows.count))
        noise[block] += (rows.block(block.start, block.stop) @ omega).astype(np.int64)


def coarse(noisy: Integers, std: float) -> Whole:
    """Round to the grid that a sketch is kept on, whose width follows from the plan; cut what has no room.

    Nothing of this costs anything: it is done to what is private already. A row along Omega has a standard deviation
    of at most 2^28; of what is beyond 8 of these, and of the noise's, there is next to nothing.
    """
    widest = _WIDEST * (2.0 ** (ROW_BITS + DIRECTION_BITS) + std)
    shift = max(0, int(np.ceil(np.log2(widest))) - SKETCH_BITS)
    rounded = (noisy + (1 << shift >> 1)) >> shift
    most = 2**SKETCH_BITS - 1
    kept: Whole = np.clip(rounded, -most, most).astype(np.int32)
    return kept


def gram_of(sketch: Whole) -> Integers:
    """Give Y^T Y, exactly: 2^14 rows of 2^32 are below 2^53, and 2^24 rows below 2^56."""
    total = np.zeros((sketch.shape[1],) * 2, dtype=np.int64)
    for start in range(0, len(sketch), EXACT_ROWS):
        block = sketch[start : start + EXACT_ROWS].astype(np.float64)
        total += (block.T @ block).astype(np.int64)
    return total


def weights(sketch: Whole, given: FloatArray) -> FloatArray:
    """Give U = Y S as integers in units of 2^-20, with every entry beyond 1 zero: whatever S is.

    Each column of S is rounded at 2^29 times a power of two just above its largest entry, so that the product is
    exact: 2^8 columns of 2^16 times 2^29. The power of two is put back afterwards, and one so large or so small that
    it would leave the range of floating point is held at 2^200: a column of zeros, or of entries beyond 1.
    """
    _, exponents = np.frexp(np.abs(given).max(axis=0))
    whole = np.rint(np.ldexp(given, MAP_BITS - exponents))
    places = np.clip(exponents - MAP_BITS + WEIGHT_BITS, -_FURTHEST_SHIFT, _FURTHEST_SHIFT)
    seen: FloatArray = np.rint(np.ldexp(sketch.astype(np.float64) @ whole, places))
    seen[np.abs(seen) > 2**WEIGHT_BITS] = 0
    return seen


def project(rows: DenseRows | SparseRows, sketch: Whole, query: Projection) -> Integers:
    """Give M^T U, with rows of U beyond the reach zero: in units of 2^-30 of the bound, rounded down.

    Exact: an entry of a row is at most 2^17 and one of U 2^20, so 2^14 rows are below 2^53. A squared norm of a row of
    U is at most 2^48, and so exact as well.
    """
    longest = (query.reach * 2.0**WEIGHT_BITS) ** 2
    total: Any = 0
    for start in range(0, rows.count, EXACT_ROWS):
        stop = min(start + EXACT_ROWS, rows.count)
        seen = weights(sketch[start:stop], query.map)
        seen[np.square(seen).sum(axis=1) > longest] = 0
        total = total + _block_products(rows, seen, start, stop).astype(np.int64)
    return total >> PROJECTION_SHIFT  # type: ignore[no-any-return]


def _block_products(rows: DenseRows | SparseRows, seen: FloatArray, start: int, stop: int) -> FloatArray:
    """Multiply at most 2^14 rows, a block at a time: each sum stays whole in float64."""
    total: Any = 0
    for first in range(start, stop, rows.block_rows):
        last = min(first + rows.block_rows, stop)
        total = total + rows.block(first, last).T @ seen[first - start : last - start]
    return np.asarray(total)


def _root_above(square: int) -> int:
    """Give the least integer whose square is not below."""
    root = int(np.sqrt(float(square)))
    while root * root < square:
        root += 1
    return root


def _lost() -> RefusedError:
    return RefusedError(
        "What this provider drew for this job is gone, if there was anything: it is kept in memory, until a restart.",
        "Submit a new job.",
    )
