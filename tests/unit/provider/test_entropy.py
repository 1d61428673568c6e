"""The system's randomness: unrepeatable, never continued by a forked child, private to a thread."""

import inspect
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from patience import PATIENCE

from dpspca.common.privacy.keystream import KeyStream
from dpspca.common.privacy.noise import DiscreteGaussian
from dpspca.provider import entropy
from dpspca.provider.entropy import SystemEntropy

# A parent that has already drawn forks a child, which forks a grandchild, then a second child; each prints words.
FAMILY = """
import os
from dpspca.provider import entropy

{sabotage}
source = entropy.SystemEntropy()
source.words(1000)

def speak():
    print(*source.words(8).tolist(), flush=True)

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
BLIND_TO_PROCESS_IDS = "os.getpid = lambda: 1"
BLIND_TO_FORK_HOOKS = "entropy._Process._forks = property(lambda process: 0, lambda process, count: None)"
BLIND = BLIND_TO_PROCESS_IDS + "\n" + BLIND_TO_FORK_HOOKS


def family(sabotage: str) -> list[tuple[int, ...]]:
    """Return what child, grandchild, second child and parent drew."""
    program = FAMILY.format(sabotage=sabotage)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=PATIENCE)  # noqa: S603 - our own program
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("sabotage", ["", BLIND_TO_PROCESS_IDS, BLIND_TO_FORK_HOOKS])
def test_t21_parent_children_and_grandchild_draw_unrelated_words(sabotage: str) -> None:
    """Either guard suffices alone. False alarm: 32 words, all different but with probability below 2^-22."""
    words = family(sabotage)
    assert len(words) == 4
    assert len({word for line in words for word in line}) == 32


def test_without_both_guards_a_family_would_share_its_noise() -> None:
    assert len(set(family(BLIND))) < 4


def test_two_sources_draw_unrelated_words() -> None:
    """False alarm: 128 random bits that agree."""
    assert not np.array_equal(SystemEntropy().words(4), SystemEntropy().words(4))


def test_threads_that_share_a_source_draw_unrelated_words() -> None:
    """False alarm: two of 4 x 50 draws of 128 bits agree, below 2^-112."""
    source, together = SystemEntropy(), Barrier(4)

    def draw() -> list[tuple[int, ...]]:
        together.wait(timeout=PATIENCE)
        return [tuple(source.words(4).tolist()) for _ in range(50)]

    with ThreadPoolExecutor(4) as pool:
        drawn = [words for task in [pool.submit(draw) for _ in range(4)] for words in task.result()]
    assert len(set(drawn)) == 200


def test_every_thread_has_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    source, keys = SystemEntropy(), []
    monkeypatch.setattr(entropy, "KeyStream", lambda key: keys.append(key) or KeyStream(key))
    for _ in range(3):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(source.words, 1).result(timeout=PATIENCE)
    assert len(set(keys)) == 3


def test_t21_there_is_no_way_to_set_a_seed() -> None:
    assert not inspect.signature(SystemEntropy).parameters
    assert {name for name in vars(SystemEntropy) if not name.startswith("_")} == {"words"}


def test_a_key_is_replaced_when_it_has_served_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytes] = []

    def urandom(size: int) -> bytes:
        keys.append(bytes([len(keys)]) * size)
        return keys[-1]

    monkeypatch.setattr(entropy, "WORDS_PER_KEY", 100)
    monkeypatch.setattr(os, "urandom", urandom)
    source = SystemEntropy()
    first = source.words(60)
    source.words(40)
    assert len(keys) == 1
    assert not np.array_equal(source.words(60), first)
    assert [len(key) for key in keys] == [32, 32]


def test_a_key_serves_four_gibibytes() -> None:
    assert entropy.WORDS_PER_KEY * 4 == 1 << 32


def test_noise_can_be_drawn_from_it() -> None:
    """False alarm: 1000 draws of 40 bits that repeat, below 2^-20."""
    draws = DiscreteGaussian.with_std_at_least(2.0**40).sample(1000, SystemEntropy())
    assert len(np.unique(draws)) == 1000
