"""Providers state their terms to analysts over a coordinator that may be malicious: it can withhold them, no more."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import facts, names_facts
from local_federation import Enrolment, RunningFederation, federation, now, permissive_policy, server_credentials, spec

from dpspca.client.connection.bounds import STATEMENTS
from dpspca.client.connection.calls import CoordinatorLink
from dpspca.client.connection.errors import DishonestCoordinatorError, FederationError
from dpspca.client.connection.statements import StatementRequests
from dpspca.client.federation import AsyncFederation
from dpspca.client.terms import fit
from dpspca.common.errors import NotTrustedError
from dpspca.common.job import Schema, Terms
from dpspca.common.names import Role
from dpspca.common.transport import rpc
from dpspca.common.trust import (
    MAX_STATEMENT_BYTES,
    SignedRequest,
    SignedStatement,
    StatementKind,
    StatementRequest,
    sign_request,
    sign_statement,
)
from dpspca.common.trust.identity import Identity
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc
from dpspca.provider.data import check_rows
from dpspca.provider.policy import Policy

POLICY = Policy.parse(permissive_policy())
OTHERS = Policy.parse(permissive_policy().replace('"ada", ', ""))


def play(folder: Path, scene: Callable[[RunningFederation], Any], policies: Sequence[Policy], **settings: Any) -> None:
    """Run a federation whose providers have these policies."""

    async def perform() -> None:
        async with federation(Enrolment.create(folder), names=()) as running:
            for number, policy in enumerate(policies):
                await running.start(f"site-{number}", policy=lambda policy=policy: policy, **settings)
            await scene(running)

    asyncio.run(perform())


def test_only_providers_whose_policy_names_the_analyst_state_terms(tmp_path: Path) -> None:
    async def scene(running: RunningFederation) -> None:
        assert [each.party.name for each in await running.analyst.terms()] == ["site-0", "site-2"]
        assert [each.party.name for each in await running.analyst.terms("cohort", ["site-0", "site-1"])] == ["site-0"]
        assert await running.analyst.terms("elsewhere") == []
        eve = running.enrolment.identity(Role.ANALYST, "mallory")
        async with AsyncFederation(running.coordinator.address, eve) as stranger:
            assert await stranger.terms() == []

    play(tmp_path, scene, [POLICY, OTHERS, POLICY])


def test_what_is_left_shrinks_with_each_job_and_a_job_that_fits_is_admitted(tmp_path: Path) -> None:
    async def scene(running: RunningFederation) -> None:
        before = await running.analyst.terms("cohort")
        made = fit(spec(), None, before)
        assert (made.fits, made.changes) == (True, ())
        job = await running.analyst.submit(made.spec, "cohort", made.providers)
        await job.model()
        after = await running.analyst.terms("cohort")
        assert {each.left for each in before} == {before[0].left}
        assert [one.left - other.left for one, other in zip(before, after, strict=True)] == [job.plan.price] * 2

    play(tmp_path, scene, [POLICY, POLICY])


@pytest.mark.slow
def test_a_job_does_without_a_matrix_that_a_provider_would_not_keep(tmp_path: Path) -> None:
    """The matrices of 1,200 columns take 46 MB, and one provider keeps 16 mebibytes. Nobody has to say so."""
    small = Policy.parse(permissive_policy() + "quotas.answer_mebibytes = 16\n")
    rows = check_rows(np.random.default_rng(0).standard_normal((200, 1200)))

    async def scene(running: RunningFederation) -> None:
        said = list[str]()
        identity = running.enrolment.identity(Role.ANALYST, "bob")
        wide = spec(schema=Schema(1200), method="auto", options={}, explained_variance=False)
        async with AsyncFederation(running.coordinator.address, identity, notify=said.append) as analyst:
            job = await analyst.submit(wide, "cohort")
            assert job.plan.spec.options == {"matrix": False}
            assert names_facts(said[0], "matrix = false")
            model = await job.model()
            assert model.origin
            assert model.origin.took_part == ("site-0", "site-1")
            asked = await analyst.submit(replace(wide, options={"matrix": True}), "cohort", ["site-0"])
            assert asked.plan.spec.options == {"matrix": True}
            assert len(said) == 1

    play(tmp_path, scene, [POLICY, small], data_sets={"cohort": rows})


def test_a_provider_that_sends_no_reply_counts_as_one_without_terms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpspca.server.rpc.statement_relay.STATEMENT_SECONDS", 0.2)

    async def scene(running: RunningFederation) -> None:
        link = running.coordinator.roster.link_of("site-1")
        assert link
        monkeypatch.setattr(link, "receive_statement", lambda _: None)
        assert [each.party.name for each in await running.analyst.terms()] == ["site-0"]
        assert not link._inquiries

    play(tmp_path, scene, [POLICY, POLICY])


def test_t35_the_coordinator_passes_on_only_what_the_caller_signed(tmp_path: Path) -> None:
    async def scene(running: RunningFederation) -> None:
        enrolment, stub = running.enrolment, running.analyst.stub
        mallory, ada = enrolment.identity(Role.ANALYST, "mallory"), running.analyst._identity
        drawn = [
            StatementRequest.draw(StatementKind.TERMS, "cohort", each.name, running.analyst._clock())
            for each in (mallory, ada)
        ]
        theirs, own = sign_request(drawn[0], mallory).to_bytes(), sign_request(drawn[1], ada).to_bytes()
        for request, reason in (
            (
                pb.StatementsRequest(signed_request=theirs, providers=["site-0"]),
                ("dpspca://town/analyst/mallory", "dpspca://town/analyst/ada"),
            ),
            (pb.StatementsRequest(signed_request=b"", providers=["site-0"]), "not-trusted"),
            (pb.StatementsRequest(signed_request=own, providers=["site-0"] * 129), 128),
        ):
            line = CoordinatorLink(retry_seconds=0)
            with pytest.raises(FederationError, match=facts(reason)):
                [each async for each in line.stream(stub.Statements(request), STATEMENTS)]
        assert len(await running.analyst.terms()) == 1

    play(tmp_path, scene, [POLICY])


# --- A coordinator that lies ------------------------------------------------------------------------------------------

Forge = Callable[["Liar", bytes], bytes]


@dataclass
class Liar(pb_grpc.AnalystServiceServicer):
    """Replies for honest providers, and changes what they state."""

    honest: dict[str, Identity]
    forge: Forge
    seen: list[tuple[bytes, bytes]] = field(default_factory=list)

    def stated(self, request: bytes, by: str, **changes: Any) -> bytes:
        """Return what a provider states, or something else that it signs."""
        signed = SignedRequest.from_bytes(request)
        about = StatementRequest.from_bytes(signed.payload)
        whole = {"provider": self.honest[by].name.uri, "data_set": about.about, "stated_at": about.issued_at}
        terms = _terms(**whole | {"analyst": f"dpspca://town/analyst/{about.analyst}"} | changes)
        return sign_statement(terms, signed, self.honest[by]).to_bytes()

    async def DataSets(  # noqa: N802  # the name of the rpc
        self, request: pb.DataSetsRequest, context: Any
    ) -> AsyncIterator[pb.Offer]:
        for name in ("north", "south"):
            yield pb.Offer(provider=name, data_set=pb.DataSet(name="cohort", dimension=30))

    async def Statements(  # noqa: N802
        self, request: pb.StatementsRequest, context: Any
    ) -> AsyncIterator[pb.Statement]:
        true = self.stated(request.signed_request, "north")
        self.seen.append((request.signed_request, true))
        yield pb.Statement(provider="north", signed_statement=self.forge(self, request.signed_request))


def _terms(**changes: Any) -> bytes:
    budget = {"epsilon": 1.0, "delta": 1e-6, "approximate_delta": 0.0}
    conditions = {
        "unit": "row-replace-one",
        "rows_per_person": 1,
        "methods": ["dps-pca"],
        "accounting": ["exact"],
        "centering": ["none"],
        "explained_variance": True,
        "columns": 50,
        "norm_bound": {"least": 1.0, "most": 12.0},
        "mean_bound": None,
        "minimum_providers": 1,
        "unproven": False,
        "approvals_needed": 0,
        "per_job": budget,
        "per_analyst": None,
        "quotas": {},
    }
    whole = {
        "format": "dpspca-terms-1",
        "dimension": 30,
        "columns_digest": None,
        "dictionary_digest": None,
        "software": "0.2.0",
        "conditions": conditions,
        "left": {"units": 10**20, "slack_units": 10**20},
        "refused": None,
    }
    return json.dumps(whole | changes, sort_keys=True, separators=(",", ":")).encode()


def asked(folder: Path, forge: Forge, times: int = 1) -> list[Terms]:
    """Ask a lying coordinator for terms, so many times, and return the last ones."""
    enrolment = Enrolment.create(folder)
    ada = enrolment.identity(Role.ANALYST, "ada")
    liar = Liar({name: enrolment.identity(Role.PROVIDER, name) for name in ("north", "south")}, forge)

    async def perform() -> list[Terms]:
        server = rpc.server()
        pb_grpc.add_AnalystServiceServicer_to_server(liar, server)
        hub = server_credentials(enrolment.identity(Role.COORDINATOR, "hub"))
        port = server.add_secure_port("127.0.0.1:0", hub)
        await server.start()
        try:
            async with AsyncFederation(f"127.0.0.1:{port}", ada) as analyst:
                for _ in range(times - 1):
                    await analyst.terms("cohort")
                return await analyst.terms("cohort")
        finally:
            await server.stop(0)

    return asyncio.run(perform())


def more_left(liar: Liar, request: bytes) -> bytes:
    honest = liar.stated(request, "north")
    forged = honest.replace(b'"units":100000000000000000000', b'"units":999999999999999999999')
    assert forged != honest
    return forged


def kept_back(liar: Liar, _: bytes) -> bytes:
    """Send what was stated in reply to the first request, when more was left."""
    return liar.seen[0][1]


def signed_by_another(liar: Liar, request: bytes) -> bytes:
    return liar.stated(request, "south", provider=liar.honest["north"].name.uri)


def of_another_provider(liar: Liar, request: bytes) -> bytes:
    return liar.stated(request, "south")


def unsigned(liar: Liar, request: bytes) -> bytes:
    signed = SignedStatement.from_bytes(liar.stated(request, "north"))
    return SignedStatement(signed.content, b"", signed.certificate_pem).to_bytes()


@pytest.mark.parametrize("forge", [more_left, signed_by_another, of_another_provider, unsigned])
def test_t39_terms_that_a_coordinator_forged_or_swapped_are_refused(tmp_path: Path, forge: Forge) -> None:
    with pytest.raises(DishonestCoordinatorError):
        asked(tmp_path, forge)


def test_t39_terms_that_a_coordinator_replays_are_refused(tmp_path: Path) -> None:
    assert len(asked(tmp_path / "first", kept_back)) == 1  # the first reply is true
    with pytest.raises(DishonestCoordinatorError):
        asked(tmp_path / "second", kept_back, times=2)


@pytest.mark.parametrize(
    "changes",
    [{"data_set": "labs"}, {"analyst": "dpspca://town/analyst/bob"}, {"provider": "dpspca://town/provider/south"}],
)
def test_t39_signed_terms_about_something_else_are_refused(tmp_path: Path, changes: dict[str, str]) -> None:
    with pytest.raises(NotTrustedError, match=facts("north")):
        asked(tmp_path, lambda liar, request: liar.stated(request, "north", **changes))


def test_t39_signed_terms_that_no_policy_states_are_their_provider_s(tmp_path: Path) -> None:
    with pytest.raises(NotTrustedError, match=facts("north")):
        asked(tmp_path, lambda liar, request: liar.stated(request, "north", dimension=0))


def test_t39_honest_terms_are_believed_and_withheld_ones_are_missing(tmp_path: Path) -> None:
    (terms,) = asked(tmp_path / "honest", lambda liar, request: liar.stated(request, "north"))
    assert terms.party.name == "north"
    assert asked(tmp_path / "silent", lambda *_: b"") == []


class Strangers(pb_grpc.AnalystServiceStub):
    """A coordinator that sends statements of providers that were not asked."""

    def __init__(self, replies: Sequence[pb.Statement]) -> None:
        self._replies = replies

    async def Statements(self, request: Any, timeout: float) -> AsyncIterator[pb.Statement]:  # type: ignore[override]  # noqa: ASYNC109, N802
        for each in self._replies:
            yield each


@pytest.mark.parametrize("names", [["west"], ["north", "north"], [""]])
def test_t39_a_reply_that_was_not_asked_for_is_refused(tmp_path: Path, names: Sequence[str]) -> None:
    ada = Enrolment.create(tmp_path).identity(Role.ANALYST, "ada")
    requests = StatementRequests(
        Strangers([pb.Statement(provider=name) for name in names]), CoordinatorLink(retry_seconds=0), ada, now
    )
    with pytest.raises(DishonestCoordinatorError):
        asyncio.run(requests.ask(StatementKind.TERMS, "cohort", ["north"]))


@pytest.mark.parametrize("size", [MAX_STATEMENT_BYTES + 1, 100])
def test_t35_a_statement_that_is_too_long_or_none_is_refused(tmp_path: Path, size: int) -> None:
    ada = Enrolment.create(tmp_path).identity(Role.ANALYST, "ada")
    reply = pb.Statement(provider="north", signed_statement=bytes(size))
    with pytest.raises(DishonestCoordinatorError, match=facts("north")):
        asyncio.run(
            StatementRequests(Strangers([reply]), CoordinatorLink(retry_seconds=0), ada, now).ask(
                StatementKind.TERMS, "cohort", ["north"]
            )
        )
