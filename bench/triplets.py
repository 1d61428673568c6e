"""Triplets in PostgreSQL become sparse rows: how long that takes beside ``COPY ... TO STDOUT``, in one run.

It starts a PostgreSQL server of its own and fills a table with made-up triplets of whole numbers. Then it reads the
table in turns with psql, which throws away what comes, and as a provider does. Options say how large the table is. Run
it with ``PYTHONPATH=tests/support:tests/support/data python bench/triplets.py``.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import database
import psycopg

from dpspca.common.dictionary import Dictionary, Preparation
from dpspca.common.storage import Reading, Triplets
from dpspca.provider.data import read_offered
from dpspca.provider.data.sources import read_as_stored
from dpspca.provider.kernels import load as load_kernels

MADE = """
CREATE UNLOGGED TABLE covariates AS SELECT 10 + (random() * ({persons} - 1))::bigint * 7 AS row_id,
1000 * (random() * ({concepts} - 1))::bigint + 210 AS covariate_id, 1.0::float8 AS covariate_value
FROM generate_series(1, {triplets})
"""


def main() -> None:
    chosen = options()
    load_kernels()
    with database.server() as server, tempfile.TemporaryDirectory() as folder:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(MADE.format(**vars(chosen)).encode())
            connection.execute("VACUUM ANALYZE covariates")
        place = Path(folder) / "warehouse.postgresql"
        place.write_text(server.url(), encoding="utf-8")
        place.chmod(0o600)
        print(json.dumps(measured(chosen, server, place), indent=2))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    for name, usual in (("triplets", 4_000_000), ("persons", 200_000), ("concepts", 160_000), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    return parser.parse_args()


def measured(chosen: argparse.Namespace, server: database.Server, place: Path) -> dict[str, Any]:
    reading = declared(chosen, place.parent)
    prepared = replace(reading, columns=None).prepared(Preparation.parse(dictionary(chosen), None, None))
    copy = [database.program("psql"), server.url(), "-c", "COPY covariates TO STDOUT"]
    ways: dict[str, Any] = {
        "COPY TO STDOUT": lambda: subprocess.run(copy, stdout=subprocess.DEVNULL, check=True),  # noqa: S603  # psql
        "loaded as CSR": lambda: read_as_stored(place, reading),
        "as a provider": lambda: read_offered(place, reading),
        "with a dictionary": lambda: read_offered(place, prepared),
    }
    clocks = {"seconds": time.perf_counter, "processor_seconds": lambda: processor_seconds(server)}
    took: dict[str, dict[str, list[float]]] = {clock: {name: [] for name in ways} for clock in clocks}
    for _ in range(chosen.repeats):
        for name, way in ways.items():
            start = {clock: read() for clock, read in clocks.items()}
            way()
            time.sleep(0.2)  # the server counts a session's time after its end
            for clock, read in clocks.items():
                took[clock][name].append(read() - start[clock] - (0.2 if clock == "seconds" else 0))
    return {
        **vars(chosen),
        **{clock: summary(each) for clock, each in took.items()},
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def summary(took: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Return medians, and the medians of what each is as a multiple of COPY beside it."""
    plain = took["COPY TO STDOUT"]
    return {
        name: {
            "median": round(statistics.median(each), 2),
            "of COPY": round(statistics.median(own / copied for own, copied in zip(each, plain, strict=True)), 2),
        }
        for name, each in took.items()
    }


def processor_seconds(server: database.Server) -> float:
    """Return what this process, its children and the sessions of the server took. Other programs make it no longer."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    postmaster = (server.folder / "data" / "postmaster.pid").read_text(encoding="utf-8").split()[0]
    of_sessions = Path(f"/proc/{postmaster}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[13:15]
    ticks = sum(map(int, of_sessions)) / os.sysconf("SC_CLK_TCK")
    return time.process_time() + children.ru_utime + children.ru_stime + ticks


def declared(chosen: argparse.Namespace, folder: Path) -> Reading:
    rows = folder / "persons.txt"
    rows.write_text("".join(f"{10 + 7 * number}\n" for number in range(chosen.persons)), encoding="utf-8")
    told = Triplets(row="row_id", column="covariate_id", value="covariate_value", rows=rows)
    columns = tuple(str(1000 * number + 210) for number in range(chosen.concepts))
    return Reading(table="covariates", triplets=told, columns=columns)


def dictionary(chosen: argparse.Namespace) -> Dictionary:
    one = {"kind": "number", "unit": "", "range": [0, 1], "centre": 0}
    features = {f"concept {number}": one | {"concept": 1000 * number + 210} for number in range(chosen.concepts)}
    return Dictionary.parse({"format": "dpspca-dictionary-1", "features": features})


if __name__ == "__main__":
    main()
