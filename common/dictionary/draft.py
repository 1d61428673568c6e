"""Drafts a dictionary from the names and types of columns. Pure: it is given nothing that was read off the rows."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from dpspca.common.text import printable

from .dictionary import FORMAT
from .places import SEVERAL_ALLELES, counted_in
from .values import PLACEHOLDER

_DATES: Final = re.compile(r"date|time|duration|interval|month")
_LEVELS: Final = re.compile(r"enum|dictionary<values=(large_)?string|bool")
_TEXTS: Final = re.compile(r"((large_)?string|text|varchar|char|bpchar|name$)(?!.*\[)")
_NUMBERS: Final = re.compile(
    r"(dictionary<values=)?(u?(tiny|small|big|huge)?int|float|double|halffloat|decimal|numeric|real|null)(?!.*\[)"
    r"|(whole )?number$"
)
"""How files and databases begin the names of types. Lists of numbers or texts are neither."""

_UNKNOWN: Final = frozenset({"", "any", "names of folders"})
"""The types of columns that may hold numbers or texts: in a query where the database states none, and in partitions."""
_UNIT: Final = re.compile(r".[\[(]([^\[\]()]{1,20})[\])]\s*$")
"""What a name ends with, in brackets."""

_HEAD: Final = f"""\
# A dictionary for a study: what all parties agree on about each feature. Everything in it is public.
# Replace every "{PLACEHOLDER}" by what is publicly known: from publications, units, or the valid range of a device.
# Do not read a number off the rows: it would reveal something about them. Remove features that are no measurements,
# such as the number of a patient, a date, or free text. Then run: dpspca dictionary check FILE

format = "{FORMAT}"
"""


def draft(columns: Sequence[tuple[str, str | None]]) -> str:
    """Write a dictionary in TOML for columns of these names and, if they are known, types."""
    return _HEAD + "".join(f"\n{_feature(name, kind)}" for name, kind in columns)


def draft_of_panel(file: str) -> str:
    """Write a dictionary in TOML whose genotypes are the variants of a file of frequencies."""
    return (
        f"{_HEAD}\n# The frequencies must be those of a public reference, never of the people of a study.\n"
        f"[genotypes]\nfile = {json.dumps(file, ensure_ascii=False)}\n"
        "# least_frequency = 0.05         # leaves out variants whose rarer allele is rarer than this\n"
    )


def _feature(name: str, kind: str | None) -> str:
    plain = (kind or "").lower()
    heading = f"[features.{toml_key(name)}]"
    if (counted := counted_in(kind or "")) is not None:
        is_read = SEVERAL_ALLELES not in counted["allele"] + counted["other_allele"]
        unread = f"# {json.dumps(name)} has more than two alleles, and is not read.\n"
        return f'{heading}\nkind = "genotype"\n{_variant(counted)}' if is_read else unread
    if _DATES.match(plain):
        return (
            f"# {json.dumps(name)} holds dates ({kind}), which are no measurements. Have each provider compute a\n"
            "# number from them, such as the age on a public day, and describe that number here.\n"
        )
    if _LEVELS.match(plain):
        levels = '["false", "true"]' if plain.startswith("bool") else f'["{PLACEHOLDER}"]'
        return f'{heading}\nkind = "category"\nlevels = {levels}\n'
    if _TEXTS.match(plain):
        free = "# remove this feature if it holds free text or names"
        return f'{heading}\nkind = "category"                {free}\nlevels = ["{PLACEHOLDER}"]\n'
    if plain not in _UNKNOWN and not _NUMBERS.match(plain):
        return (
            f"# {json.dumps(name)} holds neither numbers nor text ({printable(plain):.60}).\n"
            "# Have each provider compute a number or a level from it, and describe that here.\n"
        )
    return (
        f'{heading}\nkind = "number"                  # or "category" with levels = [...], or "genotype"\n'
        f"{_unit_in(name)}\n"
        f'range = ["{PLACEHOLDER}", "{PLACEHOLDER}"]               # values outside are clipped to it\n'
    )


def _unit_in(name: str) -> str:
    """Write the unit that a name ends with, in brackets, as in "height [cm]"."""
    found = _UNIT.search(name)
    if found is None:
        return f'unit = "{PLACEHOLDER}"'
    unit = f"unit = {json.dumps(found[1].strip(), ensure_ascii=False)}"
    return f"{unit:<32} # from the name: check it"


def _variant(counted: Mapping[str, str]) -> str:
    """Write which variant a genotype counts. An allele that no sample of the file has is to be filled in."""
    alleles = "".join(f"{key} = {json.dumps(counted[key] or PLACEHOLDER)}\n" for key in ("allele", "other_allele"))
    at = f"chromosome = {json.dumps(counted['chromosome'])}\n" if counted["chromosome"] else ""
    at += f"position = {counted['position']}\n" if counted["position"] else ""
    return (
        f"{alleles}{at}"
        "# frequency =                    # of allele, in a public panel: genotypes are then scaled by it\n"
    )


def toml_key(name: str) -> str:
    """Write a name as a TOML key in quotes, unless it needs none."""
    bare = name and all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in name)
    return name if bare else json.dumps(name, ensure_ascii=False)
