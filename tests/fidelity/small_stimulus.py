"""A small stimulus of the same shape as the real one: two tensors, three steps, four grids, all probes."""

from __future__ import annotations

from fidelity.grids import GRIDS, LOG_DESCRIPTORS, UNIFORM_BUCKETS, uniform_edges
from fidelity.probes import all_probes
from fidelity.tensors import STEPS
from torchlens_conformance.protocol import STATISTICS, HistogramPoint, Point, ScalarPoint, histogram_tag, scalar_tag

LEAVES = ("h.0.weight", "h.0.bias")


def small_data() -> list[Point]:
    """Scalars and histograms with values that float32 cannot hold."""
    points: list[Point] = []
    for step in STEPS:
        for place, leaf in enumerate(LEAVES):
            for index, statistic in enumerate(STATISTICS):
                points.append(ScalarPoint(scalar_tag("gradients", statistic, leaf), step, step / 3 + index + place))
        for grid in GRIDS:
            for place, leaf in enumerate(LEAVES):
                points.append(_histogram(grid, leaf, step, place))
    return points


def _histogram(grid: str, leaf: str, step: int, place: int) -> HistogramPoint:
    edges = LOG_DESCRIPTORS[grid].edges if grid in LOG_DESCRIPTORS else uniform_edges(-0.7, 0.9, UNIFORM_BUCKETS[grid])
    middle = len(edges) // 2
    counts = [0] * (len(edges) - 1)
    counts[middle - 3 : middle + 4] = [1, 2, step, 5 + place, 40, 2, 1]
    summary = {"min": -0.1, "max": 0.3, "num": sum(counts), "sum": step / 7, "sum_squares": step / 9}
    return HistogramPoint(histogram_tag("gradients", leaf, name=grid), step, tuple(counts), edges, summary)


def small_stimulus() -> list[Point]:
    """The data, then the probes."""
    return [*small_data(), *all_probes()]
