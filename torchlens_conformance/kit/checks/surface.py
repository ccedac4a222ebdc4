"""Checks of the surface: words, methods, hooks, typed refusals, and points that stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...protocol import CAPABILITY_METHODS, DELIVERY_STATES
from ..model import ACKNOWLEDGED, RAISED, REFUSED, Call, Check, Finding, Transcript
from .plain_trip import damage
from .showing import place_of, shown
from .trouble import capped, judged, told, trouble, untyped

UNADVERTISED = "not advertised"


def _judge_words(transcripts: Mapping[str, Transcript], transcript: Transcript) -> Sequence[Finding]:
    facts = transcript.facts
    words, again = facts.get("own_words"), facts.get("words_again")
    findings = []
    if words is None or facts.get("words_type") == "str":
        seen = f"a {facts.get('words_type', 'failure')}"
        message = f"capabilities() must give a collection of words, and gave {seen}."
        return [Finding(message, "a set or tuple of words", seen, "coerced", "capabilities")]
    for word in words:
        if word not in CAPABILITY_METHODS:
            closed = ", ".join(CAPABILITY_METHODS)
            message = f"capabilities() gives the word {word!r}, which is none of the closed list."
            findings.append(Finding(message, closed, shown(word), "coerced", "capabilities"))
    if not words:
        message = "capabilities() gives no word: a sink that carries nothing cannot be certified."
        findings.append(Finding(message, "one word or more", "no word", "refused", "capabilities"))
    if again != words:
        message = "capabilities() gives other words when it is asked again."
        findings.append(Finding(message, shown(words), shown(again), "coerced", "capabilities"))
    return capped(findings)


def _judge_methods(transcripts: Mapping[str, Transcript], transcript: Transcript) -> Sequence[Finding]:
    methods = transcript.facts.get("methods", ())
    words = {*(transcript.facts.get("own_words") or ()), *transcript.facts.get("words", ())}
    findings = []
    for word, method in CAPABILITY_METHODS.items():
        if word in words and method not in methods:
            message = f"The capability {word} is advertised or declared, and the sink has no {method}()."
            findings.append(Finding(message, f"{method}()", "no such method", "crashed", method))
    for word in sorted(set(transcript.facts.get("words", ())) - set(transcript.facts.get("own_words") or ())):
        message = f"The subject declares {word}, and the sink's capabilities() does not give it."
        findings.append(Finding(message, word, shown(transcript.facts.get("own_words")), "refused", "capabilities"))
    for method in ("flush", "close"):
        if method not in methods:
            message = f"The sink has no {method}()."
            findings.append(Finding(message, f"{method}()", "no such method", "crashed", method))
    for call in transcript.calls:
        if call.note == UNADVERTISED and call.outcome == ACKNOWLEDGED:
            message = f"{call.name}() takes a point of a kind that capabilities() does not give."
            findings.append(
                Finding(message, "a typed refusal, or no such method", told(call), "dropped silently", call.name)
            )
    return capped(findings)


_TYPED_SCENARIOS = ("surface", "round-trip", "tags", "closed")


def _find_untyped(transcripts: Mapping[str, Transcript]) -> Sequence[Finding]:
    findings: list[Finding] = []
    for scenario in _TYPED_SCENARIOS:
        broken = trouble(transcripts, scenario, read=False)
        findings += broken
        if scenario in transcripts:
            findings += untyped_findings(transcripts[scenario].calls)
    return capped(findings)


def untyped_findings(calls: Iterable[Call]) -> list[Finding]:
    """Return a finding for every call that raised without a code, or refused without fields or remedy."""
    findings = []
    for call in calls:
        where = place_of(call.point) if call.point is not None else call.note or call.name
        if call.outcome == RAISED:
            findings.append(untyped(call))
        elif call.outcome == REFUSED and not (call.remedy and call.remedy.strip()):
            message = f"{call.name} refused {call.code} without a remedy."
            findings.append(Finding(message, "a remedy: one sentence on what to do", "no remedy", "refused", where))
        elif call.outcome == REFUSED and call.fields.get("fields") == "missing":
            message = f"{call.name} refused {call.code} without fields."
            findings.append(Finding(message, "a mapping of the offending values", "no fields", "refused", where))
        elif call.outcome == REFUSED and str(call.code) not in (call.exception or ""):
            message = f"The text of the refusal {call.code} by {call.name} does not hold its code."
            findings.append(Finding(message, str(call.code), str(call.exception), "refused", where))
    return findings


def _judge_preflight(transcripts: Mapping[str, Transcript], transcript: Transcript) -> Sequence[Finding]:
    hooks = transcript.facts.get("hooks", ())
    calls = [call for call in transcript.calls if call.name in hooks]
    findings = untyped_findings(calls)
    for call in calls:
        if call.note == "its own grid" and call.outcome != ACKNOWLEDGED:
            message = "The sink refuses the grid that it offers itself."
            findings.append(Finding(message, "its own grid passes", told(call), "refused", call.name))
        if call.name in ("relay_state", "default_histogram_descriptor", "last_step") and call.outcome == REFUSED:
            findings.append(Finding(f"{call.name}() must answer.", "an answer", told(call), "refused", call.name))
    relay, grid, last = (transcript.facts.get(name) for name in ("relay", "grid", "last_step"))
    if relay is not None and relay not in DELIVERY_STATES:
        message = "relay_state() must give a delivery state with its evidence."
        findings.append(Finding(message, ", ".join(DELIVERY_STATES), str(relay), "coerced", "relay_state"))
    if grid not in (None, "GridDescriptor"):
        message = "default_histogram_descriptor() must give a grid."
        findings.append(Finding(message, "a GridDescriptor", str(grid), "coerced", "default_histogram_descriptor"))
    if last is not None:
        message = "last_step() of an empty store must be None."
        findings.append(Finding(message, "None", shown(last), "coerced", "last_step"))
    findings += _preflight_kept(transcripts)
    return findings


def _preflight_kept(transcripts: Mapping[str, Transcript]) -> list[Finding]:
    """What the preflight let pass must not be refused by emit for the same reason (PROT-7)."""
    passed = {
        call.note: call
        for call in transcripts["surface"].calls
        if call.name.startswith("preflight_") and call.outcome == ACKNOWLEDGED
    }
    findings = []
    for scenario in ("round-trip", "tags"):
        transcript = transcripts.get(scenario)
        for call in transcript.calls if transcript is not None else ():
            if call.point is None or call.outcome != REFUSED:
                continue
            tag = getattr(call.point, "tag", "")
            buckets = str(len(getattr(call.point, "counts", ())))
            if call.code == "tracker_tag_unsafe" and tag in passed:
                message = f"preflight_tags let {shown(tag)} pass, and emit refused it."
                findings.append(Finding(message, "refused at attach", told(call), "refused", place_of(call.point)))
            if call.code == "tracker_histogram_bucket_cap" and buckets in passed:
                message = f"preflight_histograms let {buckets} buckets pass, and emit refused them."
                findings.append(Finding(message, "refused at attach", told(call), "refused", place_of(call.point)))
    return findings


def preflight_not_applicable(transcripts: Mapping[str, Transcript]) -> str | None:
    """Say why the check of hooks does not apply, or None when it does."""
    transcript = transcripts.get("surface")
    if transcript is None or "hooks" not in transcript.facts or transcript.facts["hooks"]:
        return None
    return "the sink has none of the optional hooks"


def _judge_mutated(transcripts: Mapping[str, Transcript], transcript: Transcript) -> Sequence[Finding]:
    return [
        Finding(
            f"The sink changed a point that it was handed (emit {index + 1}).",
            before,
            after,
            "coerced",
            place_of(transcript.sent[index]),
        )
        for index, before, after in transcript.facts.get("mutated", ())
    ]


def _judge_aliased(transcripts: Mapping[str, Transcript], transcript: Transcript) -> Sequence[Finding]:
    findings = damage(transcripts, transcript, where=", after its sources were overwritten")
    before, after = transcript.facts.get("words_before"), transcript.facts.get("words_after")
    if before != after:
        message = "The caller emptied what capabilities() gave, and the sink advertises other words since."
        findings.append(Finding(message, shown(before), shown(after), "coerced", "capabilities"))
    return findings


SURFACE_CHECKS = (
    Check(
        "surface.words",
        ("PROT-2",),
        "Does capabilities() give words of the closed list, the same each time?",
        ("surface",),
        judged("surface", _judge_words, read=False),
        remedy="Return a frozenset of capability words.",
    ),
    Check(
        "surface.methods",
        ("PROT-1", "PROT-2"),
        "Does the sink have the methods of its capabilities, flush and close, and take nothing that it does not "
        "advertise?",
        ("surface",),
        judged("surface", _judge_methods, read=False),
        remedy="Implement the method or drop the word; refuse other kinds with tracker_point_unsupported.",
    ),
    Check(
        "surface.refuses-typed",
        ("PROT-9",),
        "Is every refusal an exception with a code, fields and a remedy, and is nothing else raised?",
        _TYPED_SCENARIOS,
        _find_untyped,
        remedy="Raise torchlens_conformance.protocol.Refusal, or an exception of your own with code, fields, remedy.",
    ),
    Check(
        "surface.preflight",
        ("PROT-7", "PROT-8", "PROT-11"),
        "Do the optional hooks answer in their forms, and does emit take what the preflight let pass?",
        ("surface", "round-trip", "tags"),
        judged("surface", _judge_preflight, read=False),
        remedy="Let preflight_tags and preflight_histograms refuse everything that emit refuses for that reason.",
    ),
    Check(
        "points.unchanged",
        ("POINT-1",),
        "Does the sink leave the points alone that it is handed?",
        ("aliasing",),
        judged("aliasing", _judge_mutated, read=False),
        remedy="Build what you store from the point; never assign to its fields.",
    ),
    Check(
        "points.not-aliased",
        ("POINT-1",),
        "Does what the caller does with its data after an emit leave the store alone?",
        ("aliasing",),
        judged("aliasing", _judge_aliased),
        second_look=True,
        remedy="Keep no reference by id() or to a buffer that you use again; return a new set from capabilities().",
    ),
)
"""Checks of the surface and of points."""
