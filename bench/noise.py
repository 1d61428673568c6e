"""How fast integer noise is drawn on one core, compared with OpenDP's sampler and numpy's rounded floats.

    python bench/noise.py [--quick] [--json]

Every line is integers a second, the best of three. The ratio is to OpenDP's discrete law of the same scale. numpy's
rounded normals are not private; they show what floating point would cost.
"""

import argparse
import importlib
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dpspca.common.privacy import keystream
from dpspca.common.privacy.noise import DiscreteGaussian, DiscreteLaplace
from dpspca.provider.release.entropy import system_entropy

SCALES = {"2^10": 2.0**10, "2^20": 2.0**20, "2^40": 2.0**40}
Draw = Callable[[int], object]


def opendp(law: str, scale: float) -> Draw:
    dp: Any = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")
    metric = {"gaussian": dp.l2_distance, "laplace": dp.l1_distance}[law](T="i64")
    make = {"gaussian": dp.m.make_gaussian, "laplace": dp.m.make_laplace}[law]
    measurement = make(dp.vector_domain(dp.atom_domain(T="i64")), metric, scale=scale)
    return lambda count: measurement([0] * count)


def rounded(law: str, scale: float) -> Draw:
    generator = np.random.default_rng(1)
    draw = {"gaussian": generator.normal, "laplace": generator.laplace}[law]
    return lambda count: np.rint(draw(0.0, scale, count)).astype(np.int64)


def ours(law: str, scale: float) -> Draw:
    source = system_entropy(keystream.Draw("bench", 0, 0, "", keystream.Purpose.NOISE))
    gaussian = law == "gaussian"
    noise = DiscreteGaussian.with_std_at_least(scale) if gaussian else DiscreteLaplace.with_scale_at_least(scale)
    return lambda count: noise.sample(count, source)


def rate(draw: Draw, count: int) -> float:
    """Return integers a second, the best of three, with tables already built."""
    draw(1)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        draw(count)
        seconds.append(time.perf_counter() - start)
    return count / min(seconds)


def measure(law: str, scale: float, count: int) -> dict[str, float]:
    start = time.perf_counter()
    first = ours(law, scale)
    first(1)
    tables = time.perf_counter() - start
    rates = {
        "ours": rate(first, count),
        "opendp": rate(opendp(law, scale), count // 1000),
        "numpy": rate(rounded(law, scale), count),
    }
    return {**rates, "ratio": rates["ours"] / rates["opendp"], "tables_ms": 1e3 * tables}


def main() -> None:
    parser = argparse.ArgumentParser(description="integers drawn a second on one core")
    parser.add_argument("--quick", action="store_true", help="a tenth of the draws")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of a table")
    options = parser.parse_args()
    count = 1_000_000 if options.quick else 10_000_000
    results = {
        law: {name: measure(law, scale, count) for name, scale in SCALES.items()} for law in ("gaussian", "laplace")
    }
    if options.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{'law':10}{'scale':>6}{'ours':>12}{'OpenDP':>12}{'ratio':>9}{'numpy':>12}{'tables':>12}")
    for law, by_scale in results.items():
        for name, row in by_scale.items():
            millions = {key: f"{row[key] / 1e6:.3g} M/s" for key in ("ours", "opendp", "numpy")}
            print(
                f"{law:10}{name:>6}{millions['ours']:>12}{millions['opendp']:>12}{row['ratio']:>8.0f}x"
                f"{millions['numpy']:>12}{row['tables_ms']:>9.0f} ms"
            )


if __name__ == "__main__":
    main()
