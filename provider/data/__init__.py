"""Reads rows, checks them, bounds them and takes their fingerprints."""

from .arrivals import Arrivals, DataSet, WaitingQueries
from .block_tables import BlockTable, blocks_of
from .chosen_columns import columns_of
from .cluster_rows import Cluster, ClusterRows, Part, PartSpan
from .column_facts import ColumnFacts
from .examination import DataSetFacts, examine_rows
from .extras import import_extra
from .features import FeatureFacts
from .fingerprints import duplicates
from .genotypes import Genotypes
from .identification import identify
from .lookups import Lookup
from .odd_rows import zero_row
from .pairs import differences
from .part_prints import first_sums, names_of, ordered_totals, second_keys
from .persons import require_unit, with_persons
from .preparation import (
    CheckedRows,
    UsableRows,
    check_names,
    check_rows,
    check_size,
    numeric,
)
from .preview import PreviewedFeature, PreviewedRow, preview_row
from .protected import read_arriving, read_protected
from .reused_memory import ReusedMemory
from .score_tables import DATABASES, write_scores_table
from .scratch import Scratch, ScratchError, machine_memory, memory_cap
from .sources import names_in, outline_of, read_rows
from .stored_rows import StoredRows, stored_integers
from .streamed_rows import RowStream, files_with_rows
from .tables import is_number
from .threads import run_in_row_thread
from .two_bits import CELLS_A_BYTE
from .variants import Variant, agree, read_variants, sample_ids

__all__ = [
    "CELLS_A_BYTE",
    "DATABASES",
    "Arrivals",
    "BlockTable",
    "CheckedRows",
    "Cluster",
    "ClusterRows",
    "ColumnFacts",
    "DataSet",
    "DataSetFacts",
    "FeatureFacts",
    "Genotypes",
    "Lookup",
    "Part",
    "PartSpan",
    "PreviewedFeature",
    "PreviewedRow",
    "ReusedMemory",
    "RowStream",
    "Scratch",
    "ScratchError",
    "StoredRows",
    "UsableRows",
    "Variant",
    "WaitingQueries",
    "agree",
    "blocks_of",
    "check_names",
    "check_rows",
    "check_size",
    "columns_of",
    "differences",
    "duplicates",
    "examine_rows",
    "files_with_rows",
    "first_sums",
    "identify",
    "import_extra",
    "is_number",
    "machine_memory",
    "memory_cap",
    "names_in",
    "names_of",
    "numeric",
    "ordered_totals",
    "outline_of",
    "preview_row",
    "read_arriving",
    "read_protected",
    "read_rows",
    "read_variants",
    "require_unit",
    "run_in_row_thread",
    "sample_ids",
    "second_keys",
    "stored_integers",
    "with_persons",
    "write_scores_table",
    "zero_row",
]
