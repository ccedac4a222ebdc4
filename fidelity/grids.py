"""The four grids of the measurement and their edges (FID-5)."""

from __future__ import annotations

from functools import lru_cache

from torchlens_conformance.protocol import DEFAULT_DESCRIPTOR, WANDB_SAFE_DESCRIPTOR, GridDescriptor

UNIFORM_BUCKETS = {"uniform-64": 64, "uniform-600": 600}
"""Uniform grids, from the smallest to the largest value of each tensor: buckets by name."""

LOG_DESCRIPTORS: dict[str, GridDescriptor] = {
    "signed-log2-497": WANDB_SAFE_DESCRIPTOR,
    "signed-log2-513": DEFAULT_DESCRIPTOR,
}
"""Signed-log2 grids: descriptors by name."""

GRIDS = (*UNIFORM_BUCKETS, *LOG_DESCRIPTORS)
"""The names of all four grids, in the order of the table."""


@lru_cache(maxsize=1024)
def uniform_edges(low: float, high: float, buckets: int) -> tuple[float, ...]:
    """Return ``buckets + 1`` edges from ``low`` to ``high`` by plain float64 arithmetic, the same on every machine."""
    width = (high - low) / buckets
    return (*(index * width + low for index in range(buckets)), high)


def grid_edges(grid: str, limits: tuple[float, float] | None) -> tuple[float, ...]:
    """Return the edges of ``grid``; ``limits`` (lowest, highest) is needed by the uniform ones only."""
    if grid in LOG_DESCRIPTORS:
        return LOG_DESCRIPTORS[grid].edges
    if limits is None:
        raise ValueError(f"{grid} needs limits")
    return uniform_edges(*limits, UNIFORM_BUCKETS[grid])
