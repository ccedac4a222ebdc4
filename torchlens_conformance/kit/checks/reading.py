"""Checks of the reader: it works from the path alone, and it tells one store from another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model import ACKNOWLEDGED, Finding, Transcript
from ..model import Check as _Check
from ..reading import SAME
from .showing import point_key, shown, shown_point
from .trouble import judged


def _judge_fresh(transcripts: Mapping[str, Transcript], transcript: Transcript) -> Sequence[Finding]:
    read, nonce = transcript.read, str(transcript.facts.get("nonce", ""))
    findings = []
    if read is not None and read.how == SAME:
        message = "The reader works only in the process that wrote: there is no store that others could read."
        findings.append(Finding(message, "points from the path alone", read.how, "unreadable", "read"))
    points = read.points if read is not None and read.points is not None else ()
    if not nonce or not any(nonce in repr(point) for point in points):
        message = f"The reader gave {len(points)} points, and none of them holds the nonce of this run."
        seen = shown_point(points[0]) if points else "no points"
        findings.append(Finding(message, f"points with {shown(nonce)}", seen, "unreadable", "read"))
    return findings


def _judge_changes(transcripts: Mapping[str, Transcript], transcript: Transcript) -> Sequence[Finding]:
    other = transcript.facts.get("reads", {}).get("b")
    if other is None or other.points is None:
        error = getattr(other, "error", None) or "nothing was read"
        return [Finding(f"The second place gave nothing: {error}.", "points", error, "unreadable", "read")]
    first = transcript.read.points if transcript.read is not None and transcript.read.points is not None else ()
    changed = tuple(transcript.facts.get("changed", ()))
    findings = []
    seen_first, seen_second = {point_key(point) for point in first}, {point_key(point) for point in other.points}
    for sent, seen, unseen, name in (
        (transcript.sent, seen_first, seen_second, "first"),
        (changed, seen_second, seen_first, "second"),
    ):
        own = [point for point in sent if point not in (changed if name == "first" else transcript.sent)]
        found = [point for point in own if point_key(point) in seen]
        stray = [point for point in own if point_key(point) in unseen]
        if own and not found:
            message = f"The reader saw none of the {len(own)} points that only the {name} place holds."
            findings.append(Finding(message, shown_point(own[0]), "nothing", "unreadable", name))
        if stray:
            message = f"The reader saw a point of the {name} place in the other one."
            findings.append(Finding(message, "nothing", shown_point(stray[0]), "coerced", name))
    taken = any(call.point is not None and call.outcome == ACKNOWLEDGED for call in transcript.calls)
    if not taken:
        findings.append(Finding("No point was taken.", "points", "none", "refused", "changes"))
    return findings


READING_CHECKS = (
    _Check(
        "reader.fresh",
        ("FID-1",),
        "Does the reader work in a process that knows nothing but the path, and does it give this run's nonce?",
        ("fresh",),
        judged("fresh", _judge_fresh),
        remedy="Read from the place; keep nothing in memory, and make the reader importable by module and name.",
    ),
    _Check(
        "reader.sees-changes",
        ("FID-1",),
        "Does the reader tell two stores apart that hold different points?",
        ("changes",),
        judged("changes", _judge_changes),
        remedy="Read what the place holds; no constant, no cache across places.",
    ),
)
"""Checks of the reader."""
