"""The compiled kernel: one sweep over memory.

Every chunk of a tensor is worked through in blocks of :data:`BLOCK` elements, and a block in stripes of
:data:`STRIPE`. A stripe is loaded from memory once, while the next page is being prefetched, and swept by short
loops, each of a shape that the compiler vectorises:

1. integers: extremes, zeros and the histogram cell of every element, all on the float's own bits;
2. floats: sum and sum of squares in float64.

Then the cells of the block are counted: one increment an element, into four tables in turn, so that equal neighbours do
not wait for each other. Only when the sums would cancel does a further sweep go around the block's own mean. Blocks are
joined by Chan's update. A block that holds a NaN or an infinity is found by its extremes; its finite values are packed
together and swept again, so the ordinary path has no test for them at all.

Importing this module imports numba. All compiled functions live in one file on purpose: numba's disk cache looks at the
file of the outermost function only, so after a change of ``wordcode`` this file has to be touched.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import carray

from .wordcode import address_of, cell_of, largest, like, magnitude, ordered, parts_reached, plus, prefetch

BLOCK = 8192
"""Elements of a block: its cell indices and the tables' busy part fit a first-level cache of 32 KiB."""

STRIPE = 256
"""Elements that are swept between two bursts of prefetching."""

AHEAD = 4096
"""Distance of prefetching in bytes: the next page, which the processor's own prefetching would stop short of."""

TABLES = 4
"""Counting tables that are filled in turn."""

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


@_part()
def _extremes(words: Any, start: Any, stop: Any, infinity: Any) -> Any:
    """Return the least and greatest ordered bits, and the number of zeros, of a stripe."""
    least, greatest, zeros = largest(infinity), like(~largest(infinity), infinity), like(0, infinity)
    for index in range(start, stop):
        word = words[index]
        least = min(least, ordered(word))
        greatest = max(greatest, ordered(word))
        zeros = plus(zeros, magnitude(word) == 0)
    return least, greatest, zeros


@_part()
def _extremes_and_cells(words: Any, start: Any, stop: Any, infinity: Any, cells: Any, base: Any, grid: Any) -> Any:
    """Do what :func:`_extremes` does and name the cell of every element, as far as three mantissa thresholds go."""
    least, greatest, zeros = largest(infinity), like(~largest(infinity), infinity), like(0, infinity)
    part_bits = grid[GRID_PART_BITS]
    cut0, cut1, cut2 = grid[GRID_HEADER], grid[GRID_HEADER + 1], grid[GRID_HEADER + 2]
    for index in range(start, stop):
        word = words[index]
        least = min(least, ordered(word))
        greatest = max(greatest, ordered(word))
        zeros = plus(zeros, magnitude(word) == 0)
        cells[index - base] = np.uint16(plus(cell_of(word, part_bits), parts_reached(word, cut0, cut1, cut2)))
    return least, greatest, zeros


@_part()
def _refine_cells(words: Any, start: Any, stop: Any, cells: Any, base: Any, grid: Any) -> None:
    """Take all further mantissa thresholds into account, three at a time."""
    for at in range(GRID_HEADER + 3, GRID_HEADER + 3 * grid[GRID_ROUNDS], 3):
        cut0, cut1, cut2 = grid[at], grid[at + 1], grid[at + 2]
        for index in range(start, stop):
            cells[index - base] += np.uint16(parts_reached(words[index], cut0, cut1, cut2))


