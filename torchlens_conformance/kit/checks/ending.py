"""Checks of teardown: flush, close, and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..model import ACKNOWLEDGED, RAISED, Check, Finding, Transcript
from .plain_trip import damage
from .showing import place_of
from .trouble import failed, judged, told, untyped

_AFTER = "after close"


def _judge_flush(transcripts: Mapping[str, Transcript], transcript: Transcript) -> Sequence[Finding]:
    findings = failed(transcript.calls, "flush")
    for call in transcript.calls:
        if call.point is not None and call.note == "after flush" and call.outcome != ACKNOWLEDGED:
            message = f"The sink took no more points after a flush: {told(call)}."
            findings.append(Finding(message, "a flush does not close", told(call), "refused", place_of(call.point)))
            break
    return findings + damage(transcripts, transcript, where=" around a flush", whole=False)


def _judge_close_twice(transcripts: Mapping[str, Transcript], transcript: Transcript) -> Sequence[Finding]:
    return failed(transcript.calls, "close") + damage(transcripts, transcript, where=" after closing more than once")


def _judge_closed(transcripts: Mapping[str, Transcript], transcript: Transcript) -> Sequence[Finding]:
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
    early = tuple(call for call in transcript.calls if call.note != _AFTER)
    # What was emitted after close was sent by nobody as far as the store may know: it must not be there.
    return findings + damage(transcripts, replace(transcript, calls=early), where=" of a sink that was closed before")


def _judge_close_only(transcripts: Mapping[str, Transcript], transcript: Transcript) -> Sequence[Finding]:
    where = ", closed without a flush"
    return failed(transcript.calls, "close") + damage(transcripts, transcript, where=where, whole=False)


ENDING_CHECKS = (
    Check(
        "teardown.flush-before-close",
        ("PROT-6",),
        "Is flush apart from close: it returns, may be repeated, and the sink goes on after it?",
        ("teardown",),
        judged("teardown", _judge_flush),
        second_look=True,
        remedy="Let flush hand everything to the store and leave the sink open.",
    ),
    Check(
        "teardown.close-twice",
        ("PROT-6",),
        "May close be called again, without an error and without changing the store?",
        ("close-twice",),
        judged("close-twice", _judge_close_twice),
        second_look=True,
        remedy="Remember that the sink is closed, and do nothing the second time.",
    ),
    Check(
        "teardown.closed-refuses",
        ("PROT-6", "PROT-11"),
        "Does a closed sink refuse every point with tracker_sink_closed, and does nothing reach the store?",
        ("closed",),
        judged("closed", _judge_closed),
        second_look=True,
        remedy="Raise Refusal('tracker_sink_closed', ...) from every emit method once closed.",
    ),
    Check(
        "teardown.close-is-enough",
        ("PROT-6",),
        "Is everything there after close alone, without a flush?",
        ("close-only",),
        judged("close-only", _judge_close_only),
        second_look=True,
        remedy="Flush inside close, and wait there for threads and processes of your own.",
    ),
)
"""Checks of teardown."""
