"""The compiled kernel: one sweep over memory.

Every chunk of a tensor is worked through in blocks of :data:`BLOCK` elements. A block is loaded from memory once and
swept by the vector code of ``sweepcode``: extremes, zeros, sum, sum of squares, and the histogram cell of every element
with one increment each, into four tables in turn. Only when the sums would cancel does a further sweep go around the
block's own mean. Blocks are joined by Chan's update. A block that holds a NaN or an infinity is found by its extremes;
its finite values are packed together and swept again, so the ordinary path has no test for them at all. Cells of
infinities and NaNs are counted like others, into a bin that is dropped.

Importing this module imports numba. All compiled functions live in one file on purpose: numba's disk cache looks at the
file of the outermost function only, so after a change of ``wordcode`` or ``sweepcode`` this file has to be touched.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import carray

from .sweepcode import LINE, TABLES, sweep, sweep_cells, sweep_counting
from .wordcode import address_of, cell_of, largest, like, magnitude, ordered, parts_reached, plus

BLOCK = 8192
"""Elements of a block: its cell indices and the tables' busy part fit a first-level cache of 32 KiB."""

LEAD = LINE // 4
"""Cells in front of those of a block, for the first line of :func:`~.sweepcode.sweep_counting`."""

TABLE_GAP = 80
"""Unused counters between tables: a multiple of 4 KiB apart, a store into one would hold up a load from the next."""

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
        compiled = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # Neither folder can be written: compile in every process anew.
        compiled = numba.njit(nogil=True)(function)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return compiled(*arguments)
        except OSError:  # The disk is full, say: the code could not be kept, but it is in memory now.
            return compiled(*arguments)

    return cast(_Function, call)


# Sums may be reassociated, or they would not vectorise. NaN and infinity keep their meaning.
@_part(fastmath={"reassoc", "nsz", "contract"})
def _deviations(values: Any, start: Any, stop: Any, mean: Any) -> Any:
    """Return sum and sum of squares of the distances from ``mean``."""
    total = 0.0
    squares = 0.0
    for index in range(start, stop):
        distance = np.float64(values[index]) - mean
        total += distance
        squares += distance * distance
    return total, squares


@_part()
def _cell(word: Any, grid: Any) -> Any:
    """Return the cell of one element."""
    cell = cell_of(word, grid[GRID_PART_BITS])
    for at in range(GRID_HEADER, GRID_HEADER + 3 * grid[GRID_ROUNDS], 3):
        cell = plus(cell, parts_reached(word, grid[at], grid[at + 1], grid[at + 2]))
    return cell


@_part()
def _tables(jobs: Any, first: Any, last: Any, grid: Any) -> Any:
    """Return cleared tables if any of the chunks is large enough to use them, else next to nothing."""
    width = 1
    for job in range(first, last):
        if jobs[job, 1] > SMALL:
            width = grid[GRID_CELLS] + TABLE_GAP
    return np.zeros((TABLES, width), np.uint32)


@_part()
def _fold_tables(tables: Any, cell_count: Any, bins_of_cells: Any, all_bins: Any, job: Any) -> None:
    """Move what the tables counted into the bins and clear them."""
    for cell in range(cell_count):
        count = np.int64(0)
        for table in range(TABLES):
            count += tables[table, cell]
            tables[table, cell] = 0
        if count:
            all_bins[job, bins_of_cells[cell]] += count


@_part()
def _count_by_search(words: Any, start: Any, stop: Any, grid: Any, all_bins: Any, job: Any) -> None:
    """Count a block by binary search among the thresholds; for grids that have no cells."""
    centre = grid[GRID_CENTRE]
    for index in range(start, stop):
        bits = np.int64(magnitude(words[index]))
        low = 0
        high = centre
        while low < high:
            middle = (low + high) >> 1
            if grid[GRID_HEADER + middle] <= bits:
                low = middle + 1
            else:
                high = middle
        all_bins[job, centre + low if words[index] >= 0 else centre - low] += 1


