"""What a federation costs over gRPC with mutual TLS on loopback, compared with the least that its messages can cost.

    python bench/federation.py [--quick] [--json]

Small: a job is submitted, answered by every provider, and its model fetched, with a real coordinator and real daemons.
In turns with it runs the floor (``federation_floor.py``): bare gRPC with as many messages of the same sizes and
directions, with and without a synced SQLite commit of every message on both sides. The federation's ledgers and journal
are on disk as in production, so the floor with commits is the fair comparison. The floor with duties also computes,
checks and signs what no job can omit (``federation_duties.py``). Then the same job runs in one process: by
``simulate``, and with Gram matrices made before. All this is done twice: with each party in its own process, and with
all in one event loop. There are few rows, because the transport is measured, not the sums.

Then where the processor time of such a job goes (``federation_parts.py``).

Large: a round over rows with many columns, compared with the same bytes in bare frames, with ledgers and journal in
memory and on disk; and the coordinator's peak of memory above its idle state. Idle: what connected providers without
queries cost a coordinator. Many: one job over many light providers.

Times are medians of jobs after the first. Memory and processor time are those that the system reports.
"""

import argparse
import asyncio
import json
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from federation_cases import Case
from federation_jobs import (
    Floor,
    Placement,
    Running,
    Work,
    federation,
    in_process,
    later_round,
    median_job,
    run_floor,
    run_in_turns,
)
from federation_parties import RunningParty, in_new_process, in_this_process
from federation_parts import parts_result

from dpspca.common.errors import DpspcaWarning

Result: TypeAlias = dict[str, Any]

PLACEMENTS: Final[dict[str, Placement]] = {"processes": in_new_process, "one loop": in_this_process}


@dataclass(frozen=True, slots=True)
class Suite:
    """The cases, and how long to watch the idle one."""

    small: Case
    large: dict[str, Case]
    idle: Case
    many: Case
    idle_seconds: float


LARGE: Final = Case(2, 10**6, 200, components=10, rounds=5, repeats=3, density=1e-3, durable=False)
FULL: Final = Suite(
    small=Case(4, 1000, 200),
    large={
        "row-sparse": LARGE,
        "dense": replace(LARGE, sparsity=LARGE.dimension),
        "on disk": replace(LARGE, durable=True),
    },
    idle=Case(200, 10, 5, components=1),
    many=Case(50, 100, 20, repeats=5),
    idle_seconds=20.0,
)
WARM_UP: Final = 3
"""Number of jobs after which a Gram matrix of so many columns has paid for itself and exists."""
QUICK: Final = Suite(
    small=Case(2, 100, 20, rounds=4, repeats=3),
    large={"row-sparse": Case(1, 50_000, 20, components=10, rounds=2, repeats=1, density=1e-3)},
    idle=Case(6, 10, 5, components=1),
    many=Case(6, 20, 20, components=2, rounds=2, repeats=1),
    idle_seconds=0.5,
)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a federation costs over gRPC, beside the least it can cost.")
    parser.add_argument("--quick", action="store_true", help="small sizes, few repeats")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    options = parser.parse_args()
    suite = QUICK if options.quick else FULL
    warnings.simplefilter("ignore", DpspcaWarning)  # the quality of the model does not matter here
    result = {"parts": parts_result(suite.small), **asyncio.run(measured(suite))}
    print(json.dumps(result, indent=2) if options.json else tables(suite, result))


async def measured(suite: Suite) -> Result:
    return {
        "small": {name: await small_result(suite.small, place) for name, place in PLACEMENTS.items()},
        "large": {name: await large_result(case) for name, case in suite.large.items()},
        "idle": await idle_result(suite.idle, suite.idle_seconds),
        "many": await many_result(suite.many),
    }


# --- The four cases ---------------------------------------------------------------------------------------------------


