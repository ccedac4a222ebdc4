"""Checks of isolation, concurrency and scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ..growth import growth
from ..model import ACKNOWLEDGED, Check, Finding, Transcript
from .plain_trip import damage
from .surface import untyped_findings
from .trouble import capped, failed, judged, told, trouble


def _judge_parts(
    scenario: str, names: Sequence[str], transcripts: Mapping[str, Transcript], transcript: Transcript
) -> Sequence[Finding]:
    findings: list[Finding] = []
    said = transcript.facts.get("child_said", "")
    if said:
        message = f"A process of its own could not write a place of its own: {said}."
        findings.append(Finding(message, "every call returns", said, "crashed", "spawned process"))
    for name in names:
        part = transcript.facts.get("parts", {}).get(name)
        findings += _part(transcripts, scenario, name, part)
    return findings


def _part(transcripts: Mapping[str, Transcript], scenario: str, name: str, part: Transcript | None) -> list[Finding]:
    if part is None:
        message = f"The place {name} was not written."
        return [Finding(message, "a store", "none", "unreadable", name)]
    broken = trouble({scenario: part}, scenario)
    if broken:
        return broken
    findings = []
    for call in part.calls:
        if call.outcome != ACKNOWLEDGED:
            message = f"The sink on the place {name} did not take everything: {told(call)}."
            findings.append(Finding(message, f"{call.name} returns", told(call), "refused", name))
            break
    return findings + damage(transcripts, part, where=f" in the place {name}")


def _find_second(transcripts: Mapping[str, Transcript]) -> Sequence[Finding]:
    transcript = transcripts.get("second-sink")
    parts = transcript.facts.get("parts", {}) if transcript is not None else {}
    if not parts:
        return trouble(transcripts, "second-sink") or [
            Finding("No second sink was opened.", "a second sink", "none", "unreadable", "second-sink")
        ]
    findings: list[Finding] = []
    for name, part in parts.items():
        broken = trouble({"second-sink": part}, "second-sink")
        findings += broken
        if broken:
            continue
        findings += untyped_findings(part.calls)
        findings += damage(transcripts, part, where=f" (second sink {name})", only_settled=True)
        if not any(call.name == "open second" for call in part.calls):
            message = f"No second sink was opened {name}."
            findings.append(Finding(message, "a second sink", "none", "unreadable", name))
    return capped(findings)


def _judge_fork(transcripts: Mapping[str, Transcript], transcript: Transcript) -> Sequence[Finding]:
    findings = failed(transcript.calls, "flush") + failed(transcript.calls, "close")
    ended = transcript.facts.get("child_ended")
    if ended != "ok":
        message = f"The forked child did not get through emit, flush and close: {ended}."
        findings.append(Finding(message, "a refusal, or nothing", str(ended), "crashed", "forked child"))
    return findings + damage(transcripts, transcript, where=" in the store of the parent of a forked child")


def _judge_threads(transcripts: Mapping[str, Transcript], transcript: Transcript) -> Sequence[Finding]:
    findings = failed(transcript.calls, "flush") + failed(transcript.calls, "close")
    for call in transcript.calls:
        if call.point is not None and call.outcome != ACKNOWLEDGED:
            message = f"A point of one of eight threads was not taken: {told(call)}."
            findings.append(Finding(message, "every emit returns", told(call), "crashed", call.name))
            break
    return findings + damage(transcripts, transcript, where=" out of eight threads")


COST_RATIO = 5.0
"""How much more the last blocks may cost than the first, on the clock and in processor time alike."""

COST_FLOOR = 0.02
"""Seconds of processor time a block below which a ratio tells nothing."""


def _scale_trouble(transcripts: Mapping[str, Transcript]) -> list[Finding]:
    broken = trouble(transcripts, "scale", read=False)
    if broken:
        return broken
    facts = transcripts["scale"].facts
    findings = failed(transcripts["scale"].calls, "flush") + failed(transcripts["scale"].calls, "close")
    if facts.get("refused"):
        message = f"{facts['refused']} of {facts.get('points')} points were not taken, first: {facts.get('first')}."
        findings.append(Finding(message, "every emit returns", str(facts.get("first")), "refused", "scale"))
    if facts.get("read_error"):
        message = f"The reader gave nothing back of {facts.get('points')} points: {facts['read_error']}."
        findings.append(Finding(message, "all points", str(facts["read_error"]), "unreadable", "read"))
    elif facts.get("came_back", 0) < facts.get("points", 0):
        # What the points hold is asked elsewhere; here it only counts that the work was done.
        message = f"Of {facts.get('points')} points {facts.get('came_back', 0)} came back."
        seen = f"{facts.get('came_back', 0)} points"
        findings.append(Finding(message, f"{facts.get('points')} points", seen, "dropped silently", "scale"))
    if len(facts.get("blocks", ())) < 6:
        findings.append(Finding("Too few blocks were measured.", "10 blocks", "fewer", "unreadable", "scale"))
    return findings


def _find_memory(transcripts: Mapping[str, Transcript]) -> Sequence[Finding]:
    broken = _scale_trouble(transcripts)
    if broken:
        return capped(broken)
    facts = transcripts["scale"].facts
    grown = growth([block[2] for block in facts["blocks"]], facts["points"])
    if not grown.keeps_on:
        return []
    size = grown.bytes / 2**20
    return [
        Finding(
            f"Memory grew by {size:.1f} MB over the last {grown.points} of {facts['points']} points, flushes in "
            "between: the sink keeps them.",
            f"at most {grown.allowed / 2**20:.1f} MB",
            f"{size:.1f} MB, {grown.bytes / grown.points:.0f} bytes a point",
            "bounded",
            "scale",
        )
    ]


def _find_cost(transcripts: Mapping[str, Transcript]) -> Sequence[Finding]:
    broken = _scale_trouble(transcripts)
    if broken:
        return capped(broken)
    blocks = transcripts["scale"].facts["blocks"]
    # The first block warms up. The cheaper of two blocks on each side: a busy machine only ever adds.
    first_clock, last_clock = (min(block[0] for block in part) for part in (blocks[1:3], blocks[-2:]))
    first_cpu, last_cpu = (min(block[1] for block in part) for part in (blocks[1:3], blocks[-2:]))
    dearer = last_clock > COST_RATIO * first_clock and last_cpu > COST_RATIO * first_cpu
    if not dearer or last_cpu < COST_FLOOR:
        return []
    each = transcripts["scale"].facts["points"] // len(blocks)
    return [
        Finding(
            f"The last {each} points cost {last_cpu / max(first_cpu, 1e-9):.0f} times what the first cost.",
            f"at most {COST_RATIO:g} times",
            f"{1e6 * first_cpu / each:.1f} microseconds a point at first, {1e6 * last_cpu / each:.1f} at last",
            "bounded",
            "scale",
        )
    ]


SHARING_CHECKS = (
    Check(
        "isolation.two-sinks",
        ("PROT-10",),
        "Do two sinks on two places in one process not see each other, closes included?",
        ("two-sinks",),
        judged("two-sinks", partial(_judge_parts, "two-sinks", ("a", "b")), read=False),
        second_look=True,
        remedy="Keep state in the instance, not in the module or class.",
    ),
    Check(
        "isolation.second-sink",
        ("PROT-10", "PROT-9"),
        "Is a second sink on a place that holds data refused with a code, or are both sinks' points readable?",
        ("second-sink",),
        _find_second,
        second_look=True,
        remedy="Never truncate what is there: refuse with tracker_sink_path_exists, or append.",
    ),
    Check(
        "concurrency.fork",
        ("PROT-10",),
        "Does a forked child write nothing into its parent's store?",
        ("fork",),
        judged("fork", _judge_fork),
        second_look=True,
        level="should",
        remedy="Remember os.getpid() at open, and refuse or do nothing in another process; drop inherited buffers.",
    ),
    Check(
        "concurrency.spawn",
        ("PROT-10",),
        "Can a spawned process write a place of its own while a sink is open here?",
        ("spawn",),
        judged("spawn", partial(_judge_parts, "spawn", ("parent", "spawned")), read=False),
        second_look=True,
        level="should",
        remedy="Lock the place, not the machine.",
    ),
    Check(
        "concurrency.threads",
        ("PROT-10",),
        "Do the points of eight threads all arrive, once and whole?",
        ("threads",),
        judged("threads", _judge_threads),
        second_look=True,
        level="should",
        remedy="Hold a lock around each write.",
    ),
    Check(
        "scale.memory",
        ("PROT-10",),
        "Does memory stay flat over 200,000 points?",
        ("scale",),
        _find_memory,
        level="should",
        remedy="Let go of points once flush has handed them to the store.",
    ),
    Check(
        "scale.cost",
        ("PROT-10",),
        "Does the cost of a point stay flat over 200,000 points?",
        ("scale",),
        _find_cost,
        level="should",
        remedy="Append; never write again or search through what is there already.",
    ),
)
"""Checks of isolation, concurrency and scale."""
