"""One job's sketch at one provider: its random draws, the lists it was sent, and the sketch Y, which never leaves.

Privacy needs the change v of a row to be fixed before the directions Omega are drawn. If a coordinator could choose
Omega along v, or try one Omega after another, v would count sqrt(d/p) times as much as was paid for. Nobody can, even
if all others work together, as long as this provider follows these rules:

- Its nonce is 32 uniform bytes. Before ``Reveal``, others see only its hash.
- It answers one ``Reveal``, whose list must contain its own commitment unchanged. Only one list of nonces opens the
  commitments of that list, because another would be a collision of SHA-256. So the others' nonces were fixed before
  they could see this one.
- Omega's key is the SHA-256 (modelled as a random oracle) of all nonces in that list and of the job. Nobody can have
  computed it before without guessing the nonce. So it is uniform and independent of everything known before, including
  the two data sets that are to be told apart. AES expands it, as it does for all noise here.
- An adversary can still stop once it knows Omega and try again in another job. So ``Reveal`` is the query that costs.
- Y is drawn once. The draws live in this process's memory alone. After a restart the job is refused, because another Y
  would be another release. ``release/responder.py`` and the ledger ensure one answer for each query.

What happens if this process is copied (a virtual machine that is cloned, or resumed twice from one snapshot). The nonce
and Y are the only random numbers that are kept from one query to the next, and the copy has them too.

- A copy that was made after ``Commit`` has the same nonce. An adversary that sees it in one copy's ``Reveal`` can
choose
  the other nonces for the second copy, and so try one Omega after another. For each choice, the key is uniform and
  independent of the rows (random oracle), so each Omega stretches v further than was paid for with a probability of at
  most ``directions.STRETCH_TAIL`` = 2^-100. With T tries, the second copy's promise fails with an additional
  probability of at most T 2^-100, on top of delta: below 1e-12 for T = 2^60. No more is promised.
- Two copies with different lists answer different queries, so the noise of their Y is unrelated
  (``release/entropy.py``). Each Y is a release of its own, at the price of a release.
- A copy that was made after ``Sketch`` has the same Y. Whatever is computed from Y is free, and the noise on a
  projection is keyed with its own query.

Everything that is computed from Y afterwards is free. For the projection M^T U, the provider bounds the rows of U
itself, in integers, so that no map from a coordinator makes a row of U longer than was paid for.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray, Integers
from dpspca.common.errors import InvalidQueryError, LostDrawsError, RefusedError
from dpspca.common.privacy import (
    DIRECTION_BITS,
    EMPTY_SEAT,
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
    SEATS,
    SKETCH_BITS,
    WEIGHT_BITS,
    Commit,
    MapQuery,
    Peaks,
    Projection,
    Reveal,
    RowQuery,
    Sketch,
)

from .block_sums import EXACT_ROWS
from .packed_rows import BlockRows

SketchArray: TypeAlias = NDArray[np.int32]

_WIDEST: Final = 8
"""A sketch's entry has room for this many standard deviations of rows along Omega and of noise. Beyond, it is cut."""
_FURTHEST_SHIFT: Final = 200
"""Factors beyond 2^200 make every number zero or too large, just as larger factors do."""


