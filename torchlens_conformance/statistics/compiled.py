"""The compiled backend: cuts tensors into chunks, shares them out among threads, joins what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..protocol.grid import GridDescriptor
from . import kernels, threads
from .moments import Bins, Moments, Tally, join_moments
from .thresholds import BINARY32, BINARY64, COMPARES_PER_ROUND, FloatFormat, bit_grid

CHUNK = 1 << 19
"""Elements that one call of the kernel reduces to one record. Fixed, so that results do not depend on the threads."""

_KINDS = {
    torch.float32: (kernels.WORD, 4),
    torch.float64: (kernels.WORD, 8),
    torch.bfloat16: (kernels.BFLOAT16, 2),
    torch.float16: (kernels.FLOAT16, 2),
}


class _Grid(NamedTuple):
    header: NDArray[np.int64]
    bins_of_cells: NDArray[np.uint16]
    bin_count: int


@lru_cache(maxsize=32)
def _grid(descriptor: GridDescriptor | None, form: FloatFormat) -> _Grid:
    """Return a grid in the layout that the kernels read."""
    none = np.zeros(0, np.uint16)
    if descriptor is None:
        header = np.zeros(kernels.GRID_HEADER + COMPARES_PER_ROUND, np.int64)
        return _Grid(header, none, 0)
    grid = bit_grid(descriptor, form)
    plan = grid.cells
    if plan is None:
        header = np.array([kernels.BY_SEARCH, grid.centre, 0, 0, 0, *grid.thresholds], np.int64)
        return _Grid(header, none, grid.bin_count)
    rounds = len(plan.mantissas) // COMPARES_PER_ROUND
    head = [kernels.BY_CELL, grid.centre, plan.part_bits, rounds, len(plan.bins)]
    return _Grid(np.array([*head, *plan.mantissas], np.int64), np.array(plan.bins, np.uint16), grid.bin_count)


def reduce(tensors: Sequence[torch.Tensor], descriptor: GridDescriptor | None) -> list[Tally]:
    """Return the tally of every tensor.

    Args:
        tensors: Contiguous CPU tensors of a supported dtype.
        descriptor: The grid to count over, or None.

    Clause: STAT-1, STAT-2, GRID-2.
    """
    tallies: list[Tally | None] = [None] * len(tensors)
    narrow = [index for index, tensor in enumerate(tensors) if tensor.dtype is not torch.float64]
    wide = [index for index, tensor in enumerate(tensors) if tensor.dtype is torch.float64]
    for indices, form, kernel in ((narrow, BINARY32, kernels.run32), (wide, BINARY64, kernels.run64)):
        if indices:
            group = [tensors[index] for index in indices]
            for index, tally in zip(indices, _reduce_group(group, _grid(descriptor, form), kernel)):
                tallies[index] = tally
    return [tally for tally in tallies if tally is not None]


def _reduce_group(tensors: Sequence[torch.Tensor], grid: _Grid, kernel: Any) -> list[Tally]:
    jobs, firsts, tasks = _cut(tensors)
    records = np.zeros((len(jobs), kernels.WIDTH))
    bins = np.zeros((len(jobs), grid.bin_count + 1), np.int64)
    table = np.array(jobs, np.int64).reshape(-1, 3)

    def work(task: int, keep_alive: Sequence[torch.Tensor] = tensors) -> None:
        # Whatever happens to the caller, the memory that a thread reads stays alive as long as this closure.
        del keep_alive
        kernel(table, tasks[task], tasks[task + 1], grid.header, grid.bins_of_cells, records, bins)

    if len(tasks) > 2:
        threads.share(len(tasks) - 1, work, threads=torch.get_num_threads())
    else:
        work(0)
    rows = records.tolist()
    return [
        _tally(tensor.numel(), rows[first:last], bins[first:last, :-1] if grid.bin_count else None)
        for tensor, first, last in zip(tensors, firsts, [*firsts[1:], len(jobs)])
    ]


def _cut(tensors: Sequence[torch.Tensor]) -> tuple[list[tuple[int, int, int]], list[int], list[int]]:
    """Return the chunks, the first chunk of every tensor, and the borders of tasks of about :data:`CHUNK` elements."""
    jobs: list[tuple[int, int, int]] = []
    firsts: list[int] = []
    tasks = [0]
    load = 0
    for tensor in tensors:
        firsts.append(len(jobs))
        kind, size = _KINDS[tensor.dtype]
        address = tensor.data_ptr()
        elements = tensor.numel()
        for start in range(0, max(elements, 1), CHUNK):
            length = min(CHUNK, elements - start)
            if load and load + length > CHUNK:
                tasks.append(len(jobs))
                load = 0
            jobs.append((address + start * size, length, kind))
            load += length
    tasks.append(len(jobs))
    return jobs, firsts, tasks


def _tally(elements: int, rows: list[list[float]], bins: NDArray[np.int64] | None) -> Tally:
    """Join the records of one tensor's chunks, in their order."""
    finite, zeros, nan, posinf, neginf, *rest = rows[0]
    moments = Moments(int(finite), *rest)
    for row in rows[1:]:
        zeros += row[kernels.ZEROS]
        nan += row[kernels.NAN]
        posinf += row[kernels.POSINF]
        neginf += row[kernels.NEGINF]
        moments = join_moments(moments, Moments(int(row[kernels.FINITE]), *row[kernels.MINIMUM :]))
    found: Bins | None = None
    if bins is not None:
        whole = bins[0] if len(bins) == 1 else bins.sum(axis=0)
        found = Bins(int(whole[0]), tuple(whole[1:-1].tolist()), int(whole[-1]))
    return Tally(elements, int(zeros), int(nan), int(posinf), int(neginf), moments, found)
