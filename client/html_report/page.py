"""The page: what was asked of which provider, the components, the price, the promise, and how to cite it.

Everything on it comes from ``report.to_dict``, so every number on it is also available as JSON. It has no date, so that
the same model gives the same bytes.
"""

from collections.abc import Iterator
from typing import Any, Final

from dpspca.client.findings import WITHIN_NOISE
from dpspca.client.reports import report, score_plot
from dpspca.common.job import PRIVATE_BOUND, Centering, Scaling
from dpspca.common.markup import Markup, element, joined, number, table, void
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.results import NOT_FOR_RELEASE, Model

from .origin import origin_rows, software, who_took_part
from .readings import how_stable, price_in_words
from .score_picture import caption_of, score_picture
from .scree import scree
from .style import policy, sheet
from .words import REFERENCES, exact, methods_paragraph, rounded_up, words_used

TITLE: Final = "Differentially private principal components"
UNKNOWN: Final = "not known"


def page(model: Model, *, top: int = report.TOP) -> str:
    """Return the report of a model as one HTML document. Raise ValueError if a number is not finite."""
    facts = report.to_dict(model, top=top)
    releasable = facts["statement"]["releasable"]
    style = sheet(releasable=releasable)
    head = element(
        "head",
        void("meta", charset="utf-8"),
        void("meta", http_equiv="Content-Security-Policy", content=policy(style)),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", TITLE if releasable else f"{NOT_FOR_RELEASE}: {TITLE}"),
        element("style", Markup(style)),
    )
    body = element("body", element("main", *_sections(facts)), _footer(top))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _sections(facts: dict[str, Any]) -> Iterator[Markup]:
    """Yield the page from top to bottom. A result that must not be released is marked so first."""
    statement = facts["statement"]
    if not statement["releasable"]:
        yield element("p", statement["headline"], class_="alarm")
    yield element("h1", TITLE)
    if statement["releasable"]:
        yield element("p", statement["headline"])
    yield from _warnings([*filter(None, [statement["caveat"]]), *facts["warnings"]])
    yield element("h2", "What was asked, and of whom")
    yield table("The job and its result", ["Fact", "Value"], _asked(facts))
    yield from who_took_part(facts["origin"])
    yield from _explained(facts)
    yield element("h2", "The components")
    for component in facts["components"]:
        yield from _component(component, facts)
    if facts["scores"]:
        yield element("h2", score_plot.TITLE)
        picture, caption = score_picture(facts["scores"]), caption_of(facts["scores"])
        yield element("figure", picture, element("figcaption", caption))
    yield element("h2", "How stable the components are")
    yield from how_stable(facts)
    yield element("h2", "The price")
    yield price_in_words(facts)
    yield table("What the answers of each provider cost", ["Measure", "Value"], _price(facts))
    yield element("h2", "How the budget was spent")
    yield element("p", _decision(facts))
    yield element("h2", "Privacy statement")
    yield from (element("p", paragraph) for paragraph in statement["text"].split("\n\n"))
    yield element("h2", "Words used")
    yield words_used(PrivacyUnit(statement["unit"]))
    yield element("h2", "Cite this")
    yield from _citation(facts)


def _warnings(warnings: list[str]) -> Iterator[Markup]:
    yield element("h2", "Warnings")
    if warnings:
        yield element("ul", *(element("li", sentence) for sentence in warnings), class_="warnings")
    else:
        yield element("p", "None.")