@_part()
def _join(record: Any, count: Any, total: Any, squares: Any, mean: Any, deviation: Any) -> None:
    """Join the moments of a block to the record, by Chan's update."""
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
def _pack_finite(words: Any, start: Any, stop: Any, infinity: Any, packed: Any, record: Any) -> Any:
    """Copy the finite words of a block to the front of ``packed``, count the others, return how many were copied."""
    kept = 0
    for index in range(start, stop):
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
def _swept(words: Any, start: Any, groups: Any, infinity: Any, plan: Any, counting: Any) -> Any:
    """Sweep whole lines of a block; name cells as far as the grid has some, and count all but the last line's."""
    grid, cells, tables = plan[0], plan[2], plan[4]
    address = np.int64(words.ctypes.data) + np.int64(start) * words.itemsize
    if grid[GRID_MODE] != BY_CELL:
        return sweep(infinity, address, groups)
    cells_at = np.int64(cells.ctypes.data) + 2 * LEAD
    cuts = np.int64(grid.ctypes.data) + 8 * GRID_HEADER
    part_bits, rounds = grid[GRID_PART_BITS], grid[GRID_ROUNDS]
    if counting:
        at, stride = np.int64(tables.ctypes.data), np.int64(tables.strides[0])
        return sweep_counting(infinity, address, groups, cells_at, part_bits, cuts, at, stride)
    return sweep_cells(infinity, address, groups, cells_at, part_bits, cuts, rounds)


@_part()
def _add_block(words: Any, values: Any, start: Any, stop: Any, infinity: Any, plan: Any, into: Any, again: Any) -> Any:
    """Add a block to the record and the bins; if it is not all finite, return False, and only tables were added to.

    ``again`` says that the elements were in such a block, so that tables have them already.
    """
    grid, bins_of_cells, cells, by_table, tables = plan
    record, all_bins, job, extremes = into
    by_table = by_table and not again
    least, greatest, zeros = largest(infinity), like(~largest(infinity), infinity), like(0, infinity)
    total = 0.0
    squares = 0.0
    length = np.int64(stop - start)
    lanes = LINE // words.itemsize
    groups = length // lanes
    counted = 0
    if groups:
        counting = by_table and grid[GRID_ROUNDS] == 1
        least, greatest, zeros, total, squares = _swept(words, start, groups, infinity, plan, counting)
        if counting:
            counted = (groups - 1) * lanes
    for place in range(groups * lanes, length):
        word = words[start + np.uint64(place)]
        least = min(least, ordered(word))
        greatest = max(greatest, ordered(word))
        zeros = plus(zeros, magnitude(word) == 0)
        value = np.float64(values[start + np.uint64(place)])
        total += value
        squares += value * value
        if grid[GRID_MODE] == BY_CELL:
            cells[LEAD + place] = np.uint16(_cell(word, grid))
    if by_table:
        for place in range(counted, length):
            tables[place & 3, cells[LEAD + place]] += np.uint32(1)
    if greatest >= infinity or least <= ~infinity:
        return False
    if grid[GRID_MODE] == BY_SEARCH:
        _count_by_search(words, start, stop, grid, all_bins, job)
    elif grid[GRID_MODE] == BY_CELL and not plan[3]:
        for place in range(length):
            all_bins[job, bins_of_cells[cells[LEAD + place]]] += 1
    extremes[0] = min(extremes[0], least)
    extremes[1] = max(extremes[1], greatest)
    record[ZEROS] += zeros
    mean = total / length
    deviation = squares - total * mean
    # The difference is good as long as it keeps its leading bits; the negated test is also true for NaN.
    if not deviation * 16.0 >= squares or squares == np.inf:
        distance, deviation = _deviations(values, start, stop, mean)
        deviation = max(deviation - distance * distance / length, 0.0)
        mean += distance / length
    _join(record, float(length), total, squares, mean, deviation)
    return True


@_part()
def _widen_bfloat16(halves: Any, start: Any, stop: Any, words: Any) -> None:
    """Write the float32 bits of bfloat16 values: the same bits, 16 places higher."""
    for index in range(start, stop):
        words[index - start] = np.int32(np.int32(halves[index]) << np.int32(16))


