"""Who gets a place for work on rows follows from queries and from when answers left, and never from when work ends."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import numpy as np
import pytest
from virtual_time import run as run_on_virtual_time

from dpspca.provider.jobs.row_places import RowPlaces
from dpspca.provider.release.schedule import delay_result


class Scene:
    """Queries that are answered in places, on virtual time."""

    def __init__(self, places: RowPlaces) -> None:
        self.places = places
        self.begun: dict[str, float] = {}
        self.left: dict[str, float] = {}

    async def answer(  # a query, and how long its answer takes
        self,
        name: str,
        *,
        takes: float,
        interval: float,
        after: float = 0.0,
        by: str | None = None,
        memory: int = 0,
        toss: float = 0.5,
    ) -> None:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(after)
        async with self.places.taken(self.places.ask(by or name, memory)):
            self.begun[name] = clock()
            await delay_result(asyncio.ensure_future(asyncio.sleep(takes)), interval, lambda: toss)
        self.left[name] = clock()


def run(scene: Scene, *answers: Coroutine[Any, Any, None]) -> Scene:
    async def all_of_them() -> None:
        await asyncio.gather(*answers)

    run_on_virtual_time(all_of_them(), Random(0))
    return scene


def chain(takes: float, *, toss: float) -> Scene:
    """A slow query, one that waits for it, and a third that is asked when the first has left."""
    scene = Scene(RowPlaces(1))
    return run(
        scene,
        scene.answer("first", takes=takes, interval=1.0, toss=toss),
        scene.answer("second", takes=1.5, interval=0.01, after=0.1),
        scene.answer("third", takes=0.0, interval=0.01, after=2.5),
    )


@pytest.mark.parametrize("toss", [0.1, 0.5, 0.95])
def test_t22_no_later_answer_shows_more_of_an_earlier_one(toss: float) -> None:
    """Over the neighbour, the first takes a tenth of its interval longer."""
    one, other = chain(0.55, toss=toss), chain(0.65, toss=toss)
    assert one.left["first"] == other.left["first"]
    assert one.left == pytest.approx(other.left)
    assert one.begun == pytest.approx(other.begun)


@pytest.mark.parametrize("ahead", [1, 5, 20])
def test_t22_a_queue_distinguishes_no_more_than_one_evaluation(ahead: int) -> None:
    """Whoever knows when those before it left learns no more from the last one than from a first one."""

    def last(share: float, toss: float) -> float:
        scene = Scene(RowPlaces(1))
        queue = [scene.answer(str(at), takes=share, interval=1.0, after=at / 1000) for at in range(ahead)]
        run(scene, *queue, scene.answer("last", takes=share, interval=1.0, after=0.9, toss=toss))
        return scene.left["last"]

    tosses = (np.arange(50) + 0.5) / 50
    one, other = (np.array([last(share, toss) for toss in tosses]) for share in (1.9, 2.0))
    area = (other[:, None] > one).mean() + (other[:, None] == one).mean() / 2
    assert 0.5 < area <= 0.55 + 1e-3


def test_a_place_is_taken_until_the_answer_has_left() -> None:
    scene = Scene(RowPlaces(2))
    run(
        scene,
        scene.answer("slow", takes=0.1, interval=5.0),
        scene.answer("quick", takes=0.1, interval=0.5),
        scene.answer("later", takes=0.1, interval=0.5, after=0.2),
    )
    assert (scene.begun["later"], scene.left["slow"]) == pytest.approx((1.0, 10.0))


def test_t35_one_analyst_has_half_of_the_places() -> None:
    """Queries of another one pass those of his that wait."""
    scene = Scene(RowPlaces(4))
    run(
        scene,
        *(scene.answer(f"eve {at}", by="eve", takes=0.0, interval=10.0, after=at / 100) for at in range(6)),
        scene.answer("ada", takes=0.0, interval=0.01, after=1.0),
        scene.answer("ben", takes=0.0, interval=0.01, after=1.0),
    )
    assert (scene.begun["ada"], scene.begun["ben"]) == (1.0, 1.0)
    assert [scene.begun[f"eve {at}"] for at in range(6)] == pytest.approx([0.0, 0.01, 20, 20.01, 40, 40.01])


@pytest.mark.parametrize("places", [1, 20])
def test_t35_analysts_take_turns(places: int) -> None:
    """Who asks beside one with a hundred queries waits for one of his answers each time, and not for all of them."""
    scene = Scene(RowPlaces(places, memory=100))
    hundred = (
        scene.answer(f"eve {at}", by="eve", takes=0.0, interval=10.0, memory=60, after=at / 1000) for at in range(100)
    )
    run(scene, *hundred, *(scene.answer(str(at), by="ada", takes=0.0, interval=0.01, after=5.0) for at in range(3)))
    left = sorted(scene.left[str(at)] for at in range(3))
    assert left == pytest.approx([20.02, 40.04, 60.06] if places == 1 else 3 * [5.02])


def test_t35_one_analyst_has_half_of_the_memory() -> None:
    """Beyond his first answer, which may take all of it."""
    scene = Scene(RowPlaces(20, memory=100))
    run(
        scene,
        *(scene.answer(f"eve {at}", by="eve", takes=0.0, interval=10.0, memory=30, after=at / 100) for at in range(2)),
        scene.answer("ada", takes=0.0, interval=1.0, memory=70, after=1.0),
        scene.answer("eve, all", by="eve", takes=0.0, interval=1.0, memory=100, after=25.0),
    )
    begun = [scene.begun[name] for name in ("eve 0", "ada", "eve 1", "eve, all")]
    assert begun == pytest.approx([0.0, 1.0, 20.0, 40.0])


def test_t35_answers_take_no_more_memory_together_than_is_allowed() -> None:
    """Small ones do not count. One alone may take more. Others pass one that waits, but not without end."""
    scene = Scene(RowPlaces(3, memory=100))
    run(
        scene,
        scene.answer("first", takes=0.0, interval=1.0, memory=60),
        scene.answer("fits", takes=0.0, interval=2.0, memory=40, after=0.1),
        scene.answer("waits", takes=0.0, interval=1.0, memory=1000, after=0.2),
        *(scene.answer(f"small {at}", takes=0.0, interval=0.1, memory=1, after=0.3 + at / 100) for at in range(5)),
    )
    begun = [scene.begun[name] for name in ("first", "fits", "small 0", "small 1", "small 2", "waits", "small 3")]
    assert begun == pytest.approx([0.0, 0.1, 0.3, 0.5, 0.7, 4.1, 4.1])


def test_an_analyst_s_small_queries_pass_his_large_one_only_so_often() -> None:
    """It needs the memory of his other answers, so they wait, too. Others do not."""
    scene = Scene(RowPlaces(4, memory=100))
    run(
        scene,
        *(scene.answer(f"eve {at}", by="eve", takes=0.0, interval=1.0, memory=10, after=float(at)) for at in range(20)),
        scene.answer("eve, large", by="eve", takes=0.0, interval=1.0, memory=60, after=0.5),
        *(scene.answer(f"ada {at}", takes=0.0, interval=0.1, memory=10, after=0.6 + at) for at in range(20)),
    )
    assert scene.begun["eve, large"] == pytest.approx(6.0)
    assert [scene.begun[f"ada {at}"] for at in range(20)] == pytest.approx([0.6 + at for at in range(20)])


def test_a_query_whose_job_ends_holds_nobody_up() -> None:
    """It waits for memory, and would stop all others once enough of them have passed it."""

    async def scene() -> list[float]:
        places, begun = RowPlaces(2, memory=100), list[float]()

        async def answer(by: str, memory: int, seconds: float) -> None:
            async with places.taken(places.ask(by, memory)):
                begun.append(asyncio.get_running_loop().time())
                await asyncio.sleep(seconds)

        async def withdrawn() -> None:
            request = places.ask("ben", 90)
            asyncio.get_running_loop().call_later(1.0, request.withdraw, InterruptedError())
            with pytest.raises(InterruptedError):
                async with places.taken(request):
                    begun.append(-1)

        async def small() -> None:
            await asyncio.sleep(2.0)
            for _ in range(5):
                await answer("cat", 10, 1.0)

        await asyncio.gather(answer("ann", 60, 3600.0), withdrawn(), small())
        return begun

    assert run_on_virtual_time(scene(), Random(0)) == pytest.approx([0.0, 2.0, 3.0, 4.0, 5.0, 6.0])


def test_a_query_that_is_given_up_frees_its_place_or_its_turn() -> None:
    async def scene() -> None:
        places = RowPlaces(1)

        async def hold() -> None:
            async with places.taken(places.ask("ada")):
                await asyncio.sleep(1e6)

        holds = [asyncio.create_task(hold()) for _ in range(3)]
        await asyncio.sleep(0.1)
        for given_up in (holds[1], holds[0]):
            given_up.cancel()
            await asyncio.sleep(0.1)
        assert len(places._taken) == 1
        assert not places._waiting
        holds[2].cancel()
        await asyncio.gather(*holds, return_exceptions=True)
        async with asyncio.timeout(0.1), places.taken(places.ask("eve")):
            pass

    run_on_virtual_time(scene(), Random(0))
