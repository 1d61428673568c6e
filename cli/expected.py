"""What error to expect of a job, by its paper's theorem, for a population that its reader assumes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from dpspca.common.algorithms.theory import for_job
from dpspca.common.spec import JobSpec, check

WHOLE: Final = ("rows", "providers", "support")
NEEDED: Final = ("leading", "following", "rows", "support")
KNOWN: Final = (*NEEDED, "providers", "largest")
HELP: Final = (
    "Assume this of the population, NAME=VALUE, and print what Theorem 4.3 says of dps-pca's error: leading and "
    "following (the k-th and the next eigenvalue), rows (of all providers), support (features that take part in "
    "truth); and, if they are other than 1 and the k-th eigenvalue, providers and largest."
)


def facts(spec: JobSpec, assumed: Sequence[str]) -> dict[str, Any]:
    """Give the theorem's terms as plain values."""
    given = dict(map(_pair, assumed))
    missing = [name for name in NEEDED if name not in given]
    check(not missing, f"--assume lacks {', '.join(missing)}.", "Give --assume NAME=VALUE for each of them.")
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


def words(told: dict[str, Any]) -> Iterator[str]:
    """Say the same in sentences."""
    yield (
        f"By Theorem 4.3 of Ge et al. (2018) the error ||sin Theta||_F is at most {told['total']:.3g}: "
        f"{told['statistical']:.3g} for the rows being a sample, {told['noise']:.3g} for the noise and "
        f"{told['convergence']:.3g} for the rounds being so few. This holds with probability {told['probability']:.3g} "
        "for a population as assumed, with constant 1 and a start near the truth."
    )
    if told["total"] >= told["largest_possible"]:
        yield f"It says nothing: no error is above {told['largest_possible']:.3g}."


def _pair(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    check(name in KNOWN, f"--assume names {name!r:.40}.", f"Assume one of: {', '.join(KNOWN)}.")
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
