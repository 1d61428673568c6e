"""A policy under which a job at hand would be allowed, and little else: where a steward's own begins."""

import json
from collections.abc import Sequence
from typing import Final

from dpspca.common.privacy.calibrate import MAX_EPSILON
from dpspca.common.spec import Centering, JobSpec

LIFETIME: Final = 4.0
"""Times a job's epsilon: at small budgets, room for about sixteen such jobs."""


def suggest(spec: JobSpec, data_set: str, analysts: Sequence[str], lifetime: float | None = None) -> str:
    """Write a policy, in TOML, that allows jobs like this one, and nothing that it does not ask for.

    ``lifetime`` is the epsilon of all jobs together.
    """
    lifetime = lifetime or min(LIFETIME * spec.budget.epsilon, MAX_EPSILON)
    lines = [
        f"analysts = {json.dumps(sorted(analysts))}",
        f'unit = "{spec.unit}"',
        "rows_per_person = 1",
        f'algorithms = ["{spec.algorithm}"]',
        f'accounting = ["{spec.accounting}"]',
        f'centering = ["{spec.centering}"]',
        f"explained_variance = {json.dumps(spec.explained_variance)}",
        f"columns = {spec.schema.dimension}",
        f"norm_bound = {{ least = {spec.norm_bound!r}, most = {spec.norm_bound!r} }}",
        f"minimum_parties = {spec.minimum_parties}",
        f"lifetime = {{ epsilon = {lifetime!r}, delta = {spec.budget.delta!r} }}",
        f"per_job = {{ epsilon = {spec.budget.epsilon!r}, delta = {spec.budget.delta!r} }}",
    ]
    if spec.centering is Centering.PRIVATE:
        lines.append(f"mean_bound = {{ least = {spec.mean_bound!r}, most = {spec.mean_bound!r} }}")
    return "\n".join([f"[data_sets.{json.dumps(data_set)}]", *lines, ""])