async def small_result(case: Case, place: Placement) -> Result:
    async with federation(case, place) as running, run_floor(running, place) as least:
        works: dict[str, Work] = {
            "job": running.run_job,
            "watched": running.run_and_watch,
            "floor": least.run_with_commits,
            "floor_with_duties": least.run_with_commits_and_duties,
            "floor_without_commits": least.run_without_commits,
            **in_process(case),
        }
        for _ in range(WARM_UP):
            await running.run_job()
        jobs = await run_in_turns(works, case.repeats)
        processor = await processor_result(case, running, least) if place is in_new_process else {}
    times = {f"{name}_ms": median_job(moments) for name, moments in jobs.items() if name != "watched"}
    return {
        **times,
        "ratio": times["job_ms"] / times["floor_ms"],
        "duties_ratio": times["floor_with_duties_ms"] / times["floor_ms"],
        "ratio_to_duties": times["job_ms"] / times["floor_with_duties_ms"],
        "ratio_without_commits": times["job_ms"] / times["floor_without_commits_ms"],
        "first_round_ms": median_job([moments[:2] for moments in jobs["watched"]]),
        "later_round_ms": later_round(jobs["watched"], case.rounds),
        "floor_round_ms": later_round(jobs["floor"], case.rounds),
        "floor_round_without_commits_ms": later_round(jobs["floor_without_commits"], case.rounds),
        **processor,
    }


async def processor_result(case: Case, running: Running, least: Floor) -> Result:
    """Return the processor time of a job by the system's count: of each party, and in all compared with the floor."""
    hub, *providers, analyst = await processor_ms(running.parties, running.run_job, case.repeats)
    return {
        "coordinator_processor_ms": hub,
        "provider_processor_ms": sum(providers) / len(providers),
        "analyst_processor_ms": analyst,
        "processor_ms": hub + sum(providers) + analyst,
        "floor_processor_ms": sum(await processor_ms(least.parties, least.run_with_commits, case.repeats)),
        "duties_processor_ms": sum(await processor_ms(least.parties, least.run_with_commits_and_duties, case.repeats)),
        "floor_processor_without_commits_ms": sum(
            await processor_ms(least.parties, least.run_without_commits, case.repeats)
        ),
    }


async def processor_ms(parties: Sequence[RunningParty], work: Work, repeats: int) -> list[float]:
    """Return the processor time of each party and of this process, in milliseconds for each job."""
    before = [*map(RunningParty.processor_seconds, parties), time.process_time()]
    for _ in range(repeats):
        await work()
    after = [*map(RunningParty.processor_seconds, parties), time.process_time()]
    return [1e3 * (end - start) / repeats for start, end in zip(before, after, strict=True)]


async def large_result(case: Case) -> Result:
    async with federation(case, in_new_process) as running:
        hub, idle = running.hub, running.hub.resident()
        async with run_floor(running, in_new_process) as least:
            works: dict[str, Work] = {
                "job": running.run_and_watch,
                "floor": least.run_without_commits,
                "floor_with_duties": least.run_with_duties,
            }
            jobs = await run_in_turns(works, case.repeats)
        ours, floor, duties = (later_round(jobs[name], case.rounds) for name in works)
        return {
            "round_seconds": ours / 1e3,
            "floor_round_seconds": floor / 1e3,
            "floor_with_duties_round_seconds": duties / 1e3,
            "ratio": ours / floor,
            "duties_ratio": duties / floor,
            "ratio_to_duties": ours / duties,
            "job_seconds": median_job(jobs["job"]) / 1e3,
            "answer_megabytes": 8e-6 * case.dimension * case.components,
            "coordinator_peak_megabytes": hub.peak() - idle,
            "coordinator_kept_megabytes_a_job": (hub.resident() - idle) / (case.repeats + 1),
        }


async def idle_result(case: Case, seconds: float) -> Result:
    """Measure a coordinator's memory before and after many providers connect, and its processor time while idle."""
    async with federation(case, in_new_process, together=True) as running:
        hub, before = running.hub, running.hub.processor_seconds()
        await asyncio.sleep(seconds)
        return {
            "providers": case.providers,
            "megabytes_a_provider": (hub.resident() - running.hub_alone) / case.providers,
            "share_of_a_core": (hub.processor_seconds() - before) / seconds,
        }


async def many_result(case: Case) -> Result:
    async with federation(case, in_new_process, together=True) as running:
        jobs = await run_in_turns({"job": running.run_job}, case.repeats)
    return {"providers": case.providers, "job_ms": median_job(jobs["job"])}


