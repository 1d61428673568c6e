"""The fixed words of a report: explanations of the words that it uses, and the paragraph for a methods section."""

from collections.abc import Iterator
from typing import Any, Final

from dpspca.common.job import PRIVATE_BOUND, Centering, Scaling
from dpspca.common.markup import Markup, element, joined, number
from dpspca.common.privacy import PrivacyUnit, format_up

WORDS_USED: Final = {
    "Method": "How components are found from noisy answers. Its name is that of a published algorithm, or auto.",
    "Round": "One query to all providers about the current basis, and the sum of their noisy answers.",
    "Component": "A direction in the space of the features: it gives each of them a loading.",
    "Loading": "The weight of one feature in a component, between −1 and 1.",
    "Support": "The features (columns) whose loadings are not zero.",
    "Explained variance": "The variance of the rows along a component, estimated from noisy answers.",
    "Eigenvalue": "The factor by which the matrix stretches a component, estimated from noisy answers.",
    "Noise": "Random numbers that providers add to answers, so that answers say little about any single privacy unit.",
    "Confidence interval": "A range that contains the number without noise about as often as its percentage says. It "
    "covers neither the sampling of rows nor the clipping of long rows. If features are left out, it is about the "
    "component that the others have among themselves.",
    "Within the noise": "A number is within the noise if noise alone could have produced it.",
    "Provider": "An organisation that holds rows, or a share of a matrix, and answers queries about them with noise.",
    "Privacy unit": "The difference between two neighbouring data sets, for example one row. The promise hides it.",
    "Epsilon (ε)": "The limit on how much more or less likely one privacy unit can make any conclusion: a factor of at "
    "most e to the power of ε. Smaller is more private.",
    "Delta (δ)": "A small probability by which conclusions may exceed the limit of epsilon.",
    "Mu (μ)": "The price of all answers in Gaussian differential privacy, by which the prices of jobs are added up.",
    "Norm bound": "The length to which longer rows were shortened, or the size of a change of a matrix that is hidden.",
}
"""Each word with one sentence."""

REFERENCES: Final = (
    (
        "Dwork, C., McSherry, F., Nissim, K., Smith, A. (2006). Calibrating noise to sensitivity in private data "
        "analysis. Theory of Cryptography Conference, 265–284."
    ),
    (
        "Dong, J., Roth, A., Su, W. J. (2022). Gaussian differential privacy. Journal of the Royal Statistical "
        "Society, Series B, 84(1), 3–37."
    ),
)


def words_used(unit: PrivacyUnit) -> Markup:
    """Explain the words that a report about such data uses."""
    unused = "Eigenvalue" if unit.is_row else "Explained variance"
    kept = ((word, sentence) for word, sentence in WORDS_USED.items() if word != unused)
    return element("dl", *(part for word, sentence in kept for part in (element("dt", word), element("dd", sentence))))


def methods_paragraph(facts: dict[str, Any]) -> Markup:
    """Return how the components were found and what is promised, for a methods section."""
    return element("blockquote", element("p", joined(_sentences(facts))))


def _sentences(facts: dict[str, Any]) -> Iterator[str]:
    statement, unit = facts["statement"], PrivacyUnit(facts["statement"]["unit"])
    yield counted(len(facts["components"]), "principal component")
    yield " of "
    yield counted(facts["features"], "feature")
    yield " were" if len(facts["components"]) != 1 else " was"
    yield " estimated with differential privacy (Dwork et al., 2006) from the data of "
    yield counted(statement["parties"], "provider")
    yield ", with the software dpspca"
    if origin := facts["origin"]:
        yield f" (version {origin['software']}, method {origin['method']})"
    yield ". "
    yield from _clipping(statement, unit)
    yield "The result is (ε, δ)-differentially private with ε = "
    yield rounded_up(statement["epsilon"])
    yield " and δ = "
    yield rounded_up(statement["delta"])
    yield f"; the privacy unit is {unit}. {unit.neighbours} "
    yield counted(statement["answers"], "answer")
    yield " of each provider" if statement["parties"] > 1 else " of the provider"
    yield " with random noise together cost "
    if statement["gaussian"]:
        yield "μ = "
        yield rounded_up(statement["mu"])
        yield " in Gaussian differential privacy (Dong, Roth & Su, 2022)."
    else:
        yield "ε = "
        yield rounded_up(statement["exact_epsilon"])
        yield " at this δ."
    if any(component["explained_variance_interval"] for component in facts["components"]):
        yield " Confidence intervals cover this noise, but neither the sampling of rows nor the clipping of long rows."
    if statement["caveat"]:
        yield f" {statement['caveat']}"


def _clipping(statement: dict[str, Any], unit: PrivacyUnit) -> Iterator[str]:
    if not unit.is_row:
        yield "The promise covers changes of the matrix of at most "
        yield exact(statement["norm_bound"])
        yield ". "
        return
    yield "Rows were "
    if statement["centering"] != Centering.NONE:
        yield "replaced by differences of pairs" if statement["centering"] == Centering.PAIRS else "centred"
        yield " and then "
    if statement["scaling"] != Scaling.NONE:
        yield "divided column by column by scales that were found privately, and then "
    yield "clipped to Euclidean length "
    yield from (
        ["which was found privately"] if statement["norm_bound"] == PRIVATE_BOUND else [exact(statement["norm_bound"])]
    )
    yield ". "


def counted(count: int, noun: str) -> Markup:
    """Return a count with its noun, in the plural if need be."""
    return joined([exact(count), f" {noun}{'' if count == 1 else 's'}"])


def exact(value: float) -> Markup:
    """Return a count, or a number that somebody chose, as it is."""
    return number(value, f"{value:,}" if isinstance(value, int) else f"{value:.10g}")


def rounded_up(value: float) -> Markup:
    """Return a privacy parameter, rounded up."""
    return number(value, format_up(value))
