"""The components of a model as files for other programs: JSON with the privacy statement, or a table of loadings."""

import io
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from dpspca.common.results import INTERVAL_LEVEL, Model
from dpspca.common.text import to_csv
from dpspca.provider.data import import_extra


def loadings_facts(read: Model) -> dict[str, Any]:
    """Return a model's loadings, with its privacy statement, as plain values."""
    optional = {
        name: None if value is None else value.tolist()
        for name, value in {
            "mean": read.mean,
            "explained_variance": read.explained_variance,
            "explained_variance_ratio": read.explained_variance_ratio,
        }.items()
    }
    ends = read.intervals(INTERVAL_LEVEL).get("loadings")
    return {
        "promise": read.statement.headline,  # first, because it also says if the model must not be released
        "feature_names": read.feature_names,
        "components": read.components.tolist(),
        "interval_level": INTERVAL_LEVEL,
        "loading_intervals": ends and {"low": ends[0].tolist(), "high": ends[1].tolist()},
        **optional,
        "explained_variance_std": read.explained_variance_std,
        "statement": read.statement.to_dict(),
    }


def _headings(read: Model) -> list[str]:
    return [f"component {number}" for number in range(1, len(read.components) + 1)]


def _features(read: Model) -> tuple[str, ...]:
    return read.feature_names or tuple(f"feature {index}" for index in range(read.components.shape[1]))


def _table(read: Model) -> str:
    lines = [[name, *loadings] for name, loadings in zip(_features(read), read.components.T.tolist(), strict=True)]
    return to_csv([["feature", *_headings(read)], *lines])


def _parquet(read: Model) -> bytes:
    columns = {"feature": _features(read), **dict(zip(_headings(read), read.components, strict=True))}
    content = io.BytesIO()
    import_extra("pyarrow.parquet").write_table(import_extra("pyarrow").table(columns), content)
    return content.getvalue()


TABLES: Final[Mapping[str, Callable[[Model], str | bytes]]] = MappingProxyType({"csv": _table, "parquet": _parquet})
"""The kinds of tables with one line for each feature, and what writes each."""
