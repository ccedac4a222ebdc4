"""The sweep over a block as explicit vector code, for the compiled kernel.

One cache line of elements at a time, the vector units take extremes, zeros, sums and histogram cells, while the scalar
units count the cells of the line before: two kinds of work that a processor does side by side when they stand in one
loop. A compiler's own vectorising would not put them there, so the loop is written out; LLVM fits it to the processor.

Extremes are taken on the bits. For floats of one sign the bits grow with the magnitude, so three integer reductions
are enough: the largest and the smallest signed word, and the largest unsigned one.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LINE = 64
"""Bytes of a group: a cache line."""

AHEAD = 4096
"""Distance of prefetching in bytes: the next page, which the processor's own prefetching would stop short of."""

TABLES = 4
"""Counting tables that are filled in turn, so that equal neighbours do not wait for each other."""

CUTS = 3
"""Mantissa thresholds that are kept in registers; further ones are read from the grid."""

_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)


class _Lanes:
    """Vectors of one cache line of words, and operations on them.

    Args:
        builder: The builder.
        word: The integer type of a word, of 32 or 64 bits.
    """

    def __init__(self, builder: Any, word: Any) -> None:
        self.builder = builder
        self.word = word
        self.number = 8 * LINE // word.width
        self.mantissa_bits = 23 if word.width == 32 else 52
        self.words = ir.VectorType(word, self.number)
        self.values = ir.VectorType(ir.FloatType() if word.width == 32 else ir.DoubleType(), self.number)
        self.sums = ir.VectorType(ir.DoubleType(), self.number)

    def all(self, number: int) -> Any:
        """Return a constant in every lane."""
        return ir.Constant(self.words, [number] * self.number)

    def spread(self, word: Any) -> Any:
        """Return a word in every lane."""
        undefined = ir.Constant(self.words, ir.Undefined)
        first = self.builder.insert_element(undefined, word, _I32(0))
        return self.builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_I32, self.number), None))

    def narrowed(self, integer: Any) -> Any:
        """Return a 64-bit integer as a word."""
        return integer if self.word.width == 64 else self.builder.trunc(integer, self.word)

    def load(self, address: Any, kind: Any, *, align: int) -> Any:
        """Return what lies at an address."""
        loaded = self.builder.load(self.builder.inttoptr(address, kind.as_pointer()))
        loaded.align = align
        return loaded

    def choose(self, test: str, one: Any, other: Any, *, signed: bool = True) -> Any:
        """Return, lane by lane, ``one`` where it passes the test against ``other``, else ``other``."""
        compare = self.builder.icmp_signed if signed else self.builder.icmp_unsigned
        return self.builder.select(compare(test, one, other), one, other)

    def add_square(self, value: Any, total: Any) -> Any:
        """Return ``value * value + total``, fused where the processor can."""
        function = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(self.sums, [self.sums] * 3), f"llvm.fmuladd.v{self.number}f64"
        )
        return self.builder.call(function, [value, value, total])

    def joined(self, vector: Any, join: Any) -> Any:
        """Return all lanes joined to one, by halves."""
        number = self.number
        while number > 1:
            number //= 2
            places = [list(range(at, at + number)) for at in (0, number)]
            masks = [ir.Constant(ir.VectorType(_I32, number), each) for each in places]
            vector = join(*(self.builder.shuffle_vector(vector, vector, mask) for mask in masks))
        return self.builder.extract_element(vector, _I32(0))


