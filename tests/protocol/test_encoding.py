"""Points as rows of standard JSON and back, every bit kept."""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from torchlens_conformance.protocol import (
    NONFINITE_ENCODING,
    POINT_CLASSES,
    ROW_KINDS,
    EventPoint,
    FrozenMapping,
    HistogramPoint,
    MetadataPoint,
    Point,
    Refusal,
    ScalarPoint,
    TextPoint,
    decode_value,
    encode_value,
    freeze,
    point_to_row,
    row_to_point,
)

from ..reference_sinks.jsonl_points import ONE_OF_EACH, anything, mappings_of, plain

MARKERS = ("$float", "$bytes", "$map", "$", "$other")


def same_bits(first: object, second: object) -> bool:
    """Whether two frozen values are equal in type, order and every bit; every NaN is the same."""
    if type(first) is not type(second):
        return False
    if isinstance(first, float) and isinstance(second, float):
        if math.isnan(first):
            return math.isnan(second)
        return struct.pack("<d", first) == struct.pack("<d", second)
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(same_bits, first, second))
    if isinstance(first, FrozenMapping) and isinstance(second, FrozenMapping):
        return same_bits(tuple(first.items()), tuple(second.items()))
    return first == second


def same_point(first: Point, second: Point) -> bool:
    """Whether two points are of one kind and hold the same bits."""
    return type(first) is type(second) and all(
        same_bits(getattr(first, item.name), getattr(second, item.name)) for item in dataclasses.fields(first)
    )


def through_json(value: object) -> Any:
    """Return ``value`` after a trip through standard JSON text."""
    # Without ensure_ascii two lone surrogates in a row stay two.
    return json.loads(json.dumps(value, allow_nan=False, ensure_ascii=False))


@settings(deadline=None, max_examples=150)
@given(anything)
@example(EventPoint("v", 0, "k", {"$map": {"$map": {"$float": "NaN"}}}))
@example(EventPoint("v", 0, "k", {"$bytes": "AAAA", "$float": 1}))
@example(EventPoint("v", 0, "k", {"$float": math.nan, "$": {"$": b""}}))
@example(MetadataPoint("m", 0, {"$other": {"$bytes": b"\0"}, "NaN": "NaN", "": -0.0}))
@example(HistogramPoint("h", 0, (2**70, 0), (-0.0, 5e-324, 1e308), {"min": -0.0, "sum": math.inf, "max": math.nan}))
@example(TextPoint("NaN", 2**63 - 1, "NaN"))
def test_every_point_returns_bit_for_bit(point: Point) -> None:
    """A point, its row, and its row through JSON text are the same point (JSONL-1, JSONL-3)."""
    row = point_to_row(point)
    assert same_point(row_to_point(row), point)
    assert same_point(row_to_point(through_json(row)), point)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 0.0, 0, 3.0, 3, 5e-324, 1e300, 0.1, 2**70])
def test_every_number_returns_bit_for_bit(value: float) -> None:
    """Signs of zeros, non-finite numbers, and the difference of 3 and 3.0 survive JSON text (JSONL-3)."""
    point = ScalarPoint("a", 0, value)
    again = row_to_point(through_json(point_to_row(point)))
    assert isinstance(again, ScalarPoint) and same_bits(again.value, value)


def test_the_spelling_of_rows() -> None:
    """Rows have the keys and words of the format (JSONL-1, JSONL-3)."""
    rows = [point_to_row(point) for point in ONE_OF_EACH]
    assert rows[1] == {"kind": "scalar", "tag": "a/\u00e9", "step": 4, "value": {"$float": "NaN"}}
    assert rows[2] == {
        "kind": "histogram",
        "tag": "h",
        "step": 5,
        "counts": [1, 2**70],
        "edges": [-1.0, -0.0, 5e-324],
        "summary": {"min": -1.0, "max": {"$float": "Infinity"}, "num": 3},
    }
    assert rows[4] == {"kind": "graph", "graph": {"nodes": [{"name": "x", "op": "relu", "inputs": []}]}}
    assert rows[5] == {
        "kind": "image",
        "tag": "i",
        "step": 7,
        "data": {"$bytes": "AP+ACg=="},
        "shape": [2, 2],
        "dtype": "uint8",
    }
    assert [list(row) for row in (rows[3], rows[6], rows[7], rows[8])] == [
        ["kind", "tag", "step", "text"],
        ["kind", "tag", "step", "data", "shape", "dtype", "labels"],
        ["kind", "tag", "step", "event_kind", "payload"],
        ["kind", "tag", "step", "metadata"],
    ]
    assert encode_value(-math.inf) == {NONFINITE_ENCODING: "-Infinity"} == {"$float": "-Infinity"}


def test_every_kind_of_point_has_one_kind_of_row() -> None:
    """There is a row kind for each class of points, and no other (JSONL-1)."""
    kinds = [str(point_to_row(point)["kind"]) for point in ONE_OF_EACH]
    assert set(kinds) == set(ROW_KINDS) and len(ROW_KINDS) == len(POINT_CLASSES)


