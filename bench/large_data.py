"""Memory and time of rows that are larger than memory: a Parquet file and a .npy file, read and asked about.

    python bench/large_data.py [--quick] [--json] [--mebibytes N] [--memory N] [--columns N] [--repeats N]
                               [--folder FOLDER]

Makes a source of N mebibytes in a folder, and removes it in the end. Each line is measured in a process of its own,
with its peak of resident memory. Steps are measured in turns, and of repeats the medians are shown:

- "program" only loads the code, for comparison.
- "decode" reads the source with pyarrow (or, of .npy, with numpy) and does nothing with it.
- "start" does what a provider does when it first reads rows: it writes them into scratch and takes their digest and
  fingerprints.
- "restart" does what it does when its ledger has all fingerprints of the rows.
- "matrix" makes the square matrix of all columns, one pass over the rows.
- "product" multiplies with 5 columns, twice. The first time, integers are written to scratch for the second.

"peak" is the memory above that of "program", and "cap" is what the setting ``memory_mebibytes`` allows. "speed" is how
fast the source's bytes went by, in units of "decode". "processor" is the processor time of all threads, in units of
"decode" too: unlike speed, other programs on the machine hardly change it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dpspca.common.linalg import thin_qr
from dpspca.common.queries.rows import Covariance, CovarianceProduct
from dpspca.provider.data import CheckedRows, Scratch, identify, read_offered
from dpspca.provider.evaluate import Shard, Strategy
from dpspca.provider.kernels import load as load_kernels

MEBIBYTE: Final = 2**20
NORM_BOUND: Final = 20.0
BATCH_ROWS: Final = 65_536
Seconds: TypeAlias = tuple[float, float]
"""By the clock, and of processors."""
STEPS: Final = ("program", "decode", "start", "restart", "matrix", "product")


def peak() -> int:
    """Return the most memory that this process had, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def blocks(size: int, columns: int) -> Iterator[np.ndarray[Any, np.dtype[np.float64]]]:
    """Give rows of so many bytes together, some at a time."""
    rng, left = np.random.default_rng(0), size // (8 * columns)
    step = max(1, 8 * MEBIBYTE // columns // 8)
    while left > 0:
        block = rng.standard_normal((min(step, left), columns))
        left -= len(block)
        yield np.round(block, 3)


def write(path: Path, size: int, columns: int) -> None:
    """Make a source of so many bytes as numbers; a Parquet file is packed, and so smaller."""
    if path.suffix == ".npy":
        rows = size // (8 * columns)
        with path.open("wb") as file:
            form = {"descr": "<f8", "fortran_order": False, "shape": (rows, columns)}
            np.lib.format.write_array_header_1_0(file, form)  # type: ignore[arg-type]
            for block in blocks(size, columns):
                file.write(block.data)
        return
    schema = pa.schema([(f"c{place}", pa.float64()) for place in range(columns)])
    with pyarrow.parquet.ParquetWriter(path, schema) as file:
        for block in blocks(size, columns):
            file.write_table(pa.table(list(np.ascontiguousarray(block.T)), schema=schema))


def decode(path: Path) -> None:
    """Read every number, and do nothing with it."""
    if path.suffix == ".npy":
        with path.open("rb", buffering=0) as file:
            held = bytearray(8 * MEBIBYTE)
            while file.readinto(held):
                pass
        return
    with pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**16) as stored:
        for _ in stored.iter_batches(BATCH_ROWS):
            pass


def start(path: Path, folder: Path, memory: int) -> CheckedRows:
    """Read rows as a provider does when it starts."""
    return read_offered(path, scratch=Scratch(folder / "scratch", memory))


def seconds(work: Callable[[], object]) -> Seconds:
    """Time some work."""
    began = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began[0], time.process_time() - began[1]


