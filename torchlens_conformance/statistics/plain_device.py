"""Plain torch on accelerators: nothing is fetched before the end, and then everything together."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..protocol.grid import GridDescriptor
from .moments import Tally
from .plain import TorchGrid, count_bins, floats_of, form_of, tally_of, torch_grid, value_dtype, word_dtype
from .thresholds import FloatFormat

CHUNK = 1 << 24
"""Elements of a chunk; launching an operation costs more than its memory."""


def reduce(flats: Sequence[torch.Tensor], descriptor: GridDescriptor | None) -> list[Tally]:
    """Return the tally of every flat tensor; the bytes fetched do not depend on how many elements they have.

    Args:
        flats: Contiguous, one-dimensional tensors of a supported dtype, on any devices.
        descriptor: The grid to count over, or None.

    Clause: STAT-1, STAT-2, GRID-2.
    """
    rows: list[list[torch.Tensor]] = []
    bins: list[torch.Tensor] = []
    with torch.no_grad():
        for flat in flats:
            with torch.autocast(flat.device.type, enabled=False):
                found, counts = _reduce_tensor(flat, descriptor)
            rows.append(found)
            bins += [] if counts is None else [counts]
    fetched_rows = iter(_fetch([row for group in rows for row in group]))
    fetched_bins = iter(_fetch(bins))
    tallies = []
    for flat, group in zip(flats, rows):
        parts = [next(fetched_rows) for _ in group]
        counts_here = None if descriptor is None else [int(count) for count in next(fetched_bins)]
        tallies.append(tally_of(flat.numel(), parts, counts_here))
    return tallies


def _fetch(vectors: list[torch.Tensor]) -> list[list[float]]:
    """Return vectors of one length as lists; in one transfer when all lie on one device."""
    if len({vector.device for vector in vectors}) == 1:
        return torch.stack(vectors).tolist()
    return [vector.tolist() for vector in vectors]


def _reduce_tensor(
    flat: torch.Tensor, descriptor: GridDescriptor | None
) -> tuple[list[torch.Tensor], torch.Tensor | None]:
    """Return a float64 row a chunk and the int64 bins of the whole tensor, both still on the device."""
    form = form_of(flat.dtype)
    device = torch.device("cpu") if flat.device.type == "mps" else flat.device  # MPS has no float64.
    grid = None if descriptor is None else torch_grid(descriptor, form, device)
    counts: torch.Tensor | None = None
    rows = []
    for chunk in torch.split(flat, CHUNK) if flat.numel() else ():
        values = chunk.to(device=device, dtype=value_dtype(form))
        words = values.view(word_dtype(form))
        rows.append(row_of(values, words, form))
        if grid is not None:
            counted = _count_cells(words, form, grid) if grid.by_cell else count_bins(words, form, grid)
            counts = counted if counts is None else counts.add_(counted)
    return rows, None if grid is None else grid.bins(counts)


def row_of(values: torch.Tensor, words: torch.Tensor, form: FloatFormat) -> torch.Tensor:
    """Return counts and moments of a chunk, any of it non-finite, as float64 numbers in the order of a row."""
    largest = (1 << (form.bits - 1)) - 1
    magnitude = words & largest
    ordered = (words >> (form.bits - 1)).bitwise_and_(largest).bitwise_xor_(words)
    is_finite = magnitude < form.infinity
    finite = is_finite.sum().double()
    zeros = words.numel() - torch.count_nonzero(magnitude)
    posinf, neginf = (ordered == form.infinity).sum(), (ordered == ~form.infinity).sum()
    least = torch.where(is_finite, ordered, largest).amin()
    greatest = torch.where(is_finite, ordered, ~largest).amax()
    minimum, maximum = floats_of(torch.stack((least, greatest)), form)
    precise = torch.where(is_finite, values.double(), 0.0)
    total, squares = precise.sum(), precise.square().sum()
    moved = torch.where(is_finite, precise - total / finite, 0.0)
    distance, deviation = moved.sum(), moved.square_().sum()
    # The mean of the distances corrects the rounding of the mean that they were taken from.
    deviation = (deviation - distance * distance / finite).clamp_(min=0.0)
    mean = total / finite + distance / finite
    numbers = (finite, zeros, posinf, neginf, minimum, maximum, total, squares, mean, deviation)
    return torch.stack([number.double() for number in numbers])


def _count_cells(words: torch.Tensor, form: FloatFormat, grid: TorchGrid) -> torch.Tensor:
    """Return the number of elements in every cell."""
    fields = (1 << (form.bits - form.mantissa_bits)) - 1
    cells = (words >> form.mantissa_bits).bitwise_and_(fields).bitwise_left_shift_(grid.part_bits)
    mantissa = words & ((1 << form.mantissa_bits) - 1)
    for cut in grid.cuts:
        cells += mantissa >= cut
    return torch.bincount(cells, minlength=grid.bins_of_cells.numel())
