"""Whether forecasts are right: what `dpspca plan --rows` expects, beside what runs over made-up rows give.

    python bench/forecast.py [--runs 3] [--quick] [--json] [--page docs/planning.md]
    python bench/forecast.py --tables [...]
    python bench/forecast.py --costs [...]

Rows are drawn from the model of section 5.1 of Ge et al. (2018): k equal leading eigenvalues over a support, and the
other eigenvalues evenly between two numbers. The forecast is given the model's public facts and no row. The figure is
the median error ||sin Theta||_F of runs in one process, integer noise included, each with new rows and new noise. Delta
is 1e-6, and the unit row-replace-one unless "how" says otherwise. There, "pairs" are differences of pairs of rows, and
"private bound" leaves the norm bound to the method.

A table has forecast / runs in each cell, in bold if the forecast is wrong. "bound" is the norm bound over a tight one:
the mean squared length of a row and two standard deviations. A forecast is right if it is within a factor of 2 of the
runs' median, where that is below half of the error of random directions ("chance"). Above, it is right if it is above
half of chance too.

With --tables it is about real tables that packages ship, and about the part of the variance that is captured, of what
PCA without privacy captures. The forecast is given the table's own eigenvalues as hints, or nothing but its size and
the mean squared length of its rows. (To take hints from the rows of a job would give something of them away; here they
show how good a forecast can be.) The cells are: with hints / without / runs.

With --costs it is about answers, bytes and time: federations over mTLS on loopback, each provider in its own process,
with ledgers and journal on disk. Each job is the first about its rows. Bytes are those on the wire from the providers
to the coordinator, divided by the number of providers. The cells are: forecast / runs, in bold if off by more than a
factor of 2.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from accuracy import components_of
from designs.forecast_shapes import COSTED, QUICK, QUICK_COSTED, SHAPES, Shape
from designs.samples import tables
from federation_parties import ANALYST, COORDINATOR, DATA_SET, POLICY, create_federation, in_new_process, now, providers

from dpspca import simulate
from dpspca.client.federation import AsyncFederation
from dpspca.client.forecast import Hints, chance, of_job
from dpspca.client.made_up_rows import spiked_rows
from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaWarning
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.linalg import subspace_distance
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.trust.identity import CurrentIdentity, CurrentRevocations
from dpspca.provider.policy import suggest
from dpspca.server.coordinator import Coordinator
from dpspca.server.journal.sqlite import SqliteJournal

MARK: Final = "<!-- {} of bench/forecast.py{} -->"


def main() -> None:
    parser = argparse.ArgumentParser(description="Forecasts beside real runs.")
    parser.add_argument("--runs", type=int, default=3, help="runs of each setting")
    parser.add_argument("--quick", action="store_true", help="two small shapes")
    parser.add_argument("--tables", action="store_true", help="real tables, and the variance that is captured")
    parser.add_argument("--costs", action="store_true", help="answers, bytes and time of federations")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--page", type=Path, help="also write the table into this page, between its marks")
    options = parser.parse_args()
    result: dict[str, Any]
    if options.tables:
        result = {"tables": list(on_tables(options.runs, quick=options.quick))}
        shown = text_of_tables(result["tables"])
    elif options.costs:
        shapes = QUICK_COSTED if options.quick else COSTED
        result = {"costs": [asyncio.run(cost(each, name, options.runs)) for each in shapes for name in each.methods]}
        shown = text_of_costs(result["costs"])
    else:
        settings = [each for shape in (QUICK if options.quick else SHAPES) for each in measured(shape, options.runs)]
        result = {"settings": settings, **summary(settings)}
        shown = text(result)
    if options.page:
        write_into(options.page, shown, " --tables" if options.tables else " --costs" if options.costs else "")
    print(json.dumps(result, indent=2) if options.json else shown)


def measured(shape: Shape, runs: int) -> Iterator[dict[str, Any]]:
    """Run all methods of a shape over the same rows, and compare each with its forecast."""
    errors: dict[str, list[float]] = {method: [] for method in shape.methods}
    for seed in range(runs):
        drawn = spiked_rows(shape.model, shape.rows, np.random.default_rng([seed, shape.rows, shape.dimension]))
        shards = np.array_split(drawn.rows, shape.providers)
        for method in shape.methods:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DpspcaWarning)  # small budgets are part of what is measured
                model = simulate(shards, shape.job(method, seed), noise_seed=1000 + seed)
            errors[method].append(subspace_distance(drawn.basis, model.components.T))
    for method in shape.methods:
        yield compared(shape, method, errors[method])


def compared(shape: Shape, method: str, errors: list[float]) -> dict[str, Any]:
    begun = time.perf_counter()
    expected = of_job(shape.job(method), shape.hints)
    seconds = time.perf_counter() - begun
    median, random = statistics.median(errors), chance(shape.job(method))
    clear = median < random / 2
    right = median / 2 <= expected.error <= 2 * median if clear else expected.error >= random / 2
    return {
        "rows": shape.rows,
        "columns": shape.dimension,
        "components": shape.components,
        "support": shape.support,
        "epsilon": shape.epsilon,
        "providers": shape.providers,
        "bound": shape.bound,
        "how": shape.how,
        "method": method,
        "median_error": median,
        "forecast": expected.error,
        "chance": random,
        "clear": clear,
        "right": right,
        "forecast_seconds": seconds,
    }


def summary(settings: list[dict[str, Any]]) -> dict[str, Any]:
    """Count the right forecasts among clear settings, and among those near chance."""
    clear = [each for each in settings if each["clear"]]
    near = [each for each in settings if not each["clear"]]
    return {
        "clear": len(clear),
        "clear_right": sum(each["right"] for each in clear),
        "near_chance": len(near),
        "near_chance_right": sum(each["right"] for each in near),
    }


def text(result: dict[str, Any]) -> str:
    """Write a table for each group of methods: a row for each shape, and forecast and runs for each method."""
    rows: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for each in result["settings"]:
        rows.setdefault(tuple(str(each[name]) for name in SHAPE), {})[each["method"]] = each
    groups: dict[tuple[str, ...], list[str]] = {}
    for shape, by_method in rows.items():
        first = next(iter(by_method.values()))
        cells = [*shape, f"{first['chance']:.2f}", *map(_cell, by_method.values())]
        groups.setdefault(tuple(by_method), []).append(f"| {' | '.join(cells)} |")
    lines = []
    for methods, below in groups.items():
        heads = [*SHAPE.values(), "chance", *methods]
        lines += [f"| {' | '.join(heads)} |", f"|{'--:|' * len(heads)}", *below, ""]
    clear = f"{result['clear_right']} of {result['clear']} forecasts below half of chance are within a factor of 2"
    near = (
        f"{result['near_chance_right']} of {result['near_chance']} settings above half of chance were forecast as such"
    )
    return "\n".join([*lines, f"{clear}; {near}."])


SHAPE: Final = {
    "rows": "n",
    "columns": "d",
    "components": "k",
    "support": "support",
    "epsilon": "epsilon",
    "providers": "N",
    "bound": "bound",
    "how": "how",
}


def _cell(each: dict[str, Any]) -> str:
    """Write forecast and runs, in bold if the forecast is wrong."""
    both = f"{each['forecast']:.2g} / {each['median_error']:.2g}"
    return both if each["right"] else f"**{both}**"


def write_into(page: Path, table: str, flag: str) -> None:
    """Replace what stands between the page's two marks."""
    begin, end = MARK.format("begin", flag), MARK.format("end", flag)
    before, rest = page.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end)
    page.write_text(f"{before}{begin}\n\n{table}\n\n{end}{after}", encoding="utf-8")


