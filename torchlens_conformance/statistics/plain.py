"""The plain torch backend: the same counts, bit for bit, on any device.

Tensors are worked through in chunks, so that scratch stays at a few MiB on the CPU. The counts of a chunk stay on the
device; all of a call are fetched together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

from ..protocol.grid import GridDescriptor
from .moments import NO_MOMENTS, Moments, Tally, join_moments
from .thresholds import BINARY32, BINARY64, FloatFormat, bit_grid

CPU_CHUNK = 1 << 17
"""Elements of a chunk on the CPU: the largest temporary, float64 of a chunk, takes 1 MiB."""

DEVICE_CHUNK = 1 << 24
"""Elements of a chunk elsewhere, where launching an operation costs more than its memory."""

_FINITE, _ZEROS, _POSINF, _NEGINF = range(4)
"""Columns of a chunk's row; the other six are the moments, in the order of :class:`Moments`."""


class _Grid(NamedTuple):
    """A grid on a device; without ``mantissas`` it is searched, else cells are counted and moved to their bins."""

    part_bits: int
    mantissas: tuple[int, ...]
    thresholds: torch.Tensor
    bins_of_cells: torch.Tensor
    centre: int
    bin_count: int


@lru_cache(maxsize=32)
def _grid(descriptor: GridDescriptor, form: FloatFormat, device: torch.device) -> _Grid:
    grid = bit_grid(descriptor, form)
    plan = grid.cells
    word = torch.int32 if form.bits == 32 else torch.int64
    thresholds = torch.tensor(grid.thresholds, dtype=word, device=device)
    if plan is None:
        return _Grid(0, (), thresholds, thresholds[:0], grid.centre, grid.bin_count)
    bins = torch.tensor(plan.bins, dtype=torch.int64, device=device).reshape(2, -1, 1 << plan.part_bits)
    # Infinities and NaNs have the largest exponent field; their cells are moved to one bin more, which is cut off.
    bins[:, -1] = grid.bin_count
    return _Grid(plan.part_bits, plan.mantissas, thresholds, bins.flatten(), grid.centre, grid.bin_count)


def reduce(tensors: Sequence[torch.Tensor], descriptor: GridDescriptor | None) -> list[Tally]:
    """Return the tally of every tensor.

    Args:
        tensors: Contiguous tensors of a supported dtype, on any devices.
        descriptor: The grid to count over, or None.

    Clause: STAT-1, STAT-2, GRID-2.
    """
    rows: list[list[torch.Tensor]] = []
    bins: list[torch.Tensor] = []
    with torch.no_grad():
        for tensor in tensors:
            with torch.autocast(tensor.device.type, enabled=False):
                found = _reduce_tensor(tensor.detach().view(-1), descriptor)
            rows.append(found[0])
            if found[1] is not None:
                bins.append(found[1])
        fetched_rows = _fetch([row for group in rows for row in group])
        fetched_bins = _fetch(bins)
    tallies = []
    for index, (tensor, group) in enumerate(zip(tensors, rows)):
        parts, fetched_rows = fetched_rows[: len(group)], fetched_rows[len(group) :]
        counts = None
        if descriptor is not None:
            counts = [int(count) for count in fetched_bins[index]]
        tallies.append(_tally(tensor.numel(), parts, counts))
    return tallies


def _fetch(vectors: list[torch.Tensor]) -> list[list[float]]:
    """Return vectors of one length as lists; one transfer a device when all lie on one."""
    if len({vector.device for vector in vectors}) == 1:
        return torch.stack(vectors).tolist()
    return [vector.tolist() for vector in vectors]


def _tally(elements: int, rows: list[list[float]], bins: list[int] | None) -> Tally:
    finite = zeros = posinf = neginf = 0.0
    moments = NO_MOMENTS
    for row in rows:
        finite += row[_FINITE]
        zeros += row[_ZEROS]
        posinf += row[_POSINF]
        neginf += row[_NEGINF]
        moments = join_moments(moments, Moments(int(row[_FINITE]), *row[_NEGINF + 1 :]))
    nan = elements - int(finite) - int(posinf) - int(neginf)
    return Tally(elements, int(zeros), nan, int(posinf), int(neginf), moments, bins)


