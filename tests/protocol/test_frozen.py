"""Frozen mappings: the inside of points."""

from __future__ import annotations

import array
import copy
import enum
import math
import pickle
import types
from collections import OrderedDict, UserDict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlens_conformance.protocol import FrozenMapping, Refusal, freeze

from ..reference_sinks.jsonl_points import mappings_of, plain


class Colour(str, enum.Enum):
    """A text enumeration, whose ``str()`` is not its text."""

    RED = "red"


def refused(value: object) -> Refusal:
    """Return the refusal to freeze ``value``."""
    with pytest.raises(Refusal) as caught:
        freeze(value)
    assert caught.value.code == "point_field_invalid"
    return caught.value


@settings(deadline=None, max_examples=60)
@given(plain)
def test_freezing_twice_changes_nothing(value: Any) -> None:
    """What is frozen already stays the same, and stays hashable and picklable (POINT-2)."""
    frozen = freeze(value)
    assert repr(freeze(frozen)) == repr(frozen)
    hash(frozen)
    assert repr(pickle.loads(pickle.dumps(frozen))) == repr(frozen)


@settings(deadline=None, max_examples=60)
@given(mappings_of(plain))
def test_a_frozen_mapping_reads_like_the_mapping(items: dict[str, Any]) -> None:
    """Keys, order and length are those of the original (POINT-2)."""
    frozen = FrozenMapping(items)
    assert list(frozen) == list(items) and len(frozen) == len(items)
    assert all(repr(frozen[key]) == repr(freeze(value)) for key, value in items.items())
    assert frozen == FrozenMapping(items) or "nan" in repr(items)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=5))
def test_equal_mappings_have_equal_hashes(items: dict[str, Any]) -> None:
    """Equality and hash do not depend on the order of insertion (POINT-2)."""
    forward, backward = FrozenMapping(items), FrozenMapping(dict(reversed(items.items())))
    assert forward == backward == items
    assert hash(forward) == hash(backward)


def test_a_frozen_mapping_cannot_be_changed() -> None:
    """No item and no attribute can be set or deleted (POINT-2)."""
    frozen: Any = FrozenMapping({"a": {"b": [1]}})
    with pytest.raises(TypeError):
        frozen["a"] = 1
    with pytest.raises(TypeError):
        del frozen["a"]
    with pytest.raises(TypeError):
        frozen["a"]["b"] = 1
    with pytest.raises(AttributeError, match="immutable"):
        frozen._items = {}
    with pytest.raises(AttributeError, match="immutable"):
        frozen.other = 1
    with pytest.raises(AttributeError, match="immutable"):
        del frozen._items
    assert not hasattr(frozen, "update") and not hasattr(frozen, "pop")
    assert frozen == {"a": {"b": (1,)}}


def test_a_frozen_mapping_copies_what_it_is_given() -> None:
    """Later changes of the original, at any depth, are not seen (POINT-1)."""
    inner: list[Any] = [1]
    given_items: dict[str, Any] = {"a": inner, "raw": bytearray(b"x"), "deep": {"b": inner}}
    frozen = FrozenMapping(given_items)
    inner.append(2)
    given_items["raw"][0] = 0
    given_items["deep"]["b"] = None
    del given_items["a"]
    assert frozen == {"a": (1,), "raw": b"x", "deep": {"b": (1,)}}


def test_copies_are_frozen_mappings() -> None:
    """Copying and pickling by every protocol give an equal frozen mapping (POINT-2)."""
    frozen = FrozenMapping({"a": (1, FrozenMapping({"b": b"x"}))})
    for again in (
        copy.copy(frozen),
        copy.deepcopy(frozen),
        *(pickle.loads(pickle.dumps(frozen, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)),
    ):
        assert type(again) is FrozenMapping and again == frozen and hash(again) == hash(frozen)


def test_mappings_of_every_sort_are_taken() -> None:
    """Whatever is a mapping is copied (POINT-2)."""
    for items in (OrderedDict(a=1), UserDict({"a": 1}), types.MappingProxyType({"a": 1}), FrozenMapping({"a": 1})):
        assert type(freeze(items)) is FrozenMapping and freeze(items) == {"a": 1}


def test_sequences_become_tuples_and_buffers_bytes() -> None:
    """Lists, ranges and number arrays become tuples; writable buffers become bytes (POINT-2)."""
    assert freeze([1, (2, [3])]) == (1, (2, (3,)))
    assert freeze(range(3)) == (0, 1, 2)
    assert freeze(array.array("d", [0.5])) == (0.5,)
    assert freeze(bytearray(b"ab")) == freeze(memoryview(b"ab")) == b"ab"
    assert type(freeze(bytearray(b"ab"))) is bytes


def test_members_of_enumerations_become_their_values() -> None:
    """A text enumeration gives its text as key and as value, of type str exactly (POINT-2)."""
    ((key, value),) = FrozenMapping({Colour.RED: Colour.RED}).items()
    assert (key, value) == ("red", "red") and type(key) is str and type(value) is str


def test_numbers_stay_what_they_are() -> None:
    """Truth values, integers and floats keep their types and bits (POINT-2)."""
    for value in (True, 1, 1.0, -0.0, math.inf, 2**70, None):
        assert repr(freeze(value)) == repr(value)


@pytest.mark.parametrize("value", [{1, 2}, object(), 1j, iter([1]), len, {1: "a"}, {"a": {None: 1}}, [object()]])
def test_what_cannot_be_frozen_is_refused(value: object) -> None:
    """Sets, iterators, objects and keys that are no texts are refused (POINT-2)."""
    refused(value)


def test_a_refused_value_is_named_by_its_type() -> None:
    """The refusal holds the type of what cannot be frozen, or the key that is no text (PROT-9)."""
    assert refused([{"a": 1j}]).fields["type"] == "complex"
    assert refused({1: 2}).fields["key"] == "1"
