"""The cluster that settings name. One connection serves all data sets with the same settings, as long as this runs."""

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Final

from dpspca.common.storage import EngineKind, EngineSettings
from dpspca.provider.data import Cluster

from .dask_cluster import DaskCluster
from .spark_cluster import SparkCluster

CLUSTERS: Final[Mapping[EngineKind, Callable[[EngineSettings], Cluster]]] = {
    EngineKind.DASK: DaskCluster,
    EngineKind.SPARK: SparkCluster,
}
_OPEN: Final[dict[str, Cluster]] = {}
_OPENING: Final = Lock()


def open_cluster(settings: EngineSettings) -> Cluster:
    """Return the cluster of these settings. It is connected to when it is first asked."""
    with _OPENING:
        known = _OPEN.get(repr(settings))
        if known is None:
            known = _OPEN[repr(settings)] = CLUSTERS[settings.engine](settings)
        return known
