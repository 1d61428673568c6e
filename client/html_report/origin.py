"""Where a model comes from, in a report: method, data set, providers who took part or dropped out, and software.

All of it is text from a file that a stranger may have written. It is escaped like every other text of the page.
"""

from collections.abc import Iterator
from typing import Any, Final

from dpspca.common.algorithms import catalogue
from dpspca.common.markup import Markup, element, joined, table
from dpspca.common.version import __version__

from .words import counted, exact

NOT_HELD: Final = "not in this model, which an earlier version made"

Origin = dict[str, Any] | None


def origin_rows(origin: Origin) -> Iterator[tuple[str, str]]:
    """Yield the facts of a model's origin, or that it has none."""
    if origin is None:
        yield "Method and data set", NOT_HELD
        return
    known = catalogue.CATALOGUE.get(origin["method"])
    yield "Method", f"{origin['method']}: {known.summary}" if known else origin["method"]
    yield "Data set", origin["data_set"] or "without a name: rows in one process"
    if origin["job"]:
        yield "Job", element("code", origin["job"])
    yield "Queries that were answered", exact(origin["queries"])


def who_took_part(origin: Origin) -> Iterator[Markup]:
    """Yield a table of the providers, with those that dropped out and why."""
    parts = origin["participants"] if origin else []
    if not parts or origin is None:
        return
    yield table(
        "Providers that the job names", ["Provider", "Answered", "Took part"], map(_part(origin["queries"]), parts)
    )
    gone = [each for each in parts if each["answered"] != origin["queries"]]
    if gone:
        yield element(
            "p",
            counted(len(gone), "provider"),
            " dropped out. Earlier answers of such a provider still count; later sums have only the others.",
        )
    yield element("p", "This table is what the coordinator reported.")


def software(origin: Origin) -> Markup:
    """Return which version made the model, and which wrote the report."""
    made = f"Version {origin['software']} made this model" if origin else "The model does not say which version made it"
    return element("p", f"Software: dpspca. {made}. Version {__version__} wrote this report.")


def _part(queries: int) -> Any:  # noqa: ANN401  # a function of a participant
    def row(each: dict[str, Any]) -> list[str]:
        whole = each["answered"] == queries
        why = "to the end" if whole else "dropped out" + (f": {each['reason']}" if each["reason"] else "")
        return [each["name"], joined([exact(each["answered"]), " of ", exact(queries)]), why]

    return row
