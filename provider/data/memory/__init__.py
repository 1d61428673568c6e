"""Rows while jobs use them: two bits a genotype, blocks in scratch files, memory used again."""

from .block_tables import BlockTable, blocks_of
from .genotypes import Genotypes, entry_by_entry, prepared_genotypes, stacked_genotypes
from .lookups import Lookup, pair_table
from .processors import on_all_processors
from .reused_memory import ReusedMemory
from .row_words import (
    BLOCK_CELLS,
    LANES,
    Blank,
    FirstPass,
    FirstSums,
    WordMaker,
    Words,
    column_keys,
    first_sums,
    labels_of,
    mixed,
    row_totals,
)
from .scratch import DEFAULT_MEMORY, MOST_CELLS, Scratch, ScratchError, cells_in, machine_memory, memory_cap
from .stored_rows import RowWriter, StoredRows, stacked_rows, stored_integers, stored_type
from .two_bits import CELLS_A_BYTE, MISSING, Bytes, from_bed, of_codes, swapped

__all__ = [
    "BLOCK_CELLS",
    "CELLS_A_BYTE",
    "DEFAULT_MEMORY",
    "LANES",
    "MISSING",
    "MOST_CELLS",
    "Blank",
    "BlockTable",
    "Bytes",
    "FirstPass",
    "FirstSums",
    "Genotypes",
    "Lookup",
    "ReusedMemory",
    "RowWriter",
    "Scratch",
    "ScratchError",
    "StoredRows",
    "WordMaker",
    "Words",
    "blocks_of",
    "cells_in",
    "column_keys",
    "entry_by_entry",
    "first_sums",
    "from_bed",
    "labels_of",
    "machine_memory",
    "memory_cap",
    "mixed",
    "of_codes",
    "on_all_processors",
    "pair_table",
    "prepared_genotypes",
    "row_totals",
    "stacked_genotypes",
    "stacked_rows",
    "stored_integers",
    "stored_type",
    "swapped",
]
