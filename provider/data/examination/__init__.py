"""Facts for a steward about rows before the first job. None of them leaves the provider."""

from .alike_persons import PersonFacts
from .column_facts import ColumnFacts
from .data_set_facts import DataSetFacts, examine_rows
from .features import FeatureFacts
from .preview import PreviewedFeature, PreviewedRow, preview_row

__all__ = [
    "ColumnFacts",
    "DataSetFacts",
    "FeatureFacts",
    "PersonFacts",
    "PreviewedFeature",
    "PreviewedRow",
    "examine_rows",
    "preview_row",
]
