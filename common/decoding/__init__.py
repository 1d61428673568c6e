"""Raw input, read by one layer: settings, policies, jobs, dictionaries, and whatever comes back from a file. Pure.

A class declares with its types what a file may say. ``decode`` makes a value of that class of what TOML or JSON held,
or says everything that is wrong with it at once: in which file, under which table and key, what is there, what may be
there, and which known name was probably meant. Types and rules of the fields are the only declaration:

- ``str``, ``int``, ``float``, ``bool``, ``None``, enumerations of text, tuples, lists, mappings, unions and dataclasses
  are read as they are written down. A whole number is a ``float`` too; nothing else is converted. Text is no number,
  and true is none.
- ``Annotated[kind, Rule(...)]`` adds what must hold, with ``between``, ``one_of`` and ``distinct`` for frequent cases.
- ``Annotated[kind, By(read, of)]`` has a function make the value of a value of type ``of``.
- ``Annotated[kind, DERIVED]`` says that a field follows from others and is no key.
- ``__post_init__`` checks how fields fit together, and ``cross_checks`` does so even if some of them are wrong.
- ``also_needed`` names keys that are needed because of what others say.

Keys that no field has, and needed ones that are not there, are refused. Documents with a key given twice, with numbers
that are not finite, or nested too deeply are refused as well, and texts and integers of unusual length.
"""

from .canonical import given_fields, read_canonical, written
from .decoder import decode, faults_of, is_whole, keys_of, read_part
from .documents import parse_form, parse_json, parse_toml
from .faults import STORED, Source, dotted
from .rules import DERIVED, By, Count, Filled, Rule, between, distinct, one_of

__all__ = [
    "DERIVED",
    "STORED",
    "By",
    "Count",
    "Filled",
    "Rule",
    "Source",
    "between",
    "decode",
    "distinct",
    "dotted",
    "faults_of",
    "given_fields",
    "is_whole",
    "keys_of",
    "one_of",
    "parse_form",
    "parse_json",
    "parse_toml",
    "read_canonical",
    "read_part",
    "written",
]
