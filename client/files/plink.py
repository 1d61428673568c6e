"""Writes a model so that PLINK 2 computes its scores: the weight of each variant's allele, and allele frequencies.

A score is the sum over variants of a loading times what preparation makes of a genotype: (x - c) / s - m, with the
public centre c and divisor s of a dictionary, if there is one, and the model's mean m. That is a weight, loading / s,
times x - (c + s m). PLINK subtracts twice the allele's frequency, so the frequency is (c + s m) / 2. A noisy mean may
lie outside 0 to 2, where there is no frequency: then the nearest one is written, and a constant is missing from all
scores.

To PLINK's score a missing genotype adds nothing: it counts as the model's mean, or as the dictionary's centre and the
model's mean together. Here it counts as what is declared for it: by the dictionary, as ``missing``, or as twice the
reference's frequency. If that is another number, scores of samples that lack a genotype differ. PLINK is told not to
put the mean in its place itself, because some versions do so after they subtracted it from the others.

On Y and in mitochondria PLINK counts half a copy for each of ours, and uses half of what it subtracts. So these
variants have twice the weight. Of Y, it counts nothing for women. On X it counts as we do.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.dictionary import Dictionary, Genotype, chromosome
from dpspca.common.errors import InvalidDataError
from dpspca.common.results import Model
from dpspca.provider.data import Variant, agree

_NAMED: Final = 5
_FIRST_WEIGHT: Final = 3
_HALVED: Final = frozenset({"Y", "MT"})
_BY_PLACE: Final = re.compile(r"([^:]+):\d+:[^:]+:[^:]+")
"""How a variant without a name is named: by chromosome, position, and both alleles."""
_NAME_BY_PLACE: Final = "--set-missing-var-ids '@:#:$r:$a' --new-id-max-allele-len 1000 missing "
_AUTOSOMES: Final = frozenset(map(str, range(1, 23)))
_CODES: Final = {
    "MT": {"X", "Y", "MT"},
    "M": {"X", "Y", "M"},
    "26": {"23", "24", "26"},
}
"""How PLINK writes other chromosomes with each of its codes: plain, or with "chr" before all of them."""


@dataclass(frozen=True, slots=True)
class PlinkScores:
    """Files that PLINK 2 reads, and how to use them."""

    score: str
    """For ``--score``: variants, alleles and weights, one column for each component."""
    frequencies: str
    """For ``--read-freq``."""
    offsets: tuple[float, ...]
    """A number to add to the sums of each component. Zero, unless a mean lies outside 0 to 2."""
    counts_missing_alike: bool
    """Whether PLINK counts a missing genotype as the dictionary does."""
    naming: str
    """Flags by which PLINK names variants that its files have no name for, if the model has any."""
    unnamed: str | None = None
    """The name of a variant of the model that PLINK would name in another way, if there is one."""

    def command(self, score: str, frequencies: str, genotypes: str = "--pfile") -> str:
        """Return the command that computes the scores. The .sscore file has them as sums.

        ``genotypes`` is the flag for the genotypes: ``--pfile`` for .pgen files, ``--bfile`` for .bed files.
        """
        last = _FIRST_WEIGHT + len(self.offsets) - 1
        columns = f"{_FIRST_WEIGHT}-{last}" if last > _FIRST_WEIGHT else str(last)  # PLINK refuses 3-3
        return (
            f"plink2 {genotypes} PREFIX {self.naming}--read-freq {frequencies} --score {score} 1 2 header-read center "
            f"no-mean-imputation cols=+scoresums,-scoreavgs --score-col-nums {columns} --out scores"
        )


def plink_scores(model: Model, reference: Sequence[Variant] | None) -> PlinkScores:
    """Write a model's variants with a loading.

    ``reference`` says which alleles they have, and which is counted. A dictionary that says so needs none.
    """
    names, dictionary = model.feature_names, model.dictionary
    if model.statement.dictionary and dictionary is None:
        raise InvalidDataError("The model's job has a dictionary, which the model lacks.", "Give --dictionary.")
    if names is None:
        raise InvalidDataError("The model's features have no names.", "Name the columns of a job by its variants.")
    used = model.support.tolist()
    wanted = [names[place] for place in used]
    variants = _described(wanted, dictionary) if reference is None else _variants(wanted, reference, dictionary)
    centre, divisor = _prepared([each.name for each in variants], dictionary)
    loadings = model.components[:, used].T
    mean = np.zeros(len(used)) if model.mean is None else model.mean[used]
    weights, taken = loadings / divisor[:, None], centre + divisor * mean
    frequency = np.clip(taken / 2, 0.0, 1.0)
    offsets = (2 * frequency - taken) @ weights
    heads = ["ID", "A1", *(f"PC{number}" for number in range(1, len(model.components) + 1))]
    weights *= np.array([2.0 if each.place is not None and each.place[0] in _HALVED else 1.0 for each in variants])[
        :, None
    ]
    cells = [[each.name, each.counted, *map(repr, row)] for each, row in zip(variants, weights.tolist(), strict=True)]
    return PlinkScores(
        _table([heads, *cells]),
        _table([
            ["#ID", "REF", "ALT", "ALT_FREQS", "OBS_CT"],
            *([each.name, each.other, each.counted, repr(p), "2"]
              for each, p in zip(variants, frequency.tolist(), strict=True)),
        ]),
        tuple(offsets.tolist()),
        np.array_equal(taken, _for_missing([each.name for each in variants], dictionary)),
        *_naming([each.name for each in variants]),
    )  # fmt: skip


def _naming(names: Sequence[str]) -> tuple[str, str | None]:
    """Return flags that give variants without a name the one that a model has for them.

    PLINK writes chromosomes in one of its codes, and here they are written as in the first file. If no code writes all
    of them so, there are no flags, and the first such name is returned.
    """
    by_place = [found for name in names if (found := _BY_PLACE.fullmatch(name))]
    if not by_place:
        return "", None
    written = {found[1] for found in by_place}
    for prefix in ("", "chr"):
        for code, others in _CODES.items():
            if written <= {prefix + each for each in _AUTOSOMES | others}:
                return f"--output-chr {prefix}{code} {_NAME_BY_PLACE}", None
    return "", by_place[0][0]


def _described(names: Sequence[str], dictionary: Dictionary | None) -> list[Variant]:
    """Return each feature's variant, as the dictionary describes it."""
    features = {} if dictionary is None else {each.name: each for each in dictionary.features}
    found = []
    for name in names:
        feature = features.get(name)
        if feature is not None and not isinstance(feature, Genotype):
            raise InvalidDataError(
                f"{name!r:.60} is not a genotype, and PLINK scores genotypes alone.",
                "Export loadings as .csv or .parquet, and compute scores with `dpspca model project`.",
            )
        if not isinstance(feature, Genotype) or not feature.allele or not feature.other_allele:
            raise InvalidDataError(
                f"Nothing says which alleles {name!r:.60} has.",
                "Give --alleles: the .bim, .pvar or .afreq file that all providers share.",
            )
        by_place = _BY_PLACE.fullmatch(name)
        at = feature.chromosome or (by_place and chromosome(by_place[1]))
        place = (at, feature.position) if at else None
        found.append(Variant(name, feature.allele, feature.other_allele, place=place))
    return found


