"""What a random defect can do to one field of one point: (kind of point, field) to named transformations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import accumulate
from math import inf, isfinite, nextafter
from typing import Any, TypeAlias

from torchlens_conformance.protocol import (
    SUMMARY_FIELDS,
    EmbeddingPoint,
    EventPoint,
    GraphPoint,
    HistogramPoint,
    ImagePoint,
    MetadataPoint,
    Point,
    Refusal,
    ScalarPoint,
    TextPoint,
)
from torchlens_conformance.protocol.compare import as_float32

Change: TypeAlias = Callable[[Any], Any]
"""From a field's value to another one."""


def _next(value: int | float) -> int | float:
    if isinstance(value, int):
        return value + 1
    return nextafter(value, -inf) if isfinite(value) else 0.5


_NUMBER: Mapping[str, Change] = {
    "one bit off": _next,
    "negated": lambda value: -value,
    "halved": lambda value: value / 2,
    "float32": as_float32,
    "zero": lambda value: 0,
    "short decimal": lambda value: float(f"{value:.6g}"),
    "rounded up": lambda value: float(round(value, 3)),
}

_STEP: Mapping[str, Change] = {
    "next": lambda step: step + 1,
    "previous": lambda step: step - 1,
    "doubled": lambda step: 2 * step,
    "zero": lambda step: 0,
    "16 bits": lambda step: step % 2**16,
    "even": lambda step: step & ~1,
    "float64": lambda step: int(float(step)),
}

_TEXT: Mapping[str, Change] = {
    "upper case": str.upper,
    "capital": str.capitalize,
    "last character lost": lambda text: text[:-1],
    "first character lost": lambda text: text[1:],
    "space added": lambda text: text + " ",
    "reversed": lambda text: text[::-1],
    "empty": lambda text: "",
    "dots to slashes": lambda text: text.replace(".", "/"),
    "slashes to dots": lambda text: text.replace("/", "."),
    "ends stripped": lambda text: text.strip(),
    "zero added": lambda text: text + "\x00",
    "quoted": lambda text: repr(text),
    "first 8 characters": lambda text: text[:8],
}