# Sums may be reassociated, or they would not vectorise. NaN and infinity keep their meaning.
@_part(fastmath={"reassoc", "nsz", "contract"})
def _sums(values: Any, start: Any, stop: Any) -> Any:
    """Return sum and sum of squares of a stripe, in float64."""
    total = 0.0
    squares = 0.0
    for index in range(start, stop):
        value = np.float64(values[index])
        total += value
        squares += value * value
    return total, squares


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
def _count_into_tables(cells: Any, length: Any, tables: Any) -> None:
    """Add one to the cell of every element, in the four tables in turn."""
    table0, table1, table2, table3 = tables[0], tables[1], tables[2], tables[3]
    one = np.uint32(1)
    for index in range(0, length & ~3, 4):
        table0[cells[index]] += one
        table1[cells[index + 1]] += one
        table2[cells[index + 2]] += one
        table3[cells[index + 3]] += one
    for index in range(length & ~3, length):
        table0[cells[index]] += one


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
def _add_block(words: Any, values: Any, start: Any, stop: Any, infinity: Any, ahead: Any, plan: Any, into: Any) -> Any:
    """Add a block to the record and the bins; if it is not all finite, add nothing and return False.

    ``ahead`` is the address to prefetch from, or 0.
    """
    grid, bins_of_cells, cells, by_table, tables = plan
    record, all_bins, job, extremes = into
    least, greatest, zeros = largest(infinity), like(~largest(infinity), infinity), like(0, infinity)
    total = 0.0
    squares = 0.0
    for begin in range(start, stop, np.uint64(STRIPE)):
        end = min(begin + np.uint64(STRIPE), stop)
        if ahead:
            for line in range(0, STRIPE * words.itemsize, 64):
                prefetch(ahead + line)
            ahead += STRIPE * words.itemsize
        if grid[GRID_MODE] == BY_CELL:
            stripe = _extremes_and_cells(words, begin, end, infinity, cells, start, grid)
            if grid[GRID_ROUNDS] > 1:
                _refine_cells(words, begin, end, cells, start, grid)
        else:
            stripe = _extremes(words, begin, end, infinity)
        least, greatest, zeros = min(least, stripe[0]), max(greatest, stripe[1]), plus(zeros, stripe[2])
        sums = _sums(values, begin, end)
        total += sums[0]
        squares += sums[1]
    if greatest >= infinity or least <= ~infinity:
        return False
    length = np.int64(stop - start)
    if grid[GRID_MODE] == BY_SEARCH:
        _count_by_search(words, start, stop, grid, all_bins, job)
    elif by_table:
        _count_into_tables(cells, length, tables)
    elif grid[GRID_MODE] == BY_CELL:
        for index in range(length):
            all_bins[job, bins_of_cells[cells[index]]] += 1
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
        all_bins: int64, zeros; a row of bins a chunk, filled here.
    """
    infinity = np.int32(0x7F800000)
    zero = np.uint64(0)
    packed = np.empty(BLOCK, np.int32)
    packed_values = packed.view(np.float32)
    extremes = np.empty(2, np.int32)
    cells = np.empty(BLOCK, np.uint16)
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
                ahead = address + 4 * np.int64(start) + AHEAD
                if not _add_block(words, values, start, stop, infinity, ahead, plan, into):
                    kept = np.uint64(_pack_finite(words, start, stop, infinity, packed, record))
                    if kept:
                        _add_block(packed, packed_values, zero, kept, infinity, 0 * ahead, plan, into)
                continue
            if kind == BFLOAT16:
                _widen_bfloat16(halves, start, stop, packed)
            else:
                _widen_float16(halves, start, stop, packed, packed_values)
            kept = stop - start
            while kept and not _add_block(packed, packed_values, zero, kept, infinity, 0 * address, plan, into):
                kept = np.uint64(_pack_finite(packed, zero, kept, infinity, packed, record))
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
    cells = np.empty(BLOCK, np.uint16)
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
            ahead = address + 8 * np.int64(start) + AHEAD
            if not _add_block(words, values, start, stop, infinity, ahead, plan, into):
                kept = np.uint64(_pack_finite(words, start, stop, infinity, packed, record))
                if kept:
                    _add_block(packed, packed_values, zero, kept, infinity, 0 * ahead, plan, into)
        if by_table:
            _fold_tables(tables, grid[GRID_CELLS], bins_of_cells, all_bins, job)
        if record[FINITE]:
            for side in range(2):
                word = ordered(extremes[side])
                extremes[side] = word
                if magnitude(word):  # A zero stays +0.0.
                    record[MINIMUM + side] = extremes.view(np.float64)[side]
