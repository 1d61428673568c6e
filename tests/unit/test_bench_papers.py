"""The figures of the papers can be drawn again, and the page about them shows what was measured."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench" / "papers"
MEASURED = ROOT / "docs" / "papers" / "summary.json"

pytestmark = pytest.mark.skipif(not BENCH.is_dir(), reason="the benchmarks are not part of the wheel")

AGAIN = """
import json, sys
from pathlib import Path
import page
text = Path(sys.argv[1]).read_text(encoding="utf-8")
sys.stdout.buffer.write(page.filled(text, json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))).encode())
"""

SAME_BITS = """
import warnings
from dpspca.common.errors import DpspcaWarning
warnings.simplefilter("ignore", DpspcaWarning)
from models import Spiked, sample
from measure import run_prepared
import methods, numpy
from dataclasses import replace
from dpspca.client.simulation import simulate
from dpspca.common.job import Budget
population = Spiked(30, components=2, rows=500)
for method in (methods.DPS_PUBLISHED, methods.DPS_OURS, methods.GAUSS, methods.MOD_SULQ):
    spec = method.spec(population, Budget(1.0, 0.1), 3)
    ours = run_prepared(sample(population, 1).shards, spec, 3, [])
    theirs = simulate([population.draw(1)[0]], spec, noise_seed=3)
    assert replace(ours, origin=None).to_bytes() == replace(theirs, origin=None).to_bytes(), method.label
"""


def python(*arguments: str) -> str:
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, capture_output=True, check=True, cwd=BENCH)  # noqa: S603  # our own scripts
    return done.stdout.decode()


def drawn(out: Path, *names: str) -> Any:
    words = ["--quick", "--seeds", "1", "--json", "--out", str(out), "--only", *names]
    return json.loads(python(str(BENCH / "run.py"), *words))


@pytest.mark.nightly
def test_figures_are_drawn_and_later_runs_keep_their_numbers(tmp_path: Path) -> None:
    summary = drawn(tmp_path, "figure-2", "figure-4b")
    (tmp_path / "summary.json").write_text(json.dumps(summary | {"results": summary["results"] | {"table-1": {}}}))
    assert list(drawn(tmp_path, "figure-2")["results"]) == ["figure-2", "figure-4b", "table-1"]
    assert list(summary["results"]) == ["figure-2", "figure-4b"]
    for name, result in summary["results"].items():
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        with (tmp_path / f"{name}.csv").open(encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        points = [point for panel in result["panels"] for points in panel["curves"].values() for point in points]
        assert [float(line["mean"]) for line in lines] == pytest.approx([point["mean"] for point in points], rel=1e-5)
        assert all(point["least"] <= point["mean"] <= point["largest"] for point in points)
    shown, others = (panel["curves"] for panel in summary["results"]["figure-4b"]["panels"])
    assert {"DPS-PCA, as published", "no privacy: all features", "no privacy: support known"} <= set(shown)
    assert "Analyze Gauss" in others
    floor = [point["mean"] for point in shown["no privacy: support known"]]
    for curve in (*shown.values(), *others.values()):
        assert all(at["mean"] >= least for at, least in zip(curve, floor, strict=True))


@pytest.mark.slow
def test_prepared_shards_give_the_bits_of_simulate() -> None:
    python("-c", SAME_BITS)


@pytest.mark.slow
def test_the_page_says_what_was_measured() -> None:
    page = ROOT / "docs" / "papers.md"
    assert python("-c", AGAIN, str(page), str(MEASURED)) == page.read_text(encoding="utf-8")


def test_every_figure_of_the_page_exists_is_small_and_has_numbers() -> None:
    results = json.loads(MEASURED.read_text(encoding="utf-8"))["results"]
    for name, result in results.items():
        assert (MEASURED.parent / f"{name}.csv").exists()
        if result["kind"] == "figure":
            assert (MEASURED.parent / f"{name}.png").stat().st_size < 150_000
