"""The one path from tensors to statistics: grouping by grid, corrections, and refusals that become skips.

What a step asks for is started where the tensors are still what they should be, and fetched when the step is over, all
of it in one transfer a device (XFER-1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..protocol.grid import GridDescriptor
from ..protocol.refusals import Refusal
from ..statistics import Pending, TensorStatistics, collect, merge, start_many
from .unscale import scaled_grid, unscale
from .unseen import unseen

if TYPE_CHECKING:
    import torch

Report = Callable[[str, str, str], None]
"""Takes the name of a skip, a detail and a leaf."""

Key = tuple[str, str]
"""Family and leaf."""

Results = dict[Key, TensorStatistics]
"""Statistics by family and leaf."""


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
    def key(self) -> Key:
        """Family and leaf."""
        return self.family, self.leaf


@dataclass(frozen=True, slots=True)
class _Asked:
    """What has to be known of a request when its numbers arrive; the tensor is not kept."""

    key: Key
    descriptor: GridDescriptor | None
    exponent: int

    def corrected(self, found: TensorStatistics) -> TensorStatistics:
        return unscale(found, self.exponent, self.descriptor) if self.exponent else found


class Measurements:
    """Takes requests, each of which is started at once; :func:`fetch` gives their results.

    Requests over one grid are reduced together. A tensor without statistics (sparse, of a foreign dtype) is reported as
    ``statistics_refused``; nothing is raised. Several tensors under one key are merged.

    Args:
        report: Takes skips.

    Clause: STAT-1, AMP-3, XFER-1.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._started: list[tuple[list[_Asked], Pending]] = []

    def add(self, requests: Sequence[Request]) -> list[Key]:
        """Start the requests; return the keys of those that have statistics."""
        groups: dict[GridDescriptor | None, list[Request]] = {}
        for request in requests:
            try:
                grid = request.descriptor
                if grid is not None and request.exponent:
                    grid = scaled_grid(grid, request.exponent)
            except Refusal as refusal:
                self._report("statistics_refused", f"{refusal.code}: no histogram at this scale", request.leaf)
                grid = None
            groups.setdefault(grid, []).append(request)
        with unseen():
            return [key for grid, group in groups.items() for key in self._start(group, grid)]

    def absorb(self, other: Measurements) -> None:
        """Take over what another one started."""
        self._started += other.take()

    def take(self) -> list[tuple[list[_Asked], Pending]]:
        """Hand over what was started."""
        started, self._started = self._started, []
        return started

    def _start(self, group: Sequence[Request], grid: GridDescriptor | None) -> list[Key]:
        try:
            pending = start_many([request.tensor for request in group], descriptor=grid)
        except Refusal as refusal:
            if len(group) > 1:  # One of them is refused, and then nothing is computed; find out which.
                return [key for request in group for key in self._start([request], grid)]
            self._report("statistics_refused", f"{group[0].family}: {refusal.code}", group[0].leaf)
            return []
        self._started.append(([_Asked(each.key, each.descriptor, each.exponent) for each in group], pending))
        return [request.key for request in group]


def fetch(parts: Iterable[Measurements]) -> list[Results]:
    """Return the results of each, all of them by one transfer a device. Clause: XFER-1."""
    started = [part.take() for part in parts]
    with unseen():
        arrived = iter(collect([pending for group in started for _, pending in group]))
    results: list[Results] = []
    for group in started:
        mine: Results = {}
        for asked, _ in group:
            for each, found in zip(asked, next(arrived)):
                known = mine.get(each.key)
                corrected = each.corrected(found)
                mine[each.key] = corrected if known is None else merge(known, corrected)
        results.append(mine)
    return results


def measure(requests: Sequence[Request], report: Report) -> Results:
    """Return the statistics of every request that has some, at once. Clause: STAT-1, AMP-3."""
    measurements = Measurements(report)
    measurements.add(requests)
    return fetch([measurements])[0]
