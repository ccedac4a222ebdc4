"""Points as JSON-ready rows and back, every bit of a number kept; NaN is one value (JSONL-1, JSONL-3).

Standard JSON has no NaN and no infinities, so they are written as ``{"$float": "NaN"}`` (``"Infinity"``,
``"-Infinity"``); bytes as ``{"$bytes": "<base64>"}``; a caller's mapping that looks like one of these is wrapped as
``{"$map": {...}}``. A caller's text ``"NaN"`` therefore stays a text.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from math import inf, isfinite, nan
from typing import Any, TypeAlias

from .points import (
    EmbeddingPoint,
    EventPoint,
    GraphPoint,
    HistogramPoint,
    ImagePoint,
    MetadataPoint,
    Point,
    ScalarPoint,
    TextPoint,
)
from .refusals import Refusal

NONFINITE_ENCODING = "$float"
"""The name of the encoding, written into file headers under the key ``nonfinite``."""

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
"""A value of standard JSON."""

_FLOAT_WORDS = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}


def encode_value(value: object) -> Plain:
    """Return ``value`` (plain scalars, bytes, sequences, mappings) as standard JSON values.

    Clause: JSONL-3.
    """
    if type(value) is float:
        return value if isfinite(value) else encode_nonfinite(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, Mapping):
        encoded = {str(key): encode_value(item) for key, item in value.items()}
        return {"$map": encoded} if len(encoded) == 1 and next(iter(encoded)).startswith("$") else encoded
    if isinstance(value, (tuple, list)):
        return [encode_value(item) for item in value]
    if isinstance(value, float):
        return encode_value(float(value))
    raise TypeError(f"cannot encode a {type(value).__name__}")


def encode_nonfinite(value: float) -> dict[str, Plain]:
    """Return NaN or an infinity as ``{"$float": word}``. Clause: JSONL-3."""
    word = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return {NONFINITE_ENCODING: word}


def decode_value(value: Any) -> Any:
    """Undo :func:`encode_value`; bare NaN tokens that a parser let through are kept as they are.

    Raises ``ValueError`` for a malformed marker. Clause: JSONL-3.
    """
    if isinstance(value, list):
        return [decode_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        (key, item), *_ = value.items()
        if key == NONFINITE_ENCODING:
            if not isinstance(item, str) or item not in _FLOAT_WORDS:
                raise ValueError(f"{item!r} is no non-finite number")
            return _FLOAT_WORDS[item]
        if key == "$bytes":
            try:
                return base64.b64decode(item, validate=True)
            except (binascii.Error, TypeError) as error:
                raise ValueError(f"malformed bytes: {error}") from None
        if key == "$map":
            if not isinstance(item, dict):
                raise ValueError(f"{item!r} is no mapping")
            return {name: decode_value(inner) for name, inner in item.items()}
    return {key: decode_value(item) for key, item in value.items()}


def _array_row(kind: str, point: ImagePoint | EmbeddingPoint) -> dict[str, Plain]:
    return {
        "kind": kind,
        "tag": point.tag,
        "step": point.step,
        "data": encode_value(point.data),
        "shape": list(point.shape),
        "dtype": point.dtype,
    }


def _scalar_row(point: ScalarPoint) -> dict[str, Plain]:
    return {"kind": "scalar", "tag": point.tag, "step": point.step, "value": encode_value(point.value)}


def _histogram_row(point: HistogramPoint) -> dict[str, Plain]:
    return {
        "kind": "histogram",
        "tag": point.tag,
        "step": point.step,
        "counts": list(point.counts),
        "edges": list(point.edges),
        "summary": encode_value(point.summary),
    }


def _text_row(point: TextPoint) -> dict[str, Plain]:
    return {"kind": "text", "tag": point.tag, "step": point.step, "text": point.text}


def _graph_row(point: GraphPoint) -> dict[str, Plain]:
    return {"kind": "graph", "graph": encode_value(point.graph)}


def _image_row(point: ImagePoint) -> dict[str, Plain]:
    return _array_row("image", point)


def _embedding_row(point: EmbeddingPoint) -> dict[str, Plain]:
    return {**_array_row("embedding", point), "labels": encode_value(point.labels)}


def _event_row(point: EventPoint) -> dict[str, Plain]:
    return {
        "kind": "event",
        "tag": point.tag,
        "step": point.step,
        "event_kind": point.kind,
        "payload": encode_value(point.payload),
    }


def _metadata_row(point: MetadataPoint) -> dict[str, Plain]:
    return {"kind": "metadata", "tag": point.tag, "step": point.step, "metadata": encode_value(point.metadata)}


_ENCODERS: dict[type, Callable[[Any], dict[str, Plain]]] = {
    ScalarPoint: _scalar_row,
    HistogramPoint: _histogram_row,
    TextPoint: _text_row,
    GraphPoint: _graph_row,
    ImagePoint: _image_row,
    EmbeddingPoint: _embedding_row,
    EventPoint: _event_row,
    MetadataPoint: _metadata_row,
}


def point_to_row(point: Point) -> dict[str, Plain]:
    """Return a point as a mapping of standard JSON values with a ``kind``.

    Raises ``point_field_invalid`` for an object that is no point. Clause: JSONL-1.
    """
    encoder = _ENCODERS.get(type(point))
    if encoder is None:
        raise Refusal(
            "point_field_invalid",
            f"{type(point).__name__} is no emission point.",
            remedy="Emit one of the point classes of torchlens_conformance.protocol.",
            type=type(point).__name__,
        )
    return encoder(point)


def _decode_array(row: Mapping[str, Any]) -> tuple[str, int, bytes, tuple[int, ...], str]:
    return row["tag"], row["step"], decode_value(row["data"]), tuple(row["shape"]), row["dtype"]


_DECODERS: dict[str, Callable[[Mapping[str, Any]], Point]] = {
    "scalar": lambda row: ScalarPoint(row["tag"], row["step"], decode_value(row["value"])),
    "histogram": lambda row: HistogramPoint(
        row["tag"], row["step"], row["counts"], row["edges"], decode_value(row["summary"])
    ),
    "text": lambda row: TextPoint(row["tag"], row["step"], row["text"]),
    "graph": lambda row: GraphPoint(decode_value(row["graph"])),
    "image": lambda row: ImagePoint(*_decode_array(row)),
    "embedding": lambda row: EmbeddingPoint(*_decode_array(row), row["labels"]),
    "event": lambda row: EventPoint(row["tag"], row["step"], row["event_kind"], decode_value(row["payload"])),
    "metadata": lambda row: MetadataPoint(row["tag"], row["step"], decode_value(row["metadata"])),
}

ROW_KINDS = tuple(_DECODERS)
"""The ``kind`` words of rows that hold points (JSONL-1)."""


def row_to_point(row: Mapping[str, Any]) -> Point:
    """Undo :func:`point_to_row`.

    Raises ``ValueError`` when the row is no point row: an unknown kind, a missing key, a malformed value.

    Clause: JSONL-1.
    """
    if not isinstance(row, Mapping):
        raise ValueError(f"a row is a mapping, not a {type(row).__name__}")
    kind = row.get("kind")
    decoder = _DECODERS.get(kind) if isinstance(kind, str) else None
    if decoder is None:
        raise ValueError(f"unknown row kind {kind!r}")
    try:
        return decoder(row)
    except KeyError as error:
        raise ValueError(f"a {kind} row lacks {error}") from None
    except (Refusal, TypeError, AttributeError) as error:
        raise ValueError(f"a malformed {kind} row: {error}") from None
