"""An analyst finds sparse components of rows that are on this machine, and reads what the result cost.

Run it with ``python examples/analyst.py [FOLDER]``. It writes the model and its privacy statement to the folder.
"""

import sys
from pathlib import Path

import numpy as np

from dpspca import DPSPCA, save_model


def made_up_rows() -> np.ndarray:
    """Make 50,000 rows with 100 columns. Columns 0 to 3 vary together; the other columns are noise."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((50_000, 100))
    rows[:, :4] += rng.standard_normal((50_000, 2)) @ [[5, 4, 3, 3], [3, -4, 3, -3]]
    return rows


def main(folder: Path) -> None:
    """Fit, print what was found and what it cost, and store the model."""
    pca = DPSPCA(
        n_components=2,
        sparsity=10,  # at most 10 columns take part, all components together
        epsilon=1.0,
        delta=1e-6,
        norm_bound=20.0,  # from public knowledge of the columns, never from the rows
        unit="row-replace-one",  # one row may be replaced by any other; the number of rows is public
    )
    pca.fit(made_up_rows())

    print("Columns that take part:", *pca.support_)
    print("Share of the variance explained (noisy):", *pca.explained_variance_ratio_.round(2))
    print()
    print(pca.privacy_.text)

    folder.mkdir(parents=True, exist_ok=True)
    save_model(pca.model_, folder / "model.dpspca")
    (folder / "statement.txt").write_text(pca.privacy_.text + "\n", encoding="utf-8")
    print()
    print(f"Wrote model.dpspca and statement.txt to {folder}. `dpspca model show {folder}/model.dpspca` prints it.")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/examples"))
