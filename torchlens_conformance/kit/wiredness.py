"""The wiredness probe: one value of each kind altered in the author's own stream must come back from their reader.

The altered values are made up for each run, so no canned answer holds them; they are easy to store (whole counts, a
number with a short binary form), so a store that coerces is not mistaken for one that is not read.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..protocol import (
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
from .corpus import SMALL, ordinary_points
from .model import ACKNOWLEDGED, ControlResult, Transcript
from .patience import Patience
from .processes import OK, TIMED_OUT, Limits
from .scenarios import Setting
from .scenarios.driving import Driver, drive
from .subject import Subject
from .verdict import WIREDNESS

_BEYOND = 2**16
# Larger than every value of the ordinary stream, and with few enough bits for a store of float32.
_WANTED = "report every altered value, read in a process that did not write it"


def altered(point: Point, token: int) -> Point:
    """Return ``point`` with one value altered to something that follows from ``token``, a number below 2**16."""
    return _ALTER[type(point)](point, token)


def _altered_bytes(data: bytes, token: int) -> bytes:
    # Complemented, so it differs from what stood there, and turned by the token.
    return bytes((255 - byte) ^ (token & 0x7F) for byte in data[:2]) + data[2:]


_ALTER: Mapping[type, Callable[[Any, int], Point]] = {
    ScalarPoint: lambda point, token: replace(point, value=_BEYOND + token + 0.5),
    HistogramPoint: lambda point, token: replace(point, counts=(point.counts[0] + 1 + token, *point.counts[1:])),
    TextPoint: lambda point, token: replace(point, text=f"{point.text} altered {token}"),
    ImagePoint: lambda point, token: replace(point, data=_altered_bytes(point.data, token)),
    EmbeddingPoint: lambda point, token: replace(point, labels=(*point.labels[:-1], f"altered {token}")),
    EventPoint: lambda point, token: replace(point, payload={**point.payload, "altered": token}),
    MetadataPoint: lambda point, token: replace(point, metadata={**point.metadata, "altered": token}),
    GraphPoint: lambda point, token: GraphPoint(
        {
            **point.graph,
            "nodes": [*point.graph["nodes"], {"name": f"altered/n{token}", "op": "add", "inputs": []}],
        }
    ),
}


def probe_points(nonce: str, token: int) -> tuple[tuple[Point, ...], dict[str, Point]]:
    """Return an ordinary stream with one point a capability altered, and the altered points by capability word."""
    points = list(ordinary_points(nonce))
    changed: dict[str, Point] = {}
    for index, point in enumerate(points):
        word = point.capability
        if word not in changed:
            changed[word] = points[index] = altered(point, token)
    return tuple(points), changed


def reports(read: Sequence[Point], point: Point) -> bool:
    """Whether the altered value of ``point`` is among what was read; other fields are other checks' business."""
    return any(type(other) is type(point) and _value(other) == _value(point) for other in read)


def _value(point: Point) -> object:
    if isinstance(point, ScalarPoint):
        return float(point.value)
    if isinstance(point, HistogramPoint):
        return point.counts
    if isinstance(point, EmbeddingPoint):
        return point.labels
    if isinstance(point, GraphPoint):
        # A store may add nodes or fields of its own; the names of what was sent are what the probe asks for.
        return frozenset(str(node.get("name")) for node in point.graph.get("nodes", ()))
    for name in ("text", "data", "payload", "metadata"):
        if hasattr(point, name):
            return getattr(point, name)
    return point


def run_probe(subject: Subject, *, timeout: float = 20.0, patience: Patience | None = None) -> ControlResult:
    """Write the altered stream into the subject's sink, read it back, and say whether it came back altered.

    Args:
        subject: The sink under certification.
        timeout: Seconds for each process of it.
        patience: The patience with it; whoever runs it again hands it on.
    """
    nonce = "w" + secrets.token_hex(6)
    points, changed = probe_points(nonce, secrets.randbelow(2**16 - 1) + 1)
    limits = Limits(timeout=timeout, patience=patience or Patience())
    folder = Path(tempfile.mkdtemp(prefix="conformance-"))
    try:
        folder.chmod(0o711)
        setting = Setting(subject=subject, folder=folder, size=SMALL, nonce=nonce, limits=limits, fresh=True)
        place = setting.place()
        transcript = drive("wiredness", setting, points, lambda driver: _write(driver, place), read=place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return judge_probe(transcript, changed)


def _write(driver: Driver, place: Path) -> None:
    sink = driver.open(place)
    if sink is not None:
        driver.emit_all(sink)
        driver.call(sink, "flush")
        driver.call(sink, "close")
        driver.read_back(place)


def judge_probe(transcript: Transcript, changed: Mapping[str, Point]) -> ControlResult:
    """Return whether every altered value that the sink was sent came back; a pure function."""
    seen = _trouble(transcript)
    if seen is None:
        read = transcript.read.points if transcript.read is not None else None
        words = transcript.facts.get("words", ())
        lost = [word for word, point in changed.items() if word in words and not reports(read or (), point)]
        if lost:
            seen = f"one value of each was altered, and the reader does not report it: {', '.join(lost)}"
            seen += _not_taken(transcript, changed, lost)
        elif not words:
            seen = "no capability is declared, so there was nothing to alter"
    return ControlResult(WIREDNESS, _WANTED, seen or "reported them", seen is None)


def _not_taken(transcript: Transcript, changed: Mapping[str, Point], lost: Sequence[str]) -> str:
    """Say why an altered value was not there to be reported: the sink did not take it."""
    points = [changed[word] for word in lost]
    for call in transcript.calls:
        if call.point in points and call.outcome != ACKNOWLEDGED:
            return f" (the sink did not take it: {call.name} raised {call.exception})"
    return ""


def _early_end(transcript: Transcript) -> str:
    last = transcript.calls[-1].name if transcript.calls else None
    after = "before any call returned" if last is None else f"after {last} had returned"
    said = "".join(f". {line}" for line in transcript.output.strip().splitlines()[-1:])[:500].rstrip(".")
    if transcript.ended == TIMED_OUT:
        return f"the sink hung, {after}{said}"
    return f"the process that drove the sink ended early, {after}: {transcript.ended}"


def _trouble(transcript: Transcript) -> str | None:
    opened = [call for call in transcript.calls if call.name == "open"]
    if opened and opened[0].outcome != ACKNOWLEDGED:
        return f"the sink could not be opened: {opened[0].exception or opened[0].code}"
    if transcript.ended != OK:
        return _early_end(transcript)
    read = transcript.read
    if read is None or read.points is None:
        return f"the reader gave nothing: {read.error if read is not None else 'it was not run'}"
    return None
