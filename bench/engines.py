"""What a pass over the rows costs where a cluster makes it, beside threads of the provider itself.

    python bench/engines.py [--quick] [--spark] [--json]

A pass is the product of the second moments with a basis of five columns. Rows have 50 columns and are in eight files.
All engines have two processes or threads and read the same files, and every pass is checked to have the same bits.

- "threads": rows are in scratch, where the provider put them at its start.
- "tasks": the work of the workers, done by this process, one task after the other: reading, hashing, adding up.
- "dask": a scheduler and two worker processes on this machine, without encryption.
- "spark": two executors on this machine, without encryption (--spark; it needs Java).

Eight rows show what an engine itself takes for a pass. Medians of several passes, in turns. "ns" is nanoseconds of a
processor for each number, of "tasks".
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dpspca.common.queries import CovarianceProduct
from dpspca.common.storage import EngineKind, EngineSettings, Reading
from dpspca.provider.data import Cluster, Scratch, read_offered
from dpspca.provider.engines import ClusterSums, count_rows, open_cluster, task_fields, work
from dpspca.provider.evaluate import LocalSums, LocalThreads, RowSums, WideIntegers

COLUMNS: Final = 50
FILES: Final = 8
PROCESSES: Final = 2
NORM_BOUND: Final = 8.0
MEBIBYTE: Final = 2.0**20
BASIS: Final = np.linalg.qr(np.random.default_rng(0).standard_normal((COLUMNS, 5)))[0]


class Tasks:
    """Does each task in this process."""

    name = "this process"

    def tasks(self) -> int:
        """Return the number of tasks of a pass."""
        return FILES

    def run(self, messages: Sequence[bytes]) -> Iterator[bytes]:
        """Do them one after the other."""
        return map(work, messages)


@contextmanager
def dask() -> Iterator[Cluster]:
    """Start a cluster of Dask."""
    import distributed  # noqa: PLC0415  # of an extra

    with distributed.LocalCluster(
        n_workers=PROCESSES, threads_per_worker=1, dashboard_address=None, protocol="tcp"
    ) as started:
        yield open_cluster(EngineSettings(engine=EngineKind.DASK, scheduler=started.scheduler_address, tasks=FILES))


@contextmanager
def spark() -> Iterator[Cluster]:
    """Start a cluster of Spark."""
    conf = {
        "spark.pyspark.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[1] / "src"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
    }
    master = f"local-cluster[{PROCESSES},1,1024]"
    yield open_cluster(EngineSettings(engine=EngineKind.SPARK, master=master, conf=conf, tasks=FILES))


def write(rows: int, ending: str, folder: Path) -> Path:
    """Write a data set."""
    folder.mkdir()
    for place in range(FILES):
        part = np.random.default_rng(place).standard_normal((rows // FILES, COLUMNS))
        names = [f"c{column}" for column in range(COLUMNS)]
        if ending == "npy":
            np.save(folder / f"{place}.npy", part)
        elif ending == "csv":
            np.savetxt(folder / f"{place}.csv", part, delimiter=",", header=",".join(names), comments="")
        else:
            pyarrow.parquet.write_table(pa.table(list(part.T.copy()), names=names), folder / f"{place}.parquet")
    return folder


def seconds(sums: RowSums, clock: Callable[[], float] = time.perf_counter) -> tuple[float, WideIntegers]:
    """Time a pass."""
    begun = clock()
    (found,) = sums.of(CovarianceProduct(BASIS))
    assert isinstance(found, WideIntegers)
    return clock() - begun, found


def measure(source: Path, clusters: dict[str, Cluster], repeats: int, scratch: Scratch) -> dict[str, float]:
    """Time passes of all engines over one data set, in turns."""
    engines: dict[str, RowSums] = {
        "threads": LocalSums(read_offered(source, scratch=scratch), NORM_BOUND, engine=LocalThreads(PROCESSES))
    }
    for name, cluster in clusters.items():
        engines[name] = ClusterSums(count_rows(cluster, task_fields(source, Reading(), None, None)), NORM_BOUND)
    _, expected = seconds(engines["threads"])
    found: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(repeats):
        for name, sums in engines.items():
            taken, got = seconds(sums)
            assert (got.low == expected.low).all()
            assert (got.high == expected.high).all()
            found[name].append(taken)
    spent = min(seconds(engines["tasks"], time.process_time)[0] for _ in range(repeats))
    return {name: median(each) for name, each in found.items()} | {"processor": spent}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args()
    many, repeats = (40_000, 3) if told.quick else (200_000, 5)
    starting: dict[str, Callable[[], Any]] = {"dask": dask} | ({"spark": spark} if told.spark else {})
    table = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        scratch = Scratch(folder / "scratch")
        clusters: dict[str, Cluster] = {"tasks": Tasks()}
        clusters |= {name: stack.enter_context(start()) for name, start in starting.items()}
        for rows, ending in ((FILES, "npy"), (many, "npy"), (many, "parquet"), (many // 8, "csv")):
            source = write(rows, ending, folder / f"{rows}-{ending}")
            size = sum(file.stat().st_size for file in source.iterdir()) / MEBIBYTE
            table.append({"rows": rows, "files": ending, "MiB": size, **measure(source, clusters, repeats, scratch)})
    if told.json:
        print(json.dumps(table))
        return
    names = ["threads", *clusters]
    print("| rows | files | MiB | " + " | ".join(names) + " | ns |")
    print("|---" * (4 + len(names)) + "|")
    for line in table:
        times = " | ".join(f"{line[name]:.3f}" for name in names)
        nanoseconds = f"{1e9 * line['processor'] / (line['rows'] * COLUMNS):.0f}" if line["rows"] > FILES else ""
        print(f"| {line['rows']:,} | {line['files']} | {line['MiB']:.0f} | {times} | {nanoseconds} |")


if __name__ == "__main__":
    main()
