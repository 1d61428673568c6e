"""Clusters in settings: what is missing or does not fit is told key by key, and sums never travel in the clear."""

from pathlib import Path
from typing import Any

import pytest
from facts import facts

from dpspca.common.errors import InvalidInputError, InvalidParameterError
from dpspca.common.storage.engine_settings import KEYS_OF_KIND, PROTECTION_OF_KIND, EngineKind
from dpspca.common.storage.settings import ProviderSettings, read_settings
from dpspca.provider.engines.clusters import CLUSTERS

PLAIN = 'coordinator = "127.0.0.1:1"\nidentity = "me"\nrevocations = "r.pem"\npolicy = "p.toml"\n'
TLS = 'ca = "ca.pem"\ncert = "me.pem"\nkey = "me-key.pem"\n'


def read(text: str, folder: Path, before: str = '[data_sets]\ncohort = "/rows"\n') -> ProviderSettings:
    path = folder / "north.toml"
    path.write_text(f"{PLAIN}{before}{text}", encoding="utf-8")
    return read_settings(ProviderSettings, path)


def test_every_kind_of_cluster_has_its_keys_its_protection_and_its_program() -> None:
    for each in (KEYS_OF_KIND, PROTECTION_OF_KIND, CLUSTERS):
        assert set(each) == set(EngineKind)


def test_files_are_found_from_the_folder_of_the_settings(tmp_path: Path) -> None:
    text = f'[engines.cohort]\nengine = "dask"\nscheduler = "tls://scheduler:8786"\n{TLS}'
    found = read(text, tmp_path).engines["cohort"]
    assert (found.ca, found.cert, found.key) == (tmp_path / "ca.pem", tmp_path / "me.pem", tmp_path / "me-key.pem")
    assert found.seconds == 3600


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ('engine = "ray"', "engine"),
        ('engine = "dask"', ("dask", "scheduler")),
        ('engine = "spark"', ("spark", "master")),
        (
            'engine = "dask"\nscheduler = "scheduler:8786"',
            ("engines.cohort.scheduler", "'scheduler:8786'", "tls://scheduler.example:8786"),
        ),
        ('engine = "dask"\nscheduler = "tls://scheduler:8786"\nca = "ca.pem"', ("tls://scheduler:8786", "cert, key")),
        ('engine = "dask"\nscheduler = "tcp://scheduler:8786"', ("tcp://scheduler:8786", "tls://", "ca, cert")),
        ('engine = "dask"\nscheduler = "tcp://127.0.0.1.evil.example:8786"', ("tcp://127.0.0.1.evil", "tls://")),
        (
            'engine = "dask"\nscheduler = "tcp://localhost:8786"\nmaster = "local"',
            ("dask", "master", "ca, cert, key, scheduler"),
        ),
        ('engine = "spark"\nmaster = "spark://master:7077"', ("spark://master:7077", "secret")),
        (
            'engine = "spark"\nmaster = "local"\nscheduler = "tcp://localhost:1"',
            ("spark", "scheduler", "conf, master, secret"),
        ),
        (
            'engine = "spark"\nmaster = "local"\nconf = { "spark.authenticate" = "false" }',
            ("spark.authenticate", "secret"),
        ),
        (
            'engine = "spark"\nmaster = "local"\nconf = { "spark.network.crypto.enabled" = "false" }',
            ("spark.network.crypto.enabled", "secret"),
        ),
        ('engine = "spark"\nmaster = "local"\nseconds = 0', "seconds"),
    ],
)
def test_t46_wrong_or_unencrypted_engine_settings_are_refused(table: str, told: Any, tmp_path: Path) -> None:
    with pytest.raises((InvalidInputError, InvalidParameterError), match=facts(told)):
        read(f"[engines.cohort]\n{table}\n", tmp_path)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('[persons]\ncohort = "whose.txt"', ("'cohort'", "persons")),
        ("[spans]\ncohort = { start = 0, rows = 5, of = 9 }", ("'cohort'", "spans")),
        ('[reading.cohort]\nquery = "SELECT 1"', ("reading.cohort", "query")),
        ('[reading.cohort]\nalleles = "a.afreq"', ("reading.cohort", "alleles")),
    ],
)
def test_what_a_cluster_does_not_read_is_refused(more: str, told: Any, tmp_path: Path) -> None:
    with pytest.raises((InvalidInputError, InvalidParameterError), match=facts(told)):
        read(f'[engines.cohort]\nengine = "spark"\nmaster = "local"\n{more}\n', tmp_path)


def test_rows_that_arrive_and_unknown_data_sets_are_refused(tmp_path: Path) -> None:
    table = 'engine = "spark"\nmaster = "local"\n'
    with pytest.raises((InvalidInputError, InvalidParameterError), match=facts("engines", "'visits'", "data_sets")):
        read(f"[engines.visits]\n{table}", tmp_path, '[arriving]\nvisits = "visits"\n')
    with pytest.raises((InvalidInputError, InvalidParameterError), match=facts("engines", "'cohot'", "'cohort'")):
        read(f"[engines.cohot]\n{table}", tmp_path)