# --- Printing ---------------------------------------------------------------------------------------------------------


def tables(suite: Suite, result: Result) -> str:
    return "\n\n".join(
        [
            small_table(suite.small, result["small"]),
            parts_table(result["parts"], result["small"]["processes"]),
            large_table(suite.large["row-sparse"], result["large"]),
            other_lines(result),
        ]
    )


def small_table(case: Case, results: dict[str, Result]) -> str:
    head = f"One job: {case.providers} providers, d = {case.dimension}, k = {case.components}, T = {case.rounds} (ms)"
    rows = {
        "job": "job_ms",
        "  its first round": "first_round_ms",
        "  a later round": "later_round_ms",
        "floor, commits": "floor_ms",
        "  a later round ": "floor_round_ms",
        "floor, commits, duties": "floor_with_duties_ms",
        "floor, no commits": "floor_without_commits_ms",
        "  a later round  ": "floor_round_without_commits_ms",
        "in process": "in_process_ms",
        "in process, Gram ready": "in_process_prepared_ms",
        "processor: coordinator": "coordinator_processor_ms",
        "processor: a provider": "provider_processor_ms",
        "processor: analyst": "analyst_processor_ms",
        "processor: all": "processor_ms",
        "  floor, commits": "floor_processor_ms",
        "  floor, commits, duties": "duties_processor_ms",
        "  floor, no commits": "floor_processor_without_commits_ms",
        "job / floor": "ratio",
        "  with duties / floor": "duties_ratio",
        "  job / with duties": "ratio_to_duties",
        "job / floor, no commits": "ratio_without_commits",
    }
    return lined(
        [head, columns("", results)],
        *(columns(title, [result.get(key, "-") for result in results.values()]) for title, key in rows.items()),
    )


def parts_table(parts: Sequence[Result], job: Result) -> str:
    known = sum(part["job_ms"] for part in parts)
    rest = job["processor_ms"] - known
    return lined(
        ["Where the processor time of such a job goes (ms)", columns("", ["calls", "each", "a job", "share"])],
        *(
            columns(part["part"], [part["calls"], part["call_ms"], part["job_ms"], share(part["job_ms"], job)])
            for part in sorted(parts, key=lambda part: -part["job_ms"])
        ),
        columns("messages, loops, cold", ["", "", rest, share(rest, job)]),
    )


def share(milliseconds: float, job: Result) -> str:
    return f"{milliseconds / job['processor_ms']:.0%}"


def large_table(case: Case, results: dict[str, Result]) -> str:
    head = f"A later round: {case.providers} providers, d = {case.dimension}, k = {case.components}"
    rows = {
        "round (s)": "round_seconds",
        "floor (s)": "floor_round_seconds",
        "floor, duties (s)": "floor_with_duties_round_seconds",
        "round / floor": "ratio",
        "  with duties / floor": "duties_ratio",
        "  round / with duties": "ratio_to_duties",
        f"whole job, T = {case.rounds} (s)": "job_seconds",
        "an answer (MB)": "answer_megabytes",
        "coordinator's peak (MB)": "coordinator_peak_megabytes",
        "it keeps, a job (MB)": "coordinator_kept_megabytes_a_job",
    }
    return lined(
        [head, columns("", results)],
        *(columns(title, [result[key] for result in results.values()]) for title, key in rows.items()),
    )


def other_lines(result: Result) -> str:
    idle, many = result["idle"], result["many"]
    weight, share_of_core = idle["megabytes_a_provider"], idle["share_of_a_core"]
    return (
        f"{idle['providers']} idle providers: {weight:.2f} MB each at the coordinator, {share_of_core:.1%} of a core\n"
        f"one job over {many['providers']} light providers in one process: {many['job_ms']:.0f} ms"
    )


def columns(title: str, values: Iterable[object]) -> str:
    cells = (f"{value:>12.2f}" if isinstance(value, float) else f"{value:>12}" for value in values)
    return f"{title:<26}" + "".join(cells)


def lined(head: Sequence[str], *rows: str) -> str:
    return "\n".join([*head, *rows])


if __name__ == "__main__":
    main()
