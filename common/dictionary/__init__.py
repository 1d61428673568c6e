"""The shared dictionary: what the features of a study are, and how a row is prepared. Pure."""

from .codes import (
    MAX_TEXTS,
    OTHER_TEXT,
    LevelCodes,
    category_text,
    numbers_of_codes,
    raw_values,
    text_code,
    without_codes,
)
from .concepts import parse_concepts
from .dictionary import FORMAT, Dictionary, differences, faults
from .draft import draft, draft_of_panel, toml_key
from .features import NO_CELL, UNKNOWN, Category, Feature, FeatureKind, Genotype, Number
from .frequencies import parse_frequencies
from .mapping import MappedFeature, Preparation
from .pinned_dictionary import MOST_TITLE, PinnedDictionary
from .places import SEVERAL_ALLELES, UNKNOWN_ALLELES, chromosome, counted_as, is_ambiguous, on_other_strand, position
from .remarks import remarks
from .sparse_rows import filled_columns, prepare_sparse
from .tables import names_of, prepare_table
from .unlikely_values import MOST_ODD, OUTSIDE_BECOMES, in_one_warning, unlikely_values_of
from .value_names import has_values_as_names, may_be_value
from .values import PLACEHOLDER, feature_of, has_level, plain_name

__all__ = [
    "FORMAT",
    "MAX_TEXTS",
    "MOST_ODD",
    "MOST_TITLE",
    "NO_CELL",
    "OTHER_TEXT",
    "OUTSIDE_BECOMES",
    "PLACEHOLDER",
    "SEVERAL_ALLELES",
    "UNKNOWN",
    "UNKNOWN_ALLELES",
    "Category",
    "Dictionary",
    "Feature",
    "FeatureKind",
    "Genotype",
    "LevelCodes",
    "MappedFeature",
    "Number",
    "PinnedDictionary",
    "Preparation",
    "category_text",
    "chromosome",
    "counted_as",
    "differences",
    "draft",
    "draft_of_panel",
    "faults",
    "feature_of",
    "filled_columns",
    "has_level",
    "has_values_as_names",
    "in_one_warning",
    "is_ambiguous",
    "may_be_value",
    "names_of",
    "numbers_of_codes",
    "on_other_strand",
    "parse_concepts",
    "parse_frequencies",
    "plain_name",
    "position",
    "prepare_sparse",
    "prepare_table",
    "raw_values",
    "remarks",
    "text_code",
    "toml_key",
    "unlikely_values_of",
    "without_codes",
]
