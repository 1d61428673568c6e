"""What identifies the rows of a data set: the digest of their form, and the fingerprints of their content."""

from concurrent.futures import ThreadPoolExecutor

from .arrivals import DataSet


def identify(rows: DataSet) -> tuple[str, frozenset[str]]:
    """Return the digest and the fingerprints of rows. They are computed beside one another.

    A digest is one chain of hashes, and takes one processor as long as the fingerprints take all of them.
    """
    with ThreadPoolExecutor(1) as beside:
        digest = beside.submit(rows.digest)
        names = rows.fingerprints()
        return digest.result(), names
