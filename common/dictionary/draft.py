"""Drafts a dictionary from the names and types of columns. Pure: it is given nothing that was read off the rows."""

import json
import re
from collections.abc import Sequence
from typing import Final

from dpspca.common.text import printable

from .dictionary import FORMAT
from .values import PLACEHOLDER

_DATES: Final = re.compile(r"date|time|duration|interval|month")
_LEVELS: Final = re.compile(r"enum|dictionary<values=(large_)?string|bool")
_TEXTS: Final = re.compile(r"((large_)?string|text|varchar|char|bpchar|name$)(?!.*\[)")
_NUMBERS: Final = re.compile(
    r"(dictionary<values=)?(u?(tiny|small|big|huge)?int|float|double|halffloat|decimal|numeric|real|null)(?!.*\[)"
)
"""How files and databases begin the names of types. Lists of numbers or texts are neither."""
_GENOTYPE: Final = re.compile(r"copies of (.+), not .+")
"""How a list of variants says which allele is counted."""

_HEAD: Final = f"""\
# A dictionary for a study: what all parties agree on about each feature. Everything in it is public.
# Replace every "{PLACEHOLDER}" by what is publicly known: from publications, units, or the valid range of a device.
# Do not read a number off the rows: it would reveal something about them. Then run: dpspca dictionary check FILE

format = "{FORMAT}"
"""


def draft(columns: Sequence[tuple[str, str | None]]) -> str:
    """Write a dictionary in TOML for columns of these names and, if they are known, types."""
    return _HEAD + "".join(f"\n{_feature(name, kind)}" for name, kind in columns)


def _feature(name: str, kind: str | None) -> str:
    plain = (kind or "").lower()
    heading = f"[features.{_key(name)}]"
    if counted := _GENOTYPE.fullmatch(kind or ""):
        return (
            f'{heading}\nkind = "genotype"\nallele = {json.dumps(counted[1])}\n'
            "# frequency =                    # of this allele, in a public panel: genotypes are then scaled by it\n"
        )
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
    if plain and not _NUMBERS.match(plain):
        return (
            f"# {json.dumps(name)} holds neither numbers nor text ({printable(plain):.60}).\n"
            "# Have each provider compute a number or a level from it, and describe that here.\n"
        )
    return (
        f'{heading}\nkind = "number"                  # or "category" with levels = [...], or "genotype"\n'
        f'unit = "{PLACEHOLDER}"\n'
        f'range = ["{PLACEHOLDER}", "{PLACEHOLDER}"]               # values outside are clipped to it\n'
    )


def _key(name: str) -> str:
    """Write a name as a TOML key in quotes, unless it needs none."""
    bare = name and all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in name)
    return name if bare else json.dumps(name, ensure_ascii=False)
