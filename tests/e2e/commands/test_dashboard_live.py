"""A page of the dashboard shows changes, says if it cannot, and holds a connection only while somebody sees it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from approvals import BEN, MARIA, Site, human_policy, waiting_job
from browsers import BROWSER, chromium, dashboard_of
from local_federation import Enrolment
from playwright.sync_api import Page, expect
from timeouts import TIMEOUT

from dpspca.provider.approval import RequestEvent

NEEDS_BROWSER = pytest.mark.skipif(BROWSER is None, reason="needs chromium, which is not installed")
MILLISECONDS = 1000 * TIMEOUT
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@contextmanager
def job_page(folder: Path) -> Iterator[tuple[Page, Site, str]]:
    """Show the page of a job that waits."""
    enrolment = Enrolment.create(folder / "town")
    site = Site.made(enrolment, "north", human_policy(MARIA, BEN))
    job = waiting_job(enrolment, site)
    with dashboard_of(site.config) as address, chromium() as browser:
        page = browser.new_page()
        page.goto(address)
        page.goto(f"{address.partition('/enter')[0]}/approval/{job}")
        expect(page.locator("#live")).to_contain_text("as they happen", timeout=MILLISECONDS)
        yield page, site, job


@pytest.mark.slow
@NEEDS_BROWSER
def test_a_page_that_cannot_be_refreshed_says_why_and_how_old_it_is(tmp_path: Path) -> None:
    with job_page(tmp_path) as (page, site, job):
        settings = site.config.read_text()
        site.config.write_text(settings.replace("127.0.0.1:1", "nowhere"))
        expect(page.locator("#live")).to_contain_text("'nowhere'", timeout=MILLISECONDS)
        assert ":" in page.inner_text("#live").rpartition("nowhere")[2], "the time of what is shown"
        assert job[:12] in page.inner_text("main")
        site.config.write_text(settings)
        expect(page.locator("#live")).to_contain_text("as they happen", timeout=MILLISECONDS)


@pytest.mark.slow
@NEEDS_BROWSER
def test_a_hidden_page_has_no_stream_and_is_refreshed_when_it_is_shown(tmp_path: Path) -> None:
    """Browsers open six connections to a server, so the streams of hidden pages would block the page that is seen."""
    with job_page(tmp_path) as (page, site, job):
        began, ended = list[str](), list[str]()
        page.on("request", lambda request: began.append(request.url) if request.url.endswith("/events") else None)
        with page.expect_event("requestfailed", lambda request: request.url.endswith("/events"), timeout=MILLISECONDS):
            page.evaluate(HIDE, True)
        page.on("request", lambda request: ended.append(request.url))
        site.office.queue.change(job, RequestEvent.END)
        page.wait_for_timeout(2500)  # two looks of the server
        assert (began, ended) == ([], [])
        page.evaluate(HIDE, False)
        expect(page.locator("main")).to_contain_text("ended", timeout=MILLISECONDS)
        assert len(began) == 1
