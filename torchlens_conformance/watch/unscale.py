"""Closed-form corrections of statistics for a power-of-two loss scale (AMP-3). Plain Python, no torch."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import frexp, inf, isfinite, ldexp

from ..protocol.grid import GridDescriptor
from ..statistics.result import TensorStatistics


def scale_exponent(scale: float) -> int | None:
    """Return ``k`` when ``scale`` is exactly ``2**k``, else None. Clause: AMP-3."""
    if not isfinite(scale) or scale <= 0.0:
        return None
    mantissa, exponent = frexp(scale)
    return exponent - 1 if mantissa == 0.5 else None


@lru_cache(maxsize=64)
def scaled_grid(descriptor: GridDescriptor, exponent: int) -> GridDescriptor:
    """Return the grid over ``2**exponent * x`` whose buckets are those of ``descriptor`` over ``x``.

    Every edge is multiplied by a power of two, which float64 does exactly. So counting scaled values over this grid is
    the shift by ``bins_per_octave * exponent`` bins, done before counting: what is overflow or underflow is so by its
    true value, and no spill has to be moved afterwards.

    Raises ``grid_invalid`` when the shifted grid leaves the range of float64. Clause: AMP-3, GRID-1.
    """
    return GridDescriptor(
        bins_per_octave=descriptor.bins_per_octave,
        lo_exp=descriptor.lo_exp + exponent,
        hi_exp=descriptor.hi_exp + exponent,
    )


def unscale(statistics: TensorStatistics, exponent: int, descriptor: GridDescriptor | None) -> TensorStatistics:
    """Return the statistics of ``x`` from those of ``2**exponent * x``.

    Counts are invariant; minimum, maximum, mean and sum are divided by the scale (and with them norm and std),
    sum_squares and the squared deviation by its square. Division by a power of two is exact in float64 as long as the
    result is not subnormal there; the oracle is the tensor divided in float64, not ``unscale_``, which rounds or
    flushes what the tensor's own dtype cannot hold.

    Args:
        statistics: Counted over ``scaled_grid(descriptor, exponent)``, or without a grid.
        exponent: Binary logarithm of the scale.
        descriptor: The grid of the result, None without one.

    Clause: AMP-3.
    """
    return replace(
        statistics,
        minimum=_shift(statistics.minimum, -exponent),
        maximum=_shift(statistics.maximum, -exponent),
        total=_shift(statistics.total, -exponent),
        mean=_shift(statistics.mean, -exponent),
        sum_squares=_shift(statistics.sum_squares, -2 * exponent),
        squared_deviation=_shift(statistics.squared_deviation, -2 * exponent),
        descriptor=descriptor if statistics.descriptor is not None else None,
    )


def _shift(value: float | None, exponent: int) -> float | None:
    if value is None or not isfinite(value):
        return value
    try:
        return ldexp(value, exponent)
    except OverflowError:
        return inf if value > 0 else -inf