def _reduce_tensor(
    flat: torch.Tensor, descriptor: GridDescriptor | None
) -> tuple[list[torch.Tensor], torch.Tensor | None]:
    """Return a float64 row a chunk and the int64 bins of the whole tensor, both on the tensor's device."""
    form = BINARY64 if flat.dtype is torch.float64 else BINARY32
    device = torch.device("cpu") if flat.device.type == "mps" else flat.device  # MPS has no float64.
    grid = None if descriptor is None else _grid(descriptor, form, device)
    counts: torch.Tensor | None = None
    rows = []
    size = CPU_CHUNK if flat.device.type in ("cpu", "mps") else DEVICE_CHUNK
    for chunk in torch.split(flat, size):
        if not chunk.numel():
            continue
        values = chunk.to(device)
        if form is BINARY32:
            values = values.float()
        words = values.view(torch.int32 if form is BINARY32 else torch.int64)
        rows.append(_row(values, words, form))
        if grid is not None:
            counted = _count_cells(words, form, grid) if grid.mantissas else _count_bins(words, form, grid)
            counts = counted if counts is None else counts.add_(counted)
    if grid is None:
        return rows, None
    bins = torch.zeros(grid.bin_count + 1, dtype=torch.int64, device=device)
    if counts is not None:
        bins = bins.index_add_(0, grid.bins_of_cells, counts) if grid.mantissas else counts
    return rows, bins[:-1]


def _row(values: torch.Tensor, words: torch.Tensor, form: FloatFormat) -> torch.Tensor:
    """Return counts and moments of a chunk as ten float64 numbers."""
    largest = (1 << (form.bits - 1)) - 1
    infinity = form.infinity
    magnitude = words & largest
    ordered = (words >> (form.bits - 1)).bitwise_and_(largest).bitwise_xor_(words)
    least, greatest = torch.aminmax(ordered)
    precise = values.double()
    number = words.numel()
    zeros = number - torch.count_nonzero(magnitude)
    if words.device.type == "cpu" and int(least) > ~infinity and int(greatest) < infinity:
        finite = torch.tensor(float(number), dtype=torch.float64)
        posinf = neginf = torch.zeros((), dtype=torch.float64)
        moved = precise - precise.sum() / number
    else:
        is_finite = magnitude < infinity
        finite = is_finite.sum().double()
        posinf, neginf = (ordered == infinity).sum(), (ordered == ~infinity).sum()
        least = torch.where(is_finite, ordered, largest).amin()
        greatest = torch.where(is_finite, ordered, ~largest).amax()
        precise = torch.where(is_finite, precise, 0.0)
        moved = torch.where(is_finite, precise - precise.sum() / finite, 0.0)
    total, squares = precise.sum(), precise.square().sum()
    distance, deviation = moved.sum(), moved.square_().sum()
    # The mean of the distances corrects the rounding of the mean that they were taken from.
    deviation = (deviation - distance * distance / finite).clamp_(min=0.0)
    mean = total / finite + distance / finite
    minimum, maximum = _floats(torch.stack((least, greatest)), form)
    numbers = (finite, zeros, posinf, neginf, minimum, maximum, total, squares, mean, deviation)
    return torch.stack([number.double() for number in numbers])


def _floats(ordered: torch.Tensor, form: FloatFormat) -> torch.Tensor:
    """Return ordered bits as float64 values; a zero becomes +0.0."""
    largest = (1 << (form.bits - 1)) - 1
    words = ordered ^ ((ordered >> (form.bits - 1)) & largest)
    magnitude = words & largest
    if form is BINARY64:
        return torch.where(magnitude == 0, magnitude, words).view(torch.float64)
    # A subnormal float32 is made from its bits, as the thread may flush it.
    tiny = magnitude.double() * 2.0**-149
    tiny = torch.where((words < 0) & (magnitude > 0), -tiny, tiny)
    return torch.where(magnitude < 1 << form.mantissa_bits, tiny, words.view(torch.float32).double())


def _count_cells(words: torch.Tensor, form: FloatFormat, grid: _Grid) -> torch.Tensor:
    """Return the number of elements in every cell."""
    fields = (1 << (form.bits - form.mantissa_bits)) - 1
    cells = (words >> form.mantissa_bits).bitwise_and_(fields).bitwise_left_shift_(grid.part_bits)
    mantissa = words & ((1 << form.mantissa_bits) - 1)
    for threshold in grid.mantissas:
        if threshold >> form.mantissa_bits == 0:
            cells += mantissa >= threshold
    return torch.bincount(cells, minlength=grid.bins_of_cells.numel())


def _count_bins(words: torch.Tensor, form: FloatFormat, grid: _Grid) -> torch.Tensor:
    """Return the number of elements in every bin and, last, of infinities and NaNs."""
    magnitude = words & ((1 << (form.bits - 1)) - 1)
    rank = torch.bucketize(magnitude, grid.thresholds, right=True)
    bins = grid.centre + torch.where(words < 0, -rank, rank)
    bins = torch.where(magnitude < form.infinity, bins, grid.bin_count)
    return torch.bincount(bins, minlength=grid.bin_count + 1)