# --- Real tables ------------------------------------------------------------------------------------------------------


def on_tables(runs: int, *, quick: bool) -> Iterator[dict[str, Any]]:
    loaded = tables()
    for name in [*loaded][3:4] if quick else loaded:
        for count in (2, 5):
            for epsilon in (0.5, 2.0):
                for method in ("auto", "analyze-gauss"):
                    yield on_table(name, loaded[name], (method, count, epsilon), runs)


def on_table(name: str, table: FloatArray, job: tuple[str, int, float], runs: int) -> dict[str, Any]:
    method, count, epsilon = job
    rows, dimension = table.shape
    values = np.linalg.eigvalsh(table.T @ table)[::-1] / rows
    bound, mean = float(np.quantile(np.linalg.norm(table, axis=1), 0.95)), float(values.sum())
    parts = [
        float(np.square(table @ components_of(method, [table], bound, count, epsilon, seed).T).sum())
        / float(rows * values[:count].sum())
        for seed in range(runs)
    ]
    spec = JobSpec(
        schema=Schema(dimension),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(epsilon, 1e-6),
        norm_bound=bound,
        components=count,
        method=method,
    )
    leading, following, largest = (float(values[at] / mean) for at in (count - 1, count, 0))
    bare = Hints(rows=rows, row_length=mean**0.5)
    hinted = replace(bare, leading=leading, following=following, largest=largest)
    return {
        "table": name,
        "rows": rows,
        "columns": dimension,
        "components": count,
        "epsilon": epsilon,
        "method": method,
        "with_hints": of_job(spec, hinted).captured,
        "without_hints": of_job(spec, bare).captured,
        "median_captured": statistics.median(parts),
    }


