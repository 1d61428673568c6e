"""Which two data sets count as neighbours.

A number of privacy means nothing before this is said. The unit is always an argument, never a default: the same
query has different sensitivities under different units (often sqrt(2) times more for replace-one than add/remove).
"""

from enum import StrEnum


class PrivacyUnit(StrEnum):
    """What a guarantee protects; the values are stable and may be stored or sent."""

    ROW_REPLACE_ONE = "row-replace-one"
    ROW_ADD_REMOVE = "row-add-remove"
    PERSON_REPLACE_ONE = "person-replace-one"
    PERSON_ADD_REMOVE = "person-add-remove"
    ENTRY = "entry"
    SPECTRAL = "spectral"

    @property
    def neighbours(self) -> str:
        """One sentence saying which two data sets the guarantee makes hard to tell apart."""
        return _NEIGHBOURS[self]

    @property
    def is_row(self) -> bool:
        """Whether the data are rows, and the guarantee protects all that one of them says, or all those of a person."""
        return self.is_add_remove or self.is_replace_one

    @property
    def is_person(self) -> bool:
        """Whether the guarantee protects a person with all their rows: a provider has to know whose each row is."""
        return self in {PrivacyUnit.PERSON_REPLACE_ONE, PrivacyUnit.PERSON_ADD_REMOVE}

    @property
    def is_add_remove(self) -> bool:
        """Whether it is protected that a row, or a person, is there at all."""
        return self in {PrivacyUnit.ROW_ADD_REMOVE, PrivacyUnit.PERSON_ADD_REMOVE}

    @property
    def is_replace_one(self) -> bool:
        """Whether the number of rows, or of persons, is public."""
        return self in {PrivacyUnit.ROW_REPLACE_ONE, PrivacyUnit.PERSON_REPLACE_ONE}


_NEIGHBOURS = {
    PrivacyUnit.ROW_REPLACE_ONE: (
        "Two data sets are neighbours if they have the same number of rows and differ in the contents of one row, "
        "whatever those contents are; the number of rows itself is not protected."
    ),
    PrivacyUnit.ROW_ADD_REMOVE: (
        "Two data sets are neighbours if one of them is the other with one whole row left out, "
        "so that it is protected whether a row is present at all."
    ),
    PrivacyUnit.PERSON_REPLACE_ONE: (
        "Two data sets are neighbours if they are about equally many persons and differ in the rows of one of them, in "
        "how many there are (one or more), where they stand and what they say; the number of persons is not protected, "
        "and how many rows a person has is."
    ),
    PrivacyUnit.PERSON_ADD_REMOVE: (
        "Two data sets are neighbours if one of them is the other with all rows of one person left out, however many, "
        "so that it is protected whether somebody is present at all."
    ),
    PrivacyUnit.ENTRY: (
        "Two data sets are neighbours if they are matrices of the same shape that differ by at most the stated bound "
        "in a single entry (in a symmetric matrix: in that entry and its mirror image); a whole row is not protected."
    ),
    PrivacyUnit.SPECTRAL: (
        "Two data sets are neighbours if they are matrices of the same shape whose difference stretches no vector "
        "by more than the stated bound (its spectral norm is at most that)."
    ),
}
