"""What keeps a scenario from telling anything, as findings with clear sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..model import ACKNOWLEDGED, RAISED, REFUSED, Call, Finding, Transcript
from ..processes import KILLED, OK

MOST_FINDINGS = 12
"""Findings that one check tells in full; what is beyond is counted."""


def trouble(
    transcripts: Mapping[str, Transcript], scenario: str, *, read: bool = True, killed: bool = False
) -> list[Finding]:
    """Return what went wrong with a scenario as a whole; an empty list when its transcript can be judged.

    Args:
        transcripts: By scenario id.
        scenario: The one that is needed.
        read: Whether a read-back is needed.
        killed: Whether the scenario kills its process.
    """
    transcript = transcripts.get(scenario)
    if transcript is None:
        return [Finding(f"The scenario {scenario} was not run.", "a transcript", "none", "unreadable", scenario)]
    found = [*ended_early(transcript, killed), *_opened(transcript)]
    if found or not read:
        return found
    return unreadable(transcript)


Judge = Callable[[Mapping[str, Transcript], Transcript], Sequence[Finding]]
"""From all transcripts, and the one that a check is about, to findings."""


def judged(
    scenario: str, judge: Judge, *, read: bool = True
) -> Callable[[Mapping[str, Transcript]], tuple[Finding, ...]]:
    """Return the question of a check about one scenario: what kept it from telling anything, else what ``judge`` finds.

    Args:
        scenario: The scenario.
        judge: Looks at its transcript.
        read: Whether a read-back is needed.
    """

    def find(transcripts: Mapping[str, Transcript]) -> tuple[Finding, ...]:
        broken = trouble(transcripts, scenario, read=read)
        return capped(broken or judge(transcripts, transcripts[scenario]))

    return find


def unreadable(transcript: Transcript) -> list[Finding]:
    """Return a finding when nothing was read back."""
    back = transcript.read
    if back is not None and back.points is not None:
        return []
    error = (back.error if back is not None else None) or "nothing was read"
    return [
        Finding(
            f"The reader gave nothing back in the scenario {transcript.scenario}: {error}.",
            "the points that were sent",
            error,
            "unreadable",
            "read",
        )
    ]


def ended_early(transcript: Transcript, killed: bool = False) -> list[Finding]:
    """Return a finding when the driving process did not end as the scenario wants it to."""
    if transcript.ended == OK or (killed and transcript.ended == KILLED):
        return []
    last = transcript.calls[-1] if transcript.calls else None
    after = "before any call returned" if last is None else f"after {last.name} had returned"
    said = transcript.output.strip().splitlines()[-1:]
    tail = f" It said last: {said[0].strip()[:300]!r}." if said else ""
    return [
        Finding(
            f"The process that drove the sink ended early ({transcript.ended}) in the scenario {transcript.scenario}, "
            f"{after}.{tail}",
            "a process that runs to its end",
            transcript.ended,
            "crashed",
            last.name if last is not None else "open",
        )
    ]


def _opened(transcript: Transcript) -> list[Finding]:
    opens = [call for call in transcript.calls if call.name == "open"]
    if not opens:
        return [Finding("The sink was never opened.", "an open sink", "no call to open", "crashed", "open")]
    return [
        Finding(
            f"No sink could be opened on an empty folder: {told(call)}.",
            "an open sink",
            told(call),
            "refused" if call.outcome == REFUSED else "crashed",
            "open",
        )
        for call in opens[:1]
        if call.outcome != ACKNOWLEDGED
    ]


def told(call: Call) -> str:
    """Return what a call did, in words."""
    if call.outcome == ACKNOWLEDGED:
        return f"{call.name} returned"
    if call.outcome == REFUSED:
        return f"{call.name} refused {call.code}"
    return f"{call.name} raised {call.exception}"


def untyped(call: Call, expected: str = "a refusal with code, fields and remedy") -> Finding:
    """Return the finding that a call raised something that is no refusal. Clause: PROT-9."""
    return Finding(
        f"{call.name} raised an untyped exception: {call.exception}.", expected, told(call), "crashed", call.name
    )


def failed(calls: Sequence[Call], name: str) -> list[Finding]:
    """Return a finding for every call of ``name`` that did not return."""
    return [
        Finding(
            f"{call.name} must return here, but it {'refused' if call.outcome == REFUSED else 'raised'}: "
            f"{call.exception or call.code}.",
            f"{call.name} returns",
            told(call),
            "crashed" if call.outcome == RAISED else "refused",
            call.note or call.name,
        )
        for call in calls
        if call.name == name and call.outcome != ACKNOWLEDGED
    ]


def capped(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the first findings, and one that counts the others."""
    kept = tuple(findings[:MOST_FINDINGS])
    if len(findings) == len(kept):
        return kept
    rest = len(findings) - len(kept)
    last = findings[-1]
    return (*kept, Finding(f"And {rest} more of this sort.", last.expected, last.seen, last.loss, last.where))
