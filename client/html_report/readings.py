"""The meaning of numbers, in sentences: the price for one person, and how far noise may have mixed components."""

from collections.abc import Iterator
from typing import Any

from dpspca.client.reports import in_words
from dpspca.common.markup import Markup, element, number
from dpspca.common.privacy import PrivacyUnit

from .words import counted, exact


def price_in_words(facts: dict[str, Any]) -> Markup:
    """Return how well somebody who knows everything else could guess, from this result alone."""
    guess, best = PrivacyUnit(facts["statement"]["unit"]).guess("the norm bound"), facts["price"]["guess_at_most"]
    if not facts["statement"]["releasable"]:
        return element("p", "The price below is not the price of this result, which must not be released.")
    return element(
        "p",
        f"Suppose that somebody knows all the other data, and guesses {guess}. Without this result, the guess is right "
        "in 50% of cases. With this result, it is right in at most ",
        number(best, f"{best:.1%}"),
        " of cases. Further results about the same data make guesses better.",
    )


def how_stable(facts: dict[str, Any]) -> Iterator[Markup]:
    """Yield whether components are told apart, and how many loadings have a certain sign."""
    found = facts["stability"]
    if sentences := in_words(found["neighbours"]):
        yield element("ul", *(element("li", sentence) for sentence in sentences))
    elif len(facts["components"]) > 1:
        yield element("p", "It is not known whether noise mixed components: the noise of their variances is not known.")
    else:
        yield element("p", "There is one component. The job did not ask what a second one would explain.")
    if found["loadings_with_interval"]:
        counts = counted(found["loadings_with_interval"], "loading"), exact(found["loadings_clear_of_zero"])
        yield element("p", "Of the ", counts[0], " listed above, ", counts[1], " differ clearly from zero.")
