"""Sums over rows that the workers of a cluster read: rows stay with the workers, and sums alone come here.

Trusted: the cluster, with everybody who operates it. Workers read rows, and what they send are exact sums. The ledger,
the gate and the noise are in this process, and nothing leaves it because of where rows are.
"""

from .cluster_sums import ClusterSums
from .clusters import open_cluster
from .counting import count_rows, task_fields
from .worker import work

__all__ = ["ClusterSums", "count_rows", "open_cluster", "task_fields", "work"]
