"""A task that waits for a name is woken only by events of that name."""

import asyncio

from dpspca.server.jobs.name_events import NameEvents


def test_an_event_wakes_only_the_tasks_that_wait_for_its_name() -> None:
    async def scenario() -> None:
        events = NameEvents()
        north, both, south = (
            asyncio.create_task(events.wait_for(names)) for names in (["north"], ["north", "south"], ["south"])
        )
        await asyncio.sleep(0)
        events.notify("east")
        events.notify("north")
        await asyncio.gather(north, both)
        assert not south.done()
        south.cancel()
        await asyncio.gather(south, return_exceptions=True)
        assert not events._waiting  # names that no task waits for take no memory

    asyncio.run(scenario())
