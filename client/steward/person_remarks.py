"""Remarks for a steward about the labels of persons. They contain no label."""

from collections.abc import Iterator

from dpspca.provider.data import PersonFacts


def person_remarks(facts: PersonFacts) -> Iterator[str]:
    """Say that labels may be those of the same persons, and that lines may hold more than labels."""
    if facts.lacks_last_line:
        yield (
            "The persons file has one line fewer than there are rows, or its last line is empty, so the last row "
            "counts as nobody's. If a line is missing elsewhere, all rows behind it have the wrong persons: write one "
            "line for each row."
        )
    if facts.differing:
        names = "1 name differs" if facts.differing == 1 else f"{facts.differing} names differ"
        yield (
            f"In the list of samples that names persons, {names} from the list beside the genotypes. If it is of other "
            "samples or sorted otherwise, rows have the wrong persons: name the list beside the genotypes."
        )
    if facts.alike:
        labels = "1 label differs" if facts.alike == 1 else f"{facts.alike} labels differ"
        yield (
            f"Among the names of persons, {labels} from others only in quotes, spaces, upper case or a decimal such as "
            ".0. Each counts as a person of its own. If they name the same persons, write each person in one way, "
            "because otherwise more of a person's rows are used than the policy allows."
        )
    if facts.unnamed:
        labels = "1 label often stands" if facts.unnamed == 1 else f"{facts.unnamed} labels often stand"
        remedy = "declare it in missing_codes, under [reading]" if facts.of_column else "leave such lines blank"
        yield (
            f"Among the names of persons, {labels} for a missing value, such as NA or unknown. All rows with such a "
            f"label count as those of one person: {remedy}."
        )
    if facts.divided:
        lines = "1 label holds" if facts.divided == 1 else f"{facts.divided} labels hold"
        yield (
            f"Among the names of persons, {lines} a comma, semicolon, tab or bar. In a persons file, a whole line "
            "names a person: write only the cell that names the person."
        )
