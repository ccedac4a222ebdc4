"""Plain torch on accelerators: reduced where the tensors lie, packed into one vector, fetched once (XFER-1).

Tensors of one length are stacked and reduced together, long ones chunk by chunk; chunks are joined on the device, so
that what is fetched has the same size for tensors of every length. No operation here waits for the device: not
``bincount``, which asks for the largest value first, nor anything whose shape depends on values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..protocol.grid import GridDescriptor
from .layout import Dense, pieces
from .moments import RESCUE_EXPONENT, Tally, unscale_moments
from .packing import ROW, Columns, columns_of
from .plain import (
    DEVIATION,
    FINITE,
    MAXIMUM,
    MEAN,
    MINIMUM,
    TorchGrid,
    floats_of,
    form_of,
    tally_of,
    torch_grid,
    value_dtype,
    word_dtype,
)
from .thresholds import FloatFormat

CHUNK = 1 << 22
"""Elements that are reduced at once, which is what bounds the scratch; launching costs more than shorter chunks."""

LANES = 32
"""At most so many counting tables are filled in turn, so that equal values do not wait for one counter."""

ELEMENTS_PER_LANE = 1 << 14
"""From twice so many elements on a further counting table pays."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors that were reduced together.

    Attributes:
        indices: Their places in the order of :func:`start`.
        elements: Elements of each.
        columns: What is sent for each.
        packed: int64, on the device, a row of :attr:`Columns.width` numbers a tensor.
    """

    indices: tuple[int, ...]
    elements: int
    columns: Columns
    packed: torch.Tensor


@dataclass(frozen=True, slots=True)
class Started:
    """What was found about some tensors, still where it was computed.

    Attributes:
        batches: The numbers.
        ready: What a fetch from another stream has to wait for.
    """

    batches: tuple[Batch, ...]
    ready: tuple[Any, ...]

    @property
    def bytes(self) -> int:
        """Bytes that a fetch moves. Clause: XFER-1."""
        return sum(len(batch.indices) * batch.columns.bytes for batch in self.batches)


def start(tensors: Sequence[Dense], descriptor: GridDescriptor | None) -> Started:
    """Reduce tensors on their devices and fetch nothing.

    Args:
        tensors: Tensors of a supported dtype, on any devices.
        descriptor: The grid to count over, or None.

    Clause: STAT-1, STAT-2, GRID-2, XFER-1.
    """
    batches = []
    with torch.no_grad():
        for indices in _alike(tensors, descriptor):
            group = [tensors[index] for index in indices]
            first = group[0].tensor
            with torch.autocast(first.device.type, enabled=False):
                packed = _reduce(group, descriptor)
            columns = columns_of(first.dtype, descriptor)
            batches.append(Batch(tuple(indices), first.numel(), columns, packed))
    return Started(tuple(batches), _marks({batch.packed.device for batch in batches}))


def fetch(started: Sequence[Started]) -> list[list[Tally]]:
    """Return the tallies of everything that was started, in one transfer a device. Clause: XFER-1."""
    for part in started:
        for mark in part.ready:
            mark.wait()
    on_host = iter(_to_host([batch.packed for part in started for batch in part.batches]))
    found = []
    for part in started:
        tallies: dict[int, Tally] = {}
        for batch in part.batches:
            tallies.update(zip(batch.indices, _unpack(batch, next(on_host))))
        found.append([tallies[index] for index in range(len(tallies))])
    return found


def _alike(tensors: Sequence[Dense], descriptor: GridDescriptor | None) -> Iterator[list[int]]:
    """Yield groups of tensors that are reduced together: of one device, dtype and length, none of them long."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, (tensor, flat, _) in enumerate(tensors):
        # What has gaps is read piece by piece, and so alone.
        key = (tensor.device, tensor.dtype, tensor.numel(), index if flat is None else -1)
        groups.setdefault(key, []).append(index)
    for indices in groups.values():
        tensor = tensors[indices[0]].tensor
        room = max(tensor.numel(), 1)
        if descriptor is not None:  # The counting tables of a group are scratch as well.
            room = max(room, torch_grid(descriptor, form_of(tensor.dtype), _home(tensor)).table_width)
        size = max(1, CHUNK // room)
        for begin in range(0, len(indices), size):
            yield indices[begin : begin + size]


def _home(tensor: torch.Tensor) -> torch.device:
    """Return where a tensor is reduced: MPS has no float64, so its chunks are taken to the host."""
    return torch.device("cpu") if tensor.device.type == "mps" else tensor.device


def _marks(devices: set[torch.device]) -> tuple[Any, ...]:
    """Mark how far the work has come: autograd may run a hook in another stream than the one that fetches."""
    if not torch.cuda.is_available():
        return ()
    return tuple(torch.cuda.current_stream(device).record_event() for device in devices if device.type == "cuda")


def _to_host(packed: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the vectors on the host; those of one device travel together."""
    found = list(packed)
    for device in dict.fromkeys(vector.device for vector in packed):
        indices = [index for index, vector in enumerate(packed) if vector.device == device]
        together = torch.cat([packed[index].flatten() for index in indices]).to("cpu")
        parts = torch.split(together, [packed[index].numel() for index in indices])
        for index, part in zip(indices, parts):
            found[index] = part.view(packed[index].shape)
    return found


def _unpack(batch: Batch, packed: torch.Tensor) -> Iterator[Tally]:
    """Yield the tallies of a batch from its numbers on the host."""
    moments, bins = torch.split(packed, [batch.columns.rows * ROW, batch.columns.bins], dim=1)
    # A slice of a row has no bits of its own to view; the copy has.
    rows = moments.contiguous().view(torch.float64).view(len(batch.indices), batch.columns.rows, ROW).tolist()
    for row, counts in zip(rows, bins.tolist()):
        tally = tally_of(batch.elements, row[:1], counts or None)
        if batch.columns.rows == 2 and tally.moments.overflowed:
            scaled = tally_of(batch.elements, row[1:], None).moments
            tally = tally._replace(moments=unscale_moments(tally.moments, scaled))
        yield tally


def _chunks(group: Sequence[Dense]) -> Iterator[torch.Tensor]:
    """Yield the elements of a group in chunks: a row a tensor, as many columns as a chunk has room for."""
    tensor, flat, _ = group[0]
    home = _home(tensor)
    if not tensor.numel():
        return
    if flat is None:
        parts: Iterator[tuple[torch.Tensor, ...]] = ((part.view(-1),) for part in pieces(tensor.detach(), limit=CHUNK))
    else:
        parts = zip(*(torch.split(each.flat.detach().view(-1), CHUNK) for each in group if each.flat is not None))
    for part in parts:
        chunk = part[0].unsqueeze(0) if len(part) == 1 else torch.stack(part)
        yield chunk.to(device=home, dtype=value_dtype(form_of(chunk.dtype)))


def _reduce(group: Sequence[Dense], descriptor: GridDescriptor | None) -> torch.Tensor:
    """Return what is sent for every tensor of a group, a row each, still on the device."""
    tensor = group[0].tensor
    form, home, columns = form_of(tensor.dtype), _home(tensor), columns_of(tensor.dtype, descriptor)
    grid = None if descriptor is None else torch_grid(descriptor, form, home)
    rows: list[list[torch.Tensor]] = [[] for _ in range(columns.rows)]
    counts: torch.Tensor | None = None
    for values in _chunks(group):
        words = values.view(word_dtype(form))
        rows[0].append(rows_of(values, words, form))
        if columns.rows == 2:
            scaled = values * 2.0**-RESCUE_EXPONENT
            rows[1].append(rows_of(scaled, scaled.view(word_dtype(form)), form))
        if grid is not None:
            counted = _count(words, form, grid)
            counts = counted if counts is None else counts.add_(counted)
    if not rows[0]:
        return torch.zeros(len(group), columns.width, dtype=torch.int64, device=home)
    parts = [_join(chunks).view(torch.int64) for chunks in rows]
    if grid is not None and counts is not None:
        parts.append(grid.bins(counts))
    return torch.cat(parts, dim=1)


def rows_of(values: torch.Tensor, words: torch.Tensor, form: FloatFormat) -> torch.Tensor:
    """Return counts and moments of every row of a chunk, any of it non-finite, as float64 in the order of a row."""
    largest = (1 << (form.bits - 1)) - 1
    magnitude = words & largest
    is_finite = magnitude < form.infinity
    zeros = (magnitude == 0).sum(1)
    del magnitude
    ordered = (words >> (form.bits - 1)).bitwise_and_(largest).bitwise_xor_(words)
    posinf, neginf = (ordered == form.infinity).sum(1), (ordered == ~form.infinity).sum(1)
    least = torch.where(is_finite, ordered, largest).amin(1)
    greatest = torch.where(is_finite, ordered, ~largest).amax(1)
    minimum, maximum = floats_of(torch.stack((least, greatest)), form)
    del ordered
    finite = is_finite.sum(1).double()
    precise = torch.where(is_finite, values.double(), 0.0)
    total = precise.sum(1)
    squares = precise.square().sum(1)
    # The mean of the distances corrects the rounding of the mean that they were taken from.
    precise.sub_((total / finite).unsqueeze(1)).masked_fill_(is_finite.logical_not(), 0.0)
    distance, deviation = precise.sum(1), precise.square_().sum(1)
    deviation = (deviation - distance * distance / finite).clamp_(min=0.0)
    mean = total / finite + distance / finite
    numbers = (finite, zeros, posinf, neginf, minimum, maximum, total, squares, mean, deviation)
    return torch.stack([number.double() for number in numbers], dim=1)


def _join(chunks: list[torch.Tensor]) -> torch.Tensor:
    """Join the rows of chunks on the device, by Chan's update over all of them at once."""
    if len(chunks) == 1:
        return chunks[0]
    rows = torch.stack(chunks)
    columns = list(rows.unbind(2))
    joined = list(rows.sum(0).unbind(1))
    finite = columns[FINITE]
    known = finite > 0  # A chunk without finite values has no extremes, and a mean of NaN.
    joined[MINIMUM] = torch.where(known, columns[MINIMUM], torch.inf).amin(0)
    joined[MAXIMUM] = torch.where(known, columns[MAXIMUM], -torch.inf).amax(0)
    mean = torch.where(known, columns[MEAN], 0.0)
    joined[MEAN] = (mean * (finite / joined[FINITE])).sum(0)
    distance = torch.where(known, mean - joined[MEAN], 0.0)
    deviation = torch.where(known, columns[DEVIATION], 0.0)
    joined[DEVIATION] = (deviation + distance.square() * finite).sum(0)
    return torch.stack(joined, dim=1)


def _count(words: torch.Tensor, form: FloatFormat, grid: TorchGrid) -> torch.Tensor:
    """Return the number of elements in every cell, or bin, for every row."""
    number, length = words.shape
    lanes = max(1, min(LANES, length // ELEMENTS_PER_LANE))
    width = grid.table_width
    index = (_cells(words, form, grid) if grid.by_cell else grid.search(words, form)).long()
    index += torch.arange(length, device=words.device) % lanes * width
    index += (torch.arange(number, device=words.device) * (lanes * width)).unsqueeze(1)
    tables = torch.zeros(number * lanes * width, dtype=torch.int32, device=words.device)
    one = torch.ones((), dtype=torch.int32, device=words.device)
    return tables.scatter_add_(0, index.view(-1), one.expand(index.numel())).view(number, lanes, width).sum(1)


def _cells(words: torch.Tensor, form: FloatFormat, grid: TorchGrid) -> torch.Tensor:
    """Return the cell of every element."""
    fields = (1 << (form.bits - form.mantissa_bits)) - 1
    cells = (words >> form.mantissa_bits).bitwise_and_(fields).bitwise_left_shift_(grid.part_bits)
    mantissa = words & ((1 << form.mantissa_bits) - 1)
    for cut in grid.cuts:
        cells += mantissa >= cut
    return cells
