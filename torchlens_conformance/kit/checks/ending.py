"""Checks of teardown: flush, close, and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model import ACKNOWLEDGED, RAISED, Check, Finding, Transcript
from .delivery import lost_findings, twice_findings, whole_findings
from .matching import match, match_points
from .showing import place_of, shown_point
from .trouble import capped, failed, told, trouble, untyped

_AFTER = "after close"


def _find_flush(transcripts: Mapping[str, Transcript]) -> Sequence[Finding]:
    broken = trouble(transcripts, "teardown")
    if broken:
        return broken
    transcript = transcripts["teardown"]
    findings = failed(transcript.calls, "flush")
    for call in transcript.calls:
        if call.point is not None and call.note == "after flush" and call.outcome != ACKNOWLEDGED:
            message = f"The sink took no more points after a flush: {told(call)}."
            findings.append(Finding(message, "a flush does not close", told(call), "refused", place_of(call.point)))
            break
    matching = match(transcript)
    findings += lost_findings(matching, where=" around a flush")
    findings += twice_findings(matching, where=" around a flush")
    return capped(findings)


def _find_close_twice(transcripts: Mapping[str, Transcript]) -> Sequence[Finding]:
    broken = trouble(transcripts, "close-twice")
    if broken:
        return broken
    transcript = transcripts["close-twice"]
    findings = failed(transcript.calls, "close")
    findings += whole_findings(match(transcript), where=" after closing more than once")
    return capped(findings)


def _find_closed(transcripts: Mapping[str, Transcript]) -> Sequence[Finding]:
    broken = trouble(transcripts, "closed")
    if broken:
        return broken
    transcript = transcripts["closed"]
    late = [call for call in transcript.calls if call.point is not None and call.note == _AFTER]
    findings = []
    if not late:
        findings.append(Finding("Nothing was emitted after close.", "emits after close", "none", "unreadable", "close"))
    for call in late:
        if call.outcome == RAISED:
            findings.append(untyped(call, "a refusal tracker_sink_closed"))
        elif call.outcome == ACKNOWLEDGED:
            message = f"{call.name} returned after close; the point is lost or stands in a finished store."
            findings.append(Finding(message, "tracker_sink_closed", told(call), "dropped silently", call.name))
        elif call.code != "tracker_sink_closed":
            message = f"{call.name} refused {call.code} after close; callers branch on tracker_sink_closed."
            findings.append(Finding(message, "tracker_sink_closed", str(call.code), "refused", call.name))
    early = [call for call in transcript.calls if call.point is not None and call.note != _AFTER]
    read = transcript.read.points if transcript.read is not None else None
    points = [call.point for call in early if call.point is not None]
    matching = match_points(points, [call.outcome for call in early], read or ())
    findings += [
        Finding(
            "A point that was emitted after close stands in the store.",
            "nothing",
            shown_point(matching.received[index]),
            "coerced",
            place_of(matching.received[index]),
        )
        for index in matching.extra
    ]
    findings += lost_findings(matching, where=" before close")
    return capped(findings)


def _find_close_only(transcripts: Mapping[str, Transcript]) -> Sequence[Finding]:
    broken = trouble(transcripts, "close-only")
    if broken:
        return broken
    transcript = transcripts["close-only"]
    findings = failed(transcript.calls, "close")
    matching = match(transcript)
    findings += lost_findings(matching, where=", then closed without a flush")
    findings += twice_findings(matching, where=" after a close without a flush")
    return capped(findings)


ENDING_CHECKS = (
    Check(
        "teardown.flush-before-close",
        ("PROT-6",),
        "Is flush apart from close: it returns, may be repeated, and the sink goes on after it?",
        ("teardown",),
        _find_flush,
        remedy="Let flush hand everything to the store and leave the sink open.",
    ),
    Check(
        "teardown.close-twice",
        ("PROT-6",),
        "May close be called again, without an error and without changing the store?",
        ("close-twice",),
        _find_close_twice,
        remedy="Remember that the sink is closed, and do nothing the second time.",
    ),
    Check(
        "teardown.closed-refuses",
        ("PROT-6", "PROT-11"),
        "Does a closed sink refuse every point with tracker_sink_closed, and does nothing reach the store?",
        ("closed",),
        _find_closed,
        remedy="Raise Refusal('tracker_sink_closed', ...) from every emit method once closed.",
    ),
    Check(
        "teardown.close-is-enough",
        ("PROT-6",),
        "Is everything there after close alone, without a flush?",
        ("close-only",),
        _find_close_only,
        remedy="Flush inside close, and wait there for threads and processes of your own.",
    ),
)
"""Checks of teardown."""
