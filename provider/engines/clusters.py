"""The cluster that settings name. One connection serves all data sets with the same settings, as long as this runs."""

from threading import Lock
from typing import Final

from dpspca.common.storage import EngineKind, EngineSettings
from dpspca.provider.data import Cluster

from .dask_cluster import DaskCluster
from .spark_cluster import SparkCluster

_OPEN: Final[dict[str, Cluster]] = {}
_OPENING: Final = Lock()


def open_cluster(settings: EngineSettings) -> Cluster:
    """Return the cluster of these settings. It is connected to when it is first asked."""
    with _OPENING:
        known = _OPEN.get(repr(settings))
        if known is None:
            made = DaskCluster(settings) if settings.engine is EngineKind.DASK else SparkCluster(settings)
            known = _OPEN[repr(settings)] = made
        return known