class _Totals:
    """What is taken of every element: extremes, zeros, sum and sum of squares. Kept in vectors while the loop runs."""

    def __init__(self, lanes: _Lanes) -> None:
        largest = (1 << (lanes.word.width - 1)) - 1
        self._lanes = lanes
        self._largest = largest
        start = [lanes.all(-largest - 1), lanes.all(largest), lanes.all(0), lanes.all(0)]
        start += [ir.Constant(lanes.sums, None)] * 2
        self._kept = [cgutils.alloca_once_value(lanes.builder, value) for value in start]

    def add(self, words: Any) -> None:
        """Take a group."""
        lanes, builder = self._lanes, self._lanes.builder
        highest, lowest, farthest, zeros, total, squares = map(builder.load, self._kept)
        is_zero = builder.icmp_signed("==", builder.and_(words, lanes.all(self._largest)), lanes.all(0))
        values = builder.bitcast(words, lanes.values)
        if lanes.word.width == 32:
            values = builder.fpext(values, lanes.sums)
        found = [
            lanes.choose(">", words, highest),
            lanes.choose("<", words, lowest),
            lanes.choose(">", words, farthest, signed=False),
            builder.sub(zeros, builder.sext(is_zero, lanes.words)),
            builder.fadd(total, values),
            lanes.add_square(values, squares),
        ]
        for value, place in zip(found, self._kept):
            builder.store(value, place)

    def result(self) -> list[Any]:
        """Return least and greatest ordered bits (see ``wordcode.ordered``), zeros, sum, sum of squares."""
        lanes, builder = self._lanes, self._lanes.builder
        highest, lowest, farthest, zeros, total, squares = map(builder.load, self._kept)
        highest = lanes.joined(highest, lambda one, other: lanes.choose(">", one, other))
        lowest = lanes.joined(lowest, lambda one, other: lanes.choose("<", one, other))
        farthest = lanes.joined(farthest, lambda one, other: lanes.choose(">", one, other, signed=False))
        zero, largest = lanes.word(0), lanes.word(self._largest)
        # With a word that is not negative, the largest signed word is the greatest value; without one it is the
        # negative word of the smallest magnitude. The other way round for the least.
        greatest = builder.select(builder.icmp_signed(">=", highest, zero), highest, builder.xor(lowest, largest))
        least = builder.select(builder.icmp_signed("<", lowest, zero), builder.xor(farthest, largest), lowest)
        return [
            least,
            greatest,
            lanes.joined(zeros, builder.add),
            lanes.joined(total, builder.fadd),
            lanes.joined(squares, builder.fadd),
        ]


class _Cells:
    """Names the histogram cell of every element.

    Args:
        lanes: The vectors.
        part_bits: Bits of a cell for the part of an octave.
        cuts: Address of the mantissa thresholds, int64 each.
        rounds: How many times :data:`CUTS` thresholds there are; None for once, which needs no loop.
    """

    def __init__(self, lanes: _Lanes, part_bits: Any, cuts: Any, rounds: Any) -> None:
        builder = lanes.builder
        self._lanes = lanes
        self._part_bits = lanes.spread(lanes.narrowed(part_bits))
        self._cuts = cuts
        self._more = None if rounds is None else builder.mul(builder.sub(rounds, _I64(1)), _I64(CUTS))
        self._first = [self._cut(_I64(index)) for index in range(CUTS)]

    def of(self, words: Any) -> Any:
        """Return the cells of a group: sign and exponent, then how many thresholds the mantissa reaches."""
        lanes, builder = self._lanes, self._lanes.builder
        mantissa = builder.and_(words, lanes.all((1 << lanes.mantissa_bits) - 1))
        cells = builder.shl(builder.lshr(words, lanes.all(lanes.mantissa_bits)), self._part_bits)
        for cut in self._first:
            cells = self._add_reached(mantissa, cut, cells)
        if self._more is not None:
            kept = cgutils.alloca_once_value(builder, cells)
            with cgutils.for_range(builder, self._more) as further:
                cut = self._cut(builder.add(further.index, _I64(CUTS)))
                builder.store(self._add_reached(mantissa, cut, builder.load(kept)), kept)
            cells = builder.load(kept)
        return builder.trunc(cells, ir.VectorType(_I16, lanes.number))

    def _cut(self, index: Any) -> Any:
        lanes, builder = self._lanes, self._lanes.builder
        address = builder.add(self._cuts, builder.mul(index, _I64(8)))
        return lanes.spread(lanes.narrowed(lanes.load(address, _I64, align=8)))

    def _add_reached(self, mantissa: Any, cut: Any, cells: Any) -> Any:
        reached = self._lanes.builder.icmp_signed(">=", mantissa, cut)
        return self._lanes.builder.sub(cells, self._lanes.builder.sext(reached, self._lanes.words))


