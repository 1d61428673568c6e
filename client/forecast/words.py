"""A forecast in words and as a table, for people: every number of it is among the plain values too. Pure."""

import re
from collections.abc import Iterator
from typing import Any, Final

from dpspca.common.markup import element, joined, table
from dpspca.common.text import printable

HEADINGS: Final = ("method", "error", "captured", "noise", "columns", "answers", "sent", "seconds")
_SIZES: Final = ("bytes", "kB", "MB", "GB", "TB")
_THOUSAND: Final = 1000


def as_text(forecast: dict[str, Any]) -> str:
    """Return a forecast as a table, with sentences below it."""
    lines = [HEADINGS, *(cells(each) for each in forecast["methods"])]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "\n".join([*shown, "", *map(printable, sentences(forecast))])


def as_html(forecast: dict[str, Any]) -> str:
    """Return the same for a notebook."""
    shown = table("Expected error of each method", HEADINGS, map(cells, forecast["methods"]))
    return joined([shown, *(element("p", sentence) for sentence in sentences(forecast))])


def cells(each: dict[str, Any]) -> tuple[str, ...]:
    """Return a method's line of the table."""
    return (
        each["label"] + ("" if each["norm_bound"] is None else " *"),
        "chance" if each["at_chance"] else f"{each['error']:.3g}",
        f"{each['captured']:.1%}",
        "own" if each["noise_std"] is None else f"{each['noise_std']:.3g}",
        f"{each['columns']:,}",
        str(each["answers"]),
        _size(each["bytes"]),
        f"{each['seconds']:.2g}",
    )


def sentences(forecast: dict[str, Any]) -> Iterator[str]:
    """Say what is recommended and why, what each column of the table means, and what was assumed."""
    assumed = forecast["assumed"]
    yield forecast["reason"]
    yield from forecast["remedies"]
    why: dict[str, list[str]] = {}
    possible = {each["method"] for each in forecast["methods"]}
    for label, reason in forecast["refused"].items():
        method = label.partition(",")[0]
        named = why.setdefault(_without_name(reason, method), [])
        shown = label.replace(", sparsity", " with sparsity") if method in possible else method
        named += [shown] * (shown not in named)
    for reason, methods in why.items():
        yield f"Not for this job: {', '.join(methods)}. Reason: {reason}"
    known = {each["norm_bound"] for each in forecast["methods"]} - {None}
    if known:
        yield (
            f"* These methods cannot find a norm bound, so the job cannot use them as it stands. The forecast is for a "
            f"norm_bound of {min(known):.3g}, as if the length of rows were public knowledge."
        )
    yield (
        "error: ||sin Theta||_F between the components and those of the population; random directions have "
        f"{forecast['chance']:.3g}. captured: of the variance that the true components hold. noise: standard deviation "
        "on an entry of the second moments, divided by the number of rows; own: the method adds none there. sent: by "
        "each provider. seconds: a rough guess for one machine with 2 cores."
    )
    paired = "" if assumed["used_rows"] == assumed["rows"] else f" in {assumed['used_rows']:,} pairs"
    yield (
        f"Assumed, and not looked up in any data: {assumed['rows']:,} rows of "
        f"{_several(assumed['providers'], 'provider')}{paired}, mean squared length {assumed['row_length'] ** 2:.4g}. "
        f"Of it the first component has {assumed['largest']:.3g}, the last {assumed['leading']:.3g} and the next "
        f"direction {assumed['following']:.3g}. Columns that take part: {assumed['support']:,}."
    )


def _without_name(reason: str, method: str) -> str:
    """Return a reason without the name of its method, so that methods with the same reason stand together.

    A name in quotes, or in a list of names, stays.
    """
    return re.sub(rf"(?<![\w'\"-])(the method )?{re.escape(method)}(?![\w'\",-])", "the method", reason)


def _size(count: float) -> str:
    """Write a number of bytes as people read it."""
    unit = next((place for place in range(len(_SIZES)) if count < _THOUSAND ** (place + 1)), len(_SIZES) - 1)
    return f"{count / _THOUSAND**unit:.{min(1, unit)}f} {_SIZES[unit]}"


def _several(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def of_answers(answers: dict[str, Any]) -> Iterator[str]:
    """Say the answers to what people ask before they sign."""
    more = answers["with_another_provider"]
    another = "" if more is None else f" With one provider more, of as many rows as each has now: {more:.3g}."
    alone = answers["with_one_owner"]
    yield f"The job's own method: expected error {answers['error']:.3g}.{another}"
    if alone is not None:
        yield (
            f"If one party held all rows and added noise once: {alone:.3g}. The difference is the price of trusting "
            "nobody."
        )
    if answers["target_error"] is not None:
        epsilon = answers["epsilon_for_target"]
        found = "no epsilon is enough" if epsilon is None else f"epsilon {epsilon:.3g} is enough"
        yield f"For an error of {answers['target_error']:g}, {found}."
    if answers["share_of_lifetime"] is not None:
        yield (
            f"The job takes {answers['share_of_lifetime']:.1%} of the lifetime budget, which has room for "
            f"{answers['jobs_in_lifetime']} such jobs. One leaves epsilon {answers['left_epsilon']:.3g} for others."
        )
    if answers["jobs_in_left"] is not None:
        share = answers["share_of_left"]
        part = "nothing is left" if share is None else f"it takes {share:.1%} of it"
        yield (
            f"Of what providers have left for you, {part}: there is room for {answers['jobs_in_left']} such jobs, and "
            f"one leaves epsilon {answers['left_after_job']:.3g} at the job's delta."
        )
