"""How histograms are put on TensorBoard's wire (TB-1).

A HistogramProto carries right limits only; the leftmost edge is a matter of convention, so the form matters.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchlens_conformance.protocol import HistogramPoint, Refusal

HISTOGRAM_WIRES = ("plain", "leading-edge", "trimmed", "trimmed-leading-edge", "tensor")
"""The wire forms of a histogram.

``plain``: limits are ``edges[1:]``; the leftmost edge is not in the file. ``leading-edge``: one empty bucket in front
whose limit is ``edges[0]``, which is what torch's own ``add_histogram`` does. ``trimmed``: ``plain``, cut to the run
from the first to the last occupied bucket. ``trimmed-leading-edge``: that run with its own left edge in front.
``tensor``: the histogram plugin's float64 triples (left, right, count),
which carry no summary.
"""

LARGEST_COUNT = 2**53
"""Counts travel as float64; beyond this not every integer arrives."""


def limits_and_counts(point: HistogramPoint, wire: str) -> tuple[list[float], list[int]]:
    """Return the right limits and the counts of ``point`` in one of the proto forms.

    A histogram without mass has no occupied run and is sent whole. Raises ``tracker_value_unsupported`` for a count
    beyond 2**53. Clause: TB-1.
    """
    counts, edges = require_exact_counts(point), point.edges
    if wire.startswith("trimmed") and any(counts):
        first = next(index for index, count in enumerate(counts) if count)
        last = next(index for index in range(len(counts) - 1, -1, -1) if counts[index])
        counts, edges = counts[first : last + 1], edges[first : last + 2]
    if wire.endswith("leading-edge"):
        return list(edges), [0, *counts]
    return list(edges[1:]), list(counts)


def triples(point: HistogramPoint) -> list[float]:
    """Return left edge, right edge and count of every bucket, flat, for the tensor form.

    Raises ``tracker_value_unsupported`` for a count beyond 2**53. Clause: TB-1.
    """
    counts = require_exact_counts(point)
    return [number for row in zip(point.edges, point.edges[1:], counts) for number in map(float, row)]


def require_exact_counts(point: HistogramPoint) -> Sequence[int]:
    """Return the counts, or refuse ``tracker_value_unsupported`` when a float64 cannot hold one. Clause: POINT-3."""
    if max(point.counts) > LARGEST_COUNT:
        raise Refusal(
            "tracker_value_unsupported",
            "TensorBoard stores counts as float64, which does not hold this one.",
            remedy="Use a sink that keeps integers, JSONLSink for example.",
            tag=point.tag,
            step=point.step,
            count=max(point.counts),
        )
    return point.counts