def _variants(names: Sequence[str], reference: Sequence[Variant], dictionary: Dictionary | None) -> list[Variant]:
    """Return each feature's variant, with the allele that is counted."""
    known = {each.name: each for each in reference}
    missing = [name for name in names if name not in known]
    if missing:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise InvalidDataError(
            f"The list of alleles lacks {', '.join(f'{name!r:.60}' for name in missing[:_NAMED])}{more}.",
            "Give the .bim, .pvar or .afreq file that all providers share.",
        )
    found = [known[name] for name in names]
    features = {} if dictionary is None else {each.name: each for each in dictionary.features}
    wanted = [getattr(features.get(each.name), "allele", "") or each.counted for each in found]
    stated = [
        replace(each, counted=allele, other=each.counted if allele == each.other else each.other, mean=None)
        for each, allele in zip(found, wanted, strict=True)
    ]
    # refuses an allele that a variant does not have
    agree(found, stated, "Give as --alleles the list of variants that the providers of the model share.")
    return stated


def _prepared(names: Sequence[str], dictionary: Dictionary | None) -> tuple[FloatArray, FloatArray]:
    """Return the public centre and divisor of each variant."""
    if dictionary is None:
        return np.zeros(len(names)), np.ones(len(names))
    features = {each.name: each for each in dictionary.features}
    stray = [name for name in names if not isinstance(features.get(name), Genotype)]
    if stray:
        raise InvalidDataError(
            f"The dictionary does not describe a genotype {stray[0]!r:.60}.", "Give the dictionary of the job."
        )
    found = [features[name] for name in names]
    return (
        np.array([each.centre for each in found if isinstance(each, Genotype)]),
        np.array([each.divisor for each in found if isinstance(each, Genotype)]),
    )


def _for_missing(names: Sequence[str], dictionary: Dictionary | None) -> FloatArray:
    """Return the number for a missing genotype of each variant, or NaN if each provider's settings decide it."""
    features = {} if dictionary is None else {each.name: each for each in dictionary.features}
    return np.array([getattr(features.get(name), "missing", np.nan) for name in names])


def _table(rows: Sequence[Sequence[str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)