def text_of_tables(rows: list[dict[str, Any]]) -> str:
    """Write a row for each table, number of components and budget, and a column for each method."""
    lines = ["| table | n | d | k | epsilon | auto | analyze-gauss |", "|---|--:|--:|--:|--:|--:|--:|"]
    for one, other in zip(rows[::2], rows[1::2], strict=True):
        cells = [
            " / ".join(f"{each[key]:.2f}" for key in ("with_hints", "without_hints", "median_captured"))
            for each in (one, other)
        ]
        shape = [one["table"], *(f"{one[key]:g}" for key in ("rows", "columns", "components", "epsilon"))]
        lines.append(f"| {' | '.join([*shape, *cells])} |")
    near = [
        sum(abs(row[key] - row["median_captured"]) <= 0.1 for row in rows) for key in ("with_hints", "without_hints")
    ]
    total = f"Of {len(rows)} forecasts, {near[0]} with hints and {near[1]} without are within .1 of the runs."
    return "\n".join([*lines, "", total])


# --- Answers, bytes and time ------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """What one job took."""

    answers: int
    bytes: float
    seconds: float


async def cost(shape: Shape, method: str, runs: int) -> dict[str, Any]:
    """Run a job in new federations, and compare the medians of what it took with the forecast."""
    warnings.simplefilter("ignore", DpspcaWarning)
    drawn = spiked_rows(shape.model, shape.rows, np.random.default_rng([shape.rows, shape.dimension]))
    shards, job = np.array_split(drawn.rows, shape.providers), shape.job(method)
    took = Cost(*np.median([await run_once(shards, job) for _ in range(runs)], axis=0).tolist())
    expected = of_job(job, shape.hints)
    forecast = Cost(expected.answers, expected.bytes, expected.seconds)
    return {
        "rows": shape.rows,
        "columns": shape.dimension,
        "components": shape.components,
        "epsilon": shape.epsilon,
        "providers": shape.providers,
        "how": shape.how,
        "method": method,
        "forecast": forecast._asdict(),
        "runs": took._asdict(),
    }


async def run_once(shards: list[FloatArray], job: JobSpec) -> Cost:
    """Run a job over mTLS, the first about these rows."""
    async with federation(shards, job) as (coordinator, analyst):
        before, begun = received(coordinator), time.perf_counter()
        running = await analyst.submit(job, DATA_SET)
        await running.result()
        seconds, moved = time.perf_counter() - begun, received(coordinator) - before
        return Cost((await running.status()).answered, moved / len(shards), seconds)


@asynccontextmanager
async def federation(shards: list[FloatArray], job: JobSpec) -> AsyncIterator[tuple[Coordinator, AsyncFederation]]:
    """Run a coordinator and an analyst in this process, and each provider in a process of its own."""
    names = [f"site-{number}" for number in range(len(shards))]
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        create_federation(folder, names)
        (folder / POLICY).write_text(suggest(catalogue.plan(job), DATA_SET, [ANALYST]), encoding="utf-8")
        for name, rows in zip(names, shards, strict=True):
            np.save(folder / f"{name}.npy", rows)
        identity = CurrentIdentity(folder / COORDINATOR)
        revocations = CurrentRevocations(folder / "revoked.pem", identity.get().authority_pem)
        journal = SqliteJournal(folder / "journal.db")
        coordinator = Coordinator(identity.get, revocations.get, now, journal=journal)
        await coordinator.start("127.0.0.1:0")
        stack.push_async_callback(coordinator.stop, grace=1)
        for name in names:
            await stack.enter_async_context(in_new_process(providers, folder, coordinator.address, True, name))
        analyst = AsyncFederation(coordinator.address, CurrentIdentity(folder / ANALYST).get())
        yield coordinator, await stack.enter_async_context(analyst)


def received(coordinator: Coordinator) -> float:
    """Return how many bytes a coordinator received so far."""
    line = next(line for line in coordinator.metrics.text().splitlines() if line.startswith(RECEIVED))
    return float(line.removeprefix(RECEIVED))


RECEIVED: Final = 'dpspca_bytes_total{direction="received"} '


def text_of_costs(rows: list[dict[str, Any]]) -> str:
    """Write a row for each job, and count those within a factor of 2."""
    lines = [f"| n | d | k | epsilon | N | how | method | {' | '.join(Cost._fields)} |", f"|{'--:|' * 10}"]
    for row in rows:
        cells = [_near(row["forecast"][name], row["runs"][name]) for name in Cost._fields]
        shape = [f"{row[key]}" for key in ("rows", "columns", "components", "epsilon", "providers", "how", "method")]
        lines.append(f"| {' | '.join([*shape, *cells])} |")
    near = [sum(_is_near(row["forecast"][name], row["runs"][name]) for row in rows) for name in Cost._fields]
    counts = ", ".join(f"{count} in {name}" for name, count in zip(Cost._fields, near, strict=True))
    return "\n".join([*lines, "", f"Of {len(rows)} jobs, so many forecasts are within a factor of 2: {counts}."])


def _near(forecast: float, median: float) -> str:
    both = f"{forecast:,.3g} / {median:,.3g}"
    return both if _is_near(forecast, median) else f"**{both}**"


def _is_near(forecast: float, median: float) -> bool:
    return median / 2 <= forecast <= 2 * median


if __name__ == "__main__":
    main()
