"""Readers of files, one kind of file each, and what is said about files that are not read."""

from .array_files import read_npy, read_npz
from .columnar_files import (
    columns_of_arrow,
    columns_of_orc,
    columns_of_parquet,
    index_of_parquet,
    numbers_in,
    read_arrow,
    read_orc,
    read_parquet,
    triplets_of_arrow,
    triplets_of_orc,
    triplets_of_parquet,
)
from .conversions import conversion, is_convertible, unpacking
from .folders import (
    FolderForm,
    Stamp,
    TemporarilyUnreadableError,
    files_of,
    joined_parts,
    partition_of,
    read_folder,
    stacked,
)
from .hdf5_files import columns_of_h5ad, read_h5ad, read_hdf5, unstored_in_h5ad, unstored_in_hdf5
from .person_labels import label_of, labels_in
from .plink_files import columns_of_bed, columns_of_pgen, located, notes_on_bed, notes_on_pgen, read_bed, read_pgen
from .text_cells import number_parser
from .text_files import (
    columns_of_text,
    fault_of_text,
    read_text,
    thousands_in_text,
    triplets_of_text,
    undecoded_in_text,
)
from .variants import Variant, agree, outline_of_variants, read_samples, read_variants, sample_ids
from .zarr_files import columns_of_zarr, is_zarr, read_zarr, unstored_in_zarr

__all__ = [
    "FolderForm",
    "Stamp",
    "TemporarilyUnreadableError",
    "Variant",
    "agree",
    "columns_of_arrow",
    "columns_of_bed",
    "columns_of_h5ad",
    "columns_of_orc",
    "columns_of_parquet",
    "columns_of_pgen",
    "columns_of_text",
    "columns_of_zarr",
    "conversion",
    "fault_of_text",
    "files_of",
    "index_of_parquet",
    "is_convertible",
    "is_zarr",
    "joined_parts",
    "label_of",
    "labels_in",
    "located",
    "notes_on_bed",
    "notes_on_pgen",
    "number_parser",
    "numbers_in",
    "outline_of_variants",
    "partition_of",
    "read_arrow",
    "read_bed",
    "read_folder",
    "read_h5ad",
    "read_hdf5",
    "read_npy",
    "read_npz",
    "read_orc",
    "read_parquet",
    "read_pgen",
    "read_samples",
    "read_text",
    "read_variants",
    "read_zarr",
    "sample_ids",
    "stacked",
    "thousands_in_text",
    "triplets_of_arrow",
    "triplets_of_orc",
    "triplets_of_parquet",
    "triplets_of_text",
    "undecoded_in_text",
    "unpacking",
    "unstored_in_h5ad",
    "unstored_in_hdf5",
    "unstored_in_zarr",
]
