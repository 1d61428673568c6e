"""A real Chromium for tests of pages, and a dashboard that runs as a program."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, sync_playwright
from timeouts import TIMEOUT

BROWSER: Final = shutil.which("chromium")


@contextmanager
def chromium(*flags: str) -> Iterator[Browser]:
    """Run a browser without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", *flags], timeout=1000 * TIMEOUT
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def dashboard_of(config: Path) -> Iterator[str]:
    """Run the command, and yield the address that it prints."""
    command = [sys.executable, "-m", "dpspca", "dashboard", "--json", "--config", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603
    assert process.stdout
    try:
        text = ""
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            text += line
        yield json.loads(text)["address"]
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT)


def problems_of(page: Page) -> list[str]:
    """Collect what the page's console and its scripts complain about from now on."""
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found
