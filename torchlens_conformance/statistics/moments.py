"""Moments of finite values, and the stable way of joining them (STAT-1)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, isnan, ldexp
from operator import add
from typing import NamedTuple

from ..protocol.grid import GridDescriptor, require_same_grid
from ..protocol.refusals import Refusal
from .result import TensorStatistics

RESCUE_EXPONENT = 600
"""Values are divided by 2**600 when a sum of them left the range of float64; squares of the quotients never do."""


class Moments(NamedTuple):
    """Moments of ``finite`` values, in float64; without values all the others are zero.

    ``minimum`` and ``maximum`` are exact, ``squared_deviation`` is the sum of squared deviations from ``mean``.
    """

    finite: int
    minimum: float
    maximum: float
    total: float
    sum_squares: float
    mean: float
    squared_deviation: float

    @property
    def overflowed(self) -> bool:
        """Whether a sum left the range of float64 and spoiled the mean or the deviation."""
        return not (isfinite(self.mean) and isfinite(self.total)) or isnan(self.squared_deviation)


NO_MOMENTS = Moments(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""The moments of no value."""


class Bins(NamedTuple):
    """Counts over a grid: negative overflow, the buckets in the order of the grid's edges, positive overflow."""

    below: int
    counts: tuple[int, ...]
    above: int


class Tally(NamedTuple):
    """What a backend found in one tensor or a part of one: special counts, moments, and bins when there is a grid."""

    elements: int
    zeros: int
    nan: int
    posinf: int
    neginf: int
    moments: Moments
    bins: Bins | None


def join_moments(first: Moments, second: Moments) -> Moments:
    """Return the moments of both sets of values together, by Chan's stable update. Clause: STAT-1."""
    if not second.finite:
        return first
    if not first.finite:
        return second
    count = first.finite + second.finite
    distance = second.mean - first.mean
    weight = second.finite / count
    deviation = first.squared_deviation + second.squared_deviation + distance * (distance * weight) * first.finite
    return Moments(
        count,
        min(first.minimum, second.minimum),
        max(first.maximum, second.maximum),
        first.total + second.total,
        first.sum_squares + second.sum_squares,
        first.mean + distance * weight,
        deviation,
    )


def join_tallies(parts: Sequence[Tally]) -> Tally:
    """Return the tally of all parts together; at least one is given and all have the same grid."""
    joined = parts[0]
    for part in parts[1:]:
        bins = None
        if joined.bins is not None and part.bins is not None:
            bins = Bins(
                joined.bins.below + part.bins.below,
                tuple(map(add, joined.bins.counts, part.bins.counts)),
                joined.bins.above + part.bins.above,
            )
        joined = Tally(
            joined.elements + part.elements,
            joined.zeros + part.zeros,
            joined.nan + part.nan,
            joined.posinf + part.posinf,
            joined.neginf + part.neginf,
            join_moments(joined.moments, part.moments),
            bins,
        )
    return joined


def repeat_tally(tally: Tally, times: int) -> Tally:
    """Return the tally of ``times`` copies of the elements, as an expanded tensor has them."""
    moments, bins = tally.moments, tally.bins
    if bins is not None:
        bins = Bins(bins.below * times, tuple(count * times for count in bins.counts), bins.above * times)
    return Tally(
        tally.elements * times,
        tally.zeros * times,
        tally.nan * times,
        tally.posinf * times,
        tally.neginf * times,
        Moments(
            moments.finite * times,
            moments.minimum,
            moments.maximum,
            moments.total * times,
            moments.sum_squares * times,
            moments.mean,
            moments.squared_deviation * times,
        ),
        bins,
    )


def unscale_moments(exact: Moments, scaled: Moments) -> Moments:
    """Return moments computed from values that were divided by ``2**RESCUE_EXPONENT``; extremes are ``exact``'s.

    What float64 cannot hold becomes infinite; nothing becomes NaN.
    """
    return Moments(
        exact.finite,
        exact.minimum,
        exact.maximum,
        _scale_up(scaled.total, RESCUE_EXPONENT),
        _scale_up(scaled.sum_squares, 2 * RESCUE_EXPONENT),
        _scale_up(scaled.mean, RESCUE_EXPONENT),
        _scale_up(scaled.squared_deviation, 2 * RESCUE_EXPONENT),
    )


def _scale_up(value: float, exponent: int) -> float:
    try:
        return ldexp(value, exponent)
    except OverflowError:
        return inf if value > 0 else -inf


def finish(tally: Tally, descriptor: GridDescriptor | None) -> TensorStatistics:
    """Return a tally as the public record. Clause: STAT-1, STAT-3, GRID-2."""
    count, minimum, maximum, total, sum_squares, mean, deviation = tally.moments
    known = count > 0
    bins = tally.bins
    return TensorStatistics(
        tally.elements,
        count,
        tally.zeros,
        tally.nan,
        tally.posinf,
        tally.neginf,
        minimum if known else None,
        maximum if known else None,
        total if known else None,
        sum_squares if known else None,
        mean if known else None,
        # The distance of infinite sums is NaN; the deviation is then beyond float64 as well.
        (inf if isnan(deviation) else deviation) if known else None,
        descriptor,
        None if bins is None else bins.counts,
        None if bins is None else bins.above,
        None if bins is None else bins.below,
    )


def _reopen(statistics: TensorStatistics) -> Tally:
    """Return the public record as a tally again."""
    values = (
        statistics.minimum,
        statistics.maximum,
        statistics.total,
        statistics.sum_squares,
        statistics.mean,
        statistics.squared_deviation,
    )
    known = [value for value in values if value is not None]
    moments = Moments(statistics.finite, *known) if len(known) == len(values) else NO_MOMENTS
    bins = None
    if statistics.counts is not None:
        bins = Bins(statistics.overflow_negative or 0, statistics.counts, statistics.overflow_positive or 0)
    return Tally(
        statistics.elements,
        statistics.zeros,
        statistics.nan,
        statistics.posinf,
        statistics.neginf,
        moments,
        bins,
    )


def merge(first: TensorStatistics, second: TensorStatistics) -> TensorStatistics:
    """Return the statistics of the elements of both records together.

    Counts add; moments join by Chan's update, so the result is that of the concatenated tensors up to float64 rounding
    of the sums. Raises ``grid_mismatch`` when the descriptors differ, or when only one record has a histogram: there is
    no re-binning anywhere.

    Clause: GRID-3, STAT-1.
    """
    if first.descriptor is not None and second.descriptor is not None:
        require_same_grid(first.descriptor, second.descriptor)
    elif first.descriptor != second.descriptor:
        raise Refusal(
            "grid_mismatch",
            "Statistics with a histogram cannot be merged with statistics without one.",
            remedy="Compute both with the same descriptor=.",
            first=None if first.descriptor is None else first.descriptor.as_dict(),
            second=None if second.descriptor is None else second.descriptor.as_dict(),
        )
    return finish(join_tallies((_reopen(first), _reopen(second))), first.descriptor)
