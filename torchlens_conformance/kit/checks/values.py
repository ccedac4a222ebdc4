"""Checks of values: what came back for each capability, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ...protocol import Point
from ...protocol.compare import value_error
from ..model import ACKNOWLEDGED, RAISED, Check, Finding, Transcript
from .matching import Matching, match
from .showing import body_fields, key_of, place_of, shown, step_of, tag_of
from .telling import narrowed_to
from .trouble import capped, judged, trouble

_BOUND = 2.0**-7
"""Relative error up to which a changed number counts as bounded: bfloat16 still does."""

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "scalar": ("value",),
    "raw_histogram": ("counts", "edges"),
    "text_manifest": ("text",),
    "image": ("data", "shape", "dtype"),
    "graph": ("graph",),
    "run_metadata": ("metadata",),
    "structured_event": ("kind", "payload"),
    "embedding_module": ("data", "shape", "dtype", "labels"),
}


def _judge_values(
    capability: str, fields: tuple[str, ...], transcripts: Mapping[str, Transcript], transcript: Transcript
) -> Sequence[Finding]:
    matching = match(transcript)
    findings = list(refused_ordinary(transcript, capability))
    pairs = _pairs_of(matching, capability)
    if not pairs:
        findings.append(_nothing_back(matching, capability))
    for here, there in pairs:
        findings += _differences(matching.sent[here], matching.received[there], fields)
    return findings


def _pairs_of(matching: Matching, capability: str | None) -> list[tuple[int, int]]:
    return [pair for pair in matching.pairs if capability in (None, matching.sent[pair[0]].capability)]


def _nothing_back(matching: Matching, capability: str) -> Finding:
    taken = sum(
        outcome == ACKNOWLEDGED and point.capability == capability
        for point, outcome in zip(matching.sent, matching.outcomes)
    )
    return Finding(
        f"None of the {taken} {capability} points that the sink took came back.",
        f"{taken} points",
        "none",
        "dropped silently" if taken else "refused",
        capability,
    )


def refused_ordinary(transcript: Transcript, capability: str) -> Iterator[Finding]:
    """Yield a finding for every ordinary point that was not taken, and for every point that raised."""
    emits = [call for call in transcript.calls if call.point is not None]
    for call, ordinary in zip(emits, transcript.facts.get("ordinary", (True,) * len(emits))):
        point = call.point
        if point is None or point.capability != capability or call.outcome == ACKNOWLEDGED:
            continue
        if call.outcome == RAISED:
            yield Finding(
                f"The sink advertises {capability} and raised on a legal point: {call.exception}.",
                "the point is taken, or refused with a code",
                f"{call.name} raised {call.exception}",
                "crashed",
                place_of(point),
            )
        elif ordinary:
            yield Finding(
                f"The sink advertises {capability} and refused an ordinary point with {call.code}.",
                "ordinary points are taken",
                f"{call.name} refused {call.code}",
                "refused",
                place_of(point),
            )


def _differences(sent: Point, received: Point, fields: Sequence[str]) -> Iterator[Finding]:
    there = body_fields(received)
    for name, value in body_fields(sent).items():
        if name not in fields or key_of(value) == key_of(there[name]):
            continue
        expected, seen, where = _narrowed(value, there[name])
        yield Finding(
            f"The {name} of {place_of(sent)} changed{where}: sent {expected}, came back {seen}"
            f"{narrowed_to(value, there[name])}.",
            expected,
            seen,
            _loss(value, there[name]),
            place_of(sent),
        )


def _narrowed(sent: Any, seen: Any) -> tuple[str, str, str]:
    """Return the two values, or the first place where two sequences of one length differ."""
    if isinstance(sent, Mapping) and isinstance(seen, Mapping):
        names = [name for name in {**sent, **seen} if key_of(sent.get(name, ...)) != key_of(seen.get(name, ...))]
        first = names[0]
        shows = [shown(side[first]) if first in side else "nothing" for side in (sent, seen)]
        return shows[0], shows[1], f" in {len(names)} keys, first {shown(first)}"
    sequences = (str, bytes, tuple)
    if isinstance(sent, sequences) and isinstance(seen, sequences) and len(sent) != len(seen):
        return f"length {len(sent)}: {shown(sent)}", f"length {len(seen)}: {shown(seen)}", ""
    if isinstance(sent, (str, bytes, tuple)) and type(sent) is type(seen):
        at = [index for index, pair in enumerate(zip(sent, seen)) if key_of(pair[0]) != key_of(pair[1])]
        if isinstance(sent, tuple) and at:
            return shown(sent[at[0]]), shown(seen[at[0]]), f" at {len(at)} of {len(sent)} positions, first {at[0]}"
        if at:
            start = max(0, at[0] - 8)
            return shown(sent[start : at[0] + 24]), shown(seen[start : at[0] + 24]), f" from position {at[0]} on"
    return shown(sent), shown(seen), ""


def _loss(sent: Any, seen: Any) -> str:
    if isinstance(sent, (int, float)) and isinstance(seen, (int, float)) and not isinstance(sent, bool):
        return "bounded" if value_error(sent, seen) <= _BOUND and sent != 0 else "coerced"
    if isinstance(sent, tuple) and isinstance(seen, tuple) and len(sent) == len(seen):
        changed = [(here, there) for here, there in zip(sent, seen) if key_of(here) != key_of(there)]
        return "bounded" if all(_loss(here, there) == "bounded" for here, there in changed) else "coerced"
    if isinstance(sent, Mapping) and isinstance(seen, Mapping) and not sent.keys() <= seen.keys():
        return "dropped silently"
    return "coerced"


def _judge_summary(transcripts: Mapping[str, Transcript], transcript: Transcript) -> Sequence[Finding]:
    matching = match(transcript)
    pairs = _pairs_of(matching, "raw_histogram")
    findings = [] if pairs else [_nothing_back(matching, "raw_histogram")]
    for here, there in pairs:
        findings += _differences(matching.sent[here], matching.received[there], ("summary",))
    return findings


def _judge_steps(transcripts: Mapping[str, Transcript], transcript: Transcript) -> Sequence[Finding]:
    matching = match(transcript)
    stepped = [pair for pair in matching.pairs if hasattr(matching.sent[pair[0]], "step")]
    findings = []
    if not stepped and any(hasattr(point, "step") for point in matching.sent):
        findings.append(Finding("No point with a step came back.", "steps", "none", "dropped silently", "round-trip"))
    for here, there in stepped:
        sent, seen = step_of(matching.sent[here]), step_of(matching.received[there])
        if sent != seen:
            findings.append(
                Finding(
                    f"The step of {place_of(matching.sent[here])} changed: sent {shown(sent)}, "
                    f"came back {shown(seen)}.",
                    shown(sent),
                    shown(seen),
                    "coerced",
                    place_of(matching.sent[here]),
                )
            )
    return findings


def _find_tags(transcripts: Mapping[str, Transcript]) -> Sequence[Finding]:
    findings = []
    for scenario in ("round-trip", "tags"):
        broken = trouble(transcripts, scenario)
        if broken:
            findings += broken
            continue
        matching = match(transcripts[scenario])
        tagged = [pair for pair in matching.pairs if hasattr(matching.sent[pair[0]], "tag")]
        if not tagged and any(hasattr(point, "tag") for point in matching.sent):
            message = f"No point with a tag came back in the scenario {scenario}."
            findings.append(Finding(message, "tags as sent", "none", "dropped silently", scenario))
        findings += _rewritten(matching, tagged)
        if scenario == "tags":
            findings += _tags_lost(matching)
    return capped(findings)


def _rewritten(matching: Matching, pairs: Sequence[tuple[int, int]]) -> Iterator[Finding]:
    for here, there in pairs:
        sent, seen = tag_of(matching.sent[here]), tag_of(matching.received[there])
        if sent != seen:
            yield Finding(
                f"The tag {shown(sent)} came back as {shown(seen)}; a tag comes back as it was sent, or is refused.",
                shown(sent),
                shown(seen),
                "coerced",
                place_of(matching.sent[here]),
            )


def _tags_lost(matching: Matching) -> Iterator[Finding]:
    for index in matching.missing:
        point = matching.sent[index]
        yield Finding(
            f"The sink took {place_of(point)} and it did not come back under any tag.",
            shown(tag_of(point)),
            "nothing",
            "dropped silently",
            place_of(point),
        )
    for index, outcome in enumerate(matching.outcomes):
        if outcome == RAISED:
            point = matching.sent[index]
            message = f"A tag was neither taken nor refused with a code: {place_of(point)} raised."
            yield Finding(message, "taken or refused with a code", "an untyped exception", "crashed", place_of(point))


def _check(name: str, capability: str, clauses: tuple[str, ...], question: str, remedy: str) -> Check:
    finder = judged("round-trip", partial(_judge_values, capability, _FIELDS[capability]))
    return Check(f"values.{name}", clauses, question, ("round-trip",), finder, capability=capability, remedy=remedy)


VALUE_CHECKS = (
    _check(
        "scalar",
        "scalar",
        ("POINT-1", "POINT-3"),
        "Does every number come back bit for bit: -0.0, subnormals, NaN, the infinities, integers beyond 2**53?",
        "Write numbers as 64-bit floats or as their shortest decimal form, integers as integers, and refuse the rest.",
    ),
    Check(
        "values.steps",
        ("POINT-3",),
        "Does every point come back at the step it was sent at, up to 2**63-1?",
        ("round-trip",),
        judged("round-trip", _judge_steps),
        remedy="Store the point's own step as a 64-bit integer; keep no counter.",
    ),
    _check(
        "histogram",
        "raw_histogram",
        ("POINT-2", "GRID-3"),
        "Do the counts and edges of histograms come back bucket by bucket, up to 2048 buckets?",
        "Write counts as integers and edges as 64-bit floats; never re-bin. Refuse what the store cannot hold.",
    ),
    Check(
        "values.summary",
        ("POINT-2",),
        "Does the summary of every histogram come back: what was there as sent, what was missing still missing?",
        ("round-trip",),
        judged("round-trip", _judge_summary),
        capability="raw_histogram",
        remedy="Store the summary's fields beside the counts; leave out what is missing in place of writing zero.",
    ),
    _check(
        "text",
        "text_manifest",
        ("POINT-1",),
        "Does every text come back character by character: empty, long, all of Unicode, all line ends?",
        "Open files with encoding='utf-8' and newline='', and neither strip nor cut.",
    ),
    _check(
        "image",
        "image",
        ("POINT-1", "POINT-2"),
        "Do images come back byte by byte, with shape and dtype?",
        "Store the raw bytes, or a lossless format that keeps the dtype.",
    ),
    _check(
        "graph",
        "graph",
        ("POINT-1",),
        "Do graphs come back with every node, input and further key?",
        "Store the mapping as it is.",
    ),
    _check(
        "embedding",
        "embedding_module",
        ("POINT-1", "POINT-2"),
        "Do embeddings come back byte by byte, with shape, dtype and labels?",
        "Store the raw bytes beside shape, dtype and labels; labels may be missing.",
    ),
    _check(
        "event",
        "structured_event",
        ("POINT-1",),
        "Do events come back with kind and payload, nested values and non-finite numbers included?",
        "Encode NaN and the infinities explicitly; standard JSON has no form for them.",
    ),
    _check(
        "metadata",
        "run_metadata",
        ("POINT-1",),
        "Do facts about the run come back as they were sent, nested values included?",
        "Store the mapping as it is; see values.event.",
    ),
    Check(
        "tags.unchanged",
        ("TAG-3",),
        "Does every tag come back as it was sent, or is it refused with a code?",
        ("round-trip", "tags"),
        _find_tags,
        remedy="Never replace characters in a tag; escape them reversibly, or refuse with tracker_tag_unsafe.",
    ),
)
"""Checks of values, steps and tags."""
