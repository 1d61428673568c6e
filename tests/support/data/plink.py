"""Writes genotypes in the forms of PLINK, and runs the real program where it is installed."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

Counts = NDArray[np.int8]
"""Copies of the first allele, samples by variants. -1 is a missing genotype."""

BITS = {2: 0b00, -1: 0b01, 1: 0b10, 0: 0b11}


def genotypes(samples: int, variants: int, seed: int = 0, *, missing: float = 0.1) -> Counts:
    generator = np.random.default_rng(seed)
    counts = generator.binomial(2, generator.uniform(0.1, 0.9, variants), (samples, variants)).astype(np.int8)
    counts[generator.random(counts.shape) < missing] = -1
    return counts


def alleles(variants: int) -> list[tuple[str, str]]:
    """Return pairs of alleles of which none can be mistaken for the other strand."""
    pairs = [("A", "C"), ("G", "A"), ("C", "T"), ("T", "G")]
    return [pairs[place % len(pairs)] for place in range(variants)]


def write_bed(prefix: Path, counts: Counts, pairs: Sequence[tuple[str, str]] | None = None) -> Path:
    """Write .bed, .bim and .fam, and return the path of the first."""
    samples, variants = counts.shape
    written = bytearray(b"\x6c\x1b\x01")
    for column in counts.T.tolist():
        for start in range(0, samples, 4):
            written.append(sum(BITS[count] << 2 * place for place, count in enumerate(column[start : start + 4])))
    prefix.with_name(prefix.name + ".bed").write_bytes(written)
    write_bim(prefix.with_name(prefix.name + ".bim"), pairs or alleles(variants))
    lines = [f"F{sample // 2} S{sample} 0 0 0 -9\n" for sample in range(samples)]
    prefix.with_name(prefix.name + ".fam").write_text("".join(lines), encoding="utf-8")
    return prefix.with_name(prefix.name + ".bed")


def write_bim(path: Path, pairs: Sequence[tuple[str, str]]) -> Path:
    lines = [f"1\trs{place}\t0\t{place + 1}\t{one}\t{two}\n" for place, (one, two) in enumerate(pairs)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def plink2(*arguments: object) -> None:
    """Run the program, or skip the test."""
    program = shutil.which("plink2")
    if program is None:
        pytest.skip("plink2 is not installed (Debian: apt-get install plink2)")
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stdout + done.stderr
