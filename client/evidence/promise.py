"""The privacy promise in evidence, in numbers and in words, held against the signed job.

Its collector says which version of the software wrote it, and could say anything. So a claimed version excuses only a
difference in what a version computes. What the job itself says is compared whatever the version. A number that cannot
be confirmed is never among the confirmed facts.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from dpspca.common.names import shortened
from dpspca.common.results import PrivacyStatement
from dpspca.common.version import __version__

from .document import Evidence
from .findings import Findings
from .parts import JobOfEvidence

COMPUTED: Final = ("mu", "exact_epsilon", "answers", "proven", "gaussian")
"""The numbers that a version of the software computes from the job."""
NUMBERS: Final = (
    *("unit", "epsilon", "delta", "accounting", "norm_bound", "mean_bound", "centering", "rows_per_person"),
    *("parties", "fresh_noise", "federated"),
    *COMPUTED,
)
"""The parts of a privacy statement that are not text. All but the computed ones are the same in every version."""
_ABSENT: Final = object()
_SHOWN: Final = 500
"""Characters of an unconfirmed statement that are shown as a finding. All of it is among the facts."""
_PARAGRAPH: Final = "\n\n"
_MOST: Final = 20
"""Differences that are shown as a finding."""


def promise(statement: PrivacyStatement) -> dict[str, Any]:
    """Return the numbers of a privacy statement."""
    return {name: getattr(statement, name) for name in NUMBERS}


def check_promise(found: Findings, evidence: Evidence, job: JobOfEvidence | None) -> None:
    """Hold the privacy statement against the one that follows from the job, and tell what is confirmed from the rest.

    Without a job, nothing of it is confirmed.
    """
    fresh = None if job is None else _fresh(found, evidence, job)
    expected = {} if fresh is None else json.loads(json.dumps(promise(fresh)))
    wrong = [
        name for name in sorted(expected.keys() | evidence.promise) if not _agree(name, evidence.promise, expected)
    ]
    found.facts["promise"] = {name: value for name, value in evidence.promise.items() if name not in wrong}
    found.facts["statement"] = evidence.statement if fresh and evidence.statement == fresh.text else None
    found.facts["unconfirmed"] = {
        "promise": {name: value for name, value in evidence.promise.items() if name in wrong},
        "statement": None if found.facts["statement"] else evidence.statement,
    }
    if fresh:
        _check_numbers(found, evidence, fresh, wrong, expected)
        _check_words(found, evidence, fresh)


def _fresh(found: Findings, evidence: Evidence, job: JobOfEvidence) -> PrivacyStatement | None:
    """Return the privacy statement that follows from the job and from how many providers answered."""
    reported = evidence.reported
    if reported.providers.keys() - set(job.envelope.audience):
        found.check("promise", "", holds=False, otherwise="The report is about providers that the job does not name.")
        return None
    parties = sum(each.answered == reported.answered for each in reported.providers.values())
    return PrivacyStatement.of(job.plan, parties=parties, fresh_noise=True, federated=True)


def _check_numbers(
    found: Findings, evidence: Evidence, fresh: PrivacyStatement, wrong: Collection[str], expected: Mapping[str, Any]
) -> None:
    is_same_version = evidence.software == __version__
    excused = [] if is_same_version else [name for name in wrong if name in COMPUTED or name not in expected]
    false = [name for name in wrong if name not in excused]
    found.check(
        "promise",
        f"{'What the promise takes from the job' if excused else 'The privacy promise'} follows from the signed job: "
        f"{fresh.headline}.",
        holds=not false,
        otherwise="The privacy promise in the file is not the one that follows from the signed job: "
        f"{'; '.join(_differences(false, evidence.promise, expected))}.",
    )
    if excused:
        found.cannot_know(
            "promise-computed",
            f"Whether a part of the promise follows from the job. The analyst states that version "
            f"{shortened(evidence.software)} of dpspca computed it, and this is version {__version__}. Do not rely on "
            f"it: {'; '.join(_differences(excused, evidence.promise, expected))}.",
        )


def _check_words(found: Findings, evidence: Evidence, fresh: PrivacyStatement) -> None:
    is_same = evidence.statement == fresh.text
    if not is_same and evidence.software != __version__:
        found.cannot_know(
            "statement",
            f"Whether the privacy statement in words follows from the job. The analyst states that version "
            f"{shortened(evidence.software)} of dpspca wrote it, and version {__version__} writes another one. Do not "
            f"rely on it: {evidence.statement[:_SHOWN]}",
        )
        return
    found.check(
        "statement",
        f"The privacy statement in words follows from the signed job. It begins: {fresh.text.partition(_PARAGRAPH)[0]}",
        holds=is_same,
        otherwise="The privacy statement in words is not the one that follows from the signed job: "
        f"{evidence.statement[:_SHOWN]}",
    )


def _agree(name: str, stated: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    return name in stated and name in expected and stated[name] == expected[name]


def _differences(names: Collection[str], stated: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    for name in islice(names, _MOST):
        value, own = stated.get(name, _ABSENT), expected.get(name, _ABSENT)
        theirs = "nothing" if value is _ABSENT else shortened(value)
        yield f"{shortened(name)} is {theirs} in the file" + ("" if own is _ABSENT else f", and {shortened(own)} here")