def measure(step: str, path: Path, folder: Path, memory: int) -> dict[str, Any]:
    """Do one step in this process."""
    took: list[Seconds] = []
    load_kernels()
    if step == "decode":
        took = [seconds(lambda: decode(path))]
    elif step == "start":
        took = [seconds(lambda: identify(start(path, folder, memory)))]
    elif step == "restart":
        took = [seconds(lambda: identify(start(path, folder, memory), lambda _: True))]
    elif step != "program":
        rows = start(path, folder, memory)
        if step == "matrix":
            shard = Shard(rows, NORM_BOUND, strategy=Strategy.GRAM)
            took = [seconds(lambda: shard.evaluate(Covariance(rows.dimension)))]
        else:
            shard = Shard(rows, NORM_BOUND, keeps=True)
            basis = thin_qr(np.random.default_rng(1).standard_normal((rows.dimension, 5)))[0]
            took = [seconds(lambda: shard.evaluate(CovarianceProduct(basis))) for _ in range(2)]
    return {"step": step, "seconds": took, "peak": peak()}


def in_own_process(step: str, path: Path, folder: Path, memory: int) -> dict[str, Any]:
    """Do one step in a process of its own."""
    command = [sys.executable, __file__, "--step", step, "--path", str(path), "--folder", str(folder)]
    done = subprocess.run([*command, "--memory", str(memory // MEBIBYTE)], capture_output=True, check=True)  # noqa: S603
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def medians(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of repeats of one step."""
    took = np.median([each["seconds"] for each in found], axis=0).reshape(-1, 2).tolist()
    return {"step": found[0]["step"], "seconds": took, "peak": float(np.median([each["peak"] for each in found]))}


def table(size: int, columns: int, memory: int, folder: Path, repeats: int) -> list[dict[str, Any]]:
    """Measure all steps over both kinds of sources."""
    lines = []
    for name in ("rows.parquet", "rows.npy"):
        path = folder / name
        write(path, size, columns)
        in_turns = [[in_own_process(step, path, folder, memory) for step in STEPS] for _ in range(repeats)]
        found = [medians(of_step) for of_step in zip(*in_turns, strict=True)]
        program, (plain, worked) = found[0]["peak"], found[1]["seconds"][0]
        for each in found[1:]:
            lines += [
                {
                    "source": path.suffix,
                    "step": each["step"] + ("" if place == 0 else " again"),
                    "seconds": took,
                    "speed": plain / took,
                    "processor": working / worked,
                    "peak_mebibytes": (each["peak"] - program) / MEBIBYTE,
                    "resident_mebibytes": each["peak"] / MEBIBYTE,
                    "of_cap": (each["peak"] - program) / memory,
                }
                for place, (took, working) in enumerate(each["seconds"])
            ]
        path.unlink()
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small source")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--mebibytes", type=int, default=4096, help="of numbers in the source")
    parser.add_argument("--memory", type=int, default=256, help="the cap, in mebibytes")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where to put the source and scratch")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    memory = given.memory * MEBIBYTE
    if given.step:
        print(json.dumps(measure(given.step, given.path, given.folder, memory)))
        return
    size = 16 * MEBIBYTE if given.quick else given.mebibytes * MEBIBYTE
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        lines = table(size, given.columns, memory, Path(folder), given.repeats)
    if given.json:
        print(json.dumps({"mebibytes": size / MEBIBYTE, "cap_mebibytes": given.memory, "lines": lines}))
        return
    print(f"{size // MEBIBYTE} MiB of numbers, {given.columns} columns, cap {given.memory} MiB\n")
    print(f"{'source':<10}{'step':<16}{'seconds':>9}{'speed':>8}{'processor':>11}{'peak MiB':>10}{'of cap':>8}")
    for line in lines:
        print(
            f"{line['source']:<10}{line['step']:<16}{line['seconds']:>9.2f}{line['speed']:>8.2f}"
            f"{line['processor']:>11.2f}{line['peak_mebibytes']:>10.0f}{line['of_cap']:>8.2f}"
        )


if __name__ == "__main__":
    main()
