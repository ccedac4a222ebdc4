"""What a check tells beside its outcome: what kind of loss it found, and which legal points were refused.

Which rule gives the number that came back, and what is special about a lost point, are facts about the one value or
point at hand; which of them a sink's fault explains is for whoever reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any

from ...protocol import EmbeddingPoint, HistogramPoint, ImagePoint, Point, ScalarPoint
from ...protocol.compare import as_float32, same_value
from ..model import REFUSED, Transcript
from .matching import Matching
from .showing import place_of, shown, step_of, tag_of

_DIGITS = range(1, 16)
"""Sixteen digits and more tell a float64 from its neighbours so nearly that they explain nothing."""


def narrowed_to(sent: Any, seen: Any) -> str:
    """Return in words which narrower form of a sent number came back; empty where none, or more than one, gives it.

    Zeros and numbers that are not finite are left out: too many forms make them of something else.
    """
    if not _is_usual(sent) or not _is_usual(seen) or seen == 0:
        return ""
    told = [", which is its float32"] if same_value(as_float32(sent), seen) else []
    digits = next((digits for digits in _DIGITS if same_value(float(f"{sent:.{digits}g}"), seen)), None)
    told += [] if digits is None else [f", which is its first {digits} digits"]
    return told[0] if len(told) == 1 else ""


def _is_usual(value: Any) -> bool:
    """Say whether a value is a number that is finite as a float64."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return isfinite(value) if isinstance(value, float) else abs(value) < 2**1023


def special_about(matching: Matching, index: int) -> str:
    """Return in words what tells a sent point from the others: its place, a value that is not finite, a successor."""
    point = matching.sent[index]
    facts = []
    if index == 0:
        facts.append("the first of all points")
    if index == len(matching.sent) - 1:
        facts.append("the last of all points")
    if isinstance(point, ScalarPoint) and isinstance(point.value, float) and not isfinite(point.value):
        facts.append("a value that is not finite")
    if _was_followed(matching, index):
        facts.append("a later point of its tag and step came back")
    return f" ({'; '.join(facts)})" if facts else ""


def _was_followed(matching: Matching, index: int) -> bool:
    """Say whether a later point of the same kind, tag and step came back."""
    point = matching.sent[index]
    place = (point.capability, tag_of(point), step_of(point))
    later = (matching.sent[here] for here, _ in matching.pairs if here > index)
    return hasattr(point, "tag") and any((p.capability, tag_of(p), step_of(p)) == place for p in later)


def refusals(transcripts: Iterable[Transcript], capability: str | None) -> str:
    """Return how many legal points were refused, and under each code what they were; empty where none was."""
    codes: dict[str, dict[str, None]] = {}
    count = 0
    for transcript in transcripts:
        for call in transcript.calls:
            if call.point is None or call.outcome != REFUSED or capability not in (None, call.point.capability):
                continue
            count += 1
            codes.setdefault(str(call.code), {})[_refused_thing(call.point, str(call.code))] = None
    told = "; ".join(f"{code}: {', '.join(things)}" for code, things in codes.items())
    return f"{count} legal points were refused with a code: {told}" if count else ""


def _refused_thing(point: Point, code: str) -> str:
    """Return what a code of refusal speaks about: the tag, the number, the size, or else which point it was."""
    if code == "tracker_tag_unsafe":
        # Each odd tag is sent with a suffix for each kind of point; a tag is told once.
        return shown(tag_of(point).removesuffix(".t").removesuffix(".h"), limit=40)
    if code == "tracker_histogram_bucket_cap" and isinstance(point, HistogramPoint):
        return f"{len(point.counts)} buckets"
    return _body_of(point) if code == "tracker_value_unsupported" else place_of(point)


def _body_of(point: Point) -> str:
    """Return in words what is in a point that a store may be unable to hold."""
    if isinstance(point, ScalarPoint):
        return repr(point.value)
    if isinstance(point, HistogramPoint):
        return f"counts up to {max(point.counts)} in {len(point.counts)} buckets"
    if isinstance(point, (ImagePoint, EmbeddingPoint)):
        return f"{point.dtype} of shape {point.shape}"
    return place_of(point)
