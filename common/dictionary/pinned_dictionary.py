"""How a provider names the dictionary of a data set to others: by its digest, and by its title for people. Pure."""

import re
from dataclasses import dataclass
from typing import Final, Self

from dpspca.common.checks import check

from .dictionary import Dictionary

MOST_TITLE: Final = 100
"""Characters of a title that are sent. Titles are free text, and a greeting has room for so much."""
_DIGEST: Final = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PinnedDictionary:
    """A dictionary by name. Anybody who has the file can compute the digest."""

    digest: str
    title: str = ""

    def __post_init__(self) -> None:
        well = _DIGEST.fullmatch(self.digest) is not None and len(self.title) <= MOST_TITLE
        check(well, "This does not name a dictionary.", "Use a matching version.")

    @classmethod
    def of(cls, dictionary: Dictionary) -> Self:
        """Name a dictionary."""
        return cls(dictionary.digest(), dictionary.title[:MOST_TITLE])
