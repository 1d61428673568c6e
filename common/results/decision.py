"""The decisions of a method from public facts and released numbers, and the reasons for them.

A decision is computed from released numbers alone, so it costs no privacy. Its wording is in ``client/decisions.py``.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

from dpspca.common.decoding import between

Count: TypeAlias = Annotated[int, between(0, 2**31)]


class ReleasePath(StrEnum):
    """Which way the budget was spent."""

    WHOLE = "whole-matrix"
    SPARSE = "staged-sparse"
    DENSE = "staged-dense"
    WIDE = "staged-wide"
    PRODUCTS = "staged-products"


@dataclass(frozen=True, slots=True)
class Decision:
    """The path that was taken, how many columns take part, and what spoke for it.

    ``outstanding`` is how many columns stood out from noise, and ``held`` which part of what all columns show these
    hold. Both are None where the path follows from the number of columns alone; ``held`` is also None where the number
    of outstanding columns decided, or where there are too many columns for a matrix of all. ``visible`` is how many
    components showed above the noise of the largest matrix that was released or, where ``last`` is given, of all
    releases together. Where it is fewer than were asked for, columns may have been missed without a sign of it. Of the
    ``asked`` components, ``clear`` ones showed above the noise of the last release, and ``useful`` ones of these
    explain more than an average column; all three are None where none was to be left out.
    ``hidden`` says that noise hid how long rows are, and no bound was known: all were clipped to one length.
    ``values`` are the variances along the components in the matrix that these were read off, which is about clipped
    rows, and ``noise_std`` is the standard deviation of the noise of a variance along a direction beside them. Both are
    None in models of earlier software.
    For explained variances, scores were clipped to the length ``clipped``, and at most ``longer`` rows are longer, as
    far as noisy counts show. Both are None where variances are those of the matrix.
    Where the matrix of all columns was released, ``last`` is the number of columns of the last release, and ``scaled``
    that of the components along which rows were divided by another length for it.
    ``mean_noise`` is the variance that the noise of a private mean alone adds in one direction: its mean squared
    length. It is None if there is no private mean, or if the length of rows is not known.
    """

    path: ReleasePath
    columns: Count
    outstanding: Count | None = None
    held: float | None = None
    visible: Count | None = None
    asked: Count | None = None
    useful: Count | None = None
    clear: Count | None = None
    hidden: bool = False
    values: tuple[float, ...] | None = None
    noise_std: float | None = None
    clipped: float | None = None
    longer: float | None = None
    mean_noise: float | None = None
    scaled: Count | None = None
    last: Count | None = None

    @property
    def is_dense(self) -> bool:
        """Whether all columns took part in the release, although fewer could have."""
        return self.path is ReleasePath.DENSE

    def asked_apart(self, noise_std: float | None) -> bool:
        """Return whether variances of this noise, if any, come from a query of their own, not from the matrix."""
        return self.noise_std not in {None, noise_std}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"path": self.path.value, "values": self.values and list(self.values)}
