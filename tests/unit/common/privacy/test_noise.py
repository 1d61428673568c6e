"""The distributions that the noise encodes, compared with the ideal ones in exact or 300-bit arithmetic."""

import hmac
import math
import struct
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from facts import facts
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpspca.common.errors import InvalidParameterError
from dpspca.common.privacy import alias_tables, noise
from dpspca.common.privacy.alias_tables import TABLE_ERROR, AliasTable, BatchBuffers
from dpspca.common.privacy.keystream import Draw, KeyStream, Purpose, keyed_stream, repeatable_entropy
from dpspca.common.privacy.noise import DRAW_SLACK, DiscreteGaussian, DiscreteLaplace, lattice_std

mp: Any = mpmath.mp.clone()  # a context of our own: its precision is nobody else's
mpf: Any = mp.mpf
mp.prec = 300

ONE = 1 << 192  # the unit in which tables hold probabilities
TAIL = mpf(2) ** -166
SUM = mpf(2) ** -169

stds = st.floats(math.log2(noise.SMALLEST_SCALE), math.log2(noise.LARGEST_STD)).map(lambda power: 2.0**power)
laplace_scales = st.floats(-3, 52).map(lambda power: 2.0**power)


def thresholds(table: AliasTable) -> list[int]:
    """Return every cell's threshold, over 2^(192 - bits)."""
    first = (table.thresholds >> np.uint32(table.bits)).tolist()
    last = [int.from_bytes(row.astype("<u4").tobytes(), "little") for row in table.remainders]
    return [(high << 160) + low for high, low in zip(first, last, strict=True)]


def encoded(table: AliasTable) -> dict[int, int]:
    """Return the exact law of a lookup, in units of 2^-192."""
    law = [0] * (1 << table.bits)
    for cell, threshold in enumerate(thresholds(table)):
        law[cell] += threshold
        law[cell + int(table.jumps[cell])] += (1 << (192 - table.bits)) - threshold
    return {cell - table.reach: weight for cell, weight in enumerate(law)}


def distance(law: dict[int, int], weights: dict[int, Any]) -> Any:
    """Return the total variation distance of a law in units of 2^-192 from the one given by weights."""
    total = mp.fsum(weights.values())
    return mp.fsum(abs(mpf(law.get(x, 0)) / ONE - weights.get(x, 0) / total) for x in law.keys() | weights.keys()) / 2


def gaussian(variance: Fraction, reach: int) -> dict[int, Any]:
    double = 2 * mpf(variance.numerator) / variance.denominator
    half = [mp.exp(-(x * x) / double) for x in range(reach + 1)]
    return {x: half[abs(x)] for x in range(-reach, reach + 1)}


def laplace(scale: Fraction, reach: int) -> dict[int, Any]:
    half = [mp.exp(-x / (mpf(scale.numerator) / scale.denominator)) for x in range(reach + 1)]
    return {x: half[abs(x)] for x in range(-reach, reach + 1)}


def poisson_error(std: Any) -> Any:
    """Return a bound on how much sum_x exp(-(x - t)²/2std²) varies with t, relatively: a geometric series."""
    first = mp.exp(-2 * mp.pi**2 * std**2)
    return 2 * first / (1 - first)


class Scripted:
    """A source that returns the arrays it was given, in turn."""

    def __init__(self, *answers: list[int]) -> None:
        self.answers = [np.array(answer, np.uint32) for answer in answers]

    def words(self, count: int) -> NDArray[np.uint32]:
        answer = self.answers.pop(0)
        assert len(answer) == count
        return answer


# --- the keystream


def test_the_keystream_of_the_zero_key_starts_with_the_published_block() -> None:
    assert KeyStream(bytes(32)).words(4).astype("<u4").tobytes().hex() == "dc95c078a2408989ad48a21492842087"


@given(st.lists(st.integers(0, 70_000), max_size=6))
def test_the_keystream_does_not_depend_on_how_calls_divide_it(counts: list[int]) -> None:
    pieces, whole = KeyStream(b"k" * 32), KeyStream(b"k" * 32).words(sum(counts))
    parts = [pieces.words(count) for count in counts]
    assert np.array_equal(np.concatenate([whole[:0], *parts]), whole)


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(InvalidParameterError, match=facts("32 bytes")):
        KeyStream(bytes(length))


