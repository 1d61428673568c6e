"""Remarks for a steward about triplets that are not used, or that are added up."""

from collections.abc import Iterator
from typing import Final

from dpspca.provider.data import DataSetFacts, TripletFacts

_NAMED: Final = 8


def triplet_remarks(facts: DataSetFacts, counts: TripletFacts) -> Iterator[str]:
    """Say how many triplets there are, how many are not used, and which have company in their row and column."""
    yield (
        f"{counts.triplets} triplets. {counts.unknown_columns} have an undeclared column, and "
        f"{counts.unknown_rows} more have an undeclared row: they are not used."
    )
    if counts.used < facts.rows * len(facts.columns) and any(each.type == "numbers" for each in facts.columns):
        yield (
            "A row without a triplet of a column counts as 0 there. That suits counts, and not measurements: with a "
            "dictionary, what was not measured is a missing value."
        )
    if counts.rows_without:
        rows = "1 declared row has" if counts.rows_without == 1 else f"{counts.rows_without} declared rows have"
        yield (
            f"{rows} no triplet that is used. The first: {counts.first_without}. If they should have some, check that "
            "triplets name rows as the list does."
        )
    without = [each for each in facts.features if facts.rows and each.without_triplet == facts.rows]
    if without:
        listed = ", ".join(f"{each.name!r:.60} ({each.column!r:.60})" for each in without[:_NAMED])
        more = f" and {len(without) - _NAMED} more" if len(without) > _NAMED else ""
        yield (
            f"No triplet has the column of {listed}{more}. If it should be there, check that triplets name columns as "
            "the dictionary does."
        )
    if counts.broken:
        lines = "1 line has" if counts.broken == 1 else f"{counts.broken} lines have"
        yield (
            f"{lines} too few or too many cells and no triplet that is used. The first: {counts.first_broken}. Correct "
            "it, or remove it."
        )
    if counts.several:
        yield _about_several(facts, counts)


def _about_several(facts: DataSetFacts, counts: TripletFacts) -> str:
    """Name the columns, or their features, in which some row has several numbers."""
    features = {each.column: each.name for each in facts.features}
    names = [features.get(name, name) for name in counts.columns_with_several]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    listed = ", ".join(f"{name!r:.60}" for name in names[:_NAMED]) + more
    pairs = (
        "1 pair of a row and a column has"
        if counts.several == 1
        else f"{counts.several} pairs of a row and a column have"
    )
    if not counts.are_added:
        return f"{pairs} several numbers, in {listed}. Each makes its row count as zeros. Keep one number of each pair."
    return (
        f"{pairs} several numbers, in {listed}, which are added up. Two measurements of one person become their sum. "
        'Unless they are counts, keep one of them, for example the latest, or declare duplicates = "unusable" in '
        "triplets."
    )
