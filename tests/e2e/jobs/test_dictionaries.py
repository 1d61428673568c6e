"""Three hospitals with other names, codes and units answer one job by a shared dictionary, over a real federation."""

import asyncio
import json
import os
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from coordinator_processes import free_port
from daemons import Daemons, daemons
from facts import names_facts
from live import COMMAND
from local_federation import permissive_policy
from numpy.typing import NDArray

from dpspca import DPSPCA, Federation, load_dictionary, load_model
from dpspca.client.federation import AsyncFederation
from dpspca.common.dictionary import Dictionary, prepare_table
from dpspca.common.job import Budget
from dpspca.common.privacy import PrivacyUnit

STUDY = """
format = "dpspca-dictionary-1"
title = "Three hospitals"
[features.age]
kind = "number"
unit = "years"
range = [0, 110]
[features.bmi]
kind = "number"
unit = "kg/m²"
range = [10, 60]
[features."mean area"]
kind = "number"
unit = "µm²"
range = [100, 3000]
centre = 700
missing_codes = [-9]
[features.sex]
kind = "category"
levels = ["female", "male"]
"""
JOB = """
data_set = "cohort"
dictionary = "study.toml"
features = ["mean area", "sex", "age"]
unit = "row-replace-one"
components = 2
minimum_providers = 3
answer_seconds = 20
[budget]
epsilon = 4.0
delta = 1e-6
"""
CODES = '{ column = "Geschlecht", levels = { w = "female", m = "male" } }'
NORTH = f"""
cohort = "north.csv"
[reading.cohort]
decimal = ","
delimiter = ";"
[dictionaries.cohort]
file = "study.toml"
[dictionaries.cohort.columns]
age = "Alter"
"mean area" = "Fläche"
sex = {CODES}
"""
SOUTH = """
cohort = "south.parquet"
[dictionaries.cohort]
file = "study.toml"
absent = ["bmi"]
"""
WEST = """
cohort = "west.db"
[dictionaries.cohort]
file = "study.toml"
[dictionaries.cohort.columns]
sex = { levels = { 1 = "female", 2 = "male" } }
"""
CORRECTION = '"mean area" = { factor = 100 }\n'


def fuzz_parties(seed: int) -> pd.DataFrame:
    """Draw people whose areas grow with age."""
    drawn = np.random.default_rng(seed)
    age = drawn.integers(20, 90, 300).astype(float)
    area = np.clip(300 + 12 * age + drawn.normal(0, 60, 300), 110, 2900).round(1)
    sex = drawn.choice(["female", "male"], 300)
    return pd.DataFrame({"age": age, "bmi": drawn.uniform(18, 40, 300).round(1), "mean area": area, "sex": sex})


PEOPLE = {name: fuzz_parties(seed) for seed, name in enumerate(("north", "south", "west"))}


def write_files(folder: Path) -> None:
    """Write each hospital's own file: German text; typed columns in another order; a database in other units."""
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    (folder / "other.toml").write_text(STUDY.replace("110", "120"), encoding="utf-8")
    (folder / "job.toml").write_text(JOB, encoding="utf-8")
    north = PEOPLE["north"].replace({"sex": {"female": "w", "male": "m"}})
    north.columns = pd.Index(["Alter", "bmi", "Fläche", "Geschlecht"])
    north.to_csv(folder / "north.csv", sep=";", decimal=",", index=False)
    PEOPLE["south"][["sex", "mean area", "age"]].assign(ward="a").to_parquet(folder / "south.parquet")
    west = PEOPLE["west"].replace({"sex": {"female": 1, "male": 2}})
    west["mean area"] = west["mean area"] / 100
    with closing(sqlite3.connect(folder / "west.db")) as database:
        west.to_sql("people", database, index=False)


