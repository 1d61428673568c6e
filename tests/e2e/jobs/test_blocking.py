"""The federation without ``await``: from scripts and notebooks, and behind the estimator."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from dishonest_peers import reissued
from facts import facts, names_facts
from local_federation import NOISE_SEED, SHARDS, Enrolment, federation, noise_for, now, seeded_noise, spec

from dpspca import (
    DPSPCA,
    AsyncFederation,
    AutoCentering,
    Budget,
    Centering,
    DpspcaWarning,
    Federation,
    JobSpec,
    PrivacyUnit,
    Schema,
    simulate,
)
from dpspca.client import blocking
from dpspca.client.blocking import EventLoopThread
from dpspca.client.connection import FederationError
from dpspca.common.errors import InvalidParameterError, NotNowError
from dpspca.common.job.spec_values import CenteringReason
from dpspca.common.names import Role
from dpspca.common.privacy.keystream import Draw, WordSource, repeatable_entropy
from dpspca.common.results import Model

NAMED = {name: pd.DataFrame(rows, columns=[f"gene {number}" for number in range(30)]) for name, rows in SHARDS.items()}


@contextmanager
def connected(folder: Path, shards: Mapping[str, Any] = SHARDS, words: Any = seeded_noise) -> Iterator[Federation]:
    """Run a federation in one thread and connect to it from this one."""
    with reachable(folder, shards, words) as address, Federation.connect(address, folder / "analyst-ada") as fed:
        yield fed


@contextmanager
def reachable(folder: Path, shards: Mapping[str, Any] = SHARDS, words: Any = seeded_noise) -> Iterator[str]:
    """Run a federation in one thread, and yield its coordinator's address."""
    loop, enrolment = EventLoopThread(), Enrolment.create(folder)
    running = federation(enrolment, shards=shards, words=words)
    up = loop.run(running.__aenter__())
    try:
        yield up.coordinator.address
    finally:
        loop.run(running.__aexit__(None, None, None))
        loop.stop()


def test_a_blocking_job_gives_the_model_of_a_simulation(tmp_path: Path) -> None:
    with connected(tmp_path) as fed:
        assert {(offer.provider, offer.data_set, offer.schema) for offer in fed.data_sets()} == {
            (name, "cohort", Schema(30)) for name in SHARDS
        }
        job = fed.submit(spec(), "cohort")
        states = list(job.watch())
        assert states[-1].state == "done"
        assert job.status() == states[-1]
        assert [each.asked for each in states[-1].participants] == [states[-1].queries] * 3
        inside = simulate(list(SHARDS.values()), spec(), noise_seed=NOISE_SEED)
        assert job.result().components.tobytes() == inside.components.tobytes()
        assert [each.job for each in fed.jobs()] == [job.name]
        again = fed.job(job.name[:12])
        assert again.spec == spec()
        assert again.result().statement == job.result().statement
        assert job.cancel().state == "done"


def test_a_centring_is_chosen_for_the_providers_that_are_asked(tmp_path: Path) -> None:
    open_job = spec(budget=Budget(0.2, 1e-6))
    with connected(tmp_path) as fed:
        asked = [fed.submit(open_job, "cohort", names, centering=AutoCentering()) for names in (["site-0"], None)]
        assert [job.spec.centering for job in asked] == [Centering.PAIRS, Centering.NONE]
        statement = asked[0].result().statement
    assert asked[0].spec.centering_reason is CenteringReason.SMALL_BUDGET
    assert names_facts(statement.centering_reason, "pairs", "private mean", "budget")
    assert statement.centering_reason in statement.text


def test_no_mean_is_chosen_where_a_provider_says_that_its_rows_are_sparse(tmp_path: Path) -> None:
    """It would refuse to subtract one."""
    open_job, first = spec(budget=Budget(8.0, 1e-3)), next(iter(SHARDS))
    shards = SHARDS | {first: scipy.sparse.csr_array(SHARDS[first])}
    others = [name for name in SHARDS if name != first]
    with connected(tmp_path, shards) as fed:
        assert {offer.provider: offer.is_sparse for offer in fed.offers_of("cohort")} == {
            name: name == first for name in SHARDS
        }
        chosen = [
            fed.submit(open_job, "cohort", names, centering=AutoCentering(mean_bound=3.0)).spec
            for names in ([first], others, None)
        ]
        pca = DPSPCA(2, unit="row-replace-one", epsilon=8.0, delta=1e-3, centering="auto", norm_bound=3.0)
        pca.fit(federation=fed, data_set="cohort")
    assert [each.centering for each in chosen] == [Centering.PAIRS, Centering.PRIVATE, Centering.NONE]
    assert [each.centering_reason for each in chosen] == [
        CenteringReason.SPARSE_ROWS,
        CenteringReason.AFFORDABLE,
        CenteringReason.SPARSE_ROWS,
    ]
    assert pca.model_.statement.centering == Centering.NONE
    assert names_facts(pca.model_.statement.centering_reason, "sparse")


