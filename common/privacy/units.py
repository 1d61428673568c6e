"""Which two data sets count as neighbours.

A number of privacy means nothing before this is said. The unit is always an argument, never a default: the same
query has different sensitivities under different units (often sqrt(2) times more for replace-one than add/remove).
"""

from enum import StrEnum


class PrivacyUnit(StrEnum):
    """What a guarantee protects; the values are stable and may be stored or sent."""

    ROW_REPLACE_ONE = "row-replace-one"
    ROW_ADD_REMOVE = "row-add-remove"
    ENTRY = "entry"
    SPECTRAL = "spectral"

    @property
    def neighbours(self) -> str:
        """One sentence saying which two data sets the guarantee makes hard to tell apart."""
        return _NEIGHBOURS[self]

    @property
    def is_row(self) -> bool:
        """Whether the guarantee protects everything that one row says."""
        return self in {PrivacyUnit.ROW_REPLACE_ONE, PrivacyUnit.ROW_ADD_REMOVE}


_NEIGHBOURS = {
    PrivacyUnit.ROW_REPLACE_ONE: (
        "Two data sets are neighbours if they have the same number of rows and differ in the contents of one row, "
        "whatever those contents are; the number of rows itself is not protected."
    ),
    PrivacyUnit.ROW_ADD_REMOVE: (
        "Two data sets are neighbours if one of them is the other with one whole row left out, "
        "so that it is protected whether a row is present at all."
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