def test_repeatable_streams_differ_by_seed_and_by_label() -> None:
    streams = [(1, "a"), (2, "a"), (1, "b"), (11, "a"), (1, "a1"), (-1, "a"), (1, "a\x001")]
    first = {tuple(KeyStream.repeatable(seed, label).words(4).tolist()) for seed, label in streams}
    assert len(first) == len(streams)
    assert np.array_equal(KeyStream.repeatable(1, "a").words(9), KeyStream.repeatable(1, "a").words(9))


def test_the_key_of_a_draw_is_hmac_of_its_name_each_field_after_its_length() -> None:
    """Written anew here from the docstring: a change of the name's form changes all seeded results."""
    fields = [b"a job", b"1", b"2", b"a query", b"noise that is added to an answer"]
    message = b"dpspca draw\0" + b"".join(struct.pack(">Q", len(each)) + each for each in fields)
    expected = KeyStream(hmac.new(b"r" * 32, message, sha256).digest()).words(9)
    draw = Draw("a job", 1, 2, "a query", Purpose.NOISE)
    assert np.array_equal(keyed_stream(b"r" * 32, draw).words(9), expected)


def test_a_seed_repeats_the_words_of_a_draw_and_of_no_other() -> None:
    draw = Draw("a job", 1, 2, "a query", Purpose.NOISE)
    others = [replace(draw, position=3), replace(draw, seat=0)]
    first = [tuple(repeatable_entropy(1)(each).words(4).tolist()) for each in (draw, *others, draw)]
    first.append(tuple(repeatable_entropy(2)(draw).words(4).tolist()))
    assert first[0] == first[3]
    assert len(set(first)) == 4


# --- what a table encodes


def require_ideal(table: AliasTable, ideal: dict[int, Any]) -> None:
    """Compare a table with a law given far into its tails: within its reach, and as a whole."""
    law = encoded(table)
    assert sum(law.values()) == ONE
    assert distance(law, {x: weight for x, weight in ideal.items() if abs(x) <= table.reach}) < TABLE_ERROR
    assert distance(law, ideal) < TAIL + mpf(1) / TABLE_ERROR.denominator


@pytest.mark.parametrize(
    "std",
    [
        Fraction(1, 8),
        Fraction(1, 2),
        Fraction(10, 3),
        Fraction(1007, 10),
        pytest.param(Fraction(2048), marks=pytest.mark.nightly),
    ],
)
def test_a_gaussian_table_encodes_the_ideal_distribution(std: Fraction) -> None:
    require_ideal(noise._gaussian_table(std**2), gaussian(std**2, math.ceil(18 * std) + 1))


@pytest.mark.parametrize("scale", [Fraction(1, 8), Fraction(7, 3), Fraction(141)])
def test_a_laplace_table_encodes_the_ideal_distribution(scale: Fraction) -> None:
    require_ideal(noise._laplace_table(scale), laplace(scale, math.ceil(160 * scale)))


@pytest.mark.parametrize(("scale", "base"), [(Fraction(142), 2), (Fraction(5, 3), 40), (Fraction(2**52), 1000)])
def test_a_digit_table_encodes_the_difference_of_two_truncated_geometrics(scale: Fraction, base: int) -> None:
    ratio = mp.exp(-scale.denominator / mpf(scale.numerator))
    powers = [ratio**x for x in range(base)]
    half = [mp.fdot(powers[x:], powers[: base - x]) for x in range(base)]
    law = encoded(noise._digit_table(scale, base))
    assert sum(law.values()) == ONE
    assert distance(law, {x: half[abs(x)] for x in range(1 - base, base)}) < TABLE_ERROR


@pytest.mark.slow
def test_the_largest_digit_table_agrees_with_the_closed_form() -> None:
    base, scale = noise._LAPLACE_REACH + 1, Fraction(2**40)
    ratio = mp.exp(-1 / mpf(2**40))
    half = [ratio**x - ratio ** (2 * base - x) for x in range(base)]
    law = encoded(noise._digit_table(scale, base))
    assert distance(law, {x: half[abs(x)] for x in range(1 - base, base)}) < TABLE_ERROR


@given(st.lists(st.integers(0, 1 << 240), min_size=1, max_size=40))
def test_a_table_encodes_any_symmetric_weights_to_the_last_unit(weights: list[int]) -> None:
    weights = [1 << 240, *weights]
    table = AliasTable.symmetric(weights)
    total = 2 * sum(weights) - weights[0]
    law = encoded(table)
    assert sum(law.values()) == ONE
    for x in range(1, len(weights)):
        assert law[x] == law[-x] == weights[x] * ONE // total


