"""Statements of providers to an analyst, each verified: a coordinator can withhold a statement, but not make one.

A statement counts only if the named provider signed it in reply to this very request, for this analyst. So a statement
that the coordinator made up, kept from before, took from another analyst or passed off as another provider's is
refused, and so is the whole call: a coordinator that does so is not to be trusted with anything.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from dpspca.common.errors import DpspcaError, NotTrustedError, require_trust
from dpspca.common.job import Terms
from dpspca.common.names import PartyName, Role
from dpspca.common.trust import (
    Identity,
    SignedRequest,
    SignedStatement,
    StatementKind,
    StatementRequest,
    sign_request,
    verify_statement,
)
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

from .bounds import LIST_SECONDS, STATEMENTS
from .calls import CoordinatorLink
from .errors import DishonestCoordinatorError
from .jobs import Offer

NO_TRUST: Final = "Do not trust this coordinator, and tell its operator."


@dataclass(frozen=True, slots=True)
class Collected:
    """A signed request, and by provider the verified statements in reply to it."""

    request: SignedRequest
    statements: dict[str, SignedStatement] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StatementRequests:
    """Asks providers for statements over one connection, as one analyst."""

    stub: pb_grpc.AnalystServiceStub
    link: CoordinatorLink
    identity: Identity
    clock: Callable[[], datetime]

    async def ask(self, kind: StatementKind, about: str, providers: Iterable[str]) -> Collected:
        """Return the statements of those providers that are connected and have something to say."""
        asked = sorted(set(providers))

        async def once() -> Collected:
            drawn = StatementRequest.draw(kind, about, self.identity.name, self.clock())
            collected = Collected(sign_request(drawn, self.identity))
            message = pb.StatementsRequest(signed_request=collected.request.to_bytes(), providers=asked)
            call = self.stub.Statements(message, timeout=LIST_SECONDS)
            waiting = set(asked)
            async for each in self.link.stream(call, STATEMENTS):
                if each.provider not in waiting:
                    problem = "The coordinator sent a reply that was not asked for."
                    raise DishonestCoordinatorError(problem, NO_TRUST)
                waiting.remove(each.provider)
                self._keep(collected, each)
            return collected

        return await self.link.retry(once)

    async def terms(self, offers: Sequence[Offer]) -> list[Terms]:
        """Return the terms of these data sets, of the providers that state them, by data set and provider."""
        found: list[Terms] = []
        for data_set in sorted({each.data_set for each in offers}):
            providers = [each.provider for each in offers if each.data_set == data_set]
            collected = await self.ask(StatementKind.TERMS, data_set, providers)
            for name, statement in sorted(collected.statements.items()):
                found.append(_terms(statement.content, self._party(name), data_set, self.identity.name))
        return found

    def _keep(self, collected: Collected, reply: pb.Statement) -> None:
        """Verify and keep a reply. A reply without content says that this provider has nothing to say."""
        if not reply.signed_statement:
            return
        provider = self._party(reply.provider)
        try:
            statement = SignedStatement.from_bytes(reply.signed_statement)
            verify_statement(statement, collected.request, provider, self.identity.authority_pem, at=self.clock())
        except DpspcaError as problem:
            raise DishonestCoordinatorError(
                f"The coordinator sent a statement of {reply.provider} that does not hold: {problem.what}", NO_TRUST
            ) from None
        collected.statements[reply.provider] = statement

    def _party(self, provider: str) -> PartyName:
        return PartyName(self.identity.name.federation, Role.PROVIDER, provider)


def _terms(content: bytes, provider: PartyName, data_set: str, analyst: PartyName) -> Terms:
    """Read terms. A provider whose terms are about something else than was asked has a fault."""
    try:
        read = Terms.from_bytes(content)
    except DpspcaError as problem:
        raise NotTrustedError(
            f"The terms that {provider.name} signed are not valid: {problem.what}",
            f"Tell its operator. Name the other providers to see their terms. {problem.remedy}",
        ) from None
    same = (read.provider, read.data_set, read.analyst) == (provider.uri, data_set, analyst.uri)
    require_trust(same, f"The terms that {provider.name} signed are about something else.", "Tell its operator.")
    return read
