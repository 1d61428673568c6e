"""Clusters in tests: one whose workers are functions of this process, and files that it reads."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dpspca.common.dictionary import Preparation
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.cluster_rows import ClusterRows
from dpspca.provider.engines.counting import count_rows, task_fields
from dpspca.provider.engines.worker import work


class Here:
    """Does each task in this process, and remembers what was sent and what came back."""

    name = "the cluster of a test"

    def __init__(self, tasks: int = 2) -> None:
        self._tasks = tasks
        self.sent: list[bytes] = []
        self.came: list[bytes] = []

    def tasks(self) -> int:
        return self._tasks

    def run(self, messages: Sequence[bytes]) -> Iterator[bytes]:
        self.sent += messages
        for message in reversed(messages):  # in any order
            self.came.append(work(message))
            yield self.came[-1]


def folder_of(rows: np.ndarray, folder: Path, files: int = 3, ending: str = ".npy") -> Path:
    """Write rows into several files, of which one is empty."""
    folder.mkdir()
    edges = [0, *np.linspace(len(rows) // 5, len(rows), files - 1).astype(int), len(rows)]
    for place in range(files):
        part = rows[edges[place] : edges[place + 1]]
        if ending == ".npy":
            np.save(folder / f"{place:03}.npy", part)
        else:
            lines = [",".join(f"c{column}" for column in range(rows.shape[1]))]
            lines += [",".join(map(repr, map(float, row))) for row in part]
            (folder / f"{place:03}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def rows_of(
    folder: Path,
    cluster: Here | None = None,
    reading: Reading | None = None,
    preparation: Preparation | None = None,
    row_entries: int | None = None,
) -> ClusterRows:
    """Begin with a data set of a cluster."""
    return count_rows(cluster or Here(), task_fields(folder, reading or Reading(), preparation, row_entries))
