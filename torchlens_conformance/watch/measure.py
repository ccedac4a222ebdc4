"""The one path from tensors to statistics: grouping by grid, corrections, and refusals that become skips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..protocol.grid import GridDescriptor
from ..protocol.refusals import Refusal
from ..statistics import TensorStatistics, compute_many
from .unscale import scaled_grid, unscale

if TYPE_CHECKING:
    import torch

Report = Callable[[str, str, str], None]
"""Takes the name of a skip, a detail and a leaf."""


@dataclass(frozen=True, slots=True)
class Request:
    """One tensor to be measured.

    Attributes:
        family: The family of its rows.
        leaf: Its leaf.
        tensor: The tensor; it is only read.
        descriptor: The grid of its histogram in true values, or None.
        exponent: Binary logarithm of the loss scale that is still in it (AMP-3).
    """

    family: str
    leaf: str
    tensor: torch.Tensor
    descriptor: GridDescriptor | None = None
    exponent: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """Family and leaf."""
        return self.family, self.leaf


def measure(requests: Sequence[Request], report: Report) -> dict[tuple[str, str], TensorStatistics]:
    """Return the statistics of every request that has some, by family and leaf.

    Requests over one grid are reduced in one call. A tensor without statistics (sparse, of a foreign dtype) is reported
    as ``statistics_refused``; nothing is raised. Clause: STAT-1, AMP-3.
    """
    groups: dict[GridDescriptor | None, list[Request]] = {}
    for request in requests:
        try:
            grid = None if request.descriptor is None else scaled_grid(request.descriptor, request.exponent)
        except Refusal as refusal:
            report("statistics_refused", f"{refusal.code}: no histogram at this scale", request.leaf)
            grid = None
        groups.setdefault(grid, []).append(request)
    results: dict[tuple[str, str], TensorStatistics] = {}
    for grid, group in groups.items():
        for request, found in zip(group, _compute(group, grid, report)):
            if found is not None:
                corrected = unscale(found, request.exponent, request.descriptor) if request.exponent else found
                results[request.key] = corrected
    return results


def _compute(
    group: Sequence[Request], grid: GridDescriptor | None, report: Report
) -> Sequence[TensorStatistics | None]:
    try:
        return compute_many([request.tensor for request in group], descriptor=grid)
    except Refusal:
        # One of them is refused, and then nothing is computed; find out which.
        return [_compute_one(request, grid, report) for request in group]


def _compute_one(request: Request, grid: GridDescriptor | None, report: Report) -> TensorStatistics | None:
    try:
        return compute_many([request.tensor], descriptor=grid)[0]
    except Refusal as refusal:
        report("statistics_refused", f"{request.family}: {refusal.code}", request.leaf)
        return None
