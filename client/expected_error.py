"""The error to expect of a dps-pca job, by Theorem 4.3 of its paper, for an assumed population."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from dpspca.common.algorithms import for_job
from dpspca.common.checks import check
from dpspca.common.spec import JobSpec

WHOLE: Final = ("rows", "providers", "support")
NEEDED: Final = ("leading", "following", "rows", "support")
KNOWN: Final = (*NEEDED, "providers", "largest")
HELP: Final = (
    "Assume NAME=VALUE about the population, and print the bound of Theorem 4.3 on dps-pca's error. Needed: leading "
    "and following (the k-th and the next eigenvalue), rows (of all providers together), support (features with "
    "nonzero loadings in the true components). Optional: providers (default 1) and largest (the largest eigenvalue; "
    "default: leading)."
)


def facts(spec: JobSpec, assumed: Sequence[str]) -> dict[str, Any]:
    """Return the theorem's terms as plain values."""
    given = dict(map(_pair, assumed))
    missing = [name for name in NEEDED if name not in given]
    check(not missing, f"--assume lacks {', '.join(missing)}.", "Give --assume NAME=VALUE for each of these.")
    terms = for_job(
        spec,
        leading=given["leading"],
        following=given["following"],
        rows=int(given["rows"]),
        parties=int(given.get("providers", 1)),
        s_star=int(given["support"]),
        largest=given.get("largest"),
    )
    return {"assumed": given, **asdict(terms), "total": terms.total, "largest_possible": spec.components**0.5}


def words(terms: dict[str, Any]) -> Iterator[str]:
    """Yield the same as sentences."""
    yield (
        f"By Theorem 4.3 of Ge et al. (2018) the error ||sin Theta||_F is at most {terms['total']:.3g}: "
        f"{terms['statistical']:.3g} because the rows are a sample, {terms['noise']:.3g} because of the noise and "
        f"{terms['convergence']:.3g} because the number of rounds is limited. This holds with probability "
        f"{terms['probability']:.3g} for the assumed population, with constant 1 and a start near the truth."
    )
    if terms["total"] >= terms["largest_possible"]:
        yield f"The bound is useless here: no error is above {terms['largest_possible']:.3g}."


def _pair(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    check(name in KNOWN, f"--assume names {name!r:.40}.", f"Available: {', '.join(KNOWN)}.")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    whole = name not in WHOLE or number.is_integer()
    check(
        not math.isnan(number) and whole,
        f"--assume {name} is {value!r:.40}.",
        "Give a whole number." if name in WHOLE else "Give a number.",
    )
    return name, number
