"""Whoever waits for a name is woken by news of that name alone."""

import asyncio

from dpspca.server.jobs.news import News


def test_news_of_a_name_wakes_those_who_wait_for_it_and_nobody_else() -> None:
    async def scenario() -> None:
        news = News()
        north, both, south = (
            asyncio.create_task(news.of(names)) for names in (["north"], ["north", "south"], ["south"])
        )
        await asyncio.sleep(0)
        news.tell("east")
        news.tell("north")
        await asyncio.gather(north, both)
        assert not south.done()
        south.cancel()
        await asyncio.gather(south, return_exceptions=True)
        assert not news._waiting  # names that nobody waits for are forgotten

    asyncio.run(scenario())