def _asked(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    statement = facts["statement"]
    unit, bound = PrivacyUnit(statement["unit"]), statement["norm_bound"]
    yield "Components", exact(len(facts["components"]))
    yield "Features", exact(facts["features"])
    yield "Features in the support", exact(facts["support_size"])
    yield from origin_rows(facts["origin"])
    yield "Providers who took part", exact(statement["parties"])
    where = "with the providers" if statement["federated"] else "in one process, with whoever ran the job"
    yield "Where the data were", where
    yield "Queries that each answered", exact(statement["answers"])
    yield "Privacy unit", unit
    if unit.is_person:
        yield "Rows of a person, at most", exact(statement["rows_per_person"])
    budget = ["epsilon ", rounded_up(statement["epsilon"]), ", delta ", rounded_up(statement["delta"])]
    yield "Budget", joined(budget)
    yield "Norm bound", "found privately" if bound == PRIVATE_BOUND else exact(bound)
    if statement["dictionary"]:
        yield "Prepared by the dictionary", statement["dictionary"]
        yield "Public centres", "subtracted, as the dictionary says"
    if unit.is_row:
        yield "Mean", _CENTRED[Centering(statement["centering"])]
        if statement["centering_reason"]:
            yield "Centring, chosen from public facts", statement["centering_reason"]
        yield "Scale of columns", _SCALED[Scaling(statement["scaling"])]
    yield "Accounting", statement["accounting"]


_SCALED: Final = {
    Scaling.NONE: "as they are",
    Scaling.PRIVATE: "divided by their root mean square, which was found privately",
}

_CENTRED: Final = {
    Centering.NONE: "not subtracted",
    Centering.PUBLIC: "a public mean was subtracted",
    Centering.PRIVATE: "subtracted; it was found privately",
    Centering.PAIRS: "not needed: differences of pairs of rows were used",
}


def _explained(facts: dict[str, Any]) -> Iterator[Markup]:
    """Yield the scree plot, and the table with its numbers."""
    components, of_rows = facts["components"], PrivacyUnit(facts["statement"]["unit"]).is_row
    yield element("h2", "What each component explains" if of_rows else "Eigenvalues")
    if components[0]["explained_variance"] is None:
        yield element("p", "The job did not ask for this.")
        return
    measure = "explained variance" if of_rows else "eigenvalue"
    interval = _interval_heading(facts)
    caption = (
        f"Bars: {measure}. Lines: {interval}." if components[0]["explained_variance_interval"] else f"Bars: {measure}."
    )
    starred = f" *: {WITHIN_NOISE}." if any(component["within_noise"] for component in components) else ""
    yield element("figure", scree(components, measure), element("figcaption", caption + starred))
    headings = ["Component", measure.capitalize(), interval, "Share of the total", *(["Remark"] if starred else [])]
    rows = (
        _explained_row(component, [WITHIN_NOISE if component["within_noise"] else ""] if starred else [])
        for component in components
    )
    yield table(f"{measure.capitalize()} of each component", headings, rows)


def _explained_row(component: dict[str, Any], remark: list[str]) -> list[str]:
    noise = component["explained_variance_std"]
    return [
        exact(component["number"]),
        _rounded(component["explained_variance"], noise),
        _ends(component["explained_variance_interval"], noise),
        _share(component["explained_variance_ratio"]),
        *remark,
    ]


def _component(component: dict[str, Any], facts: dict[str, Any]) -> Iterator[Markup]:
    features = component["top_features"]
    yield element("h3", "Component ", exact(component["number"]))
    known = any(feature["loading_interval"] for feature in features)
    headings = ["Feature", "Loading", *([_interval_heading(facts)] if known else [])]
    rows = (
        [
            feature["name"],
            _loading(feature["loading"], feature["loading_std"]),
            *([_loading_ends(feature)] if known else []),
        ]
        for feature in features
    )
    yield table("Features with the largest loadings", headings, rows)
    if component["support_size"] > len(features):
        yield element("p", "In all, ", exact(component["support_size"]), " loadings are not zero.")
    if component["left_out_at_most"] is not None:
        before, after = report.LEFT_OUT
        most = component["left_out_at_most"]
        yield element("p", before, number(most, f"{most:.3f}"), after)
    if not known:
        yield element("p", "The noise of single loadings is not known.")


def _price(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    price, exactly = facts["price"], facts["statement"]["gaussian"]
    yield "Epsilon of the budget", rounded_up(price["epsilon"])
    yield "Delta of the budget", rounded_up(price["delta"])
    yield "Epsilon of the answers, at this delta", rounded_up(price["exact_epsilon"])
    yield "Mu" if exactly else "Mu, at most", rounded_up(price["mu"])


def _decision(facts: dict[str, Any]) -> str:
    decided = facts["statement"]["decision"] or (facts["decision"] or {"text": ""})["text"]
    return decided or "As the plan of the job says. This method decides nothing while the job runs."


def _citation(facts: dict[str, Any]) -> Iterator[Markup]:
    if not facts["statement"]["releasable"]:
        yield element("p", f"{NOT_FOR_RELEASE}. This result must not be published, so there is nothing to cite.")
        return
    yield element("p", "For a methods section:")
    yield methods_paragraph(facts)
    yield element("p", "References:")
    yield element("ul", *(element("li", reference) for reference in REFERENCES))
    yield software(facts["origin"])


def _footer(top: int) -> Markup:
    command = element("code", f"dpspca model show MODEL --top {top} --json")
    return element("footer", element("p", "Every number in this report as JSON: ", command))


# Numbers


def _interval_heading(facts: dict[str, Any]) -> str:
    return f"{facts['interval_level']:.0%} confidence interval"


def _rounded(value: float, noise: float | None) -> Markup:
    return number(value, report.rounded(value, noise).replace("-", "\N{MINUS SIGN}"))


def _ends(ends: list[float] | None, noise: float | None) -> Markup:
    return joined([UNKNOWN]) if ends is None else joined([_rounded(ends[0], noise), " to ", _rounded(ends[1], noise)])


def _share(ratio: float | None) -> Markup:
    return joined([UNKNOWN]) if ratio is None else number(ratio, f"{ratio:.1%}")


def _loading(value: float, noise: float | None) -> Markup:
    """Return a loading with its sign, rounded as its noise allows, or to three digits if that is not known."""
    size = report.rounded(abs(value), noise) if noise else f"{abs(value):.3f}"
    sign = "" if not float(size) else "\N{MINUS SIGN}" if value < 0 else "+"
    return number(value, sign + size)


def _loading_ends(feature: dict[str, Any]) -> Markup:
    ends, noise = feature["loading_interval"], feature["loading_std"]
    return joined([UNKNOWN]) if ends is None else joined([_loading(ends[0], noise), " to ", _loading(ends[1], noise)])