@settings(deadline=None, max_examples=100)
@given(plain | mappings_of(mappings_of(plain)))
def test_every_value_returns(value: object) -> None:
    """Nested values, also such as look like markers of the encoding, come back after JSON text (JSONL-3)."""
    assert same_bits(freeze(decode_value(through_json(encode_value(value)))), freeze(value))


@pytest.mark.parametrize("marker", MARKERS)
@pytest.mark.parametrize("content", ["NaN", "AAAA", math.nan, b"\0", {"a": 1}, {"$map": {}}, {}, [], None, 1])
def test_mappings_that_look_like_markers_return(marker: str, content: object) -> None:
    """A caller's mapping with the one key of a marker is not taken for the marker, at any depth (JSONL-3)."""
    value: object = {marker: content}
    for _ in range(3):
        assert same_bits(freeze(decode_value(through_json(encode_value(value)))), freeze(value))
        value = {marker: value}


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "nan", "null", "$float", '{"$float": "NaN"}', ""])
def test_texts_stay_texts(text: str) -> None:
    """A caller's text that spells a number is not taken for the number (JSONL-3)."""
    assert encode_value(text) == text
    event = EventPoint(text, 0, text, {text: text})
    assert same_point(row_to_point(through_json(point_to_row(event))), event)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_bytes_return(data: bytes) -> None:
    """Bytes of any length and content come back (JSONL-3)."""
    assert decode_value(through_json(encode_value(data))) == data


def test_bare_tokens_of_older_files_are_kept() -> None:
    """Floats that a lenient parser made of bare NaN tokens are numbers already (JSONL-1)."""
    row = json.loads('{"kind": "scalar", "tag": "a", "step": 0, "value": NaN}')
    point = row_to_point(row)
    assert isinstance(point, ScalarPoint) and math.isnan(point.value)
    row = json.loads(
        '{"kind": "histogram", "tag": "a", "step": 0, "counts": [1], "edges": [0, 1], "summary": {"max": -Infinity}}'
    )
    histogram = row_to_point(row)
    assert isinstance(histogram, HistogramPoint) and histogram.summary == {"max": -math.inf}


@pytest.mark.parametrize("value", [{1, 2}, object(), 1j, [object()], {"a": {1}}])
def test_other_values_cannot_be_encoded(value: object) -> None:
    """What JSON has no form for is a TypeError (JSONL-3)."""
    with pytest.raises(TypeError):
        encode_value(value)


def test_arrays_cannot_be_encoded() -> None:
    """Arrays and tensors are no values (POINT-1, JSONL-3)."""
    numpy = pytest.importorskip("numpy")
    with pytest.raises(TypeError):
        encode_value(numpy.zeros(2))
    assert type(encode_value(numpy.float64(0.1))) is float


@pytest.mark.parametrize(
    "marker",
    [
        {"$float": "Nan"},
        {"$float": 1.0},
        {"$float": None},
        {"$float": []},
        {"$float": {}},
        {"$bytes": "A"},
        {"$bytes": "AA\nA="},
        {"$bytes": "\u00e9"},
        {"$bytes": 5},
        {"$bytes": None},
        {"$bytes": []},
        {"$map": 5},
        {"$map": None},
        {"$map": [1]},
        {"$map": "a"},
        {"$map": {"a": {"$float": 0}}},
        [{"a": [{"$float": ""}]}],
    ],
)
def test_malformed_markers_are_value_errors(marker: object) -> None:
    """A marker with the wrong content is a ValueError, alone and inside a row (JSONL-3)."""
    with pytest.raises(ValueError):
        decode_value(marker)
    with pytest.raises(ValueError):
        row_to_point({"kind": "event", "tag": "a", "step": 0, "event_kind": "k", "payload": {"x": marker, "y": 0}})


@pytest.mark.parametrize("point", ONE_OF_EACH, ids=lambda point: type(point).__name__)
def test_a_row_without_one_of_its_keys_is_a_value_error(point: Point) -> None:
    """Each missing key is named, and a wrong value in each is told as well (JSONL-1)."""
    row: dict[str, Any] = dict(point_to_row(point))
    for key in row:
        with pytest.raises(ValueError, match=key if key != "kind" else "unknown row kind"):
            row_to_point({name: value for name, value in row.items() if name != key})
        for wrong in (object(), 1.5j):
            with pytest.raises(ValueError):
                row_to_point({**row, key: wrong})


@pytest.mark.parametrize(
    "row", [{}, {"kind": "closed"}, {"kind": None}, {"kind": []}, {"kind": 1}, [], [1], None, "a", 5]
)
def test_what_is_no_row_is_a_value_error(row: Any) -> None:
    """Headers, footers and JSON values that are no mappings are ValueErrors, whatever they hold (JSONL-1)."""
    with pytest.raises(ValueError):
        row_to_point(row)


@pytest.mark.parametrize("thing", [None, "text", {"kind": "scalar"}, object()])
def test_what_is_no_point_has_no_row(thing: Any) -> None:
    """An object that is no point is refused by its type (JSONL-1, PROT-9)."""
    with pytest.raises(Refusal) as caught:
        point_to_row(thing)
    assert (caught.value.code, caught.value.fields["type"]) == ("point_field_invalid", type(thing).__name__)
