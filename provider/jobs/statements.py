"""Statements of a provider to an analyst who asks: the terms of a data set, and the ledger's record of a job.

Terms are only for an analyst whose certificate is valid and whom the policy names for that data set. To anybody else
the reply is the same as for a data set that does not exist: nothing. A record is only for the analyst who signed the
job. To anybody else the reply is the same as for a job that does not exist. Only the log says why there is nothing.

A statement follows from the policy, from public facts about the data set and from the ledger. The ledger's amounts
follow from signed jobs, and change only when a job is opened or ends. No statement looks at a row.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from dpspca.common.approval_record import ADMITTED, ApprovalRecord, StatedDecision, number_accounts
from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.job import Schema, Terms, columns_digest
from dpspca.common.ledger_record import LedgerRecord
from dpspca.common.log_context import THE_COORDINATOR, about
from dpspca.common.names import PartyName
from dpspca.common.privacy import NOTHING, Price
from dpspca.common.storage import installed_digest
from dpspca.common.trust import (
    MAX_STATEMENT_BYTES,
    SignedRequest,
    StatementKind,
    StatementRequest,
    sign_receipt,
    sign_statement,
    verify_request,
)
from dpspca.common.version import __version__
from dpspca.provider.ledger import Decided, Entry, Limits
from dpspca.provider.policy import Rules, conditions_of

from .registry import ProviderSetup

NO_STATEMENT: Final = b""

Maker: TypeAlias = Callable[[StatementRequest, PartyName], bytes]
"""Makes the content of a statement, or refuses to."""

_NO_JOB: Final = (
    "The analyst gets an empty reply, as anybody does about a job of another analyst. If the analyst expects a record, "
    "compare the job's name with `dpspca outbox`: the job may never have reached this provider."
)
_log = logging.getLogger(__name__)


class Statements:
    """Makes the statements of one provider."""

    def __init__(self, setup: ProviderSetup) -> None:
        self._setup = setup
        self._authority = setup.identity().authority_pem  # unlike keys and certificates, it is never replaced
        self._software_digest = installed_digest()  # of the files that run: they may be replaced later
        self._dictionaries = {name: held.dictionary.digest() for name, held in setup.dictionaries.items()}
        self._makers: Mapping[StatementKind, Maker] = {
            StatementKind.TERMS: self._terms,
            StatementKind.RECORD: self._record,
            StatementKind.APPROVALS: self._approvals,
        }

    def state(self, content: bytes) -> tuple[str, bytes]:
        """Return the digest of a request and the signed statement, or ``NO_STATEMENT``."""
        try:
            signed = SignedRequest.from_bytes(content)
        except DpspcaError as problem:
            _log.warning("No statement: %s", problem, extra=about(THE_COORDINATOR))
            return "", NO_STATEMENT
        try:
            return signed.digest, self._statement(signed)
        except DpspcaError as problem:
            _log.warning("No statement on request %.12s: %s", signed.digest, problem, extra=about(THE_COORDINATOR))
        except Exception:  # noqa: BLE001  # a bug must not show in the reply
            _log.exception("Internal error in a statement.", extra=about(THE_COORDINATOR))
        return signed.digest, NO_STATEMENT

    def _statement(self, signed: SignedRequest) -> bytes:
        setup = self._setup
        now, revoked = setup.clock(), setup.revocations()
        request, analyst = verify_request(signed, self._authority, now=now, revoked=revoked)
        make = self._makers.get(request.kind)
        if make is None:
            raise RefusedError(
                f"This provider makes no statements of the kind {request.kind}.",
                "The analyst gets an empty reply. The analyst's version of dpspca may be newer than this provider's: "
                "compare them.",
            )
        made = sign_statement(make(request, analyst), signed, setup.identity()).to_bytes()
        if len(made) > MAX_STATEMENT_BYTES:
            raise RefusedError(
                f"The statement takes {len(made)} bytes; at most {MAX_STATEMENT_BYTES} can be sent.",
                "Let the policy state a number of columns instead of naming them.",
            )
        return made

    def _terms(self, request: StatementRequest, analyst: PartyName) -> bytes:
        setup, name = self._setup, request.about
        rules = setup.policy().rules(name)
        offered = setup.data_sets.get(name)
        if offered is None or not isinstance(rules, Rules):
            raise RefusedError(
                f"There is no data set '{name}' with a policy.",
                "The analyst gets an empty reply. If the analyst should see terms, check the name of the data set in "
                "the settings and in the policy.",
            )
        limits = Limits(*rules.limits(analyst), rules.promise, rules.quotas)  # refuses an analyst who is not named
        left, refused = self._room(name, analyst, limits)
        return Terms(
            provider=setup.identity().name.uri,
            data_set=name,
            analyst=analyst.uri,
            stated_at=int(setup.clock().timestamp()),
            dimension=offered.dimension,
            columns_digest=columns_digest(Schema(offered.dimension, offered.names)),
            dictionary_digest=self._dictionaries.get(name),
            software=__version__,
            conditions=conditions_of(rules),
            left=left,
            refused=refused,
        ).to_bytes()

    def _record(self, request: StatementRequest, analyst: PartyName) -> bytes:
        """State what the ledger has of a job. The analyst who signed the job may know it, whatever the policy says."""
        setup = self._setup
        found = setup.ledger.past_job(request.about)
        if found is None or found.opening.analyst != analyst.uri:
            raise RefusedError(f"No job {request.about:.12} of {analyst} is recorded here.", _NO_JOB)
        head, me = setup.ledger.attested_head(), setup.identity()
        opening = found.opening
        return LedgerRecord(
            provider=me.name.uri,
            job=opening.job,
            data_set=opening.data_set,
            analyst=opening.analyst,
            unit=opening.unit,
            signed_job=opening.signature_hash,
            stated_at=int(setup.clock().timestamp()),
            opened_at=found.opened_at,
            expires_at=opening.expires_at,
            state=found.state,
            queries=len(found.queries),
            answers=found.answers,
            answers_digest=found.answers_digest,
            reserved=opening.price,
            spent=found.spent,
            receipt=sign_receipt(me, head).SerializeToString(deterministic=True).hex() if head else "",
            software=__version__,
            software_digest=self._software_digest,
        ).to_bytes()

    def _approvals(self, request: StatementRequest, analyst: PartyName) -> bytes:
        """State what persons decided about a job. Like its record, it is for the analyst who signed the job alone."""
        setup, job = self._setup, request.about
        data_set, state = self._known(job, analyst)
        entries = setup.ledger.all_decisions(job)
        decided = [each.fact for each in entries if isinstance(each.fact, Decided)]
        return ApprovalRecord(
            provider=setup.identity().name.uri,
            job=job,
            data_set=data_set,
            analyst=analyst.uri,
            stated_at=int(setup.clock().timestamp()),
            state=state,
            decisions=tuple(map(_stated, entries, decided)),
            software=__version__,
            accounts=number_accounts(each.login for each in decided),
        ).to_bytes()

    def _known(self, job: str, analyst: PartyName) -> tuple[str, str]:
        """Return the data set of an analyst's job, and how it stands, or refuse.

        A job that was never admitted is known until it expires, because it is in the queue of approvals until then.
        """
        setup = self._setup
        admitted = setup.ledger.past_job(job)
        if admitted:
            owner, known = admitted.opening.analyst, (admitted.opening.data_set, ADMITTED)
        else:
            waiting = setup.approvals.queue.find(job) if setup.approvals else None
            owner, known = (waiting.analyst, (waiting.data_set, waiting.state.value)) if waiting else ("", ("", ""))
        if owner != analyst.uri:
            raise RefusedError(f"No job {job:.12} of {analyst} is known here.", _NO_JOB)
        return known

    def _room(self, data_set: str, analyst: PartyName, limits: Limits) -> tuple[Price, str | None]:
        """Return the budget left for one further job, or nothing and the code of the error that refuses every job."""
        ledger = self._setup.ledger
        try:
            ledger.expire(self._setup.clock().timestamp())  # as before a job is opened
            return ledger.room(data_set, analyst.uri, limits), None
        except DpspcaError as problem:
            return NOTHING, problem.code


def _stated(entry: Entry, decided: Decided) -> StatedDecision:
    """Return a decision as an analyst may see it."""
    return StatedDecision(
        verdict=decided.verdict,
        person=decided.person,
        reason=decided.reason,
        decided_at=decided.decided_at,
        entry=entry.number,
        entry_hash=entry.hash,
    )
