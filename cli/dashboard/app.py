"""The application: it turns requests that the guard let through into pages of a view."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup as Safe
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from dpspca.client.federation import AsyncFederation
from dpspca.common.errors import DpspcaError
from dpspca.common.markup import Markup
from dpspca.common.privacy import format_up
from dpspca.common.storage import AnalystSettings, CoordinatorSettings, kind_of, read_toml
from dpspca.common.text import visible
from dpspca.provider.ledger import short_name

from .analyst import AnalystPages
from .guard import Guard
from .operator import OperatorPages
from .pages import DashboardPages, NoPageError, Page
from .steward import StewardPages

HERE: Final = Path(__file__).parent
MARK_SECONDS: Final = 1.0
"""Seconds between two looks at whether the pages have changed."""
ALIVE_SECONDS: Final = 15.0
MOST_STREAMS: Final = 8
MOST_FORM_BYTES: Final = 2**14

_log = logging.getLogger(__name__)


@asynccontextmanager
async def application(config: Path, guard: Guard) -> AsyncGenerator[Guard]:
    """Yield the guarded application for the program whose settings these are."""
    async with AsyncExitStack() as stack:
        kind = kind_of(read_toml(config))
        view: DashboardPages
        if kind is CoordinatorSettings:
            view = OperatorPages(config)
        elif kind is AnalystSettings:
            view = AnalystPages(
                config, await stack.enter_async_context(AsyncFederation.connect(config, retry_seconds=0))
            )
        else:
            view = StewardPages(config)
        guard.app = _Site(config, guard, view).app
        yield guard


class _Site:
    """The pages of one view."""

    def __init__(self, config: Path, guard: Guard, view: DashboardPages) -> None:
        self._config = config
        self._guard = guard
        self._view = view
        self._streams = 0
        self._templates = environment()
        routes = [
            Mount("/static", StaticFiles(directory=HERE / "static")),
            Route("/events", self._events),
            Route("/decide", self._decide, methods=["POST"]),
            Route("/report/{item}", self._report),
            Route("/", self._page),
            Route("/{section}", self._page),
            Route("/{section}/{item}", self._page),
        ]
        self.app = Starlette(routes=[Mount(guard.base, routes=routes)])

    async def _page(self, request: Request) -> Response:
        section, item = request.path_params.get("section", ""), request.path_params.get("item", "")
        return await self._caught(lambda: self._view.page(section, item), section)

    async def _caught(self, make: Callable[[], Awaitable[Page]], section: str = "") -> Response:
        """Return a page, or a page that says what is wrong."""
        status = 200
        try:
            page = await make()
        except NoPageError as problem:
            page, status = _problem_page(problem), 404
        except DpspcaError as problem:
            page, status = _problem_page(problem), 400
        return HTMLResponse(self._rendered(page, section), status)

    def _rendered(self, page: Page, section: str) -> str:
        return self._templates.get_template(page.template).render(
            page=page,
            base=self._guard.base,
            form_token=self._guard.form_token,
            role=self._view.role,
            sections=self._view.sections,
            section="" if section == "job" else section,
            config=str(self._config),
            **page.facts,
        )

    async def _report(self, request: Request) -> Response:
        """Send a report. Its own policy allows its own style sheet; no page may frame it."""
        try:
            content = await self._view.report(request.path_params["item"])
        except DpspcaError as problem:
            return HTMLResponse(self._rendered(_problem_page(problem), ""), 404)
        return HTMLResponse(content, headers={"content-security-policy": "frame-ancestors 'none'"})

    async def _decide(self, request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_FORM_BYTES:
                return PlainTextResponse("The form is too long.\n", 413)
        form = {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
        if not self._guard.is_own_form(form.get("form_token", "")):
            return PlainTextResponse("Another page made this form.\n", 403)
        try:
            path = await self._view.decide(form)
        except DpspcaError as problem:
            return HTMLResponse(self._rendered(_problem_page(problem), "approval"), 400)
        return RedirectResponse(f"{self._guard.base}/{path}", 303)

    async def _events(self, request: Request) -> Response:
        """Send an event whenever the pages change."""
        if self._streams >= MOST_STREAMS:
            return PlainTextResponse("Too many pages are open.\n", 503)
        return StreamingResponse(self._changes(), media_type="text/event-stream")

    async def _changes(self) -> AsyncIterator[str]:
        self._streams += 1
        try:
            mark, silent = await self._mark(), 0.0
            yield ": connected\n\n"
            while True:
                await asyncio.sleep(MARK_SECONDS)
                now = await self._mark()
                silent += MARK_SECONDS
                if now != mark:
                    mark, silent = now, 0.0
                    yield "data: changed\n\n"
                elif silent >= ALIVE_SECONDS:
                    silent = 0.0
                    yield ": alive\n\n"
        finally:
            self._streams -= 1

    async def _mark(self) -> str:
        try:
            return await self._view.mark()
        except DpspcaError as problem:
            return str(problem)


def _problem_page(problem: DpspcaError) -> Page:
    return Page("problem.html", "This did not work", (), {"what": problem.what, "remedy": problem.remedy})


def environment() -> Environment:
    """Return the templates. Text is escaped, unprintable characters are replaced, and an unknown name is an error."""
    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"up": _up, "percent_up": _percent_up, "down": _down, "percent_down": _percent_down}
    templates.filters["short"] = short_name
    return templates


def _shown(value: Any) -> Any:  # noqa: ANN401  # whatever a template shows
    if isinstance(value, Markup):
        return Safe(value)  # made by ``common/markup.py``, which escapes every text  # noqa: S704
    return visible(value) if isinstance(value, str) and not isinstance(value, Safe) else value


def _up(value: float) -> str:
    return format_up(value, 4)


def _percent_up(share: float) -> str:
    return f"{format_up(100 * share, 3)} %"


def _percent_down(share: float) -> str:
    return f"{_down(100 * share, 3)} %"


def _down(value: float, digits: int = 4) -> str:
    """Format a number rounded down: for numbers where more is better."""
    return format_up(-value, digits).removeprefix("-")
