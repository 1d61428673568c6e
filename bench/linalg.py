"""How long our thin QR takes compared with numpy's, on the same matrices in the same run.

python bench/linalg.py [--quick] [--json]

Each row is the median over repeats, the two methods taking turns so that a busy machine slows both. The columns of
"independent" are Gaussian: Cholesky QR applied twice. "dependent" repeats a column: Householder, as numpy does.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np

from dpspca.common.linalg import FloatArray, thin_qr

Result = dict[str, str | float]


def main() -> None:
    arguments = parsed_arguments()
    rows, repeats = (100_000, 3) if arguments.quick else (1_000_000, 7)
    results = [measured(name, matrix, repeats) for name, matrix in matrices(rows, columns=10).items()]
    print(json.dumps(results, indent=2) if arguments.json else table(results))


def parsed_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time thin_qr against numpy.linalg.qr.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, fewer repeats")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    return parser.parse_args()


def matrices(rows: int, columns: int) -> dict[str, FloatArray]:
    independent = np.random.default_rng(0).standard_normal((rows, columns))
    dependent = independent.copy()
    dependent[:, -1] = dependent[:, 0]
    return {"independent": independent, "dependent": dependent}


def measured(name: str, matrix: FloatArray, repeats: int) -> Result:
    ours, numpys = [], []
    for _ in range(repeats):
        ours.append(seconds(thin_qr, matrix))
        numpys.append(seconds(np.linalg.qr, matrix))
    q = thin_qr(matrix)[0]
    return {
        "matrix": name,
        "rows": matrix.shape[0],
        "columns": matrix.shape[1],
        "repeats": repeats,
        "thin_qr_seconds": statistics.median(ours),
        "numpy_seconds": statistics.median(numpys),
        "speedup": statistics.median(numpys) / statistics.median(ours),
        "departure_from_orthonormal": float(np.abs(q.T @ q - np.eye(q.shape[1])).max()),
    }


def seconds(factor: Callable[[FloatArray], object], matrix: FloatArray) -> float:
    start = time.perf_counter()
    factor(matrix)
    return time.perf_counter() - start


def table(results: list[Result]) -> str:
    lines = [f"{'matrix':<24}{'thin_qr':>10}{'numpy':>10}{'speedup':>9}{'|Q^T Q - I|':>13}"]
    for result in results:
        shape = f"{result['matrix']} {result['rows']} x {result['columns']}"
        lines.append(
            f"{shape:<24}{result['thin_qr_seconds']:>8.3f} s{result['numpy_seconds']:>8.3f} s"
            f"{result['speedup']:>8.1f}x{result['departure_from_orthonormal']:>13.1e}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
