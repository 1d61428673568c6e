"""The dashboards of a running federation in a real browser: live, by keyboard, and with the commands' own numbers."""

import asyncio
import json
import re
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approvals import MARIA, awaiting, human_policy
from browsers import BROWSER, chromium, dashboard_of, problems_of
from coordinator_processes import free_port
from daemons import DPSPCA, daemons
from local_federation import spec
from playwright.sync_api import Page, expect
from timeouts import TIMEOUT

from dpspca.cli.dashboard.chart import Point, spending
from dpspca.client.federation import AsyncFederation, AsyncJob
from dpspca.common.job import Schema
from dpspca.common.privacy import format_up

NEEDS_BROWSER = pytest.mark.skipif(BROWSER is None, reason="needs chromium, which is not installed")
COLUMNS = ("age", "weight", "bmi", "glucose", "insulin", "ldl")
ROWS = {name: {"cohort": np.random.default_rng(0).standard_normal((300, 6))} for name in ("north", "south")}
SPEC = spec(schema=Schema.of(COLUMNS), options={"sparsity": 6, "rounds": 2}, minimum_providers=1)
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
MILLISECONDS = 1000 * TIMEOUT
STYLE = Path(__file__).parents[3] / "cli" / "dashboard" / "static" / "style.css"


def facts_of(config: Path, *words: str) -> dict[str, Any]:
    """Return what a command prints as JSON."""
    command = [*DPSPCA, *words, "--json", "--config", str(config)]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)  # noqa: S603
    return found


def run_town(folder: Path, scene: Callable[[AsyncFederation], Any], policy: str) -> None:
    """Run a federation, and a scene in it."""

    async def perform() -> None:
        async with (
            daemons(folder, f"127.0.0.1:{free_port()}", policy, ROWS, heartbeat_seconds=1) as running,
            AsyncFederation(running.address, running.ada, retry_seconds=TIMEOUT) as federation,
        ):
            await scene(federation)

    asyncio.run(perform())


def is_sound(page: Page) -> None:
    """A page has a language, one first heading, headings in order, named tables, and a label for each control."""
    assert page.get_attribute("html", "lang") == "en"
    levels = [int(each.evaluate("each => each.tagName")[1]) for each in page.locator("h1, h2, h3").all()]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.locator("table").count() == page.locator("table > caption").count()
    assert page.locator("th:not([scope])").count() == 0
    for control in page.locator("select, input:not([type=hidden]), progress").all():
        assert page.locator(f"label[for={control.get_attribute('id')}]").count() == 1


@pytest.mark.slow
@NEEDS_BROWSER
def test_a_steward_sees_a_job_arrive_and_approves_it_by_keyboard(tmp_path: Path) -> None:
    async def scene(federation: AsyncFederation) -> None:
        config = tmp_path / "north.toml"
        arrived: asyncio.Future[AsyncJob] = asyncio.get_running_loop().create_future()
        watching, loop = asyncio.Event(), asyncio.get_running_loop()

        def browse() -> None:
            with dashboard_of(config) as address, chromium() as browser:
                page = browser.new_page()
                problems = problems_of(page)
                page.goto(address)
                is_sound(page)
                page.get_by_role("link", name="Jobs that wait").click()
                expect(page.locator("main")).to_contain_text("No job waits")
                expect(page.locator("#live")).to_contain_text("as they happen", timeout=MILLISECONDS)
                loop.call_soon_threadsafe(watching.set)
                job = asyncio.run_coroutine_threadsafe(_value(arrived), loop).result()
                page.get_by_role("link", name=job.name[:12]).wait_for(timeout=MILLISECONDS)  # without a reload
                page.get_by_role("link", name=job.name[:12]).click()
                is_sound(page)
                expect(page.locator("main")).to_contain_text("2 principal components of 6 columns ('age', 'weight'")
                page.get_by_label("You are").focus()
                page.keyboard.press("m")
                page.keyboard.press("Tab")
                page.keyboard.type("within the protocol")
                page.keyboard.press("Tab")
                page.keyboard.press("Enter")
                expect(page.locator("main")).to_contain_text("within the protocol", timeout=MILLISECONDS)
                for path in ("policy", "outbox", ""):
                    page.goto(f"{address.partition('/enter')[0]}/{path}")
                    is_sound(page)
                assert problems == []

        browsing = asyncio.create_task(asyncio.to_thread(browse))
        await asyncio.wait([asyncio.create_task(watching.wait()), browsing], return_when=asyncio.FIRST_COMPLETED)
        job = await federation.submit(SPEC, "cohort", ["north"])
        arrived.set_result(job)
        await browsing
        assert (await job.result()).statement.parties == 1
        (request,) = facts_of(config, "approval", "list", "--all")["requests"]
        assert [each["person"] for each in request["decisions"]] == [MARIA]

    run_town(tmp_path, scene, human_policy())


