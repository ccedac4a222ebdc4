"""The compiled kernel: one sweep over memory, in blocks that stay in the first-level cache.

Every chunk of a tensor is worked through in blocks of :data:`BLOCK` elements. A block is loaded from memory once and
then swept by short loops, each of a shape that the compiler vectorises:

1. integers: extremes, zeros and the histogram cell of every element, all on the float's own bits;
2. counting: one increment an element, into four tables in turn, so that equal neighbours do not wait for each other;
3. floats: sum and sum of squares in float64; only when their difference would cancel, a further sweep around the
   block's own mean.

Blocks are joined by Chan's update. A block that holds a NaN or an infinity is found by its extremes; its finite values
are packed together and swept again, so the ordinary path has no test for them at all.

Importing this module imports numba; nothing else in the package does. All compiled functions live in one file on
purpose: numba's disk cache looks at the file of the outermost function only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import carray

from .wordcode import address_of, cell_of, largest, like, magnitude, ordered, parts_reached, plus, prefetch

BLOCK = 2048
"""Elements of a block: with its cell indices and the tables it fits a first-level cache of 32 KiB, float64 too."""

STRIPE = 256
"""Elements that are swept between two bursts of prefetching."""

AHEAD = 4096
"""Distance of prefetching in bytes: the next page, which the processor's own prefetching would stop short of."""

TABLES = 4
"""Counting tables that are filled in turn."""

TABLE_GAP = 80
"""Unused counters between tables: at a distance of a multiple of 4 KiB a store would hold up loads of the next table."""

SMALL = 2048
"""Up to so many elements a chunk is counted straight into its bins; clearing and folding tables would cost more."""

WORD, BFLOAT16, FLOAT16 = 0, 1, 2
"""Kinds of data: as wide as the kernel's words, and the two that the 32-bit kernel widens to float32."""

FINITE, ZEROS, NAN, POSINF, NEGINF, MINIMUM, MAXIMUM, TOTAL, SQUARES, MEAN, DEVIATION, WIDTH = range(12)
"""Columns of a record, and their number. All are float64: counts of one chunk are exact in it."""

NO_GRID, BY_CELL, BY_SEARCH = 0, 1, 2
"""Ways of counting: not at all, by table cell, by searching the thresholds."""

