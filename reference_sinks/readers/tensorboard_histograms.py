"""From the two wire forms of TensorBoard's histograms to counts, edges and summary (TB-1, POINT-2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite, nextafter
from typing import Any

from torchlens_conformance.protocol import SUMMARY_FIELDS

INFERRED_FROM_MIN = "histograms whose left edge was inferred from min"
INFERRED_BELOW = "histograms whose left edge is unknown and was put right below the first limit"


@dataclass(frozen=True, slots=True)
class Buckets:
    """What a histogram of the store holds.

    Args:
        counts: ``n`` numbers as stored.
        edges: ``n + 1`` numbers.
        summary: What the store says of ``min max num sum sum_squares``.
        note: What was inferred, or None.
        problem: Why this is no histogram of the protocol, or None.
    """

    counts: tuple[float, ...]
    edges: tuple[float, ...]
    summary: dict[str, float] = field(default_factory=dict)
    note: str | None = None
    problem: str | None = None


def buckets_of_proto(histogram: Any) -> Buckets:
    """Return the buckets of a HistogramProto, whose leftmost edge is a matter of convention."""
    limits, counts = tuple(histogram.bucket_limit), tuple(histogram.bucket)
    stored: dict[str, float] = {name: getattr(histogram, name) for name in SUMMARY_FIELDS}
    if stored["num"].is_integer():
        stored["num"] = int(stored["num"])
    if not limits or len(limits) != len(counts):
        return Buckets(counts, limits, stored, problem="a histogram without buckets")
    note = None
    if len(counts) > 1 and counts[0] == 0 and limits[0] < limits[1]:
        edges, counts = limits, counts[1:]
    else:
        # NaN compares false, so it never becomes an edge.
        # A message without any summary says min 0 as well, which then means nothing.
        from_min = any(stored.values()) and stored["min"] < limits[0] and isfinite(stored["min"])
        edges = (stored["min"] if from_min else nextafter(limits[0], float("-inf")), *limits)
        note = INFERRED_FROM_MIN if from_min else INFERRED_BELOW
    problem = _edge_problem(edges)
    if problem is not None:
        return Buckets(counts, edges, stored, problem=problem)
    summary = _summary_that_was_set(stored, counts, edges)
    return Buckets(counts, edges, summary, note)


def buckets_of_triples(rows: Sequence[Sequence[float]]) -> Buckets:
    """Return the buckets of the tensor form: left edge, right edge and count a row. It has no summary."""
    counts = tuple(row[2] for row in rows)
    edges = (*(row[0] for row in rows), *(row[1] for row in rows[-1:]))
    if not rows:
        return Buckets(counts, edges, problem="a histogram without buckets")
    if any(left[1] != right[0] for left, right in pairwise(rows)):
        return Buckets(counts, edges, problem="a histogram with gaps between its buckets")
    return Buckets(counts, edges, problem=_edge_problem(edges))


def _edge_problem(edges: tuple[float, ...]) -> str | None:
    if not all(map(isfinite, edges)):
        return "a histogram with an edge that is not finite"
    if any(low >= high for low, high in pairwise(edges)):
        return "a histogram whose edges do not increase"
    return None


def _summary_that_was_set(
    stored: dict[str, float], counts: tuple[float, ...], edges: tuple[float, ...]
) -> dict[str, float]:
    """Leave out zeros that cannot be true: the format writes 0 and "unset" alike."""
    occupied = [index for index, count in enumerate(counts) if count]
    if not occupied:
        # Nothing was counted. Without any element there is no smallest one.
        return stored if stored["num"] else {key: value for key, value in stored.items() if key not in ("min", "max")}
    if not edges[0] <= 0.0 <= edges[-1]:
        # A zero may then lie outside the buckets, so they contradict nothing but a missing number of elements.
        return {key: value for key, value in stored.items() if key != "num" or value}
    low, high = _farthest_bounds(edges, occupied)
    possible = {
        "num": False,
        "min": low[0] <= 0.0 <= low[1],
        "max": high[0] <= 0.0 <= high[1],
        "sum": low[0] <= 0.0 <= high[1],
        "sum_squares": _nearest_square(low) == 0.0 == _nearest_square(high),
    }
    return {key: value for key, value in stored.items() if value or possible[key]}


def _farthest_bounds(edges: tuple[float, ...], occupied: list[int]) -> tuple[tuple[float, float], tuple[float, float]]:
    first, last = occupied[0], occupied[-1]
    return (edges[first], edges[first + 1]), (edges[last], edges[last + 1])


def _nearest_square(bucket: tuple[float, float]) -> float:
    """The square of the number in the bucket that is nearest to zero."""
    nearest = 0.0 if bucket[0] <= 0.0 <= bucket[1] else min(abs(bucket[0]), abs(bucket[1]))
    # A product becomes infinite where a power raises OverflowError.
    return nearest * nearest