class SketchAnswers:
    """Answers one job's queries about a sketch. The responder asks them one after the other."""

    def __init__(self, rows: Callable[[], BlockRows], job: str, seat: int) -> None:
        """``rows`` makes the integer rows, ``job`` is the spec's digest, ``seat`` is the place in the audience."""
        self._rows = rows
        self._job = job
        self._seat = seat
        self._nonce: bytes | None = None
        self._commitments: Words | None = None
        self._sketch: SketchArray | None = None
        self._sketched = ""

    def admit(self, query: RowQuery) -> None:
        """Refuse a query that does not fit the earlier draws and lists. A refusal changes nothing."""
        match query:
            case Commit():
                self._check_seat()
            case Reveal():
                self._check_reveal(query)
            case Sketch():
                self._check_sketch(query)
            case MapQuery():
                columns = self._require_sketch().shape[1]
                if len(query.map) != columns:
                    raise RefusedError(
                        f"The map has {len(query.map)} rows, but the sketch has {columns} columns.",
                        "Send a map with as many rows as the sketch has columns.",
                    )
            case _:
                raise InvalidQueryError(f"A sketch cannot answer '{query.kind}'.", "Ask a query about a sketch.")

    def release(self, query: RowQuery, event: Event | None, words: WordSource) -> Integers:
        """Answer a query that needs no noise: random numbers, and what is computed from the private sketch."""
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
        """Answer a projection exactly. The result must not leave without noise."""
        self.admit(query)
        if not isinstance(query, Projection):
            raise InvalidQueryError(f"A sketch cannot evaluate '{query.kind}'.", "Report this as a bug.")
        return project(self._rows(), self._require_sketch(), query)

    # --- The directions -----------------------------------------------------------------------------------------------

    def _check_seat(self) -> None:
        if not 0 <= self._seat < SEATS:
            raise RefusedError(
                f"This provider is number {self._seat + 1} in the job's audience, and a sketch allows {SEATS}.",
                f"Name at most {SEATS} providers.",
            )

    def _check_reveal(self, query: Reveal) -> None:
        """Refuse to reveal the nonce for a second list, or for one without this provider's commitment."""
        if query.entry(self._seat) != commitment(self._job, self._seat, self._require_nonce()):
            raise RefusedError(
                f"This provider's commitment is not in place {self._seat + 1} of the list.",
                "Send the commitments as providers sent them.",
            )
        if self._commitments is not None and (self._commitments != query.listed).any():
            raise RefusedError("Another list of commitments was sent before.", "Send the same list again.")

    def _check_sketch(self, query: Sketch) -> None:
        """Check every nonce against its commitment. This provider's own is among them (``_check_reveal``)."""
        commitments = self._commitments
        if commitments is None:
            raise _lost()
        for seat in range(SEATS):
            shown, fixed = query.entry(seat), commitments[seat].astype("<u4").tobytes()
            opened = shown if fixed == EMPTY_SEAT else commitment(self._job, seat, shown)
            if opened != fixed:
                raise RefusedError(
                    f"The random number of provider {seat + 1} of the job is not the one that it committed itself to.",
                    "Submit a new job. This also happens if a provider left before it revealed its number.",
                )
        if self._sketched not in {"", query.digest()}:
            raise RefusedError(
                "A sketch was already made for this job.", "Ask the same query again, or sign a new job."
            )

    def _commit(self, words: WordSource) -> Integers:
        """Draw the nonce, once."""
        if self._nonce is None:
            self._nonce = words.words(NONCE_WORDS).astype("<u4").tobytes()
        return self._in_seat(commitment(self._job, self._seat, self._nonce))

    def _reveal(self, query: Reveal) -> Integers:
        self._commitments = query.listed
        return self._in_seat(self._require_nonce())

    def _in_seat(self, entry: bytes) -> Integers:
        answer = np.zeros((SEATS, NONCE_WORDS), dtype=np.int64)
        answer[self._seat] = np.frombuffer(entry, dtype="<u4")
        return answer

    def _require_nonce(self) -> bytes:
        if self._nonce is None:
            raise _lost()
        return self._nonce

    # --- The sketch ---------------------------------------------------------------------------------------------------

    def _draw_sketch(self, query: Sketch, event: GaussianEvent, words: WordSource) -> Integers:
        """Make Y once, drawing the noise first, and answer Y^T Y."""
        if self._sketch is None:
            rows = self._rows()
            law = DiscreteGaussian.with_std_at_least(lattice_std(event.std))
            noisy = law.sample(rows.count * query.columns, words).reshape(rows.count, query.columns)
            key = directions_key(self._job, query.listed)
            add_sketch(noisy, rows, directions(key, query.dimension, query.columns))
            self._sketch, self._sketched = round_sketch(noisy, event.std), query.digest()
        return gram_of(self._sketch)

    def _require_sketch(self) -> SketchArray:
        if self._sketch is None:
            raise _lost()
        return self._sketch

    def _peaks(self, query: Peaks) -> Integers:
        """Answer the largest entry of each column, and the norm of the longest row."""
        largest = np.zeros(query.map.shape[1], dtype=np.int64)
        longest = 0.0
        sketch = self._require_sketch()
        for start in range(0, len(sketch), EXACT_ROWS):
            seen = weights(sketch[start : start + EXACT_ROWS], query.map)
            np.maximum(largest, np.abs(seen).max(axis=0).astype(np.int64), out=largest)
            longest = max(longest, float(np.square(seen).sum(axis=1).max()))
        answer = np.zeros((SEATS, len(largest) + 1), dtype=np.int64)
        answer[self._seat] = [*largest, _root_above(int(longest))]
        return answer


