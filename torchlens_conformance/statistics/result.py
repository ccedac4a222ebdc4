"""What is known about the values of one tensor (STAT-1..3)."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from ..protocol.frozen import FrozenMapping
from ..protocol.grid import GridDescriptor


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """Moments, exact special counts and, on request, a histogram of one tensor.

    All floating-point fields are reduced over the finite values in float64 (:data:`reduced_in`), whatever the tensor's
    dtype, and are in the unit of the values (``sum_squares`` and ``squared_deviation`` in its square). They are None
    when the tensor has no finite value: nothing is invented (STAT-3). Sums that float64 cannot hold are infinite.

    Attributes:
        elements: Number of elements.
        finite: Number of finite elements.
        zeros: Number of elements equal to zero; -0.0 is one.
        nan: Number of NaNs.
        posinf: Number of positive infinities.
        neginf: Number of negative infinities.
        minimum: Smallest finite value, exact; a zero is given as +0.0.
        maximum: Largest finite value, exact; a zero is given as +0.0.
        total: Sum of the finite values.
        sum_squares: Sum of their squares.
        mean: Their mean.
        squared_deviation: Sum of the squared deviations from the mean ("M2"), >= 0.
        descriptor: The grid that was counted over, or None.
        counts: Counts per bucket in the order of ``descriptor.edges``, or None without a grid.
        overflow_positive: Finite values at or beyond the last edge; in no bucket. None without a grid.
        overflow_negative: The same on the negative side: at or beyond the first edge. None without a grid.

    With a grid, ``sum(counts) + overflow_positive + overflow_negative + nan + posinf + neginf == elements``.

    Clause: STAT-1, STAT-2, STAT-3, GRID-2.
    """

    reduced_in: ClassVar[str] = "float64"

    elements: int
    finite: int
    zeros: int
    nan: int
    posinf: int
    neginf: int
    minimum: float | None
    maximum: float | None
    total: float | None
    sum_squares: float | None
    mean: float | None
    squared_deviation: float | None
    descriptor: GridDescriptor | None = None
    counts: tuple[int, ...] | None = None
    overflow_positive: int | None = None
    overflow_negative: int | None = None

    @property
    def std(self) -> float | None:
        """Population standard deviation of the finite values; None for fewer than 2 of them. Clause: STAT-1."""
        if self.squared_deviation is None or self.finite < 2:
            return None
        return sqrt(self.squared_deviation / self.finite)

    @property
    def norm(self) -> float | None:
        """Euclidean norm of the finite values; None when there are none. Clause: STAT-1."""
        return None if self.sum_squares is None else sqrt(self.sum_squares)

    @property
    def zero_fraction(self) -> float | None:
        """Zeros over all elements, non-finite ones included; None for an empty tensor. Clause: STAT-1."""
        return self.zeros / self.elements if self.elements else None

    @property
    def nonfinite(self) -> int:
        """Number of NaNs and infinities. Clause: STAT-2."""
        return self.nan + self.posinf + self.neginf

    @property
    def overflow(self) -> int | None:
        """Finite values beyond the grid on both sides; None without a grid. Clause: GRID-2."""
        if self.overflow_positive is None or self.overflow_negative is None:
            return None
        return self.overflow_positive + self.overflow_negative

    @property
    def summary(self) -> FrozenMapping:
        """The summary of a histogram point: ``min max num sum sum_squares``, what is unknown left out.

        ``num`` counts finite values. Clause: POINT-2.
        """
        if self.minimum is None:
            return FrozenMapping({"num": self.finite})
        return FrozenMapping(
            {
                "min": self.minimum,
                "max": self.maximum,
                "num": self.finite,
                "sum": self.total,
                "sum_squares": self.sum_squares,
            }
        )
