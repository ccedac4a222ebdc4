"""Transcripts made by hand: what a perfect sink would leave, without any sink or process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torchlens_conformance.kit.corpus import corpus, moved, ordinary_points
from torchlens_conformance.kit.model import ACKNOWLEDGED, REFUSED, Call, ReadBack, Transcript
from torchlens_conformance.kit.scenarios import SCENARIOS
from torchlens_conformance.kit.scenarios.writing import order_points, tag_points
from torchlens_conformance.protocol import CAPABILITY_METHODS, Point

NONCE = "nhandmade"
ALL_WORDS = tuple(CAPABILITY_METHODS)
OPEN, FLUSH, CLOSE = (Call(name, ACKNOWLEDGED) for name in ("open", "flush", "close"))

Damage = Callable[[Transcript], Transcript]


def emits(points: Sequence[Point], *, note: str = "") -> tuple[Call, ...]:
    """Return acknowledged emits."""
    return tuple(Call(CAPABILITY_METHODS[p.capability], ACKNOWLEDGED, p, note=note) for p in points)


def refused(call: Call, code: str = "tracker_value_unsupported", **changes: Any) -> Call:
    """Return the call as a typed refusal."""
    given = {"fields": {"value": "x"}, "remedy": "Give another.", "exception": f"Refusal: [{code}] no"}
    return replace(call, outcome=REFUSED, code=code, **{**given, **changes})


def written(scenario: str, points: Sequence[Point], *, flush: bool = True, **facts: Any) -> Transcript:
    """Return the transcript of a sink that took every point and gave every point back."""
    calls = (OPEN, *emits(points), *((FLUSH,) if flush else ()), CLOSE)
    back = ReadBack(tuple(points))
    base = {"nonce": NONCE, "words": ALL_WORDS, "size": "small"}
    return Transcript(scenario, "ok", calls, tuple(points), back, {**base, **facts})


def perfect() -> dict[str, Transcript]:
    """Return a transcript for every scenario, as a perfect sink leaves it."""
    ordinary = ordinary_points(NONCE)
    entries = corpus(NONCE)
    whole = {
        "surface": written(
            "surface",
            ordinary,
            own_words=list(ALL_WORDS),
            words_again=list(ALL_WORDS),
            words_type="frozenset",
            hooks=["last_step"],
            last_step=None,
            methods=[*CAPABILITY_METHODS.values(), "flush", "close"],
        ),
        "round-trip": written("round-trip", [e.point for e in entries], ordinary=tuple(e.ordinary for e in entries)),
        "order": written("order", order_points(NONCE)),
        "tags": written("tags", tag_points(NONCE)),
        "aliasing": written("aliasing", ordinary, mutated=[], words_before=["scalar"], words_after=["scalar"]),
        "teardown": written("teardown", ordinary),
        "close-twice": written("close-twice", ordinary),
        "closed": _closed(ordinary),
        "close-only": written("close-only", ordinary, flush=False),
        "kill": _parts("kill", ("after 1",), ended="killed by the scenario"),
        "kill-inside": _parts("kill-inside", ("after 1 ms",), ended="killed by the scenario"),
        "full-disk": written("full-disk", ordinary),
        "read-only": Transcript(
            "read-only", "ok", (refused(OPEN),), (), ReadBack(None, "nothing"), {"words": ALL_WORDS}
        ),
        "two-sinks": _parts("two-sinks", ("a", "b")),
        "second-sink": _parts("second-sink", ("after close", "while open")),
        "fork": written("fork", ordinary, child_ended="ok"),
        "spawn": _parts("spawn", ("parent", "spawned")),
        "threads": written("threads", ordinary),
        "fresh": written("fresh", ordinary),
        "changes": _changes(ordinary),
        "plain": written("plain", ordinary),
        "scale": Transcript(
            "scale",
            "ok",
            (OPEN, FLUSH, CLOSE),
            (),
            None,
            {
                "points": 20_000,
                "refused": 0,
                "came_back": 20_000,
                "lost": 0,
                "wrong": 0,
                "blocks": tuple((0.01, 0.01, 30 << 20) for _ in range(10)),
                "words": ALL_WORDS,
            },
        ),
    }
    assert whole.keys() == SCENARIOS.keys()
    return whole


def _closed(points: Sequence[Point]) -> Transcript:
    late = [moved(point, tag="late", step=50) for point in points[:2]]
    base = written("closed", points)
    calls = tuple(refused(call, "tracker_sink_closed") for call in emits(late, note="after close"))
    return replace(base, calls=base.calls + calls, sent=(*base.sent, *late))


def _parts(scenario: str, names: Sequence[str], *, ended: str = "ok") -> Transcript:
    parts = {}
    for number, name in enumerate(names):
        points = ordinary_points(f"{NONCE}{number}")[:20]
        part = replace(written(scenario, points), ended=ended)
        parts[name] = replace(part, calls=(*part.calls, Call("open second", ACKNOWLEDGED)))
    first = next(iter(parts.values()))
    return replace(first, facts={**first.facts, "parts": parts})


def _changes(points: Sequence[Point]) -> Transcript:
    other = ordinary_points(NONCE + "z")
    return written("changes", points, reads={"b": ReadBack(tuple(other))}, changed=tuple(other))


def received(change: Callable[[list[Point]], Sequence[Point]]) -> Damage:
    """Return a damage that changes what was read back."""

    def damage(transcript: Transcript) -> Transcript:
        assert transcript.read is not None and transcript.read.points is not None
        points = tuple(change(list(transcript.read.points)))
        return replace(transcript, read=replace(transcript.read, points=points))

    return damage


def fact(**facts: Any) -> Damage:
    """Return a damage that changes facts."""
    return lambda transcript: replace(transcript, facts={**transcript.facts, **facts})


def last_call(name: str, **changes: Any) -> Damage:
    """Return a damage that changes the last call of this name."""

    def damage(transcript: Transcript) -> Transcript:
        calls = list(transcript.calls)
        at = max(index for index, call in enumerate(calls) if call.name == name)
        calls[at] = replace(calls[at], **changes)
        return replace(transcript, calls=tuple(calls))

    return damage


def in_part(name: str, damage: Damage) -> Damage:
    """Return a damage of one part of a transcript."""

    def outer(transcript: Transcript) -> Transcript:
        parts: Mapping[str, Transcript] = transcript.facts["parts"]
        return fact(parts={**parts, name: damage(parts[name])})(transcript)

    return outer


def changed(kind: type, **fields: Any) -> Damage:
    """Return a damage of the last received point of a kind."""

    def change(points: list[Point]) -> list[Point]:
        at = max(index for index, point in enumerate(points) if type(point) is kind)
        points[at] = replace(points[at], **fields)
        return points

    return received(change)
