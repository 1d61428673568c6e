"""System randomness: read for every draw, not repeatable, and never continued by a copy of the process."""

import inspect
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from timeouts import TIMEOUT

from dpspca.common.privacy.keystream import Draw, Purpose
from dpspca.common.privacy.noise import DiscreteGaussian
from dpspca.provider.release import entropy
from dpspca.provider.release.entropy import system_entropy

DRAW = Draw("a job", 0, 0, "a query", Purpose.NOISE)

# A parent that has already drawn forks a child, which forks a grandchild, and then a second child. Each prints words.
FAMILY = """
import os
from dpspca.common.privacy.keystream import Draw, Purpose
from dpspca.provider.release.entropy import system_entropy

draw = Draw("a job", 0, 0, "a query", Purpose.NOISE)
system_entropy(draw).words(1000)

def speak():
    print(*system_entropy(draw).words(8).tolist(), flush=True)

def fork(then):
    child = os.fork()
    if child == 0:
        then()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

def first_child():
    speak()
    fork(speak)

fork(first_child)
fork(speak)
speak()
"""


def family() -> list[tuple[int, ...]]:
    """Return what child, grandchild, second child and parent drew for the same query."""
    done = subprocess.run([sys.executable, "-c", FAMILY], check=True, capture_output=True, text=True, timeout=TIMEOUT)  # noqa: S603 - our own program
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]


def test_t21_forked_processes_draw_unrelated_words() -> None:
    """False alarm: two of 32 words are equal with probability below 2^-22."""
    words = family()
    assert len(words) == 4
    assert len({word for line in words for word in line}) == 32


def test_two_draws_with_one_name_have_unrelated_words() -> None:
    """False alarm: 128 random bits that agree."""
    assert not np.array_equal(system_entropy(DRAW).words(4), system_entropy(DRAW).words(4))


def test_threads_draw_unrelated_words() -> None:
    """False alarm: two of 4 x 50 draws of 128 bits agree, below 2^-112."""
    together = Barrier(4)

    def draw() -> list[tuple[int, ...]]:
        together.wait(timeout=TIMEOUT)
        return [tuple(system_entropy(DRAW).words(4).tolist()) for _ in range(50)]

    with ThreadPoolExecutor(4) as pool:
        drawn = [words for task in [pool.submit(draw) for _ in range(4)] for words in task.result()]
    assert len(set(drawn)) == 200


def test_t21_there_is_no_way_to_set_a_seed() -> None:
    assert list(inspect.signature(system_entropy).parameters) == ["draw"]
    assert {name for name, value in vars(entropy).items() if inspect.isfunction(value)} == {
        "system_entropy",
        "keyed_stream",
    }


def test_each_draw_reads_256_fresh_bits_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def urandom(size: int) -> bytes:
        read.append(size)
        return bytes([len(read)]) * size

    monkeypatch.setattr(os, "urandom", urandom)
    streams = [system_entropy(DRAW) for _ in range(3)]
    assert read == [32, 32, 32]
    drawn = [tuple(stream.words(4).tolist()) for stream in streams]
    drawn += [tuple(stream.words(1000)[:4].tolist()) for stream in streams]
    assert len(set(drawn)) == 6
    assert read == [32, 32, 32]


def test_noise_can_be_drawn_from_system_entropy() -> None:
    """False alarm: 1000 draws of 40 bits that repeat, below 2^-20."""
    draws = DiscreteGaussian.with_std_at_least(2.0**40).sample(1000, system_entropy(DRAW))
    assert len(np.unique(draws)) == 1000