# --- what a lookup does with a word


def look_up(table: AliasTable, count: int, source: Scripted | KeyStream) -> list[int]:
    return list(map(int, table.look_up(source, BatchBuffers(count))))


def test_a_lookup_compares_the_first_bits_of_a_word_with_the_threshold() -> None:
    table = noise._gaussian_table(Fraction(9))
    words = KeyStream.repeatable(7, "lookup").words(4096).tolist()
    bits, exact, expected = table.bits, thresholds(table), []
    for word in words:
        cell = word % (1 << bits)
        kept = (word >> bits) << 160 < exact[cell]
        expected.append(cell if kept else cell + int(table.jumps[cell]))
    assert look_up(table, len(words), Scripted(words, [])) == expected


@pytest.mark.parametrize(("offset", "kept"), [(-1, True), (0, False), (1, False)])
def test_a_tie_is_decided_by_all_of_its_160_further_bits(offset: int, kept: bool) -> None:
    table = noise._gaussian_table(Fraction(9))
    exact = thresholds(table)
    cells = [cell for cell in range(1 << table.bits) if exact[cell] % (1 << 160) > 0]
    tied = [((exact[cell] >> 160) << table.bits) + cell for cell in cells]
    further = [(exact[cell] + offset) % (1 << 160) for cell in cells]
    fresh = [(value >> (32 * place)) % (1 << 32) for value in further for place in range(5)]
    expected = [cell if kept else cell + int(table.jumps[cell]) for cell in cells]
    assert len(cells) > table.reach
    assert look_up(table, len(cells), Scripted(tied, fresh)) == expected


def test_a_word_next_to_a_tie_needs_no_further_bits() -> None:
    table = noise._gaussian_table(Fraction(9))
    step = 1 << table.bits
    cells = [cell for cell in range(step) if step <= table.thresholds[cell] < (1 << 32) - step]
    words = [[int(table.thresholds[cell]) + cell + side for cell in cells] for side in (-step, step)]
    assert look_up(table, len(cells), Scripted(words[0], [])) == cells
    assert look_up(table, len(cells), Scripted(words[1], [])) == [cell + int(table.jumps[cell]) for cell in cells]


# --- sums of tables


def convolution(low: dict[int, int], stride: int, top: dict[int, int]) -> dict[int, int]:
    law: dict[int, int] = {}
    for y, q in top.items():
        for x, p in low.items():
            law[x + stride * y] = law.get(x + stride * y, 0) + p * q
    return {z: weight >> 192 for z, weight in law.items()}


def two_level_distance(low: int, stride: int, top: int) -> Any:
    variance = Fraction(low**2 + stride**2 * top**2)
    laws = [encoded(noise._gaussian_table(Fraction(std**2))) for std in (low, top)]
    return distance(convolution(laws[0], stride, laws[1]), gaussian(variance, 16 * math.isqrt(int(variance))))


def test_a_sum_of_two_levels_is_the_wide_gaussian() -> None:
    smooth = 1 / mp.sqrt(mpf(16**2) / 40**2 + mpf(1) / 25**2)
    assert smooth > 2.45
    assert two_level_distance(40, 16, 25) < poisson_error(smooth) * 1.01 + 3 * TAIL


def test_a_stride_too_wide_for_its_base_would_be_seen() -> None:
    smooth = 1 / mp.sqrt(mpf(32**2) / 40**2 + mpf(1) / 12**2)
    assert poisson_error(smooth) / 100 < two_level_distance(40, 32, 12) < poisson_error(smooth) * 1.01


