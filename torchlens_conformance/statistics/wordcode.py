"""Integer operations on the bits of a float that keep the width of the word, for the compiled kernel.

numba widens every integer operation to 64 bits; on 32-bit words that would halve the number of elements in a vector
register. These intrinsics emit the operation at the word's own width, with constants that follow from the width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.extending import intrinsic


def _word_operation(word: Any, others: tuple[Any, ...], build: Callable[..., Any]) -> Any:
    """Return signature and generator of an operation that takes and gives words; the others are cast to words."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = [context.cast(builder, value, kind, word) for value, kind in zip(arguments, signature.args)]
        return build(builder, *values)

    return word(word, *others), generate


def _largest(builder: Any, word: Any) -> Any:
    del builder
    return word.type((1 << (word.type.width - 1)) - 1)


def _mantissa_bits(word: Any) -> int:
    return 23 if word.type.width == 32 else 52


def _magnitude(builder: Any, word: Any) -> Any:
    return builder.and_(word, _largest(builder, word))


def _ordered(builder: Any, word: Any) -> Any:
    sign = builder.ashr(word, word.type(word.type.width - 1))
    return builder.xor(word, builder.and_(sign, _largest(builder, word)))


def _cell(builder: Any, word: Any, part_bits: Any) -> Any:
    return builder.shl(builder.lshr(word, word.type(_mantissa_bits(word))), part_bits)


def _parts_reached(builder: Any, word: Any, *thresholds: Any) -> Any:
    mantissa = builder.and_(word, word.type((1 << _mantissa_bits(word)) - 1))
    reached = [builder.zext(builder.icmp_signed(">=", mantissa, cut), word.type) for cut in thresholds]
    return builder.add(builder.add(reached[0], reached[1]), reached[2])


@intrinsic  # type: ignore[untyped-decorator]
def like(typingctx: Any, value: Any, word: Any) -> Any:
    """Cast ``value`` to the type of ``word``."""
    del typingctx

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.cast(builder, arguments[0], signature.args[0], signature.return_type)

    return word(value, word), generate


@intrinsic  # type: ignore[untyped-decorator]
def plus(typingctx: Any, word: Any, other: Any) -> Any:
    """Add two words, or a word and a truth value."""
    del typingctx
    return _word_operation(word, (other,), lambda builder, left, right: builder.add(left, right))


@intrinsic  # type: ignore[untyped-decorator]
def largest(typingctx: Any, word: Any) -> Any:
    """Return the largest word: every bit but the sign."""
    del typingctx
    return _word_operation(word, (), _largest)


@intrinsic  # type: ignore[untyped-decorator]
def magnitude(typingctx: Any, word: Any) -> Any:
    """Return the bits of the absolute value."""
    del typingctx
    return _word_operation(word, (), _magnitude)


@intrinsic  # type: ignore[untyped-decorator]
def ordered(typingctx: Any, word: Any) -> Any:
    """Return an integer that grows with the float's value, -0.0 just below +0.0; applied twice it gives the bits back.

    -infinity becomes ``~infinity_bits``, NaNs lie beyond the infinities on both sides.
    """
    del typingctx
    return _word_operation(word, (), _ordered)


@intrinsic  # type: ignore[untyped-decorator]
def cell_of(typingctx: Any, word: Any, part_bits: Any) -> Any:
    """Return sign and exponent field, moved up by ``part_bits``."""
    del typingctx
    return _word_operation(word, (part_bits,), _cell)


@intrinsic  # type: ignore[untyped-decorator]
def parts_reached(typingctx: Any, word: Any, cut0: Any, cut1: Any, cut2: Any) -> Any:
    """Return how many of three thresholds the mantissa reaches."""
    del typingctx
    return _word_operation(word, (cut0, cut1, cut2), _parts_reached)


@intrinsic  # type: ignore[untyped-decorator]
def address_of(typingctx: Any, address: Any) -> Any:
    """Turn an integer address into a pointer, for ``numba.carray``."""
    del typingctx

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.voidptr(address), generate
