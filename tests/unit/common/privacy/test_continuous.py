"""Real-valued draws against the laws they stand for. False alarm: 1e-6 for each test of a law; the words are fixed."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpspca.common.privacy import continuous
from dpspca.common.privacy.keystream import KeyStream, WordSource

ALARM = 1e-6
DRAWS = 50_000


class Counting:
    """Counts the words it hands out."""

    def __init__(self) -> None:
        self.stream, self.taken = KeyStream.repeatable(3, "counted"), 0

    def words(self, count: int) -> NDArray[np.uint32]:
        self.taken += count
        return self.stream.words(count)


class Fixed:
    """Hands out one word for ever."""

    def __init__(self, word: int) -> None:
        self.word = word

    def words(self, count: int) -> NDArray[np.uint32]:
        return np.full(count, self.word, dtype=np.uint32)


@pytest.mark.parametrize(
    ("draw", "law"),
    [(continuous.uniforms, "uniform"), (continuous.normals, "norm"), (continuous.cauchys, "cauchy")],
)
def test_numbers_follow_their_law(draw: Callable[[int, WordSource], NDArray[np.float64]], law: str) -> None:
    drawn = draw(DRAWS, KeyStream.repeatable(1, law))
    assert stats.kstest(drawn, law).pvalue > ALARM
    assert abs(stats.spearmanr(drawn[:-1], drawn[1:]).statistic) < 5.5 / math.sqrt(DRAWS)


@pytest.mark.parametrize("entries", [1, 2, 7])
def test_a_student_vector_follows_its_law_in_any_direction_and_in_length(entries: int) -> None:
    """An entry is Student's t; so is any projection; the mean square of the entries is Fisher's F."""
    words = KeyStream.repeatable(2, "student")
    drawn = np.stack([continuous.student_vector(entries, words) for _ in range(10_000)])
    assert stats.kstest(drawn[:, 0], "t", (entries,)).pvalue > ALARM
    assert stats.kstest(drawn.sum(axis=1) / math.sqrt(entries), "t", (entries,)).pvalue > ALARM
    assert stats.kstest(np.square(drawn).mean(axis=1), "f", (entries, entries)).pvalue > ALARM


def test_the_ends_of_the_unit_interval_are_never_drawn() -> None:
    for word in (0, 2**32 - 1):
        (drawn,) = continuous.uniforms(1, Fixed(word))
        assert 0 < drawn < 1
        assert math.isfinite(continuous.normals(1, Fixed(word))[0])
        assert math.isfinite(continuous.cauchys(1, Fixed(word))[0])


def test_a_uniform_number_uses_all_of_its_53_bits() -> None:
    drawn = continuous.uniforms(4096, KeyStream.repeatable(4, "bits"))
    low = drawn[drawn < 0.5]  # above one half the midpoints are rounded
    assert len(set((low * 2**53 % 2**10).astype(int))) > 800


def test_how_many_words_are_taken_depends_on_the_size_alone() -> None:
    for draw, expected in [
        (lambda words: continuous.uniforms(5, words), 10),
        (lambda words: continuous.student_vector(5, words), 20),
        (lambda words: continuous.random_orthogonal(3, words), 18),
    ]:
        words = Counting()
        draw(words)
        assert words.taken == expected


def test_a_random_orthogonal_matrix_is_orthogonal_and_uniform() -> None:
    """The first entry of a uniform unit vector in three dimensions is uniform itself."""
    words = KeyStream.repeatable(5, "turn")
    turns = np.stack([continuous.random_orthogonal(3, words) for _ in range(4000)])
    assert np.abs(turns @ turns.transpose(0, 2, 1) - np.eye(3)).max() < 1e-14
    for row, column in [(0, 0), (1, 2), (2, 2)]:
        assert stats.kstest(turns[:, row, column], "uniform", (-1, 2)).pvalue > ALARM
    reflections = int((np.linalg.det(turns) < 0).sum())
    assert stats.binomtest(reflections, len(turns)).pvalue > ALARM