@pytest.mark.nightly
@pytest.mark.parametrize("std", [2.0**20, 2184 * 834.5])
def test_the_exact_probabilities_of_a_wide_gaussian_are_ideal(std: float) -> None:
    low, top = noise._gaussian_terms(std)
    stride, laws = top.multiplier, (encoded(low.table), encoded(top.table))
    for z in [0, 1, stride // 2, *(int(std * k) + k for k in range(-3, 4))]:
        near = range((z - low.table.reach) // stride, (z + low.table.reach) // stride + 2)
        exact = sum(laws[0].get(z - stride * y, 0) * laws[1].get(y, 0) for y in near)
        ideal = mp.exp(-(mpf(z) ** 2) / (2 * mpf(std) ** 2)) / (mp.sqrt(2 * mp.pi) * std)
        assert abs(mpf(exact) / ONE**2 / ideal - 1) < mpf(2) ** -160


def test_a_sum_of_digits_is_the_wide_laplace() -> None:
    scale, base = Fraction(60), 7
    digit, rest = noise._digit_table(scale, base), noise._laplace_table(scale / base)
    law = convolution(encoded(digit), base, encoded(rest))
    assert distance(law, laplace(scale, 160 * 60)) < 2 * TAIL


@given(stds)
def test_the_variances_of_the_terms_add_up_to_the_one_asked_for_exactly(std: float) -> None:
    variance = Fraction(std) ** 2
    parts = _gaussian_plan(std)
    assert sum(multiplier**2 * part for multiplier, part in parts) == variance
    multipliers = [multiplier for multiplier, _ in parts]
    assert len(parts) <= 6
    for level in range(len(parts) - 1):
        stride, rest = multipliers[level + 1] // multipliers[level], variance / multipliers[level + 1] ** 2
        rest -= sum(Fraction(m, multipliers[level + 1]) ** 2 * part for m, part in parts[: level + 1])
        assert stride <= 835
        assert rest >= 700**2


def _gaussian_plan(std: float) -> list[tuple[int, Fraction]]:
    """Return multiplier and variance of every term, without building the tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "_gaussian_table", lambda part: part)
        terms: Any = noise._gaussian_terms(std)
    return [(term.multiplier, term.table) for term in terms]


@given(laplace_scales)
def test_the_digits_of_a_laplace_are_few_and_small(scale: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "_digit_table", lambda part, base: (part, base))
        patch.setattr(noise, "_laplace_table", lambda part: part)
        terms: Any = noise._laplace_terms(Fraction(scale))
    *digits, rest = terms
    base = digits[0].table[1] if digits else 1
    assert len(digits) <= 4
    assert base <= 2**14
    assert [digit.multiplier for digit in digits] == [base**place for place in range(len(digits))]
    assert [digit.table for digit in digits] == [(Fraction(scale) / digit.multiplier, base) for digit in digits]
    assert rest.multiplier == base ** len(digits)
    assert rest.table == Fraction(scale) / rest.multiplier
    assert rest.table * noise._LAPLACE_TAIL <= noise._LAPLACE_REACH


# --- what is charged for it all


def test_the_slack_follows_from_the_parameters() -> None:
    table_error = mpf(TABLE_ERROR.numerator) / TABLE_ERROR.denominator
    weight_error = mpf(2) ** (31 + 16 - alias_tables._POINT)
    rounding_error = mpf(2 * alias_tables.LARGEST_REACH) / ONE
    assert weight_error + rounding_error < table_error
    assert 3 * (alias_tables.LARGEST_REACH * (alias_tables.LARGEST_REACH + 1)) // 2 < 1 << 31
    assert 5 * (noise._LAPLACE_REACH + 1) ** 2 + noise._LAPLACE_REACH < 1 << 31

    tail = mpf(noise._GAUSSIAN_TAIL)
    gaussian_tail = 2 * mp.npdf(tail) / tail
    laplace_tail = 2 * mp.exp(-noise._LAPLACE_TAIL)
    assert gaussian_tail < TAIL
    assert laplace_tail < TAIL

    stride, base = mpf(noise._LARGEST_STRIDE), mpf(int(noise._BASE_VARIANCE))
    smooth = 1 / mp.sqrt(stride**2 / base + mpf(1) / 700**2)
    assert smooth > 2.45
    error = poisson_error(smooth)
    assert error / (1 - error) < SUM
    lemma = poisson_error(mpf(13) / 5)
    assert lemma / (1 - 2 * lemma) < mpf(2) ** -191

    widest = len(_gaussian_plan(noise.LARGEST_STD))
    assert widest == 6
    assert widest * (TAIL + table_error) + (widest - 1) * SUM + mpf(2) ** -191 < DRAW_SLACK
    assert len(noise._laplace_terms(Fraction(noise.LARGEST_LAPLACE_SCALE))) * table_error + TAIL < DRAW_SLACK
    assert DRAW_SLACK == 2.0**-160


def test_no_draw_reaches_two_to_the_60() -> None:
    gaussian_terms = noise._gaussian_terms(noise.LARGEST_STD)
    for terms in (gaussian_terms, noise._laplace_terms(Fraction(noise.LARGEST_LAPLACE_SCALE))):
        assert sum(term.multiplier * term.table.reach for term in terms) < 1 << 60


# --- the interface


@pytest.mark.parametrize("count", [0, 1, 31, (1 << 15) + 1])
@pytest.mark.parametrize("law", [DiscreteGaussian.with_std_at_least(1e6), DiscreteLaplace.with_scale_at_least(1e6)])
def test_a_sample_is_a_function_of_count_and_key(law: DiscreteGaussian | DiscreteLaplace, count: int) -> None:
    draws = law.sample(count, KeyStream(bytes(32)))
    assert draws.dtype == np.int64
    assert draws.shape == (count,)
    assert np.array_equal(draws, law.sample(count, KeyStream(bytes(32))))


@pytest.mark.parametrize("scale", [0.125, 1e3, 2.0**30, 2.0**40])
def test_a_draw_is_the_sum_of_its_terms_each_times_its_multiplier(scale: float) -> None:
    for law, terms in [
        (DiscreteGaussian(scale).sample, noise._gaussian_terms(scale)),
        (DiscreteLaplace(scale).sample, noise._laplace_terms(Fraction(scale))),
    ]:
        source = KeyStream(bytes(32))
        expected = np.zeros(5000, np.int64)
        for term in terms:
            found = term.table.look_up(source, BatchBuffers(5000)).astype(np.int64)
            expected += term.multiplier * (found - term.table.reach)
        assert np.array_equal(law(5000, KeyStream(bytes(32))), expected)


@given(stds, laplace_scales)
def test_the_realised_scale_is_the_one_asked_for(std: float, scale: float) -> None:
    assert DiscreteGaussian.with_std_at_least(std).std == std
    assert DiscreteLaplace.with_scale_at_least(scale).scale == scale


@pytest.mark.parametrize("std", [0.0, -1.0, 0.12, math.nan, math.inf, 2.0**55 * 1.01])
def test_a_std_that_cannot_be_drawn_exactly_is_refused(std: float) -> None:
    with pytest.raises(InvalidParameterError, match=facts(std, 0.125, "2^55")):
        DiscreteGaussian.with_std_at_least(std)


@pytest.mark.parametrize("scale", [0.0, -1.0, 0.12, math.nan, math.inf, 2.0**52 * 1.01])
def test_a_laplace_scale_that_cannot_be_drawn_exactly_is_refused(scale: float) -> None:
    with pytest.raises(InvalidParameterError, match=facts(scale, 0.125, "2^52")):
        DiscreteLaplace.with_scale_at_least(scale)


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match=facts(-1)):
        DiscreteGaussian.with_std_at_least(1.0).sample(-1, KeyStream(bytes(32)))


@given(st.floats(0, 2.0**60))
def test_the_lattice_std_is_rounded_up_and_by_no_more_than_one_float(continuous: float) -> None:
    exact = Fraction(continuous) ** 2 + Fraction(13, 5) ** 2
    std = lattice_std(continuous)
    assert Fraction(math.nextafter(std, 0.0)) ** 2 < exact <= Fraction(std) ** 2


@pytest.mark.parametrize("std", [-1.0, math.nan, math.inf])
def test_a_lattice_std_of_nonsense_is_refused(std: float) -> None:
    with pytest.raises(InvalidParameterError, match=facts(std)):
        lattice_std(std)


@pytest.mark.parametrize("std", [Fraction(1, 2), Fraction(3)])
def test_rounding_a_continuous_gaussian_gives_the_integer_noise_of_the_lemma(std: Fraction) -> None:
    """Integrate the two-stage law over the continuous draw (trapezoid rule: spectrally accurate on a whole line)."""
    double, per_unit = 2 * mpf(noise.LATTICE_ROUNDING_STD.numerator) ** 2 / noise.LATTICE_ROUNDING_STD.denominator**2, 8
    continuous, total = (
        mpf(std.numerator) / std.denominator,
        mp.sqrt(mpf(std.numerator) ** 2 / std.denominator**2 + double / 2),
    )
    offsets = [mpf(k) / per_unit for k in range(per_unit)]
    normalisers = [mp.fsum(mp.exp(-((x - offset) ** 2) / double) for x in range(-50, 51)) for offset in offsets]
    for z in range(3):
        law = mp.fsum(
            mp.npdf(x + offset, 0, continuous) * mp.exp(-((z - x - offset) ** 2) / double) / normaliser / per_unit
            for x in range(-50, 50)
            for offset, normaliser in zip(offsets, normalisers, strict=True)
        )
        ideal = mp.exp(-(z**2) / (2 * total**2)) / (mp.sqrt(2 * mp.pi) * total)
        assert abs(law / ideal - 1) < mpf(2) ** -190
