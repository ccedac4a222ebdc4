"""Checks of survival: kill -9, a full disk, a read-only place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ..model import ACKNOWLEDGED, Check, Finding, Transcript
from .matching import received_points, settled
from .plain_trip import damage
from .surface import untyped_findings
from .trouble import capped, ended_early, failed, judged, trouble, unreadable


def _find_killed(scenario: str, transcripts: Mapping[str, Transcript]) -> Sequence[Finding]:
    transcript = transcripts.get(scenario)
    parts = transcript.facts.get("parts", {}) if transcript is not None else {}
    if not parts:
        return trouble(transcripts, scenario, read=False, killed=True) or [
            Finding("Nothing was killed.", "a killed process", "none", "unreadable", scenario)
        ]
    findings: list[Finding] = []
    for name, part in parts.items():
        broken = trouble({scenario: part}, scenario, killed=True)
        findings += broken
        if broken:
            continue
        if part.ended == "ok":
            message = f"The process outlived its own kill signal, {name}."
            findings.append(Finding(message, "killed", "ended by itself", "crashed", name))
        findings += failed(part.calls, "flush")
        findings += _nothing_settled(part, name)
        findings += damage(transcripts, part, where=f" (flushed, then killed {name})", only_settled=True)
    return capped(findings)


def _nothing_settled(part: Transcript, name: str) -> list[Finding]:
    """A sink that takes nothing has nothing to lose; that must not look like survival."""
    if any(call.point is not None and call.outcome == ACKNOWLEDGED for call in part.calls):
        return []
    message = f"The sink took no point before it was killed, {name}."
    return [Finding(message, "points", "none", "refused", name)]


def _judge_full_disk(transcripts: Mapping[str, Transcript], transcript: Transcript) -> Sequence[Finding]:
    nothing_read = unreadable(transcript)
    findings = untyped_findings(transcript.calls) + nothing_read + _nothing_settled(transcript, "on a full disk")
    if not nothing_read:
        findings += damage(transcripts, transcript, where=" on a full disk", only_settled=True)
    return findings


def _find_read_only(transcripts: Mapping[str, Transcript]) -> Sequence[Finding]:
    transcript = transcripts.get("read-only")
    if transcript is None or not transcript.calls:
        return trouble(transcripts, "read-only", read=False)
    broken = ended_early(transcript)
    if broken:
        return broken
    findings = untyped_findings(transcript.calls)
    quiet = all(call.outcome == ACKNOWLEDGED for call in transcript.calls)
    if quiet and not received_points(transcript) and not transcript.facts.get("writable"):
        message = "The sink took every point on a place that cannot be written, and none is there."
        findings.append(Finding(message, "a typed refusal", "every call returned", "dropped silently", "open"))
    elif ACKNOWLEDGED in settled(transcript)[1] or any(
        call.outcome == ACKNOWLEDGED and call.name == "close" for call in transcript.calls
    ):
        findings += damage(transcripts, transcript, where=" on a read-only place", only_settled=True)
    return capped(findings)


def _kill_check(name: str, scenario: str, question: str, remedy: str) -> Check:
    return Check(
        f"survives.{name}",
        ("PROT-10",),
        question,
        (scenario,),
        partial(_find_killed, scenario),
        second_look=True,
        remedy=remedy,
    )


SURVIVING_CHECKS = (
    _kill_check(
        "kill-between",
        "kill",
        "Is everything that was flushed readable after kill -9 between two emits?",
        "Hand everything to the operating system in flush, and let the reader take a file without its end.",
    ),
    _kill_check(
        "kill-inside",
        "kill-inside",
        "Is everything that was flushed readable after kill -9 in the middle of an emit?",
        "Write each record so that a half one at the end is told from a whole one, and let the reader stop there.",
    ),
    Check(
        "survives.full-disk",
        ("PROT-10", "PROT-9"),
        "Does a full disk give a typed refusal, with everything flushed before still readable?",
        ("full-disk",),
        judged("full-disk", _judge_full_disk, read=False),
        second_look=True,
        remedy="Catch OSError around every write, cut off the half record, raise tracker_sink_write_failed.",
    ),
    Check(
        "survives.read-only",
        ("PROT-10", "PROT-9"),
        "Does a place that cannot be written give a typed refusal?",
        ("read-only",),
        _find_read_only,
        second_look=True,
        remedy="Catch OSError where the store is opened and raise tracker_sink_write_failed.",
    ),
)
"""Checks of survival."""
