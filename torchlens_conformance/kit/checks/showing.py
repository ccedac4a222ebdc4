"""Values as people read them, with their bits, and as keys that compare bit by bit."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Hashable, Mapping
from typing import Any

from ...protocol import Point
from ...protocol.compare import float_bits

_FIELDS: tuple[str, ...] = (
    *("counts", "edges", "summary", "value", "text", "graph", "data", "shape", "dtype", "labels", "kind"),
    *("payload", "metadata"),
)


def number_key(value: int | float) -> Hashable:
    """Return a key that is equal for numbers of equal value and bits: 3 and 3.0 are, 0.0 and -0.0 are not."""
    if isinstance(value, float):
        bits = float_bits(value)
        return int(value) if value.is_integer() and bits != 1 << 63 else ("f", bits)
    return value


def key_of(value: Any) -> Hashable:
    """Return a key of anything that may stand inside a point; NaN equals NaN, True does not equal 1."""
    if value is None or isinstance(value, (str, bytes)):
        return value
    if isinstance(value, bool):
        return ("b", value)
    if isinstance(value, (int, float)):
        return number_key(value)
    if isinstance(value, Mapping):
        return ("m", frozenset((str(key), key_of(item)) for key, item in value.items()))
    if isinstance(value, (tuple, list)):
        return ("t", *map(key_of, value))
    return ("?", repr(value))


def edges_key(edges: tuple[float, ...]) -> Hashable:
    """Return a key of edges, the largest field there is: their 64-bit floats in a row. They are finite."""
    return struct.pack(f"<{len(edges)}d", *edges)


def body_fields(point: Point) -> dict[str, Any]:
    """Return the fields of a point other than tag and step."""
    return {name: getattr(point, name) for name in _FIELDS if hasattr(point, name)}


def body_key(point: Point) -> Hashable:
    """Return a key of everything in a point but its tag and step."""
    fields = body_fields(point)
    if "edges" in fields:
        return (fields["counts"], edges_key(fields["edges"]), key_of(fields["summary"]))
    return tuple(key_of(value) for value in fields.values())


def point_key(point: Point) -> Hashable:
    """Return a key of a whole point."""
    return (point.capability, tag_of(point), step_of(point), body_key(point))


def tag_of(point: Point) -> str:
    """Return the tag; a graph has none."""
    return getattr(point, "tag", "")


def step_of(point: Point) -> int:
    """Return the step; a graph has none."""
    return int(getattr(point, "step", -1))


def place_of(point: Point) -> str:
    """Return kind, tag and step in words."""
    if not hasattr(point, "tag"):
        return f"a {point.capability}"
    return f"{point.capability} {shown(tag_of(point), limit=120)} at step {step_of(point)}"


def shown(value: Any, *, limit: int = 160) -> str:
    """Return a value as text: numbers with their bits, long things by length and digest."""
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, float):
        return f"{value!r} (bits 0x{float_bits(value):016x})"
    if isinstance(value, int):
        return f"{value} (0x{value:x})" if abs(value) > 2**31 else str(value)
    if isinstance(value, bytes):
        digest = hashlib.sha256(value).hexdigest()[:12]
        return f"{len(value)} bytes {value[:16].hex(' ')}{'...' if len(value) > 16 else ''} (sha256 {digest})"
    if isinstance(value, str):
        text = ascii(value[: limit + 1])
        return text if len(value) <= limit else f"{text[:limit]}... ({len(value)} characters)"
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{key!r}: {shown(item, limit=60)}" for key, item in value.items()) + "}"
    elif isinstance(value, (tuple, list)):
        head = ", ".join(shown(item, limit=40) for item in value[:6])
        text = f"({head}{', ...' if len(value) > 6 else ''}) of {len(value)}" if len(value) > 6 else f"({head})"
    else:
        text = repr(value)
    return text if len(text) <= 3 * limit else f"{text[: 3 * limit]}..."


def shown_point(point: Point) -> str:
    """Return a point in words, with its body cut short."""
    body = ", ".join(f"{name}={shown(value, limit=60)}" for name, value in body_fields(point).items())
    return f"{place_of(point)}: {body}"[:600]
