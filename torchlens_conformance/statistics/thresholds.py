"""A grid turned into integers: where its edges lie among the bit patterns of a float (GRID-2).

The magnitude bits of a float (all bits but the sign) grow with its absolute value. So ``|x| >= edge`` is
``magnitude_bits(x) >= threshold``, the threshold being the bits of the smallest float of that width not below the edge:
an integer comparison that says exactly what the comparison in float64 says. float16 and bfloat16 are widened to float32
first, which changes no value.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

from ..protocol.grid import GridDescriptor

COMPARES_PER_ROUND = 3
"""Mantissa thresholds that a kernel compares in one sweep; a grid of 4 bins an octave needs one sweep."""

LARGEST_CELL_COUNT = 1 << 16
"""Cells of a table that a 16-bit index reaches."""


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """The bit layout of a float width: ``bits`` in all, ``mantissa_bits`` of fraction, the rest exponent and sign."""

    bits: int
    mantissa_bits: int

    @property
    def exponent_bias(self) -> int:
        """The exponent field of 1.0."""
        return (1 << (self.bits - self.mantissa_bits - 2)) - 1

    @property
    def infinity(self) -> int:
        """The magnitude bits of infinity; every larger pattern is a NaN."""
        return (2 * self.exponent_bias + 1) << self.mantissa_bits


BINARY32 = FloatFormat(bits=32, mantissa_bits=23)
BINARY64 = FloatFormat(bits=64, mantissa_bits=52)


@dataclass(frozen=True, slots=True)
class CellPlan:
    """How the top bits of a float name a cell of a counting table, and which histogram bin a cell belongs to.

    A cell is ``(sign and exponent field) << part_bits | part``, where ``part`` counts the thresholds in ``mantissas``
    that the mantissa reaches.

    Attributes:
        part_bits: Bits of a cell index that hold the part of the octave.
        mantissas: Ascending mantissa thresholds inside an octave, padded with one that no mantissa reaches to a
            multiple of :data:`COMPARES_PER_ROUND`.
        bins: For every cell its bin in the order of :class:`BitGrid`; ``bin_count``, which is no bin, for those of
            infinities and NaNs.
    """

    part_bits: int
    mantissas: tuple[int, ...]
    bins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BitGrid:
    """One grid over one float width.

    Bins are numbered 0 .. ``bin_count - 1``: negative overflow, the buckets in the order of ``descriptor.edges``,
    positive overflow. The centre band is bin ``centre``; a value with ``k`` thresholds at or below its magnitude bits
    lies in bin ``centre + k`` or, when negative, ``centre - k``.

    Attributes:
        descriptor: The grid.
        thresholds: Magnitude bits of the smallest float not below each side edge, ascending.
        cells: The plan for counting by top bits, or None when the grid reaches into subnormals or is too fine for it;
            then the thresholds are searched.
    """

    descriptor: GridDescriptor
    thresholds: tuple[int, ...]
    cells: CellPlan | None

    @property
    def centre(self) -> int:
        """The bin of zeros and both underflows."""
        return len(self.thresholds)

    @property
    def bin_count(self) -> int:
        """Buckets and both overflow bins."""
        return 2 * len(self.thresholds) + 1


@lru_cache(maxsize=32)
def bit_grid(descriptor: GridDescriptor, form: FloatFormat) -> BitGrid:
    """Return the integers of ``descriptor`` over floats of ``form``. Clause: GRID-2."""
    ceiling = _ceiling_bits32 if form.bits == 32 else _bits64
    thresholds = tuple(ceiling(edge) for edge in descriptor.side_edges)
    return BitGrid(descriptor, thresholds, _cell_plan(descriptor, form, thresholds))


def _bits64(edge: float) -> int:
    return int.from_bytes(struct.pack("<d", edge), "little")


def _ceiling_bits32(edge: float) -> int:
    try:
        packed = struct.pack("<f", edge)
    except OverflowError:  # Beyond the largest float32: only infinity is not below the edge.
        return BINARY32.infinity
    bits = int.from_bytes(packed, "little")
    # Packing rounds to nearest; magnitude bits are consecutive, so the next float up is the next integer.
    return bits if struct.unpack("<f", packed)[0] >= edge else bits + 1


def _cell_plan(descriptor: GridDescriptor, form: FloatFormat, thresholds: tuple[int, ...]) -> CellPlan | None:
    per_octave = descriptor.bins_per_octave
    part_bits = (per_octave - 1).bit_length()
    cell_count = 1 << (form.bits - form.mantissa_bits + part_bits)
    lowest = descriptor.lo_exp + form.exponent_bias
    highest = descriptor.hi_exp + form.exponent_bias
    if lowest < 1 or highest << form.mantissa_bits > form.infinity or cell_count > LARGEST_CELL_COUNT:
        return None
    base = lowest << form.mantissa_bits
    mantissas = tuple(threshold - base for threshold in thresholds[:per_octave])
    # The plan holds only if every octave is cut alike; that is checked, not assumed.
    for index, threshold in enumerate(thresholds):
        octave, part = divmod(index, per_octave)
        if threshold != ((lowest + octave) << form.mantissa_bits) + mantissas[part]:
            return None
    never = 1 << form.mantissa_bits
    inner = mantissas[1:]
    padding = -len(inner) % COMPARES_PER_ROUND if inner else COMPARES_PER_ROUND
    bins = _bins_of_cells(form, thresholds, per_octave, part_bits, lowest)
    return CellPlan(part_bits, inner + (never,) * padding, bins)


def _bins_of_cells(
    form: FloatFormat, thresholds: tuple[int, ...], per_octave: int, part_bits: int, lowest: int
) -> tuple[int, ...]:
    centre = len(thresholds)
    ranks = []
    fields = 1 << (form.bits - form.mantissa_bits - 1)
    for field in range(fields - 1):
        for part in range(1 << part_bits):
            # Parts from per_octave up are never counted into; any bin will do for them.
            rank = (field - lowest) * per_octave + min(part, per_octave - 1) + 1
            ranks.append(min(max(rank, 0), centre))
    nowhere = (2 * centre + 1,) * (1 << part_bits)  # The largest field is that of infinities and NaNs.
    return (*(centre + rank for rank in ranks), *nowhere, *(centre - rank for rank in ranks), *nowhere)
