"""Raw content of a source before anything is checked: numbers and names, or triplets. And tools to read it."""

from .arrow_numbers import floats
from .extras import import_extra, loaded
from .memory_limit import GENOTYPE, PERSON, SPARSE, require_room
from .person_cells import PersonCells
from .raw_table import (
    Columns,
    RawTable,
    RowBatches,
    RowSource,
    as_numbers,
    cell_reader,
    code_numbers,
    columns_by_place,
    columns_used,
    filled,
    is_number,
    require_no_code_of_zero,
    require_no_names,
    require_numeric,
    without_codes,
)
from .triplets import (
    BATCH_TRIPLETS,
    TripletBatch,
    TripletFacts,
    TripletRows,
    arrow_batch,
    declared_columns,
    row_names,
    triplet_columns,
    value_reader,
)

__all__ = [
    "BATCH_TRIPLETS",
    "GENOTYPE",
    "PERSON",
    "SPARSE",
    "Columns",
    "PersonCells",
    "RawTable",
    "RowBatches",
    "RowSource",
    "TripletBatch",
    "TripletFacts",
    "TripletRows",
    "arrow_batch",
    "as_numbers",
    "cell_reader",
    "code_numbers",
    "columns_by_place",
    "columns_used",
    "declared_columns",
    "filled",
    "floats",
    "import_extra",
    "is_number",
    "loaded",
    "require_no_code_of_zero",
    "require_no_names",
    "require_numeric",
    "require_room",
    "row_names",
    "triplet_columns",
    "value_reader",
    "without_codes",
]
