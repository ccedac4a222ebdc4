"""What is sent for one tensor: how many numbers, and where each stands (XFER-1). No torch.

All numbers travel as int64; floating-point ones as their bits, so that one vector holds everything. For a tensor there
is a row of counts and moments, for float64 a second row with moments of scaled values (see
``moments.RESCUE_EXPONENT``), and with a histogram the bins. The number of elements does not occur.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol.grid import GridDescriptor

ROW = 10
"""Numbers of a row: four counts and six moments."""

BYTES_PER_NUMBER = 8


@dataclass(frozen=True, slots=True)
class Columns:
    """How many numbers one tensor sends.

    Attributes:
        rows: Rows of counts and moments: one, or two for float64.
        bins: Bins with both overflows; 0 without a histogram.
    """

    rows: int
    bins: int

    @property
    def width(self) -> int:
        """All numbers of one tensor."""
        return self.rows * ROW + self.bins

    @property
    def bytes(self) -> int:
        """The same in bytes. Clause: XFER-1."""
        return self.width * BYTES_PER_NUMBER


def columns_of(dtype: object, descriptor: GridDescriptor | None) -> Columns:
    """Return what a tensor of ``dtype`` (a torch dtype, or its name) sends when counted over ``descriptor``."""
    rows = 2 if str(dtype).removeprefix("torch.") == "float64" else 1
    return Columns(rows, 0 if descriptor is None else descriptor.bucket_count + 2)
