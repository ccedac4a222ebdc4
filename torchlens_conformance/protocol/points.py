"""Emission points: the only currency between emitters, sinks and readers (POINT-1..3).

Points are immutable, picklable and free of tensors. They do not validate tags (TAG-3): that is the engine's duty.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite, prod
from typing import Any, ClassVar, TypeAlias

from .frozen import FrozenMapping, freeze, plain_text
from .refusals import Refusal, short_repr

LARGEST_STEP = 2**63 - 1
"""The largest legal step (POINT-3)."""

SUMMARY_FIELDS = ("min", "max", "num", "sum", "sum_squares")
"""The summary fields of a histogram, each left out when unknown; ``num`` counts finite values (POINT-2)."""


def as_step(value: object) -> int:
    """Return ``value`` as a Python int in 0 .. 2**63-1.

    Python, numpy and 0-d tensor integers are taken; bool, float and anything with a dimension are not. Raises
    ``point_step_invalid``.

    Clause: POINT-3.
    """
    if type(value) is int:
        step = value
    else:
        try:
            step = _integer(value)
        except TypeError as error:
            raise _step_refusal(value, str(error)) from None
    if not 0 <= step <= LARGEST_STEP:
        raise _step_refusal(value, "is out of range")
    return step


def _integer(value: object) -> int:
    """Return a Python, numpy or 0-d tensor integer as an int; the text of the TypeError says why it is none."""
    if isinstance(value, bool) or "bool" in str(getattr(value, "dtype", "")):
        raise TypeError("is a truth value")
    try:
        if len(getattr(value, "shape", ())) == 0:
            return operator.index(value)  # type: ignore[arg-type]
    except Exception:
        # Each array library says no in its own way: a tensor without data raises RuntimeError, say.
        raise TypeError("is not an integer") from None
    raise TypeError("has a dimension")


def _step_refusal(value: object, why: str) -> Refusal:
    return Refusal(
        "point_step_invalid",
        f"The step {short_repr(value)} {why}.",
        remedy="Give an integer from 0 to 2**63-1.",
        step=short_repr(value),
    )


def _field_refusal(point: str, name: str, value: object, wanted: str) -> Refusal:
    return Refusal(
        "point_field_invalid",
        f"{point}.{name} must be {wanted}.",
        remedy=f"Give {wanted}.",
        point=point,
        field=name,
        value=short_repr(value, limit=120),
    )


def _text(point: str, name: str, value: object) -> str:
    if type(value) is str:
        return value
    if isinstance(value, str):
        return plain_text(value)
    raise _field_refusal(point, name, value, "text")


def _number(point: str, name: str, value: object) -> int | float:
    if type(value) is float or type(value) is int:
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    raise _field_refusal(point, name, value, "a Python int or float")


def _items(point: str, name: str, values: Iterable[object], wanted: str) -> tuple[object, ...]:
    if not isinstance(values, (str, Mapping)):
        try:
            return tuple(values)
        except TypeError:
            pass
    raise _field_refusal(point, name, values, wanted)


def _counts(values: Iterable[object]) -> tuple[int, ...]:
    given = _items("HistogramPoint", "counts", values, "integers")
    if set(map(type, given)) == {int}:
        counts: tuple[int, ...] = given  # type: ignore[assignment]
    else:
        try:
            counts = tuple(map(_integer, given))
        except TypeError:
            raise _field_refusal("HistogramPoint", "counts", given, "integers") from None
    if not counts or min(counts) < 0:
        raise _field_refusal("HistogramPoint", "counts", counts, "one or more integers >= 0")
    return counts


_known_edges: dict[int, tuple[float, ...]] = {}


def _edges(values: Iterable[object], buckets: int) -> tuple[float, ...]:
    # A grid's edges are one shared tuple: checked once, recognised by identity afterwards. The dictionary keeps the
    # tuple alive, so its id cannot be given to another object.
    known = _known_edges.get(id(values))
    if known is not None and known is values:
        edges = known
    else:
        given = _items("HistogramPoint", "edges", values, "numbers")
        try:
            edges = tuple(float(_number("HistogramPoint", "edges", edge)) for edge in given)
        except OverflowError:
            raise _field_refusal("HistogramPoint", "edges", given, "finite and strictly increasing") from None
        if not all(map(isfinite, edges)) or any(map(operator.ge, edges, edges[1:])):
            raise _field_refusal("HistogramPoint", "edges", edges, "finite and strictly increasing")
    if len(edges) != buckets + 1:
        raise _field_refusal("HistogramPoint", "edges", edges, f"{buckets + 1} numbers for {buckets} counts")
    return edges


def register_edges(edges: tuple[float, ...]) -> tuple[float, ...]:
    """Mark a checked tuple of grid edges as shared, so that points over it skip the check.

    Meant for the few grids of a process; the tuple is kept alive for good.
    """
    _known_edges[id(edges)] = edges
    return edges


def _summary(values: Mapping[str, object]) -> FrozenMapping:
    if not isinstance(values, Mapping):
        raise _field_refusal("HistogramPoint", "summary", values, "a mapping")
    if type(values) is FrozenMapping and {int, float}.issuperset(map(type, values.values())):
        summary = values
    else:
        summary = FrozenMapping({key: _number("HistogramPoint", "summary", item) for key, item in values.items()})
    if not summary.keys() <= set(SUMMARY_FIELDS):
        raise _field_refusal("HistogramPoint", "summary", values, f"a mapping with keys out of {SUMMARY_FIELDS}")
    return summary


def _mapping(point: str, name: str, value: object) -> FrozenMapping:
    if not isinstance(value, Mapping):
        raise _field_refusal(point, name, value, "a mapping")
    return value if type(value) is FrozenMapping else FrozenMapping(value)


_ITEM_SIZES = {
    **{f"{sign}int{8 * size}": size for size in (1, 2, 4, 8) for sign in ("", "u")},
    **{"bool": 1, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8},
}


def _raw_array(point: str, data: object, shape: Iterable[object], dtype: object) -> tuple[bytes, tuple[int, ...], str]:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise _field_refusal(point, "data", type(data).__name__, "bytes (little-endian, row-major)")
    if not isinstance(dtype, str) or dtype not in _ITEM_SIZES:
        raise _field_refusal(point, "dtype", dtype, f"one of {sorted(_ITEM_SIZES)}")
    try:
        sizes = tuple(map(_integer, _items(point, "shape", shape, "integers >= 0")))
    except TypeError:
        raise _field_refusal(point, "shape", shape, "integers >= 0") from None
    if any(size < 0 for size in sizes):
        raise _field_refusal(point, "shape", sizes, "integers >= 0")
    raw, name = bytes(data), plain_text(dtype)
    if len(raw) != prod(sizes) * _ITEM_SIZES[name]:
        raise _field_refusal(point, "data", f"{len(raw)} bytes", f"as long as shape {sizes} of {name} needs")
    return raw, sizes, name


@dataclass(frozen=True, slots=True)
class ScalarPoint:
    """One number of one series.

    Args:
        tag: The series (TAG-1).
        step: The caller's step, 0 .. 2**63-1.
        value: A Python int or float; NaN and the infinities are legal.

    Raises ``point_step_invalid`` and ``point_field_invalid``. Clause: POINT-1, POINT-3.
    """

    capability: ClassVar[str] = "scalar"
    tag: str
    step: int
    value: int | float

    def __post_init__(self) -> None:
        object.__setattr__(self, "tag", _text("ScalarPoint", "tag", self.tag))
        object.__setattr__(self, "step", as_step(self.step))
        object.__setattr__(self, "value", _number("ScalarPoint", "value", self.value))


@dataclass(frozen=True, slots=True)
class HistogramPoint:
    """One histogram: integer counts between explicit edges.

    Args:
        tag: The series.
        step: The caller's step.
        counts: ``n`` integers >= 0, ``n`` >= 1.
        edges: ``n + 1`` finite, strictly increasing numbers, in the unit of the values counted.
        summary: Any of ``min max num sum sum_squares`` of the finite values; what is unknown is left out.

    Raises ``point_step_invalid`` and ``point_field_invalid``. Clause: POINT-2.
    """

    capability: ClassVar[str] = "raw_histogram"
    tag: str
    step: int
    counts: tuple[int, ...]
    edges: tuple[float, ...]
    summary: Mapping[str, Any] = field(default_factory=FrozenMapping)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tag", _text("HistogramPoint", "tag", self.tag))
        object.__setattr__(self, "step", as_step(self.step))
        object.__setattr__(self, "counts", _counts(self.counts))
        object.__setattr__(self, "edges", _edges(self.edges, len(self.counts)))
        object.__setattr__(self, "summary", _summary(self.summary))


@dataclass(frozen=True, slots=True)
class TextPoint:
    """A text of one series at one step; any text Python can hold. Clause: POINT-1."""

    capability: ClassVar[str] = "text_manifest"
    tag: str
    step: int
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "tag", _text("TextPoint", "tag", self.tag))
        object.__setattr__(self, "step", as_step(self.step))
        object.__setattr__(self, "text", _text("TextPoint", "text", self.text))


@dataclass(frozen=True, slots=True)
class GraphPoint:
    """A graph of operations.

    Args:
        graph: A mapping with ``nodes``: a list of mappings with ``name``, ``op`` and ``inputs`` (names of nodes);
            further keys are kept as they are.

    Clause: POINT-1.
    """

    capability: ClassVar[str] = "graph"
    graph: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "graph", _mapping("GraphPoint", "graph", self.graph))


@dataclass(frozen=True, slots=True)
class ImagePoint:
    """An image as raw little-endian, row-major bytes.

    Args:
        tag: The series.
        step: The caller's step.
        data: The bytes; as many as ``shape`` and ``dtype`` need.
        shape: Height, width, channels (or height, width).
        dtype: A numpy dtype name such as ``uint8`` or ``float32``.

    Clause: POINT-1, POINT-2.
    """

    capability: ClassVar[str] = "image"
    tag: str
    step: int
    data: bytes
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "tag", _text("ImagePoint", "tag", self.tag))
        object.__setattr__(self, "step", as_step(self.step))
        _set_raw_array(self, "ImagePoint")


@dataclass(frozen=True, slots=True)
class EmbeddingPoint:
    """A table of vectors with optional labels.

    Args:
        tag: The series.
        step: The caller's step.
        data: Raw little-endian, row-major bytes.
        shape: Number of vectors, width.
        dtype: A numpy dtype name.
        labels: One text a vector, or None.

    Clause: POINT-1, POINT-2.
    """

    capability: ClassVar[str] = "embedding_module"
    tag: str
    step: int
    data: bytes
    shape: tuple[int, ...]
    dtype: str
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tag", _text("EmbeddingPoint", "tag", self.tag))
        object.__setattr__(self, "step", as_step(self.step))
        _set_raw_array(self, "EmbeddingPoint")
        if len(self.shape) != 2:
            raise _field_refusal("EmbeddingPoint", "shape", self.shape, "(vectors, width)")
        if self.labels is not None:
            given = _items("EmbeddingPoint", "labels", self.labels, "texts")
            labels = tuple(_text("EmbeddingPoint", "labels", label) for label in given)
            if len(labels) != self.shape[0]:
                raise _field_refusal("EmbeddingPoint", "labels", len(labels), f"{self.shape[0]} labels")
            object.__setattr__(self, "labels", labels)


@dataclass(frozen=True, slots=True)
class EventPoint:
    """A structured event: a kind and a payload of plain values. Clause: POINT-1."""

    capability: ClassVar[str] = "structured_event"
    tag: str
    step: int
    kind: str
    payload: Mapping[str, Any] = field(default_factory=FrozenMapping)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tag", _text("EventPoint", "tag", self.tag))
        object.__setattr__(self, "step", as_step(self.step))
        object.__setattr__(self, "kind", _text("EventPoint", "kind", self.kind))
        object.__setattr__(self, "payload", _mapping("EventPoint", "payload", self.payload))


@dataclass(frozen=True, slots=True)
class MetadataPoint:
    """Facts about the run, as a mapping of plain values. Clause: POINT-1."""

    capability: ClassVar[str] = "run_metadata"
    tag: str
    step: int
    metadata: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "tag", _text("MetadataPoint", "tag", self.tag))
        object.__setattr__(self, "step", as_step(self.step))
        object.__setattr__(self, "metadata", _mapping("MetadataPoint", "metadata", self.metadata))


def _set_raw_array(point: ImagePoint | EmbeddingPoint, name: str) -> None:
    data, shape, dtype = _raw_array(name, point.data, point.shape, point.dtype)
    object.__setattr__(point, "data", data)
    object.__setattr__(point, "shape", shape)
    object.__setattr__(point, "dtype", dtype)


Point: TypeAlias = (
    ScalarPoint | HistogramPoint | TextPoint | GraphPoint | ImagePoint | EmbeddingPoint | EventPoint | MetadataPoint
)
"""Any emission point."""

POINT_CLASSES: tuple[type[Point], ...] = (
    ScalarPoint,
    HistogramPoint,
    TextPoint,
    GraphPoint,
    ImagePoint,
    EmbeddingPoint,
    EventPoint,
    MetadataPoint,
)
"""Every point class, in the order of POINT-1."""

__all__ = [
    "LARGEST_STEP",
    "POINT_CLASSES",
    "SUMMARY_FIELDS",
    "EmbeddingPoint",
    "EventPoint",
    "GraphPoint",
    "HistogramPoint",
    "ImagePoint",
    "MetadataPoint",
    "Point",
    "ScalarPoint",
    "TextPoint",
    "as_step",
    "freeze",
    "register_edges",
]