def add_sketch(noise: Integers, rows: BlockRows, omega: FloatArray) -> None:
    """Add M Omega to noise. Exact: a row has norm 2^17, and a column of Omega, 2^24 entries below 2^15, below 2^27."""
    for start in range(0, rows.count, rows.block_rows):
        block = slice(start, min(start + rows.block_rows, rows.count))
        noise[block] += (rows.block(block.start, block.stop) @ omega).astype(np.int64)


def round_sketch(noisy: Integers, std: float) -> SketchArray:
    """Round a sketch to its grid, whose width follows from the plan, and cut entries that have no room.

    This is post-processing of private numbers, so it is free. A row along Omega has a standard deviation of at most
    2^28. Almost nothing lies beyond 8 standard deviations of this and of the noise.
    """
    widest = _WIDEST * (2.0 ** (ROW_BITS + DIRECTION_BITS) + std)
    shift = max(0, int(np.ceil(np.log2(widest))) - SKETCH_BITS)
    rounded = (noisy + (1 << shift >> 1)) >> shift
    most = 2**SKETCH_BITS - 1
    kept: SketchArray = np.clip(rounded, -most, most).astype(np.int32)
    return kept


def gram_of(sketch: SketchArray) -> Integers:
    """Return Y^T Y. Exact: 2^14 rows of 2^32 are below 2^53, and 2^31 rows below 2^63."""
    total = np.zeros((sketch.shape[1],) * 2, dtype=np.int64)
    for start in range(0, len(sketch), EXACT_ROWS):
        block = sketch[start : start + EXACT_ROWS].astype(np.float64)
        total += (block.T @ block).astype(np.int64)
    return total


def weights(sketch: SketchArray, given: FloatArray) -> FloatArray:
    """Return U = Y S as integers in units of 2^-20. For every S, entries beyond 1 become zero.

    Each column of S is divided by a power of two just above its largest entry and rounded to 29 bits, so that the
    product is exact: 2^8 columns of 2^16 times 2^29. Then the power of two is multiplied back. It is limited to 2^200,
    so that it stays in the range of floating point: beyond that, a column has only zeros or entries beyond 1 anyway.
    """
    _, exponents = np.frexp(np.abs(given).max(axis=0))
    whole = np.rint(np.ldexp(given, MAP_BITS - exponents))
    places = np.clip(exponents - MAP_BITS + WEIGHT_BITS, -_FURTHEST_SHIFT, _FURTHEST_SHIFT)
    seen: FloatArray = np.rint(np.ldexp(sketch.astype(np.float64) @ whole, places))
    seen[np.abs(seen) > 2**WEIGHT_BITS] = 0
    return seen


def project(rows: BlockRows, sketch: SketchArray, query: Projection) -> Integers:
    """Return M^T U, where rows of U beyond the reach are set to zero, in units of 2^-30 of the bound, rounded down.

    Exact: an entry of a row is at most 2^17 and an entry of U at most 2^20, so sums over 2^14 rows are below 2^53. The
    squared norm of a row of U is at most 2^48, so it is exact, too.
    """
    longest = (query.reach * 2.0**WEIGHT_BITS) ** 2
    total: Any = 0
    for start in range(0, rows.count, EXACT_ROWS):
        stop = min(start + EXACT_ROWS, rows.count)
        seen = weights(sketch[start:stop], query.map)
        seen[np.square(seen).sum(axis=1) > longest] = 0
        total = total + _block_products(rows, seen, start, stop).astype(np.int64)
    return total >> PROJECTION_SHIFT  # type: ignore[no-any-return]


def _block_products(rows: BlockRows, seen: FloatArray, start: int, stop: int) -> FloatArray:
    """Multiply at most 2^14 rows, a block at a time. Each sum is exact in float64."""
    total: Any = 0
    for first in range(start, stop, rows.block_rows):
        last = min(first + rows.block_rows, stop)
        total = total + rows.block(first, last).T @ seen[first - start : last - start]
    return np.asarray(total)


def _root_above(square: int) -> int:
    """Return the least integer whose square is at least this."""
    root = int(np.sqrt(float(square)))
    while root * root < square:
        root += 1
    return root


def _lost() -> LostDrawsError:
    return LostDrawsError(
        "This provider has no random draws for this job. It keeps them in memory, so a restart loses them.",
        "Submit a new job.",
    )