GRID_MODE, GRID_CENTRE, GRID_PART_BITS, GRID_ROUNDS, GRID_CELLS, GRID_HEADER = range(6)
"""Layout of the integer description of a grid: five numbers, then mantissa thresholds or magnitude thresholds."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _part(**options: object) -> Callable[[_Function], _Function]:
    """Compile as a part of the kernel that calls it."""
    return cast(Callable[[_Function], _Function], numba.njit(nogil=True, **options))


def _kernel(function: _Function) -> _Function:
    """Compile at the first call; keep the machine code on disk, beside this file or else in the user's cache folder."""
    try:
        return cast(_Function, numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # Neither folder can be written: compile in every process anew.
        return cast(_Function, numba.njit(nogil=True)(function))


@_part()
def _extremes(words: Any, infinity: Any) -> Any:
    """Return the least and greatest ordered bits, and the number of zeros, of a block."""
    least, greatest, zeros = largest(infinity), like(~largest(infinity), infinity), like(0, infinity)
    for index in range(words.size):
        word = words[index]
        least = min(least, ordered(word))
        greatest = max(greatest, ordered(word))
        zeros = plus(zeros, magnitude(word) == 0)
    return least, greatest, zeros


@_part()
def _extremes_and_cells(words: Any, infinity: Any, cells: Any, part_bits: Any, cut0: Any, cut1: Any, cut2: Any) -> Any:
    """Do what :func:`_extremes` does and name the cell of every element, as far as three mantissa thresholds go."""
    least, greatest, zeros = largest(infinity), like(~largest(infinity), infinity), like(0, infinity)
    for index in range(words.size):
        word = words[index]
        least = min(least, ordered(word))
        greatest = max(greatest, ordered(word))
        zeros = plus(zeros, magnitude(word) == 0)
        cells[index] = np.uint16(plus(cell_of(word, part_bits), parts_reached(word, cut0, cut1, cut2)))
    return least, greatest, zeros


@_part()
def _refine_cells(words: Any, cells: Any, cut0: Any, cut1: Any, cut2: Any) -> None:
    """Take three more mantissa thresholds into account."""
    for index in range(words.size):
        cells[index] += np.uint16(parts_reached(words[index], cut0, cut1, cut2))


# Sums may be reassociated, or they would not vectorise. NaN and infinity keep their meaning.
@_part(fastmath={"reassoc", "nsz", "contract"})
def _sums(values: Any) -> Any:
    """Return sum and sum of squares of a block, in float64."""
    total = 0.0
    squares = 0.0
    for index in range(values.size):
        value = np.float64(values[index])
        total += value
        squares += value * value
    return total, squares


@_part(fastmath={"reassoc", "nsz", "contract"})
def _deviations(values: Any, mean: Any) -> Any:
    """Return sum and sum of squares of the distances from ``mean``."""
    total = 0.0
    squares = 0.0
    for index in range(values.size):
        distance = np.float64(values[index]) - mean
        total += distance
        squares += distance * distance
    return total, squares


@_part()
def _count_cells(cells: Any, length: Any, tables: Any) -> None:
    """Add one to the cell of every element, in the four tables in turn."""
    table0, table1, table2, table3 = tables[0], tables[1], tables[2], tables[3]
    one = np.uint32(1)
    whole = length & ~3
    for index in range(0, whole, 4):
        table0[cells[index]] += one
        table1[cells[index + 1]] += one
        table2[cells[index + 2]] += one
        table3[cells[index + 3]] += one
    for index in range(whole, length):
        table0[cells[index]] += one


@_part()
def _fold_tables(tables: Any, cell_count: Any, bins_of_cells: Any, bins: Any) -> None:
    """Move what the tables counted into the bins and clear them."""
    table0, table1, table2, table3 = tables[0], tables[1], tables[2], tables[3]
    for cell in range(cell_count):
        count = np.int64(table0[cell]) + np.int64(table1[cell]) + np.int64(table2[cell]) + np.int64(table3[cell])
        if count:
            bins[bins_of_cells[cell]] += count
    tables[:] = np.uint32(0)


@_part()
def _count_by_search(words: Any, thresholds: Any, centre: Any, bins: Any) -> None:
    """Count a block by binary search among the thresholds; for grids that have no cells."""
    for index in range(words.size):
        bits = np.int64(magnitude(words[index]))
        low = 0
        high = thresholds.size
        while low < high:
            middle = (low + high) >> 1
            if thresholds[middle] <= bits:
                low = middle + 1
            else:
                high = middle
        bins[centre + low if words[index] >= 0 else centre - low] += 1


@_part()
def _add_moments(values: Any, total: Any, squares: Any, record: Any) -> None:
    """Join the moments of a block of finite values to the record, by Chan's update."""
    count = float(values.size)
    mean = total / count
    deviation = squares - total * mean
    # The difference is good as long as it keeps its leading bits; the negated test is also true for NaN.
    if not deviation * 16.0 >= squares or squares == np.inf:
        distance, deviation = _deviations(values, mean)
        deviation = max(deviation - distance * distance / count, 0.0)
        mean += distance / count
    before = record[FINITE]
    if before:
        distance = mean - record[MEAN]
        weight = count / (before + count)
        mean = record[MEAN] + distance * weight
        deviation += record[DEVIATION] + distance * (distance * weight) * before
    record[FINITE] += count
    record[TOTAL] += total
    record[SQUARES] += squares
    record[MEAN] = mean
    record[DEVIATION] = deviation


@_part()
def _prefetch(address: Any, size: Any) -> None:
    """Ask for ``size`` bytes at an address; one that is not mapped does no harm."""
    for offset in range(0, size, 64):
        prefetch(address + offset)


@_part()
def _sweep(words: Any, values: Any, infinity: Any, plan: Any, ahead: Any) -> Any:
    """Sweep a block in stripes: ordered extremes, zeros, sum and sum of squares; cells are named on the way.

    ``ahead`` is the address to prefetch from, or 0.
    """
    grid, _, cells, _, _ = plan
    least, greatest, zeros = largest(infinity), like(~largest(infinity), infinity), like(0, infinity)
    total = 0.0
    squares = 0.0
    for start in range(0, words.size, STRIPE):
        stop = min(start + STRIPE, words.size)
        stripe = words[start:stop]
        if ahead:
            _prefetch(ahead + start * words.itemsize, STRIPE * words.itemsize)
        if grid[GRID_MODE] == BY_CELL:
            at = GRID_HEADER
            stripe_least, stripe_greatest, stripe_zeros = _extremes_and_cells(
                stripe, infinity, cells[start:stop], grid[GRID_PART_BITS], grid[at], grid[at + 1], grid[at + 2]
            )
            for _ in range(1, grid[GRID_ROUNDS]):
                at += 3
                _refine_cells(stripe, cells[start:stop], grid[at], grid[at + 1], grid[at + 2])
        else:
            stripe_least, stripe_greatest, stripe_zeros = _extremes(stripe, infinity)
        stripe_total, stripe_squares = _sums(values[start:stop])
        least = min(least, stripe_least)
        greatest = max(greatest, stripe_greatest)
        zeros = plus(zeros, stripe_zeros)
        total += stripe_total
        squares += stripe_squares
    return least, greatest, zeros, total, squares


@_part()
def _add_finite(words: Any, values: Any, infinity: Any, plan: Any, into: Any, ahead: Any) -> Any:
    """Add a block to the record and the bins; if it is not all finite, add nothing and return False."""
    grid, bins_of_cells, cells, by_table, tables = plan
    record, bins, extremes = into
    least, greatest, zeros, total, squares = _sweep(words, values, infinity, plan, ahead)
    if greatest >= infinity or least <= ~infinity:
        return False
    if grid[GRID_MODE] == BY_SEARCH:
        _count_by_search(words, grid[GRID_HEADER:], grid[GRID_CENTRE], bins)
    elif by_table:
        _count_cells(cells, words.size, tables)
    elif grid[GRID_MODE] == BY_CELL:
        for index in range(words.size):
            bins[bins_of_cells[cells[index]]] += 1
    extremes[0] = min(extremes[0], least)
    extremes[1] = max(extremes[1], greatest)
    record[ZEROS] += zeros
    _add_moments(values, total, squares, record)
    return True


@_part()
def _pack_finite(words: Any, infinity: Any, packed: Any, record: Any) -> Any:
    """Copy the finite words of a block to the front of ``packed``, count the others, return how many were copied."""
    kept = 0
    for index in range(words.size):
        word = words[index]
        if magnitude(word) < infinity:
            packed[kept] = word
            kept += 1
        elif magnitude(word) > infinity:
            record[NAN] += 1.0
        elif word >= 0:
            record[POSINF] += 1.0
        else:
            record[NEGINF] += 1.0
    return kept


@_part()
def _add_block(words: Any, values: Any, infinity: Any, scratch: Any, plan: Any, into: Any, ahead: Any) -> None:
    """Add a block of any values; ``scratch`` is a block of words and may be where this one lies."""
    packed, packed_values = scratch
    while words.size and not _add_finite(words, values, infinity, plan, into, ahead):
        kept = _pack_finite(words, infinity, packed, into[0])
        words, values, ahead = packed[:kept], packed_values[:kept], 0


@_part()
def _finish(extremes: Any, extreme_values: Any, record: Any) -> None:
    """Put the extremes of a chunk into its record, as values; a zero becomes +0.0."""
    if record[FINITE] > 0.0:
        for side in range(2):
            extremes[side] = ordered(extremes[side])
            record[MINIMUM + side] = np.float64(extreme_values[side]) + 0.0


@_part()
def _widen_bfloat16(halves: Any, words: Any) -> None:
    """Write the float32 bits of bfloat16 values: the same bits, 16 places higher."""
    for index in range(halves.size):
        words[index] = np.int32(np.int32(halves[index]) << np.int32(16))


@_part()
def _widen_float16(halves: Any, words: Any, values: Any) -> None:
    """Write the float32 bits of float16 values; ``words`` and ``values`` are one memory.

    A subnormal is written as a small normal, from which an offset is taken again. No subnormal float32 occurs on the
    way, so it does not matter whether the thread flushes these.
    """
    offset = np.float32(2.0**-14)
    for index in range(halves.size):
        bits = np.int32(np.int32(halves[index]) & np.int32(0x7FFF))
        # The exponent field is biased by 15 in float16 and by 127 in float32; 31 means infinity or NaN in both.
        bias = np.int32(112 << 23)
        if bits < np.int32(0x0400):
            bias = np.int32(113 << 23)
        if bits >= np.int32(0x7C00):
            bias = np.int32(224 << 23)
        words[index] = np.int32(np.int32(bits << np.int32(13)) + bias)
    for index in range(halves.size):
        value = values[index]
        if np.int32(np.int32(halves[index]) & np.int32(0x7FFF)) < np.int32(0x0400):
            value = np.float32(value - offset)
        values[index] = value
    for index in range(halves.size):
        sign = np.int32(np.int32(halves[index]) & np.int32(-0x8000))
        words[index] = np.int32(words[index] | np.int32(sign << np.int32(16)))


@_kernel
def run32(jobs: Any, first: Any, last: Any, grid: Any, bins_of_cells: Any, records: Any, all_bins: Any) -> None:
    """Reduce the chunks ``first`` .. ``last - 1`` of ``jobs``.

    Args:
        jobs: int64, a row a chunk: address of its contiguous data, number of elements, kind (:data:`WORD` ...).
        first: First row.
        last: Row to stop before.
        grid: int64, laid out as :data:`GRID_MODE` and its neighbours say.
        bins_of_cells: uint16, the bin of every cell; empty unless counted by cell.
        records: float64, zeros; a row of :data:`WIDTH` numbers a chunk, filled here.
        all_bins: int64, zeros; a row of bins a chunk, filled here.
    """
    infinity = np.int32(0x7F800000)
    packed = np.empty(BLOCK, np.int32)
    scratch = (packed, packed.view(np.float32))
    extremes = np.empty(2, np.int32)
    cells = np.empty(BLOCK, np.uint16)
    tables = np.zeros((TABLES, 1), np.uint32)
    for job in range(first, last):
        length, kind = jobs[job, 1], jobs[job, 2]
        by_table = grid[GRID_MODE] == BY_CELL and length > SMALL
        if by_table and tables.shape[1] == 1:
            tables = np.zeros((TABLES, grid[GRID_CELLS] + TABLE_GAP), np.uint32)
        extremes[0], extremes[1] = largest(infinity), ~largest(infinity)
        plan = (grid, bins_of_cells, cells, by_table, tables)
        into = (records[job], all_bins[job], extremes)
        words = carray(address_of(jobs[job, 0]), length, np.int32)
        values = carray(address_of(jobs[job, 0]), length, np.float32)
        halves = carray(address_of(jobs[job, 0]), length, np.int16)
        for start in range(0, length, BLOCK):
            stop = min(start + BLOCK, length)
            block, block_values, ahead = scratch[0][: stop - start], scratch[1][: stop - start], 0
            if kind == WORD:
                block, block_values = words[start:stop], values[start:stop]
                ahead = jobs[job, 0] + 4 * start + AHEAD
            elif kind == BFLOAT16:
                _widen_bfloat16(halves[start:stop], block)
            else:
                _widen_float16(halves[start:stop], block, block_values)
            _add_block(block, block_values, infinity, scratch, plan, into, ahead)
        if by_table:
            _fold_tables(tables, grid[GRID_CELLS], bins_of_cells, into[1])
        _finish(extremes, extremes.view(np.float32), into[0])


@_kernel
def run64(jobs: Any, first: Any, last: Any, grid: Any, bins_of_cells: Any, records: Any, all_bins: Any) -> None:
    """Do what :func:`run32` does, for float64 data; the kind of a job is not looked at."""
    infinity = np.int64(0x7FF0000000000000)
    packed = np.empty(BLOCK, np.int64)
    scratch = (packed, packed.view(np.float64))
    extremes = np.empty(2, np.int64)
    cells = np.empty(BLOCK, np.uint16)
    tables = np.zeros((TABLES, 1), np.uint32)
    for job in range(first, last):
        length = jobs[job, 1]
        by_table = grid[GRID_MODE] == BY_CELL and length > SMALL
        if by_table and tables.shape[1] == 1:
            tables = np.zeros((TABLES, grid[GRID_CELLS] + TABLE_GAP), np.uint32)
        extremes[0], extremes[1] = largest(infinity), ~largest(infinity)
        plan = (grid, bins_of_cells, cells, by_table, tables)
        into = (records[job], all_bins[job], extremes)
        words = carray(address_of(jobs[job, 0]), length, np.int64)
        values = carray(address_of(jobs[job, 0]), length, np.float64)
        for start in range(0, length, BLOCK):
            stop = min(start + BLOCK, length)
            ahead = jobs[job, 0] + 8 * start + AHEAD
            _add_block(words[start:stop], values[start:stop], infinity, scratch, plan, into, ahead)
        if by_table:
            _fold_tables(tables, grid[GRID_CELLS], bins_of_cells, into[1])
        _finish(extremes, extremes.view(np.float64), into[0])
