"""Plain torch on the CPU: chunks that stay in the cache, in buffers that are used again.

Threads are torch's own. Ours would not help: between these short operations they would wait for the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import torch

from ..protocol.grid import GridDescriptor
from .moments import Tally
from .plain import Row, TorchGrid, floats_of, form_of, tally_of, torch_grid, value_dtype, word_dtype
from .plain_device import rows_of
from .thresholds import FloatFormat

CHUNK = 1 << 17
"""Elements of a chunk: scratch takes about 4 MiB, and torch still runs every operation in several threads."""


class _Scratch:
    """The buffers of one tensor, for chunks of up to ``size`` elements."""

    def __init__(self, form: FloatFormat, size: int) -> None:
        self.values = torch.empty(size, dtype=value_dtype(form))
        self.words = [torch.empty(size, dtype=word_dtype(form)) for _ in range(3)]
        self.precise = [torch.empty(size, dtype=torch.float64) for _ in range(2)]


def reduce(flats: Sequence[torch.Tensor], descriptor: GridDescriptor | None) -> list[Tally]:
    """Return the tally of every tensor.

    Args:
        flats: Contiguous CPU tensors of a supported dtype.
        descriptor: The grid to count over, or None.

    Clause: STAT-1, STAT-2, GRID-2.
    """
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        return [_reduce_tensor(flat.detach().view(-1), descriptor) for flat in flats]


def _reduce_tensor(flat: torch.Tensor, descriptor: GridDescriptor | None) -> Tally:
    form = form_of(flat.dtype)
    grid = None if descriptor is None else torch_grid(descriptor, form, flat.device)
    scratch = _Scratch(form, min(flat.numel(), CHUNK))
    rows: list[Row] = []
    counts: torch.Tensor | None = None
    for chunk in torch.split(flat, CHUNK) if flat.numel() else ():
        values = chunk
        if chunk.dtype is not value_dtype(form):
            values = scratch.values[: chunk.numel()].copy_(chunk)
        words = values.view(word_dtype(form))
        rows.append(_row(values, words, form, scratch))
        if grid is not None:
            if grid.by_cell:
                counted = _count_cells(words, form, grid, scratch)
            else:
                counted = torch.bincount(grid.search(words, form), minlength=grid.table_width)
            counts = counted if counts is None else counts.add_(counted)
    if grid is None:
        return tally_of(flat.numel(), rows, None)
    if counts is None:
        counts = torch.zeros(grid.table_width, dtype=torch.int64)
    return tally_of(flat.numel(), rows, grid.bins(counts).tolist())


def _row(values: torch.Tensor, words: torch.Tensor, form: FloatFormat, scratch: _Scratch) -> Row:
    """Return counts and moments of a chunk."""
    number = words.numel()
    least, greatest = (extreme.item() for extreme in torch.aminmax(values))
    if not (-inf < least and greatest < inf):  # Also for NaN, which aminmax passes on.
        return rows_of(values.unsqueeze(0), words.unsqueeze(0), form)[0].tolist()
    largest = (1 << (form.bits - 1)) - 1
    magnitude = torch.bitwise_and(words, largest, out=scratch.words[0][:number])
    zeros = number - int(torch.count_nonzero(magnitude))
    if min(abs(least), abs(greatest)) < torch.finfo(values.dtype).tiny:
        # Zeros have a sign, and a thread that flushes subnormals takes them for zeros: look at the bits.
        ordered = (words >> (form.bits - 1)).bitwise_and_(largest).bitwise_xor_(words)
        least, greatest = floats_of(torch.stack(torch.aminmax(ordered)), form).tolist()
    precise, other = (buffer[:number] for buffer in scratch.precise)
    precise = values if values.dtype is torch.float64 else precise.copy_(values)
    total = precise.sum().item()
    squares = torch.mul(precise, precise, out=other).sum().item()
    mean = total / number
    deviation = squares - total * mean
    # The difference is good as long as it keeps its leading bits; the negated test is also true for NaN.
    if not deviation * 16.0 >= squares or squares == inf:
        torch.sub(precise, mean, out=other)
        distance = other.sum().item()
        deviation = max(other.square_().sum().item() - distance * distance / number, 0.0)
        mean += distance / number
    return [number, zeros, 0, 0, least, greatest, total, squares, mean, deviation]


def _count_cells(words: torch.Tensor, form: FloatFormat, grid: TorchGrid, scratch: _Scratch) -> torch.Tensor:
    """Return the number of elements in every cell, without a comparison: these are slow on integers."""
    cells, mantissa, below = (buffer[: words.numel()] for buffer in scratch.words)
    fields = (1 << (form.bits - form.mantissa_bits)) - 1
    torch.bitwise_right_shift(words, form.mantissa_bits - grid.part_bits, out=cells)
    cells.bitwise_and_(fields << grid.part_bits)
    torch.bitwise_and(words, (1 << form.mantissa_bits) - 1, out=mantissa)
    for cut in grid.cuts:
        torch.sub(mantissa, cut, out=below)
        cells.add_(below.bitwise_right_shift_(form.bits - 1))  # -1 where the mantissa does not reach the cut.
    return torch.bincount(cells.add_(len(grid.cuts)), minlength=grid.bins_of_cells.numel())
