"""Which two data sets are neighbours.

Epsilon and delta mean nothing without a unit, so the unit is always an argument and never has a default. The same
query has different sensitivities under different units (often sqrt(2) times more for replace-one than add/remove).
"""

from enum import StrEnum


class PrivacyUnit(StrEnum):
    """The unit that a guarantee protects. The values are stable and may be stored or sent."""

    ROW_REPLACE_ONE = "row-replace-one"
    ROW_ADD_REMOVE = "row-add-remove"
    PERSON_REPLACE_ONE = "person-replace-one"
    PERSON_ADD_REMOVE = "person-add-remove"
    ENTRY = "entry"
    SPECTRAL = "spectral"

    @property
    def neighbours(self) -> str:
        """A sentence that defines neighbouring data sets for this unit."""
        return _NEIGHBOURS[self]

    def guess(self, bound: str) -> str:
        """Return what somebody guesses who tells two neighbours apart. ``bound`` names that of changes of a matrix."""
        return _GUESSES[self].format(bound=bound)

    @property
    def is_row(self) -> bool:
        """Whether the data are rows, so that the guarantee protects one row or all rows of a person."""
        return self.is_add_remove or self.is_replace_one

    @property
    def is_person(self) -> bool:
        """Whether the guarantee protects all rows of a person. The provider must know the person of each row."""
        return self in {PrivacyUnit.PERSON_REPLACE_ONE, PrivacyUnit.PERSON_ADD_REMOVE}

    @property
    def is_add_remove(self) -> bool:
        """Whether the presence of a row, or of a person, is protected."""
        return self in {PrivacyUnit.ROW_ADD_REMOVE, PrivacyUnit.PERSON_ADD_REMOVE}

    @property
    def is_replace_one(self) -> bool:
        """Whether the number of rows, or of persons, is public."""
        return self in {PrivacyUnit.ROW_REPLACE_ONE, PrivacyUnit.PERSON_REPLACE_ONE}


_NEIGHBOURS = {
    PrivacyUnit.ROW_REPLACE_ONE: (
        "Two data sets are neighbours if they have the same number of rows and differ in the contents of one row. The "
        "number of rows itself is not protected."
    ),
    PrivacyUnit.ROW_ADD_REMOVE: (
        "Two data sets are neighbours if one of them is the other without one row. So even the presence of a row is "
        "protected."
    ),
    PrivacyUnit.PERSON_REPLACE_ONE: (
        "Two data sets are neighbours if they are about the same number of persons and differ in the rows of one "
        "person: in their number (one or more), their places and their contents. The number of persons is not "
        "protected; the number of rows of a person is."
    ),
    PrivacyUnit.PERSON_ADD_REMOVE: (
        "Two data sets are neighbours if one of them is the other without all rows of one person, however many these "
        "are. So even the presence of a person is protected."
    ),
    PrivacyUnit.ENTRY: (
        "Two data sets are neighbours if they are matrices of the same shape that differ by at most the stated bound "
        "in a single entry (in a symmetric matrix: in that entry and its mirror image). A whole row is not protected."
    ),
    PrivacyUnit.SPECTRAL: (
        "Two data sets are neighbours if they are matrices of the same shape whose difference stretches no vector "
        "by more than the stated bound (its spectral norm is at most that)."
    ),
}
_GUESSES = {
    PrivacyUnit.ROW_REPLACE_ONE: "which of two given contents a row of the data has",
    PrivacyUnit.ROW_ADD_REMOVE: "whether a given row is in the data or not",
    PrivacyUnit.PERSON_REPLACE_ONE: "which of two given sets of rows a person has in the data",
    PrivacyUnit.PERSON_ADD_REMOVE: "whether a given person is in the data or not",
    PrivacyUnit.ENTRY: "which of two values an entry of the matrix has, if they differ by at most {bound}",
    PrivacyUnit.SPECTRAL: "which of two matrices the data are, if they differ by at most {bound} in spectral norm",
}
