"""Small immutable values for the inside of points (POINT-2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, Union

from .refusals import Refusal, short_repr

Frozen: TypeAlias = Union[bool, int, float, str, bytes, "FrozenMapping", tuple["Frozen", ...], None]
"""What may stand inside a point: plain scalars, text, bytes, tuples and frozen mappings of these."""


class FrozenMapping(Mapping[str, Frozen]):
    """An immutable, hashable, picklable mapping with text keys; insertion order is kept.

    ``types.MappingProxyType`` would not do: it cannot be pickled, and it shows later changes of the dictionary below.

    Clause: POINT-2.
    """

    __slots__ = ("_items",)
    _items: dict[str, Frozen]

    def __init__(self, items: Mapping[str, object] | None = None) -> None:
        """Copy and freeze ``items``; raises ``point_field_invalid`` for what cannot be frozen."""
        frozen = {_key(key): freeze(value) for key, value in (items or {}).items()}
        object.__setattr__(self, "_items", frozen)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __getitem__(self, key: str) -> Frozen:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return f"FrozenMapping({self._items!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (FrozenMapping, (dict(self._items),))


def freeze(value: object) -> Frozen:
    """Return an immutable copy of ``value``.

    Mappings become :class:`FrozenMapping`, lists and tuples become tuples; None, bool, int, float, str and bytes stay.
    Raises ``point_field_invalid`` for anything else (a tensor or an array, say).

    Clause: POINT-1, POINT-2.
    """
    if value is None or type(value) in (bool, int, float, str, bytes, FrozenMapping):
        return value  # type: ignore[return-value]
    if isinstance(value, Mapping):
        return FrozenMapping(value)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return tuple(freeze(item) for item in value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, bytes):
        return bytes(value)
    raise Refusal(
        "point_field_invalid",
        f"A point cannot hold an object of type {type(value).__name__}.",
        remedy="Convert it to numbers, text, bytes, lists or mappings first.",
        type=type(value).__name__,
    )


def plain_text(value: str) -> str:
    """Return the characters of ``value`` as an exact ``str``.

    ``str(value)`` would not do: a member of a text enumeration gives its name in place of its characters.
    """
    return str.__str__(value)


def _key(key: object) -> str:
    if isinstance(key, str):
        return plain_text(key)
    raise Refusal(
        "point_field_invalid",
        "Mappings inside a point have text keys only.",
        remedy="Convert the key with str().",
        key=short_repr(key),
    )
