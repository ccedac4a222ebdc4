"""The plain torch backend: the same counts, bit for bit, on any device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

from ..protocol.grid import GridDescriptor
from .moments import NO_MOMENTS, Bins, Moments, Tally, join_moments
from .thresholds import BINARY32, BINARY64, FloatFormat, bit_grid

FINITE, ZEROS, POSINF, NEGINF, MINIMUM, MAXIMUM, TOTAL, SQUARES, MEAN, DEVIATION = range(10)
"""Columns of a chunk's row; from :data:`MINIMUM` on it holds what :class:`Moments` has after its first field."""

Row = list[float]
"""Counts and moments of one chunk; counts are exact in float64."""


class TorchGrid(NamedTuple):
    """A grid on a device.

    Attributes:
        part_bits: Bits of a cell index for the part of an octave.
        cuts: Mantissa thresholds inside an octave.
        thresholds: Magnitude thresholds, as words.
        bins_of_cells: int64, the bin of every cell; empty when the thresholds are searched instead.
        centre: The bin of the centre band.
        bin_count: Number of bins; one more collects infinities and NaNs.
    """

    part_bits: int
    cuts: tuple[int, ...]
    thresholds: torch.Tensor
    bins_of_cells: torch.Tensor
    centre: int
    bin_count: int

    @property
    def by_cell(self) -> bool:
        """Whether elements are counted by cell."""
        return self.bins_of_cells.numel() > 0

    @property
    def table_width(self) -> int:
        """Counters that a count over it needs: cells, or bins and one for infinities and NaNs."""
        return self.bins_of_cells.numel() or self.bin_count + 1

    def bins(self, counts: torch.Tensor) -> torch.Tensor:
        """Return counts by cell, or by bin, as int64 counts by bin without the non-finite; rows of them likewise."""
        found = counts
        if self.by_cell:
            found = counts.new_zeros((*counts.shape[:-1], self.bin_count + 1), dtype=torch.int64)
            found = found.index_add_(-1, self.bins_of_cells, counts)
        return found.narrow(-1, 0, self.bin_count)

    def search(self, words: torch.Tensor, form: FloatFormat) -> torch.Tensor:
        """Return the bin of every element by searching the thresholds; infinities and NaNs have the last one."""
        magnitude = words & ((1 << (form.bits - 1)) - 1)
        rank = torch.bucketize(magnitude, self.thresholds, right=True)
        bins = self.centre + torch.where(words < 0, rank.neg(), rank)
        return torch.where(magnitude < form.infinity, bins, self.bin_count)


@lru_cache(maxsize=32)
def torch_grid(descriptor: GridDescriptor, form: FloatFormat, device: torch.device) -> TorchGrid:
    """Return a grid over floats of ``form`` on ``device``. Clause: GRID-2."""
    grid = bit_grid(descriptor, form)
    plan = grid.cells
    thresholds = torch.tensor(grid.thresholds, dtype=word_dtype(form), device=device)
    if plan is None:
        none = torch.zeros(0, dtype=torch.int64, device=device)
        return TorchGrid(0, (), thresholds, none, grid.centre, grid.bin_count)
    bins = torch.tensor(plan.bins, dtype=torch.int64, device=device)
    cuts = tuple(cut for cut in plan.mantissas if cut >> form.mantissa_bits == 0)
    return TorchGrid(plan.part_bits, cuts, thresholds, bins, grid.centre, grid.bin_count)


def form_of(dtype: torch.dtype) -> FloatFormat:
    """Return the format that values of ``dtype`` are counted in."""
    return BINARY64 if dtype is torch.float64 else BINARY32


def word_dtype(form: FloatFormat) -> torch.dtype:
    """Return the integer dtype of a float format."""
    return torch.int64 if form is BINARY64 else torch.int32


def value_dtype(form: FloatFormat) -> torch.dtype:
    """Return the floating-point dtype of a format."""
    return torch.float64 if form is BINARY64 else torch.float32


def floats_of(ordered: torch.Tensor, form: FloatFormat) -> torch.Tensor:
    """Return float64 values from ordered bits (see ``wordcode.ordered``); a zero becomes +0.0."""
    largest = (1 << (form.bits - 1)) - 1
    words = ordered ^ ((ordered >> (form.bits - 1)) & largest)
    magnitude = words & largest
    if form is BINARY64:
        return torch.where(magnitude == 0, magnitude, words).view(torch.float64)
    # A subnormal float32 is made from its bits, as the thread may flush it.
    tiny = magnitude.double() * 2.0**-149
    tiny = torch.where((words < 0) & (magnitude > 0), tiny.neg(), tiny)
    return torch.where(magnitude < 1 << form.mantissa_bits, tiny, words.view(torch.float32).double())


def tally_of(elements: int, rows: Sequence[Row], bins: Sequence[int] | None) -> Tally:
    """Join the rows of one tensor's chunks, in their order; ``bins`` include both overflows."""
    finite = zeros = posinf = neginf = 0.0
    moments = NO_MOMENTS
    for row in rows:
        finite += row[FINITE]
        zeros += row[ZEROS]
        posinf += row[POSINF]
        neginf += row[NEGINF]
        moments = join_moments(moments, Moments(int(row[FINITE]), *row[MINIMUM:]))
    nan = elements - int(finite) - int(posinf) - int(neginf)
    found = None if bins is None else Bins(bins[0], tuple(bins[1:-1]), bins[-1])
    return Tally(elements, int(zeros), nan, int(posinf), int(neginf), moments, found)
