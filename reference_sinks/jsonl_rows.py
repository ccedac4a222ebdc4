"""Points as lines of a JSONL file, at the speed of the disk (JSONL-1, JSONL-3).

Every line is ASCII, standard JSON and ends with a newline, so it holds no other line break for any reader. What
``orjson`` cannot carry exactly goes through the standard library, which takes about ten times as long: integers beyond
64 bits, NaN and the infinities (``orjson`` would write ``null``), text beyond ASCII, lone surrogates.
"""

from __future__ import annotations

import json

from orjson import OPT_APPEND_NEWLINE, dumps

from torchlens_conformance.protocol import (
    NONFINITE_ENCODING,
    HistogramPoint,
    Point,
    Refusal,
    ScalarPoint,
    TextPoint,
    point_to_row,
)

FORMAT_FAMILY = "torchlens.trackers.jsonl.v"
"""What the format's name starts with, in every version."""

VERSION = 1
"""The version that is written, and the latest one that is read."""

FORMAT = f"{FORMAT_FAMILY}{VERSION}"
"""The format's name."""

# Grids are few and their edges are shared tuples. The entry keeps the tuple alive, so its id stays its own.
_encoded_edges: dict[int, tuple[tuple[float, ...], bytes]] = {}
_MOST_EDGES_KEPT = 32
_LONGEST_EDGES_KEPT = 4096


def encode_point(point: Point) -> bytes:
    """Return the line of any point.

    Raises ``point_field_invalid`` for an object that is no point, ``tracker_value_unsupported`` for an integer that
    has more digits than Python converts. Clause: JSONL-1, JSONL-3.
    """
    try:
        return encode_row(point_to_row(point))
    except ValueError as error:
        raise Refusal(
            "tracker_value_unsupported",
            f"The point has no text form: {error}.",
            remedy="Send the number as a float, or as text.",
            tag=getattr(point, "tag", ""),
        ) from error


def encode_row(row: object) -> bytes:
    """Return the line of a row that is not a point, a header for example."""
    return json.dumps(row, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def encode_scalar(point: ScalarPoint) -> bytes:
    """Return the line of a scalar. Raises what :func:`encode_point` raises. Clause: JSONL-1."""
    if type(point) is ScalarPoint and point.tag.isascii():
        value = point.value
        # The difference is 0 for every finite number, also for integers too large for math.isfinite.
        if value - value == 0:
            try:
                return dumps(
                    {"kind": "scalar", "tag": point.tag, "step": point.step, "value": value}, None, OPT_APPEND_NEWLINE
                )
            except TypeError:  # an integer beyond 64 bits
                pass
    return encode_point(point)


def encode_histogram(point: HistogramPoint) -> bytes:
    """Return the line of a histogram. Raises what :func:`encode_point` raises. Clause: JSONL-1."""
    if type(point) is HistogramPoint and point.tag.isascii():
        summary = point.summary
        try:
            counts = dumps(point.counts)
            numbers = dumps({name: summary[name] for name in summary})
        except TypeError:  # an integer beyond 64 bits
            return encode_point(point)
        # Only NaN or an infinity can have become null: a summary holds numbers under fixed names.
        if b"null" not in numbers:
            return b'{"kind":"histogram","tag":%b,"step":%d,"counts":%b,"edges":%b,"summary":%b}\n' % (
                dumps(point.tag),
                point.step,
                counts,
                _edges(point.edges),
                numbers,
            )
    return encode_point(point)


def encode_text(point: TextPoint) -> bytes:
    """Return the line of a text. Raises what :func:`encode_point` raises. Clause: JSONL-1."""
    if type(point) is TextPoint and point.tag.isascii() and point.text.isascii():
        return dumps(
            {"kind": "text", "tag": point.tag, "step": point.step, "text": point.text}, None, OPT_APPEND_NEWLINE
        )
    return encode_point(point)


def _edges(edges: tuple[float, ...]) -> bytes:
    known = _encoded_edges.get(id(edges))
    if known is not None:
        return known[1]
    encoded = dumps(edges)
    if len(edges) <= _LONGEST_EDGES_KEPT:
        if len(_encoded_edges) >= _MOST_EDGES_KEPT:
            # Whole, so that no thread can stumble over another one's change; what is in use comes back at once.
            _encoded_edges.clear()
        _encoded_edges[id(edges)] = (edges, encoded)
    return encoded


HEADER = encode_row({"format": FORMAT, "version": VERSION, "nonfinite": NONFINITE_ENCODING})
"""The first line of every segment."""

FOOTER = encode_row({"kind": "closed"})
"""The last line of a segment whose writer finished."""
