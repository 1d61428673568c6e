"""How long a pass over genotypes takes and how much memory, compared with plink2 and with plain numpy.

    python bench/genotypes.py [--quick] [--json] [--samples N] [--variants N] [--folder FOLDER]

Makes a .bed file of N samples and variants in a folder, and removes it in the end. Every step runs in a process of its
own. Times are of its processors, all threads together:

- "read" is what a provider does when it starts: it reads the file, checks it, and takes its digest and fingerprints.
- "prepare" is done once for a job and its centre: it computes a factor for each row.
- "pass" is the exact product X^T (X Q) with 20 columns. It is done three times, and the median counts.
- "plink2" is the whole of ``plink2 --pca approx 10``, and "plink2 pass" is an eleventh of it, because it makes 11
  passes with 20 columns. It is left out where it is not installed.
- "decode" reads the same numbers once, and does nothing with them: PLINK's own library (pgenlib) writes them as bytes,
  a thousand variants at a time.
- "numpy pass" is plain float64 ``X.T @ (X @ Q)`` over the same numbers in memory. It is left out where they do not fit.

Memory is the peak of resident memory above that of a process which only loads the code.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pgenlib

from dpspca.common.arrays import FloatArray
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.common.storage import Reading
from dpspca.provider.data import CheckedRows, read_offered
from dpspca.provider.evaluate import Shard
from dpspca.provider.kernels import load as load_kernels

Result: TypeAlias = dict[str, Any]

COLUMNS: Final = 20
PASSES_OF_PLINK: Final = 11
REPEATS: Final = 3
PLAIN_CELLS: Final = 2 * 10**8
"""The most numbers that are also multiplied in float64: 1.6 gigabytes."""
MISSING_SHARE: Final = 0.01
NORM_BOUND: Final = 1.0
THREADS: Final = os.cpu_count() or 1
STEPS: Final = ("program", "read", "pass", "decode", "numpy")
AT_A_TIME: Final = 1000


def write(path: Path, samples: int, variants: int, seed: int = 0) -> None:
    """Write genotypes in which allele frequencies differ, and one in a hundred is missing."""
    rng = np.random.default_rng(seed)
    with path.open("wb") as file:
        file.write(b"\x6c\x1b\x01")
        for _ in range(variants):
            share = rng.uniform(0.05, 0.95)
            drawn = rng.random((3, samples), dtype=np.float32)
            bits = np.array([3, 2, 0], dtype=np.uint8)[(drawn[:2] < share).sum(axis=0)]  # as PLINK writes 0, 1 and 2
            bits[drawn[2] < MISSING_SHARE] = 1
            quads = np.zeros(-(-samples // 4) * 4, dtype=np.uint8)
            quads[:samples] = bits
            file.write((quads.reshape(-1, 4) << np.arange(0, 8, 2, dtype=np.uint8)).sum(axis=1, dtype=np.uint8).data)
    lines = (f"1\trs{place}\t0\t{place + 1}\tA\tC\n" for place in range(variants))
    path.with_suffix(".bim").write_text("".join(lines), encoding="ascii")
    path.with_suffix(".fam").write_text("".join(f"F S{one} 0 0 0 -9\n" for one in range(samples)), encoding="ascii")


def read(path: Path) -> CheckedRows:
    """Read a file as a provider does when it starts. A missing genotype counts as 1."""
    return read_offered(path, Reading(missing=1.0))


def peak() -> int:
    """Return the most memory that this process had, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the time of all threads, and the result."""
    start = time.process_time()
    made = work()
    return time.process_time() - start, made


def basis(dimension: int) -> FloatArray:
    """Return orthonormal columns without arrays besides. No time depends on what is in them."""
    made = np.zeros((dimension, COLUMNS))
    for column in range(COLUMNS):
        made[column::COLUMNS, column] = len(range(column, dimension, COLUMNS)) ** -0.5
    return made


def measure(step: str, path: Path) -> Result:
    """Do one step in this process."""
    found: Result = {}
    load_kernels()
    if step == "decode":
        found["decode"], _ = timed(lambda: decode(path))
    elif step != "program":
        found["read"], rows = timed(lambda: read(path))
        if step == "read":
            found["checks"], _ = timed(lambda: (rows.digest(), rows.fingerprints()))
        elif step == "pass":
            found |= of_ours(rows)
        else:
            found |= of_numpy(rows)
    return {"step": step, "peak": peak(), **found}


def decode(path: Path) -> None:
    """Read all genotypes with the library of PLINK."""
    samples = len(path.with_suffix(".fam").read_bytes().splitlines())
    with pgenlib.PgenReader(os.fsencode(path), raw_sample_ct=samples) as stored:
        count = stored.get_variant_ct()
        counts = np.empty((AT_A_TIME, samples), dtype=np.int8)
        for start in range(0, count, AT_A_TIME):
            end = min(start + AT_A_TIME, count)
            stored.read_range(start, end, counts[: end - start])


def of_ours(rows: CheckedRows) -> Result:
    """Centre at public numbers, as genetics does, and multiply."""
    center = np.linspace(0.1, 1.9, rows.dimension)
    query = CovarianceProduct(basis(rows.dimension), center=center)
    shard = Shard(rows, NORM_BOUND * rows.dimension**0.5, keeps=True)
    prepare, _ = timed(lambda: shard._moments(center))  # noqa: SLF001  # what the first query would do
    return {"prepare": prepare, "passes": [timed(lambda: shard.evaluate(query))[0] for _ in range(REPEATS)]}


def of_numpy(rows: CheckedRows) -> Result:
    """Multiply the same numbers in float64."""
    whole: Any = rows.matrix[:].toarray()  # type: ignore[union-attr]
    given = basis(rows.dimension)
    return {"passes": [timed(lambda: whole.T @ (whole @ given))[0] for _ in range(REPEATS + 1)][1:]}


def in_own_process(step: str, path: Path) -> Result:
    """Do one step in a process of its own."""
    command = [sys.executable, __file__, "--step", step, "--path", str(path)]
    done = subprocess.run(command, capture_output=True, check=True)  # noqa: S603
    found: Result = json.loads(done.stdout)
    return found


def of_plink(path: Path, folder: Path) -> float | None:
    """Return the processor time of the whole program."""
    program = shutil.which("plink2")
    if program is None:
        return None
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [program, "--bfile", str(path.with_suffix("")), "--pca", "approx", str(COLUMNS // 2)]
    command += ["--threads", str(THREADS), "--out", str(folder / "plink")]
    subprocess.run(command, capture_output=True, check=True)  # noqa: S603
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compared(samples: int, variants: int, folder: Path) -> Result:
    """Measure all steps over one file."""
    path = folder / "panel.bed"
    write(path, samples, variants)
    cells = samples * variants
    steps = [step for step in STEPS if step != "numpy" or cells <= PLAIN_CELLS]
    found = {step: in_own_process(step, path) for step in steps}
    plink = of_plink(path, folder)
    seconds = {
        "read": found["read"]["read"],
        "digest and fingerprints": found["read"]["checks"],
        "prepare": found["pass"]["prepare"],
        "pass": statistics.median(found["pass"]["passes"]),
        "decode": found["decode"]["decode"],
    }
    if plink is not None:
        seconds |= {"plink2": plink, "plink2 pass": plink / PASSES_OF_PLINK}
    if "numpy" in found:
        seconds["numpy pass"] = statistics.median(found["numpy"]["passes"])
    size, idle = path.stat().st_size, found["program"]["peak"]
    memory = {step: (found[step]["peak"] - idle) / size for step in ("read", "pass")}
    return {"samples": samples, "variants": variants, "bytes": size, "seconds": seconds, "peak_of_source": memory}


def text(found: Result) -> str:
    """Lay out what was measured."""
    cells, seconds = found["samples"] * found["variants"], found["seconds"]
    one = seconds["pass"]
    lines = [f"{found['samples']:,} samples x {found['variants']:,} variants, {COLUMNS} columns, {THREADS} threads", ""]
    lines += ["| step | processor seconds | ns a cell | our pass / this |", "|---|---|---|---|"]
    for name, took in seconds.items():
        lines.append(f"| {name} | {took:.2f} | {1e9 * took / cells:.1f} | {one / took:.2f} |")
    before = sum(seconds[name] for name in ("read", "digest and fingerprints", "prepare"))
    lines += ["", f"All that comes before a pass takes {before / seconds['decode']:.2f} of decoding."]
    peaks = ", ".join(f"{name} {share:.2f}" for name, share in found["peak_of_source"].items())
    return "\n".join([*lines, "", f"Peak of memory, in units of the file's {found['bytes'] / 2**20:.0f} MiB: {peaks}."])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--variants", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where to put the file")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        print(json.dumps(measure(given.step, given.path)))
        return
    samples, variants = (300, 1000) if given.quick else (given.samples, given.variants)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        found = compared(samples, variants, Path(folder))
    print(json.dumps(found) if given.json else text(found))


if __name__ == "__main__":
    main()
