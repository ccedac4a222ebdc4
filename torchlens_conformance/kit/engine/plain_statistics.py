"""Statistics of one tensor for the plain engine: float64, one way, no speed. Clause: STAT-1..3, GRID-2."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ...protocol import DEFAULT_DESCRIPTOR, HistogramPoint, ScalarPoint, histogram_tag, nonfinite_tag, scalar_tag
from ...protocol.tags import overflow_tag

if TYPE_CHECKING:
    import torch

GRID = DEFAULT_DESCRIPTOR
"""The one grid of the plain engine."""


class Naming:
    """How a session names its series. Clause: TAG-1, TAG-2."""

    def __init__(self, name: str | None, namespace: str | None) -> None:
        self.parts = {"name": name, "namespace": namespace}

    def scalar(self, family: str, statistic: str, leaf: str) -> str:
        """Return the tag of a statistic."""
        return scalar_tag(family, statistic, leaf, **self.parts)


def moments(values: torch.Tensor) -> dict[str, float]:
    """Return the statistics of a flat float64 tensor; what is not known is left out."""
    finite = values[values.isfinite()]
    known: dict[str, float] = {"count": finite.numel()}
    if values.numel():
        known["zero_fraction"] = (values == 0).sum().item() / values.numel()
    if finite.numel():
        known |= {
            "mean": finite.mean().item(),
            "norm": finite.norm().item(),
            "min": finite.min().item(),
            "max": finite.max().item(),
        }
    if finite.numel() > 1:
        known["std"] = finite.std(correction=0).item()
    return known


def scalar_points(family: str, leaf: str, values: torch.Tensor, step: int, naming: Naming) -> list[ScalarPoint]:
    """Return the scalar points of one site."""
    points = [ScalarPoint(naming.scalar(family, key, leaf), step, value) for key, value in moments(values).items()]
    counts = {"nan": values.isnan().sum(), "posinf": values.isposinf().sum(), "neginf": values.isneginf().sum()}
    if any(map(bool, counts.values())):
        points += [
            ScalarPoint(nonfinite_tag(family, kind, leaf, **naming.parts), step, int(count))
            for kind, count in counts.items()
        ]
    beyond = int((values.isfinite() & (values.abs() >= GRID.edges[-1])).sum())
    if beyond:
        points.append(ScalarPoint(overflow_tag(family, leaf, **naming.parts), step, beyond))
    return points


def bin_counts(values: torch.Tensor) -> list[int]:
    """Count flat float64 values on the grid: a positive one by ``low <= x < high``, a negative one mirrored."""
    import torch

    side = _side_edges()
    inside = values[values.isfinite() & (values.abs() < side[-1])]
    index = torch.bucketize(inside.abs(), side, right=True)
    signed = torch.where(inside < 0, -index, index) + GRID.bins_per_side
    counts: list[int] = torch.bincount(signed, minlength=GRID.bucket_count).tolist()
    return counts


def histogram_point(family: str, leaf: str, values: torch.Tensor, step: int, naming: Naming) -> HistogramPoint:
    """Return the histogram of one site."""
    finite = values[values.isfinite()]
    summary: dict[str, Any] = {"num": finite.numel(), "sum": finite.sum().item()}
    summary["sum_squares"] = finite.square().sum().item()
    if finite.numel():
        summary |= {"min": finite.min().item(), "max": finite.max().item()}
    tag = histogram_tag(family, leaf, **naming.parts)
    return HistogramPoint(tag, step, tuple(bin_counts(values)), GRID.edges, summary)


@cache
def _side_edges() -> torch.Tensor:
    import torch

    return torch.tensor(GRID.side_edges, dtype=torch.float64)