def _count(lanes: _Lanes, cells: Any, tables: list[Any]) -> None:
    """Add one to the counter of every cell of the group that is stored at ``cells``, in the tables in turn."""
    builder = lanes.builder
    for at in range(0, lanes.number, TABLES):
        four = lanes.load(builder.add(cells, _I64(2 * at)), _I64, align=2)
        for place, table in enumerate(tables):
            cell = builder.and_(builder.lshr(four, _I64(16 * place)), _I64(0xFFFF))
            counter = builder.gep(table, [cell])
            builder.store(builder.add(builder.load(counter), _I32(1)), counter)


def _prefetch(lanes: _Lanes, address: Any) -> None:
    """Ask the processor to load a cache line."""
    pointer = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, _I32, _I32, _I32])
    function = lanes.builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
    read, keep_near, data = _I32(0), _I32(3), _I32(1)
    lanes.builder.call(function, [lanes.builder.inttoptr(address, pointer), read, keep_near, data])


def _sweep(word: Any, *, with_cells: bool, counting: bool) -> Any:
    """Return signature and generator of a sweep over words of the numba type ``word``."""
    result = types.Tuple((word, word, word, types.float64, types.float64))  # type: ignore[attr-defined]
    given = [word, types.int64, types.int64]
    given += [types.int64] * 3 if with_cells else []
    given += [types.int64] * (2 if counting else 1) if with_cells else []

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, groups = arguments[1:3]
        lanes = _Lanes(builder, context.get_value_type(word))
        totals = _Totals(lanes)
        if with_cells:
            cells_at = arguments[3]
            part_bits, cuts = arguments[4:6]
            cells = _Cells(lanes, part_bits, cuts, None if counting else arguments[6])
        if counting:
            first, stride = arguments[6:8]
            at = [builder.add(first, builder.mul(stride, _I64(index))) for index in range(TABLES)]
            tables = [builder.inttoptr(table, _I32.as_pointer()) for table in at]
        with cgutils.for_range(builder, groups) as group:
            here = builder.add(address, builder.mul(group.index, _I64(LINE)))
            _prefetch(lanes, builder.add(here, _I64(AHEAD)))
            words = lanes.load(here, lanes.words, align=word.bitwidth // 8)
            totals.add(words)
            if with_cells:
                place = builder.add(cells_at, builder.mul(group.index, _I64(2 * lanes.number)))
                found = cells.of(words)
                stored = builder.store(found, builder.inttoptr(place, found.type.as_pointer()))
                stored.align = 2
                if counting:
                    _count(lanes, builder.sub(place, _I64(2 * lanes.number)), tables)
        return context.make_tuple(builder, signature.return_type, totals.result())

    return result(*given), generate


@intrinsic  # type: ignore[untyped-decorator]
def sweep(typingctx: Any, like: Any, address: Any, groups: Any) -> Any:
    """Sweep ``groups`` cache lines at ``address``, whose words have the type of ``like``.

    Returns least and greatest ordered bits, zeros, sum and sum of squares. At least one group.
    """
    del typingctx, address, groups
    return _sweep(like, with_cells=False, counting=False)


@intrinsic  # type: ignore[untyped-decorator]
def sweep_cells(
    typingctx: Any, like: Any, address: Any, groups: Any, cells: Any, part_bits: Any, cuts: Any, rounds: Any
) -> Any:
    """Do what :func:`sweep` does and write the cells of all elements, uint16, to the address ``cells``.

    ``cuts`` is the address of the mantissa thresholds, ``rounds`` how many times :data:`CUTS` there are.
    """
    del typingctx, address, groups, cells, part_bits, cuts, rounds
    return _sweep(like, with_cells=True, counting=False)


@intrinsic  # type: ignore[untyped-decorator]
def sweep_counting(
    typingctx: Any,
    like: Any,
    address: Any,
    groups: Any,
    cells: Any,
    part_bits: Any,
    cuts: Any,
    tables: Any,
    stride: Any,
) -> Any:
    """Do what :func:`sweep_cells` does in one round and count, line by line, the cells of the line before.

    So the line in front of ``cells`` is counted as well, and the last one that is written is not. ``tables`` is the
    address of :data:`TABLES` tables of uint32, ``stride`` their distance in bytes.
    """
    del typingctx, address, groups, cells, part_bits, cuts, tables, stride
    return _sweep(like, with_cells=True, counting=True)