_COUNTS: Mapping[str, Change] = {
    "first one more": lambda counts: (counts[0] + 1, *counts[1:]),
    "last one more": lambda counts: (*counts[:-1], counts[-1] + 1),
    "middle emptied": lambda counts: (*counts[: len(counts) // 2], 0, *counts[len(counts) // 2 + 1 :]),
    "reversed": lambda counts: counts[::-1],
    "rotated": lambda counts: (*counts[1:], counts[0]),
    "sorted": lambda counts: tuple(sorted(counts)),
    "cumulated": lambda counts: tuple(accumulate(counts)),
    "halved": lambda counts: tuple(count // 2 for count in counts),
    "8 bits": lambda counts: tuple(count % 64 for count in counts),
    "all in one": lambda counts: (sum(counts), *(0 for _ in counts[1:])),
}

_EDGES: Mapping[str, Change] = {
    "first one bit off": lambda edges: (_next(edges[0]), *edges[1:]),
    "last moved": lambda edges: (*edges[:-1], edges[-1] * 2 + 1),
    "mirrored": lambda edges: tuple(-edge for edge in edges[::-1]),
    "float32": lambda edges: tuple(map(as_float32, edges)),
    "short decimals": lambda edges: tuple(float(f"{edge:.5g}") for edge in edges),
    "indices": lambda edges: tuple(float(index) for index in range(len(edges))),
}


def _without(mapping: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key != name}


def _with_next(mapping: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {**mapping, name: _next(mapping[name])}


_SUMMARY: Mapping[str, Change] = {
    **{f"{name} lost": partial(_without, name=name) for name in SUMMARY_FIELDS},
    **{f"{name} one bit off": partial(_with_next, name=name) for name in SUMMARY_FIELDS},
    "extremes exchanged": lambda summary: {**summary, "min": summary["max"], "max": summary["min"]},
}

_BYTES: Mapping[str, Change] = {
    "first bit": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "last bit": lambda data: data[:-1] + bytes([data[-1] ^ 128]),
    "reversed": lambda data: data[::-1],
    "zeros": lambda data: bytes(len(data)),
    "rotated": lambda data: data[1:] + data[:1],
    "7 bits": lambda data: bytes(byte & 127 for byte in data),
    "halves exchanged": lambda data: data[len(data) // 2 :] + data[: len(data) // 2],
}

_SHAPE: Mapping[str, Change] = {
    "transposed": lambda shape: shape[::-1],
    "flat": lambda shape: (1, _product(shape)),
    "upright": lambda shape: (_product(shape), 1),
    "one dimension more": lambda shape: (1, *shape),
}

_OTHER_TYPES = {"uint8": "int8", "uint16": "float16", "float32": "int32", "float64": "int64"}

_DTYPE: Mapping[str, Change] = {"of the same size": lambda dtype: _OTHER_TYPES[dtype]}

_LABELS: Mapping[str, Change] = {
    "lost": lambda labels: None,
    "reversed": lambda labels: labels[::-1],
    "one cut": lambda labels: (labels[0][:-1], *labels[1:]),
    "upper case": lambda labels: tuple(map(str.upper, labels)),
    "all alike": lambda labels: tuple(labels[0] for _ in labels),
}

_MAPPING: Mapping[str, Change] = {
    "first key lost": lambda mapping: _without(mapping, next(iter(mapping))),
    "last key lost": lambda mapping: _without(mapping, list(mapping)[-1]),
    "key added": lambda mapping: {**mapping, "_step": 0},
    "empty": lambda mapping: {},
    "keys in upper case": lambda mapping: {key.upper(): value for key, value in mapping.items()},
    "values as text": lambda mapping: {key: str(value) for key, value in mapping.items()},
    "lists as text": lambda mapping: {k: str(v) if isinstance(v, tuple) else v for k, v in mapping.items()},
    "truth as number": lambda mapping: {k: int(v) if isinstance(v, bool) else v for k, v in mapping.items()},
    "numbers as float32": lambda mapping: {k: as_float32(v) if isinstance(v, float) else v for k, v in mapping.items()},
}


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


_SERIES: Mapping[str, Mapping[str, Change]] = {"tag": _TEXT, "step": _STEP}
_ARRAY: Mapping[str, Mapping[str, Change]] = {"data": _BYTES, "shape": _SHAPE, "dtype": _DTYPE}

CHANGES: Mapping[type[Point], Mapping[str, Mapping[str, Change]]] = {
    ScalarPoint: {**_SERIES, "value": _NUMBER},
    HistogramPoint: {**_SERIES, "counts": _COUNTS, "edges": _EDGES, "summary": _SUMMARY},
    TextPoint: {**_SERIES, "text": _TEXT},
    GraphPoint: {"graph": _MAPPING},
    ImagePoint: {**_SERIES, **_ARRAY},
    EmbeddingPoint: {**_SERIES, **_ARRAY, "labels": _LABELS},
    EventPoint: {**_SERIES, "kind": _TEXT, "payload": _MAPPING},
    MetadataPoint: {**_SERIES, "metadata": _MAPPING},
}
"""Kind of point, field, name of the transformation, transformation."""


def changed(point: Point, field: str, change: Change) -> Point | None:
    """Return the point with one field changed; None when that changes nothing or gives no legal point."""
    try:
        other = replace(point, **{field: change(getattr(point, field))})
    except (Refusal, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, StopIteration):
        return None
    # As text: a NaN is equal to itself there, -0.0 is not 0.0, and 1 is not True.
    return None if _text_of(getattr(other, field)) == _text_of(getattr(point, field)) else other


def _text_of(value: Any) -> str:
    # A number is the same number as an int and as a float.
    return repr(float(value)) if type(value) is int and float(value) == value else repr(value)