def test_a_federation_issues_each_warning_of_a_simulation_once(tmp_path: Path) -> None:
    doubtful = spec(budget=Budget(0.01, 1e-2))
    with pytest.warns(DpspcaWarning) as inside:
        expected = simulate(list(SHARDS.values()), doubtful, noise_seed=NOISE_SEED).statement.warnings
    assert [str(each.message) for each in inside] == list(expected)
    me = tmp_path / "analyst-ada"
    with reachable(tmp_path, words=noise_for(doubtful)) as address:
        with Federation.connect(address, me) as fed:
            with pytest.warns(DpspcaWarning) as caught:
                model = fed.fit(doubtful, "cohort", list(SHARDS))
            (job,) = fed.jobs()
        assert model.statement.warnings == expected
        assert [(str(each.message), each.filename) for each in caught] == [(text, __file__) for text in expected]

        async def alone() -> Model:
            async with AsyncFederation.connect(address, me) as federated:
                return await (await federated.job(job.job)).result()

        with pytest.warns(DpspcaWarning) as caught:
            assert asyncio.run(alone()).statement == model.statement
        assert [str(each.message) for each in caught] == list(expected)


def test_an_expired_certificate_is_refused_and_no_thread_remains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enrolment = Enrolment.create(tmp_path)
    old = reissued(enrolment, enrolment.identity(Role.ANALYST, "ada"), since=now() - timedelta(days=3))
    pem = tmp_path / "analyst-ada" / "identity.pem"
    pem.write_bytes(old.key_pem + old.certificate_pem + old.authority_pem)
    threads: list[Thread] = []  # of this client; gRPC and other tests start and end theirs at any time

    def recorded(**arguments: Any) -> Thread:
        threads.append(Thread(**arguments))
        return threads[-1]

    monkeypatch.setattr(blocking, "Thread", recorded)
    with pytest.raises(NotNowError, match=facts("dpspca://town/analyst/ada", "`dpspca identity renew`")):
        Federation.connect("127.0.0.1:1", tmp_path / "analyst-ada")
    assert len(threads) == 1
    assert not threads[0].is_alive()


def test_the_estimator_works_the_same_over_the_wire(tmp_path: Path) -> None:
    parameters: dict[str, Any] = {
        "n_components": 2,
        "method": "dps-pca",
        "sparsity": 6,
        "epsilon": 24.0,
        "norm_bound": 12.0,
        "unit": "row-replace-one",
        "rounds": 4,
        "random_state": 5,  # from this start, 8 jobs of 8 with other noise found the same two columns
    }

    def whatever_the_job(draw: Draw) -> WordSource:
        return repeatable_entropy(9)(replace(draw, job=""))

    seen: list[tuple[int, int, int]] = []
    over = DPSPCA(**parameters, watch=lambda now: seen.append((now.done, now.total, now.parties)))
    with connected(tmp_path, NAMED, words=lambda _: whatever_the_job) as fed:
        over.fit(federation=fed, data_set="cohort")
        assert seen == [(done, 6, 3) for done in range(1, 7)]
        assert list(over.feature_names_in_) == list(NAMED["site-0"].columns)
        assert over.privacy_.federated
        assert over.privacy_.parties == 3
        assert over.rounds_ == 4
        assert over.transform(NAMED["site-1"]).shape == (250, 2)
        with pytest.raises(InvalidParameterError, match=facts("'other'", "cohort")):
            over.fit(federation=fed, data_set="other")
        with pytest.raises(InvalidParameterError, match=facts("X", "federation")):
            over.fit(SHARDS["site-0"], federation=fed, data_set="cohort")
        with pytest.raises(InvalidParameterError):  # an empty name does not stand for the only data set
            DPSPCA(**parameters).fit(federation=fed, data_set="")
        again = DPSPCA(**parameters).fit(federation=fed)  # there is one data set, which need not be named
        assert again.components_.tobytes() == over.components_.tobytes()
        with pytest.raises(InvalidParameterError, match=facts("'cohort'", "west")):
            over.fit(federation=fed, data_set="cohort", providers=["site-0", "west"])
    here = DPSPCA(**parameters).fit(pd.concat(NAMED.values()))
    assert set(here.support_[:2]) == set(over.support_[:2])
    assert over.get_params().keys() == here.get_params().keys()


def test_other_column_names_are_refused_by_client_and_provider(tmp_path: Path) -> None:
    schema = Schema.of([f"gene {number}" for number in reversed(range(30))])
    asked = JobSpec(
        schema=schema,
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(4.0, 1e-6),
        norm_bound=12.0,
        components=2,
        answer_seconds=10,
        options={"sparsity": 6, "rounds": 2},
        method="dps-pca",
    )
    with connected(tmp_path, NAMED) as fed:
        with pytest.raises(InvalidParameterError, match=facts("column 1", "'gene 29'", "'gene 0'", "site-0")):
            fed.submit(asked, "cohort", list(NAMED))
        assert fed.jobs() == []
        with pytest.MonkeyPatch.context() as patching:  # like a client that skips the check
            patching.setattr(JobSpec, "with_names", lambda self, _: self)
            job = fed.submit(asked, "cohort", list(NAMED))
        with pytest.raises(FederationError, match=facts("site-0", "Refused (invalid-data)", "column 1")):
            job.result()
        last = job.status()
        assert last.state == "failed"
        assert all("schema's order" in each.reason for each in last.participants)


def test_calls_on_a_closed_connection_are_refused(tmp_path: Path) -> None:
    with connected(tmp_path) as fed:
        fed.close()
        with pytest.raises(FederationError, match=facts("Federation.connect")):
            fed.jobs()
        fed.close()


def test_it_works_inside_a_running_event_loop(tmp_path: Path) -> None:
    with connected(tmp_path) as fed:

        async def cell() -> np.ndarray:
            return fed.fit(spec(), "cohort").components

        assert asyncio.run(cell()).shape == (2, 30)