async def _value(future: "asyncio.Future[AsyncJob]") -> AsyncJob:
    return await future


@pytest.mark.slow
@NEEDS_BROWSER
def test_every_number_of_an_analyst_and_an_operator_is_the_commands_own(tmp_path: Path) -> None:
    async def scene(federation: AsyncFederation) -> None:
        job = await federation.submit(SPEC, "cohort", ["north", "south"])
        await awaiting(job, "north", "south")

        def browse() -> None:
            analyst, hub = tmp_path / "ada.toml", tmp_path / "hub.toml"
            with dashboard_of(analyst) as address, dashboard_of(hub) as hub_address, chromium() as browser:
                context = browser.new_context()
                page = context.new_page()
                problems = problems_of(page)
                page.goto(address)
                is_sound(page)
                page.get_by_role("link", name=job.name[:12]).click()
                is_sound(page)
                expect(page.locator("main")).to_contain_text("waiting for approval since")
                (waits, _) = facts_of(analyst, "jobs", "show", job.name)["participants"]
                for key in ("awaiting_approval_since", "awaiting_approval_until"):
                    expect(page.locator("main")).to_contain_text(waits[key][:19])
                for name in ("north", "south"):
                    command = [*DPSPCA, "approval", "approve", job.name, "--yes", "--person", MARIA]
                    command += ["--config", str(tmp_path / f"{name}.toml")]
                    subprocess.run(command, check=True, capture_output=True)  # noqa: S603
                report = page.get_by_role("link", name="Open the report")
                report.wait_for(timeout=MILLISECONDS)  # it appears without a reload
                shown = facts_of(analyst, "jobs", "show", job.name)
                rows = [each.inner_text().split("\t") for each in page.locator("tbody tr").all()]
                assert [row[:4] for row in rows] == [
                    [
                        each["name"],
                        str(each["asked"]),
                        str(each["answered"]),
                        format_up(each["epsilon_at_most"], 4),
                    ]
                    for each in shown["participants"]
                ]
                paragraphs = " ".join(page.locator("main > p:not(.source)").all_inner_texts())
                budget = [shown["budget"]["epsilon"], shown["budget"]["delta"]]
                spent = [format_up(each, 4) for each in (shown["epsilon_spent"], *budget)]
                times = [shown[name][:19] for name in ("submitted", "ended")]
                answered = [str(shown["answered"]), str(shown["queries"])]
                words = f"{shown['data_set']} {shown['step']} {' '.join(times)}"
                told = [*times, *answered, *spent, *NUMBER.findall(words)]
                assert {*NUMBER.findall(paragraphs)} == {*NUMBER.findall(" ".join(told))}, paragraphs
                report.click()
                expect(page.locator("h1")).to_have_text("Differentially private principal components")
                assert problems == []

                operator = context.new_page()
                operator.goto(hub_address)
                is_sound(operator)
                facts = facts_of(hub, "coordinator", "show")
                assert facts["serving"]
                rows = [
                    each.inner_text().split("\t") for each in operator.locator("table").first.locator("tbody tr").all()
                ]
                assert [(row[0], row[1], row[2], row[4]) for row in rows] == [
                    (each["name"], each["role"], each["connection"], str(each["jobs"])) for each in facts["parties"]
                ]
                assert [(row[2].partition(" since ")[0], row[3]) for row in rows[:2]] == [("connected", "cohort")] * 2
                operator.get_by_role("link", name="Jobs").click()
                is_sound(operator)
                assert job.name[:12] in operator.inner_text("main")
                page.goto(address.partition("/enter")[0] + "/certificates")  # both sessions stay
                is_sound(page)

        await asyncio.to_thread(browse)

    run_town(tmp_path, scene, human_policy())


def test_colours_have_enough_contrast_in_both_schemes() -> None:
    """WCAG 2.2, level AA: 4.5 for text, 3 for lines of a chart."""
    style = STYLE.read_text(encoding="utf-8")
    light, dark = (
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", part)) for part in re.split(r"@media \(prefers", style)[:2]
    )
    for scheme in (light, dark):
        for back in ("paper", "panel"):
            for name in ("ink", "faint", "link", "alarm", "well"):
                assert contrast(scheme[name], scheme[back]) >= 4.5, (name, back)
            assert contrast(scheme["mark"], scheme[back]) >= 3


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_chart_says_in_words_what_it_shows_and_escapes_names() -> None:
    points = [Point("2026-01-01T00:00:00Z", 0.1), Point("2026-01-02T00:00:00Z", 0.25)]
    drawn = spending("<b>", points)
    assert "<b>" not in drawn
    assert "25 %" in drawn
    assert 'role="img"' in drawn
    assert spending("x", []) == ""
