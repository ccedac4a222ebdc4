"""What is sent: scalars and histograms of every gradient over every grid, then the probes (FID-5, FID-6)."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchlens_conformance.protocol import (
    HistogramPoint,
    Point,
    ScalarPoint,
    histogram_tag,
)

from .grids import GRIDS, LOG_DESCRIPTORS, UNIFORM_BUCKETS, uniform_edges
from .tensors import Provenance, TensorDigest, gradient_snapshots

if TYPE_CHECKING:
    from torch import Tensor

    from torchlens_conformance.statistics import TensorStatistics

FAMILY = "gradients"
"""The family of all data series."""

MINIMUM_SCALARS = 1596
"""Fewer scalars make a measurement void: 76 tensors, 3 steps, 7 statistics (FID-6)."""

MINIMUM_HISTOGRAMS = 228
"""Fewer histograms a grid make a measurement void: 76 tensors, 3 steps (FID-6)."""


@dataclass(frozen=True, slots=True)
class SentData:
    """The data points of one measurement (probes not among them).

    Args:
        points: Scalars and histograms, in the order they are sent.
        provenance: Where the tensors come from.
        tensor_digest: SHA-256 over the tensors' bytes; differs between machines, since arithmetic does.
    """

    points: tuple[Point, ...]
    provenance: Provenance
    tensor_digest: str

    @property
    def digest(self) -> str:
        """SHA-256 over the points, the same on every machine for the same points (FID-6)."""
        return points_digest(self.points)

    def shortfall(self) -> str | None:
        """Say what is missing from a full stimulus, or None. Clause: FID-6."""
        scalars = sum(isinstance(point, ScalarPoint) for point in self.points)
        if scalars < MINIMUM_SCALARS:
            return f"{scalars} scalars were sent, {MINIMUM_SCALARS} are needed"
        for grid in GRIDS:
            histograms = sum(isinstance(point, HistogramPoint) for point in self.points if grid_of(point) == grid)
            if histograms < MINIMUM_HISTOGRAMS:
                return f"{histograms} histograms were sent over {grid}, {MINIMUM_HISTOGRAMS} are needed"
        return None


def build_data(provenance: Provenance, *, checkpoint: Path | None = None) -> SentData:
    """Train the steps, compute every statistic and every histogram, and return the points in sending order.

    Takes some 20 seconds and 2 GB on two cores. Clause: FID-4..6.
    """
    points: list[Point] = []
    digest = TensorDigest()
    for step, gradients in gradient_snapshots(provenance, checkpoint=checkpoint):
        for name, gradient in gradients.items():
            digest.add(name, gradient)
        points.extend(_step_points(step, list(gradients), list(gradients.values())))
    return SentData(tuple(points), provenance, digest.hexdigest())


def grid_of(point: Point) -> str | None:
    """Return the grid that a data histogram was counted on, from its tag's name component; None for others."""
    if isinstance(point, HistogramPoint):
        parts = point.tag.split("/")
        if len(parts) > 2 and parts[0] == FAMILY and parts[1] in GRIDS:
            return parts[1]
    return None


def points_digest(points: Iterable[Point]) -> str:
    """Return a SHA-256 over scalars and histograms: tags, steps and every number's bits. Clause: FID-6."""
    digest = hashlib.sha256()
    for point in points:
        if isinstance(point, ScalarPoint):
            digest.update(f"s {point.tag} {point.step} ".encode() + array("d", [point.value]).tobytes())
        elif isinstance(point, HistogramPoint):
            digest.update(f"h {point.tag} {point.step} {len(point.counts)} ".encode())
            digest.update(array("q", point.counts).tobytes() + array("d", point.edges).tobytes())
            digest.update(repr(sorted(point.summary.items())).encode())
        else:
            raise TypeError(f"no digest is defined for {type(point).__name__}")
    return digest.hexdigest()


def _step_points(step: int, leaves: Sequence[str], tensors: Sequence[Tensor]) -> list[Point]:
    from torchlens_conformance.statistics import compute_many, histogram_point, scalar_points

    by_grid = {grid: compute_many(tensors, descriptor=descriptor) for grid, descriptor in LOG_DESCRIPTORS.items()}
    statistics = by_grid[next(iter(by_grid))]
    points: list[Point] = []
    for leaf, values in zip(leaves, statistics):
        points.extend(scalar_points(values, family=FAMILY, leaf=leaf, step=step))
    with ThreadPoolExecutor(max_workers=2) as pool:
        uniform = {
            grid: list(pool.map(_uniform_counts, tensors, statistics, [buckets] * len(tensors)))
            for grid, buckets in UNIFORM_BUCKETS.items()
        }
    for grid in GRIDS:
        for index, (leaf, values) in enumerate(zip(leaves, statistics)):
            if grid in by_grid:
                points.append(histogram_point(by_grid[grid][index], family=FAMILY, leaf=leaf, step=step, name=grid))
            else:
                counts, edges = uniform[grid][index]
                tag = histogram_tag(FAMILY, leaf, name=grid)
                points.append(HistogramPoint(tag, step, counts, edges, values.summary))
    return points


def _uniform_counts(
    tensor: Tensor, statistics: TensorStatistics, buckets: int
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Count a float32 tensor over its own range, the last bucket closed on the right as numpy has it."""
    import numpy

    low, high = statistics.minimum, statistics.maximum
    if low is None or high is None:
        low = high = 0.0
    if low == high:
        low, high = low - 0.5, high + 0.5
    values = tensor.detach().reshape(-1).numpy()
    counts = numpy.zeros(buckets, dtype=numpy.int64)
    # In pieces and in float64: numpy would otherwise make float32 edges for a float32 array.
    for start in range(0, values.size, 1 << 18):
        piece = values[start : start + (1 << 18)].astype(numpy.float64)
        counts += numpy.histogram(piece, bins=buckets, range=(low, high))[0]
    return tuple(counts.tolist()), uniform_edges(low, high, buckets)