async def command(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of an analyst or a steward."""
    plain = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
    return await asyncio.to_thread(
        subprocess.run, [*COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False, env=plain
    )


async def declare(running: Daemons, name: str, declared: str) -> None:
    """Restart a provider with other settings of its data set."""
    provider = running.providers[name]
    await provider.end()
    path = running.enrolment.folder / f"{name}.toml"
    path.write_text(path.read_text(encoding="utf-8").partition("[data_sets]")[0] + "[data_sets]" + declared, "utf-8")
    await provider.start()
    await provider.says("Connected")


@asynccontextmanager
async def hospitals(folder: Path) -> AsyncIterator[Daemons]:
    rows = {name: {"cohort": np.random.default_rng(seed).random((9, 2))} for seed, name in enumerate(PEOPLE)}
    policy = permissive_policy("row-replace-one").replace("explained_variance", "dictionary = true\nexplained_variance")
    async with daemons(folder, f"127.0.0.1:{free_port()}", policy, rows) as running:
        write_files(folder)
        for name, declared in (("north", NORTH), ("south", SOUTH), ("west", WEST)):
            await declare(running, name, declared)
        yield running


def suspected(checked: "subprocess.CompletedProcess[str]") -> list[Any]:
    (found,) = json.loads(checked.stdout)["data_sets"]
    return [each["suspicion"] for each in found["facts"]["features"] if each["suspicion"]]


def expected(known: Dictionary, features: Sequence[str]) -> NDArray[np.float64]:
    """Return the first component of everybody's rows, in the right units and without noise."""
    rows = np.concatenate([prepare_table(known.subset(features), each) for each in PEOPLE.values()])
    return np.linalg.eigh(rows.T @ rows)[1][:, -1]


async def wrong_units_are_found_and_clipped(folder: Path) -> None:
    async with hospitals(folder) as running:
        known = load_dictionary(folder / "study.toml")
        checked = await command(folder, "data", "check", "--config", "west.toml", "--json")
        assert checked.returncode == 1
        assert suspected(checked) == [{"name": "a factor of 100", "factor": 100.0, "offset": 0.0}]
        clipped = await command(folder, "data", "preview", "--config", "west.toml", "--json")
        area = json.loads(clipped.stdout)["features"][2]
        assert (area["remark"], area["prepared"]) == ("clipped to 100", {"mean area": (100 - 700) / 2300})

        await declare(running, "west", WEST + CORRECTION)
        checked = await command(folder, "data", "check", "--config", "west.toml", "--json")
        assert (checked.returncode, suspected(checked)) == (0, [])

        listed = await command(folder, "datasets", "--config", "ada.toml", "--json")
        pinned = {"digest": known.digest(), "title": "Three hospitals"}
        offered = json.loads(listed.stdout)["data_sets"]  # one hospital has a feature less
        assert [each["dictionary"] for each in offered] == [pinned] * 2
        assert "Three hospitals" in (await command(folder, "datasets", "--config", "ada.toml")).stdout

        done = await command(folder, "run", "job.toml", "--config", "ada.toml")
        assert done.returncode == 0, done.stderr
        model = load_model(folder / "model.dpspca")
        assert model.feature_names == ("mean area", "sex=female", "sex=male", "age")
        assert model.dictionary == known.subset(["mean area", "sex", "age"])
        assert (model.statement.parties, model.statement.dictionary) == (3, known.digest())
        assert known.digest() in done.stdout
        assert model.statement.norm_bound == known.subset(["mean area", "sex", "age"]).norm_bound()
        assert abs(model.components[0] @ expected(known, ["mean area", "sex", "age"])) > 0.95

        await transforms_agree(folder, model.transform(PEOPLE["north"]))
        await later_results_prepare_rows_too(folder, done.stderr.split()[1])
        await a_written_job_feeds_run_from_another_folder(folder, known)


async def a_written_job_feeds_run_from_another_folder(folder: Path, known: Dictionary) -> None:
    """Terms are known for the job's dictionary, and the model of the written job prepares raw rows."""
    (folder / "jobs").mkdir()
    held = await command(folder, "plan", "job.toml", "--config", "ada.toml", "--write", "jobs/fit.json", "--json")
    assert held.returncode == 0, held.stderr
    assert json.loads(held.stdout)["fit"]["fits_as_it_is"]
    told = await command(folder / "jobs", "terms", "--job", "fit.json", "--config", "../ada.toml")
    assert told.returncode == 0, told.stdout
    done = await command(folder / "jobs", "run", "fit.json", "--config", "../ada.toml", "--out", "fit.dpspca")
    assert done.returncode == 0, done.stderr
    assert load_model(folder / "jobs" / "fit.dpspca").dictionary == known.subset(["mean area", "sex", "age"])


async def transforms_agree(folder: Path, scores: NDArray[np.float64]) -> None:
    """A site's own file, read as its settings say, gives the scores of the same rows in the dictionary's terms."""
    made = await command(
        folder, "model", "project", "model.dpspca", "north.csv", "--config", "north.toml", "--data-set", "cohort"
    )
    assert made.returncode == 0, made.stderr
    np.testing.assert_allclose(np.load(folder / "scores.npy"), scores, atol=1e-12)
    PEOPLE["north"].to_parquet(folder / "plain.parquet")
    plain = await command(folder, "model", "project", "model.dpspca", "plain.parquet", "--out", "plain.npy")
    assert plain.returncode == 0, plain.stderr
    np.testing.assert_array_equal(np.load(folder / "plain.npy"), scores)
    words = ("south.parquet", "--dictionary", "other.toml", "--out", "other.npy")
    other = await command(folder, "model", "project", "model.dpspca", *words)
    assert other.returncode == 2
    assert "names the dictionary" in other.stderr


async def later_results_prepare_rows_too(folder: Path, job: str) -> None:
    """A result that is fetched later is given the dictionary, or the model says that it lacks it."""
    for more, said in (("--dictionary", "study.toml"), ""), ((), "the model lacks"):
        again = await command(
            folder, "jobs", "result", job, "--config", "ada.toml", "--out", "again.dpspca", "--force", *more
        )
        assert again.returncode == 0, again.stderr
        words = ("again.dpspca", "plain.parquet", "--out", "again.npy", "--force")
        made = await command(folder, "model", "project", *words)
        assert (made.returncode, said in made.stderr) == (2 if said else 0, True)


@pytest.mark.slow
def test_wrong_units_at_one_hospital_are_found_and_clipped(tmp_path: Path) -> None:
    asyncio.run(wrong_units_are_found_and_clipped(tmp_path))


async def another_dictionary_or_a_missing_feature_costs_nothing(folder: Path) -> None:
    async with hospitals(folder) as running:
        await declare(running, "west", WEST.replace("study.toml", "other.toml"))
        refused = await command(folder, "run", "job.toml", "--config", "ada.toml")
        assert refused.returncode == 2
        assert names_facts(refused.stderr, "west", "(other-dictionary)")
        digests = [load_dictionary(folder / name).digest() for name in ("study.toml", "other.toml")]
        assert not any(digest in refused.stderr for digest in digests[1:])
        for digest in digests:
            await running.providers["west"].says(digest)
        (folder / "bmi.toml").write_text(JOB.replace('"age"', '"bmi"'), encoding="utf-8")
        absent = await command(folder, "run", "bmi.toml", "--config", "ada.toml")
        assert absent.returncode == 2
        assert names_facts(absent.stderr, "'cohort'", "south", "'bmi'")
        known = load_dictionary(folder / "study.toml")
        without = known.job(["age", "bmi"], unit=PrivacyUnit.ROW_REPLACE_ONE, budget=Budget(4.0, 1e-6), components=1)
        async with AsyncFederation.connect(folder / "ada.toml") as federation:
            model = await federation.fit(without, "cohort", ["north"], dictionary=known)
            assert model.transform(PEOPLE["north"]).shape == (300, 1)
            before = await federation.jobs()
        await asyncio.to_thread(an_estimator_fits, folder, known)
        spent = await command(folder, "outbox", "--config", "south.toml", "--json")
        assert json.loads(spent.stdout)["answers"] == []
        assert [status.state for status in before] == ["failed", "done"]


def an_estimator_fits(folder: Path, known: Dictionary) -> None:
    """The estimator asks the providers for features of a dictionary, and prepares new rows."""
    with Federation.connect(folder / "ada.toml") as federation:
        pca = DPSPCA(1, epsilon=4.0, unit="row-replace-one", dictionary=known, features=["age", "bmi"])
        pca.fit(federation=federation, data_set="cohort", providers=["north"])
    assert pca.feature_names_in_.tolist() == ["age", "bmi"]
    np.testing.assert_array_equal(pca.transform(PEOPLE["west"]), pca.model_.transform(PEOPLE["west"]))


@pytest.mark.slow
def test_another_dictionary_or_a_missing_feature_costs_nothing(tmp_path: Path) -> None:
    asyncio.run(another_dictionary_or_a_missing_feature_costs_nothing(tmp_path))
