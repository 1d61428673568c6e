"""Commands that turn files of other kinds into ones that are read. Errors show them."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

_LIBRE_OFFICE: Final = "libreoffice --headless --convert-to csv {file}"
_PANDAS: Final = "python -c 'import pandas, sys; pandas.%s.to_parquet(sys.argv[2])' {file} {parquet}"
_STATA: Final = _PANDAS % "read_stata(sys.argv[1])"
_SAS: Final = _PANDAS % "read_sas(sys.argv[1])"
_JSON: Final = _PANDAS % "read_json(sys.argv[1])"
_JSON_LINES: Final = _PANDAS % "read_json(sys.argv[1], lines=True)"
_SPARSE: Final = "python -c 'import scipy, sys; %s; scipy.sparse.save_npz(sys.argv[2], %s)' {file} {npz}"
_MATRIX_MARKET: Final = _SPARSE % ("from scipy.io import mmread", "scipy.sparse.csr_array(mmread(sys.argv[1]))")
_SVM: Final = _SPARSE % (
    "from sklearn.datasets import load_svmlight_file as read", "scipy.sparse.csr_array(read(sys.argv[1])[0])"
)  # fmt: skip
_MATLAB: Final = (
    "python -c 'import numpy, sys; from scipy.io import loadmat; numpy.save(sys.argv[3], loadmat(sys.argv[1])"
    "[sys.argv[2]])' {file} NAME-OF-THE-ARRAY {npy}"
)
_R: Final = "Rscript -e 'a <- commandArgs(TRUE); arrow::write_parquet(%s, a[2])' {file} {parquet}"
_PLINK: Final = "plink2 --%s --make-pgen --out {plink}"
_TAR: Final = "tar --extract --file {file}"

_COMMANDS: Final[Mapping[str, str]] = MappingProxyType({
    ".xlsx": _LIBRE_OFFICE, ".xls": _LIBRE_OFFICE, ".ods": _LIBRE_OFFICE, ".xlsm": _LIBRE_OFFICE,
    ".xlsb": _LIBRE_OFFICE,
    ".dta": _STATA, ".sas7bdat": _SAS, ".xpt": _SAS, ".sav": _PANDAS % "read_spss(sys.argv[1])",
    ".json": _JSON, ".jsonl": _JSON_LINES, ".ndjson": _JSON_LINES,
    ".rds": _R % "readRDS(a[1])", ".rdata": _R % "get(load(a[1]))", ".rda": _R % "get(load(a[1]))",
    ".mtx": _MATRIX_MARKET, ".mtx.gz": _MATRIX_MARKET, ".mat": _MATLAB, ".svm": _SVM, ".libsvm": _SVM,
    ".vcf": _PLINK % "vcf {file}", ".vcf.gz": _PLINK % "vcf {file}", ".bcf": _PLINK % "bcf {file}",
    ".bgen": _PLINK % "bgen {file} ref-first",
    ".bed.gz": "gunzip {file}", ".bed.zst": "unzstd {file}", ".pgen.gz": "gunzip {file}", ".pgen.zst": "unzstd {file}",
    ".zip": "unzip {file}", ".tar": _TAR, ".tar.gz": _TAR, ".tgz": _TAR,
})  # fmt: skip


def is_convertible(ending: str) -> bool:
    """Tell whether there is a command for files with this ending."""
    return ending in _COMMANDS


def conversion(path: Path, ending: str) -> str:
    """Return the command that converts a file."""
    stem = path.with_name(path.name[: len(path.name) - len(ending)])
    places = {"file": path, "plink": stem} | {kind: f"{stem}.{kind}" for kind in ("parquet", "npy", "npz")}
    return _COMMANDS[ending].format(**{name: shlex.quote(str(place)) for name, place in places.items()})