@_part()
def _widen_float16(halves: Any, start: Any, stop: Any, words: Any, values: Any) -> None:
    """Write the float32 bits of float16 values; ``words`` and ``values`` are one memory.

    A subnormal is written as a small normal, from which an offset is taken again. No subnormal float32 occurs on the
    way, so it does not matter whether the thread flushes these.
    """
    offset = np.float32(2.0**-14)
    for index in range(start, stop):
        bits = np.int32(np.int32(halves[index]) & np.int32(0x7FFF))
        # The exponent field is biased by 15 in float16 and by 127 in float32; 31 means infinity or NaN in both.
        bias = np.int32(112 << 23)
        if bits < np.int32(0x0400):
            bias = np.int32(113 << 23)
        if bits >= np.int32(0x7C00):
            bias = np.int32(224 << 23)
        words[index - start] = np.int32(np.int32(bits << np.int32(13)) + bias)
    for index in range(start, stop):
        value = values[index - start]
        if np.int32(np.int32(halves[index]) & np.int32(0x7FFF)) < np.int32(0x0400):
            value = np.float32(value - offset)
        values[index - start] = value
    for index in range(start, stop):
        sign = np.int32(np.int32(halves[index]) & np.int32(-0x8000))
        words[index - start] = np.int32(words[index - start] | np.int32(sign << np.int32(16)))


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
        all_bins: int64, zeros; a row a chunk, filled here: bins, and last a count of infinities and NaNs or nothing.
    """
    infinity = np.int32(0x7F800000)
    zero = np.uint64(0)
    packed = np.empty(BLOCK, np.int32)
    packed_values = packed.view(np.float32)
    extremes = np.empty(2, np.int32)
    cells = np.empty(LEAD + BLOCK, np.uint16)
    cells[:LEAD] = _cell(infinity, grid)
    tables = _tables(jobs, first, last, grid)
    for job in range(first, last):
        address, length = jobs[job, 0], np.uint64(jobs[job, 1])
        record = records[job]
        by_table = grid[GRID_MODE] == BY_CELL and length > SMALL
        extremes[0], extremes[1] = largest(infinity), ~largest(infinity)
        plan = (grid, bins_of_cells, cells, by_table, tables)
        into = (record, all_bins, job, extremes)
        words = carray(address_of(address), length, np.int32)
        values = carray(address_of(address), length, np.float32)
        halves = carray(address_of(address), length, np.int16)
        kind = jobs[job, 2]
        for start in range(zero, length, np.uint64(BLOCK)):
            stop = min(start + np.uint64(BLOCK), length)
            if kind == WORD:
                if not _add_block(words, values, start, stop, infinity, plan, into, False):
                    kept = np.uint64(_pack_finite(words, start, stop, infinity, packed, record))
                    if kept:
                        _add_block(packed, packed_values, zero, kept, infinity, plan, into, True)
                continue
            if kind == BFLOAT16:
                _widen_bfloat16(halves, start, stop, packed)
            else:
                _widen_float16(halves, start, stop, packed, packed_values)
            if not _add_block(packed, packed_values, zero, stop - start, infinity, plan, into, False):
                kept = np.uint64(_pack_finite(packed, zero, stop - start, infinity, packed, record))
                if kept:
                    _add_block(packed, packed_values, zero, kept, infinity, plan, into, True)
        if by_table:
            _fold_tables(tables, grid[GRID_CELLS], bins_of_cells, all_bins, job)
        if record[FINITE]:
            for side in range(2):
                word = ordered(extremes[side])
                extremes[side] = word
                if magnitude(word) >= 1 << 23:
                    record[MINIMUM + side] = extremes.view(np.float32)[side]
                else:  # A zero becomes +0.0; a subnormal is made from its bits, as the thread may flush it.
                    tiny = np.float64(magnitude(word)) * 2.0**-149
                    record[MINIMUM + side] = tiny if word >= 0 else 0.0 - tiny


@_kernel
def run64(jobs: Any, first: Any, last: Any, grid: Any, bins_of_cells: Any, records: Any, all_bins: Any) -> None:
    """Do what :func:`run32` does, for float64 data; the kind of a job is not looked at."""
    infinity = np.int64(0x7FF0000000000000)
    zero = np.uint64(0)
    packed = np.empty(BLOCK, np.int64)
    packed_values = packed.view(np.float64)
    extremes = np.empty(2, np.int64)
    cells = np.empty(LEAD + BLOCK, np.uint16)
    cells[:LEAD] = _cell(infinity, grid)
    tables = _tables(jobs, first, last, grid)
    for job in range(first, last):
        address, length = jobs[job, 0], np.uint64(jobs[job, 1])
        record = records[job]
        by_table = grid[GRID_MODE] == BY_CELL and length > SMALL
        extremes[0], extremes[1] = largest(infinity), ~largest(infinity)
        plan = (grid, bins_of_cells, cells, by_table, tables)
        into = (record, all_bins, job, extremes)
        words = carray(address_of(address), length, np.int64)
        values = carray(address_of(address), length, np.float64)
        for start in range(zero, length, np.uint64(BLOCK)):
            stop = min(start + np.uint64(BLOCK), length)
            if not _add_block(words, values, start, stop, infinity, plan, into, False):
                kept = np.uint64(_pack_finite(words, start, stop, infinity, packed, record))
                if kept:
                    _add_block(packed, packed_values, zero, kept, infinity, plan, into, True)
        if by_table:
            _fold_tables(tables, grid[GRID_CELLS], bins_of_cells, all_bins, job)
        if record[FINITE]:
            for side in range(2):
                word = ordered(extremes[side])
                extremes[side] = word
                if magnitude(word):  # A zero stays +0.0.
                    record[MINIMUM + side] = extremes.view(np.float64)[side]
