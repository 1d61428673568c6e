"""A browser shows the report as it is meant, and its policy stops whatever a page could run or load."""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Final

import matplotlib.image
import numpy as np
import pytest
from html_pages import elements_of, of_tag

from dpspca.client.html_report import page
from dpspca.client.html_report.style import ALARM, BAR
from dpspca.client.simulation import simulate
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.results import Model, Origin

BROWSER: Final = shutil.which("chromium")
SECONDS: Final = 120
NAMES: Final = ("<script>document.title = 'run'</script>", "<img src=x onerror=\"document.title='run'\">", "plain", "é")

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium, which is not installed")


@pytest.fixture(scope="module")
def model() -> Model:
    rows = np.random.default_rng(0).standard_normal((5000, 4)) * [5, 3, 1, 1]
    spec = JobSpec(
        schema=Schema.of(NAMES),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(2.0, 1e-6),
        norm_bound=12.0,
        components=2,
        method="auto",
    )
    return simulate([rows], spec, noise_seed=1)


def browse(folder: Path, written: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Open a page in a browser of its own, without a window. What its console says is written to standard error."""
    assert BROWSER
    (folder / "report.html").write_text(written, encoding="utf-8")
    fixed = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={folder}/user")
    words = [BROWSER, *fixed, *flags, (folder / "report.html").as_uri()]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=SECONDS)  # noqa: S603


def test_a_browser_keeps_to_the_policy_and_shows_names_as_text(model: Model, tmp_path: Path) -> None:
    seen = browse(tmp_path, page(model), "--dump-dom")
    assert "CONSOLE" not in seen.stderr  # no error, and the style sheet is the one that the policy allows
    assert not [each for each in elements_of(seen.stdout) if {"src", "href", "action", "data"} & each.attributes.keys()]
    headings = [int(each.tag[1]) for each in of_tag(seen.stdout, "h1", "h2", "h3")]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(headings))
    assert of_tag(seen.stdout, "title")[0].text.startswith("NOT FOR RELEASE")
    assert set(NAMES) <= {each.text for each in of_tag(seen.stdout, "th")}


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """Run a web server. Yield its address and the paths that were asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", paths
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_the_policy_stops_a_script_and_a_request_that_got_in(
    model: Model, tmp_path: Path, asked: tuple[str, list[str]]
) -> None:
    """As if a name had not been escaped. Without the policy, both happen."""
    address, paths = asked
    intruder = f'<img src="{address}/loaded"><script>document.title = "run"</script></main>'
    spoilt = page(model).replace("</main>", intruder)
    stopped = browse(tmp_path, spoilt, "--dump-dom")
    assert "<title>run</title>" not in stopped.stdout
    assert paths == []
    assert "Content Security Policy" in stopped.stderr
    allowed = browse(tmp_path, spoilt.replace("Content-Security-Policy", "nothing"), "--dump-dom")
    assert "<title>run</title>" in allowed.stdout
    assert "/loaded" in paths


@pytest.mark.slow
def test_the_report_can_be_printed_and_fits_a_narrow_screen(model: Model, tmp_path: Path) -> None:
    """A long word, such as the name of a job, neither widens the page nor squeezes the other cells."""
    named = replace(model, origin=Origin(method="auto", queries=1, software="0.2.0", data_set="d" * 63, job="a" * 64))
    browse(tmp_path, page(named), f"--print-to-pdf={tmp_path}/seen.pdf")
    assert (tmp_path / "seen.pdf").read_bytes().startswith(b"%PDF")
    measure = (
        "<script>document.title = document.documentElement.scrollWidth + ' of ' + window.innerWidth</script></main>"
    )
    written = page(named).replace("Content-Security-Policy", "nothing").replace("</main>", measure)
    seen = browse(tmp_path, written, "--dump-dom", "--window-size=500,900")
    needed, there = map(int, of_tag(seen.stdout, "title")[0].text.split(" of "))
    assert needed <= there


def test_the_alarm_and_the_bars_are_seen(model: Model, tmp_path: Path) -> None:
    browse(tmp_path, page(model), f"--screenshot={tmp_path}/seen.png", "--window-size=900,2000")
    pixels = np.rint(matplotlib.image.imread(tmp_path / "seen.png")[:, :, :3] * 255).astype(int)
    alarm, bars = (np.argwhere((pixels == colour(name)).all(axis=2)) for name in (ALARM, BAR))
    assert len(alarm) > 10_000
    assert alarm[:, 0].max() < 200  # at the top
    assert len(bars) > 2_000
    assert bars[:, 0].min() > alarm[:, 0].max()


def colour(name: str) -> list[int]:
    return [int(name[place : place + 2], 16) for place in (1, 3, 5)]
