"""Commands that turn files of other kinds into ones that are read. Errors show them."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

_PANDAS: Final = "python -c 'import pandas, sys; pandas.%s.to_%s(sys.argv[2]%s)' {file} {%s}"
_EXCEL: Final = _PANDAS % ("read_excel(sys.argv[1])", "csv", ", index=False", "csv")
"""Numbers as they are stored. LibreOffice would write them as they are shown, rounded."""
_STATISTICS: Final = (
    "python -c 'import pyreadstat, sys; pyreadstat.%s(sys.argv[1])[0].to_parquet(sys.argv[2])' {file} {parquet}"
)
"""Numbers without the labels of their values, and 0 as 0, which not every reader of these files gives."""
_JSON: Final = _PANDAS % ("read_json(sys.argv[1], dtype=False, convert_dates=False)", "parquet", "", "parquet")
_JSON_LINES: Final = (
    "python -c 'import sys, pyarrow.json, pyarrow.parquet; pyarrow.parquet.write_table("
    "pyarrow.json.read_json(sys.argv[1]), sys.argv[2])' {file} {parquet}"
)
_AVRO: Final = (
    'python -c \'import fastavro, pandas, sys; pandas.DataFrame(fastavro.reader(open(sys.argv[1], "rb")))'
    ".to_parquet(sys.argv[2])' {file} {parquet}"
)
STREAM_TO_FILE: Final = (
    "python -c 'import sys; from pyarrow import feather, ipc; feather.write_feather("
    "ipc.open_stream(sys.argv[1]).read_all(), sys.argv[2])' {file} {arrow}"
)
_PICKLE: Final = _PANDAS % ("read_pickle(sys.argv[1])", "parquet", "", "parquet")
_SPARSE: Final = "python -c 'import scipy, sys; %s; scipy.sparse.save_npz(sys.argv[2], %s)' {file} {npz}"
_MATRIX_MARKET: Final = _SPARSE % ("from scipy.io import mmread", "scipy.sparse.csr_array(mmread(sys.argv[1]))")
_GENES: Final = _SPARSE % ("from scipy.io import mmread", "scipy.sparse.csr_array(mmread(sys.argv[1]).T)")
_SVM: Final = _SPARSE % (
    "from sklearn.datasets import load_svmlight_file as read", "scipy.sparse.csr_array(read(sys.argv[1])[0])"
)  # fmt: skip
_MATLAB: Final = (
    "python -c 'import numpy, sys; from scipy.io import loadmat; numpy.save(sys.argv[3], loadmat(sys.argv[1])"
    "[sys.argv[2]])' {file} NAME-OF-THE-ARRAY {npy}"
)
_MATLAB_73: Final = (
    "python -c 'import h5py, numpy, sys; numpy.save(sys.argv[3], h5py.File(sys.argv[1])[sys.argv[2]][()].T)' {file} "
    "NAME-OF-THE-ARRAY {npy}"
)
_START_OF_73: Final = b"MATLAB 7.3"
"""How files of MATLAB begin that are HDF5 inside, with rows and columns exchanged."""
_LOOM: Final = (
    "python -c 'import h5py, numpy, sys; numpy.save(sys.argv[2], h5py.File(sys.argv[1])[\"matrix\"][()].T)' {file} "
    "{npy}"
)
_R: Final = "Rscript -e 'a <- commandArgs(TRUE); arrow::write_parquet(%s, a[2])' {file} {parquet}"
_PLINK: Final = "plink2 --%s --make-pgen --out {plink}"
_PED: Final = "plink2 --pedmap {plink} --make-pgen --out {plink}"
_TPED: Final = "plink --tfile {plink} --make-bed --out {plink}"
_OXFORD: Final = "plink2 --%s {plink}.%s ref-first --sample {plink}.sample --make-pgen --out {plink}"
_TAR: Final = "tar --extract --file {file}"

_COMMANDS: Final[Mapping[str, str]] = MappingProxyType({
    ".xlsx": _EXCEL, ".xls": _EXCEL, ".ods": _EXCEL, ".xlsm": _EXCEL, ".xlsb": _EXCEL,
    ".dta": _STATISTICS % "read_dta", ".sas7bdat": _STATISTICS % "read_sas7bdat", ".xpt": _STATISTICS % "read_xport",
    ".sav": _STATISTICS % "read_sav", ".zsav": _STATISTICS % "read_sav", ".por": _STATISTICS % "read_por",
    ".json": _JSON, ".jsonl": _JSON_LINES, ".ndjson": _JSON_LINES, ".pkl": _PICKLE, ".pickle": _PICKLE,
    ".rds": _R % "readRDS(a[1])", ".rdata": _R % "get(load(a[1]))", ".rda": _R % "get(load(a[1]))",
    ".mtx": _MATRIX_MARKET, ".mtx.gz": _MATRIX_MARKET, ".mat": _MATLAB, ".loom": _LOOM, ".svm": _SVM, ".libsvm": _SVM,
    ".svmlight": _SVM, ".avro": _AVRO, ".arrows": STREAM_TO_FILE,
    ".vcf": _PLINK % "vcf {file}", ".vcf.gz": _PLINK % "vcf {file}", ".bcf": _PLINK % "bcf {file}",
    ".bgen": _PLINK % "bgen {file} ref-first",
    ".ped": _PED, ".map": _PED, ".tped": _TPED, ".tfam": _TPED, ".haps": _OXFORD % ("haps", "haps"),
    ".gen": _OXFORD % ("gen", "gen"), ".sample": _OXFORD % ("gen", "gen"), ".raw": "cp {file} {txt}",
    ".bed.gz": "gunzip {file}", ".bed.zst": "unzstd {file}", ".pgen.gz": "gunzip {file}", ".pgen.zst": "unzstd {file}",
    ".zip": "unzip {file}", ".zarr.zip": "unzip {file} -d {zarr}", ".tar": _TAR, ".tar.gz": _TAR, ".tgz": _TAR,
})  # fmt: skip

_EXCEL_NOTE: Final = "it takes the first sheet, and needs `pip install pandas {}`"
_STATISTICS_NOTE: Final = "it needs `pip install pyreadstat pandas pyarrow`"
_PICKLE_NOTE: Final = "a pickle can run any program: convert only one that you wrote"
_TPED_NOTE: Final = "with PLINK 1.9; PLINK 2 reads such files from version 2.00a4 on"
_FIRST_NOTE: Final = "ref-first: the first allele is the reference; if it is the last, write ref-last"
_RAW_NOTE: Final = (
    'it is text: declare delimiter = "\\t" or " " under [reading], and leave out FID, IID, PAT, MAT, SEX and PHENOTYPE'
)
_NOTES: Final[Mapping[str, str]] = MappingProxyType({
    ".xlsx": _EXCEL_NOTE.format("openpyxl"), ".xlsm": _EXCEL_NOTE.format("openpyxl"),
    ".xls": _EXCEL_NOTE.format("xlrd"), ".xlsb": _EXCEL_NOTE.format("pyxlsb"), ".ods": _EXCEL_NOTE.format("odfpy"),
    ".dta": _STATISTICS_NOTE, ".sas7bdat": _STATISTICS_NOTE, ".xpt": _STATISTICS_NOTE, ".sav": _STATISTICS_NOTE,
    ".zsav": _STATISTICS_NOTE, ".por": _STATISTICS_NOTE,
    ".avro": "it needs `pip install fastavro pandas pyarrow`",
    ".bgen": _FIRST_NOTE, ".gen": _FIRST_NOTE, ".sample": _FIRST_NOTE, ".haps": _FIRST_NOTE,
    ".tped": _TPED_NOTE, ".tfam": _TPED_NOTE, ".raw": _RAW_NOTE,
    ".loom": "it turns the file, whose rows are genes; then list row_attrs/Gene as names under [reading]",
    ".pkl": _PICKLE_NOTE, ".pickle": _PICKLE_NOTE,
})  # fmt: skip
"""Remarks about commands."""
_GENES_NOTE: Final = (
    "it turns the file, whose rows are genes; then list the genes as names under [reading], in the order of {}"
)
_UNPACK: Final = {".gz": "gunzip", ".bz2": "bunzip2", ".xz": "unxz", ".zst": "unzstd"}


def is_convertible(ending: str) -> bool:
    """Tell whether there is a command for files with this ending."""
    return ending in _COMMANDS


def conversion(path: Path, ending: str) -> str:
    """Return the command that converts a file."""
    stem = path.with_name(path.name[: len(path.name) - len(ending)])
    places = {"file": path, "plink": stem} | {
        kind: f"{stem}.{kind}" for kind in ("parquet", "npy", "npz", "csv", "txt", "zarr", "arrow")
    }
    command, note = _COMMANDS[ending], _NOTES.get(ending, "")
    if command is _MATLAB and _begins(path, _START_OF_73):
        command = _MATLAB_73
    genes = _beside(path) if command is _MATRIX_MARKET else None
    if genes is not None:
        command, note = _GENES, _GENES_NOTE.format(genes.name)
    written = command.format(**{name: shlex.quote(str(place)) for name, place in places.items()})
    return f"{written} ({note})" if note else written


def _begins(path: Path, start: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(start)) == start
    except OSError:  # reading it reports the reason
        return False


def unpacking(path: Path) -> str | None:
    """Return the command that unpacks a file of a kind that is not read while it is packed."""
    program = _UNPACK.get(path.suffix.lower())
    return None if program is None else f"{program} {shlex.quote(str(path))}"


def _beside(path: Path) -> Path | None:
    """Return the list of genes beside a matrix of genes and cells, as instruments for single cells write it."""
    start = path.name.lower().partition("matrix.mtx")[0]
    lists = (f"{start}{name}.tsv{packed}" for name in ("features", "genes") for packed in (".gz", ""))
    return next((each for name in lists if (each := path.with_name(name)).exists()), None)
