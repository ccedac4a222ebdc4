"""Which received point stands for which sent one, so that each kind of damage is told by the check named for it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...protocol import Point
from ..model import ACKNOWLEDGED, REFUSED, Transcript
from .showing import body_key, step_of, tag_of


@dataclass(frozen=True, slots=True)
class Matching:
    """What became of the points of one transcript.

    Args:
        sent: Every point that was handed over, in order.
        outcomes: What each emit did: acknowledged, refused, raised; None when it never returned.
        received: What came back, in stored order.
        pairs: (index of sent, index of received), in the order of sent.
        missing: Indices of acknowledged points that nothing stands for.
        twice: Indices of received points that equal one that is paired already.
        extra: Indices of the other received points that stand for nothing.
    """

    sent: tuple[Point, ...]
    outcomes: tuple[str | None, ...]
    received: tuple[Point, ...]
    pairs: tuple[tuple[int, int], ...]
    missing: tuple[int, ...]
    twice: tuple[int, ...]
    extra: tuple[int, ...]


def emitted(transcript: Transcript) -> tuple[list[Point], list[str | None]]:
    """Return the points that were handed over, in order, and what each call did."""
    emits = [call for call in transcript.calls if call.point is not None]
    return [call.point for call in emits if call.point is not None], [call.outcome for call in emits]


def match(transcript: Transcript) -> Matching:
    """Match what a transcript sent with what it read back."""
    for known, matching in _recent:
        if known is transcript:
            return matching
    sent, outcomes = emitted(transcript)
    matching = match_points(sent, outcomes, received_points(transcript))
    _recent.append((transcript, matching))
    return matching


_recent: deque[tuple[Transcript, Matching]] = deque(maxlen=4)
"""The last few answers: many checks ask about one transcript, and neither of the two ever changes."""


def settled(transcript: Transcript) -> tuple[list[Point], list[str | None]]:
    """Return what must be there since a flush or close settled it (acknowledged), and what may be there (None).

    Emits are settled by the next flush or close that returns; whatever is refused or raised before that gives notice
    of the loss of all that was not settled yet. A point that was handed over last and never returned may be there.
    """
    emits = [call for call in transcript.calls if call.point is not None]
    safe = _settled_positions(transcript)
    sent: list[Point] = [call.point for call in emits if call.point is not None]
    outcomes: list[str | None] = [ACKNOWLEDGED if index in safe else None for index in range(len(sent))]
    if len(sent) < len(transcript.sent):
        sent.append(transcript.sent[len(sent)])
        outcomes.append(None)
    return sent, outcomes


def _settled_positions(transcript: Transcript) -> set[int]:
    """Return the positions, among the emits, of those that a flush or close settled."""
    settled: set[int] = set()
    pending: set[int] = set()
    position = 0
    for call in transcript.calls:
        if call.point is not None:
            if call.outcome == ACKNOWLEDGED:
                pending.add(position)
            else:
                pending.clear()
            position += 1
        elif call.name in ("flush", "close"):
            if call.outcome == ACKNOWLEDGED:
                settled |= pending
            pending.clear()
    return settled


def received_points(transcript: Transcript) -> tuple[Point, ...]:
    """Return what a transcript read back; nothing where it read nothing."""
    read = transcript.read
    return read.points if read is not None and read.points is not None else ()


class Identity(NamedTuple):
    """What tells one point from another."""

    kind: str
    tag: str
    step: int
    body: Hashable


def identity(point: Point, *, tags: bool = True, steps: bool = True) -> Identity:
    """Return the identity of a point; without its tag, or its step, where these are known to change."""
    return Identity(point.capability, tag_of(point) if tags else "", step_of(point) if steps else 0, body_key(point))


_ROUNDS: tuple[Callable[[Identity], Hashable], ...] = (
    lambda point: point,
    lambda point: (point.kind, point.step, point.body),
    lambda point: (point.kind, point.tag, point.body),
    lambda point: (point.kind, point.tag, point.step),
    lambda point: (point.kind, point.body),
    lambda point: (point.kind, point.tag),
)


def match_points(
    sent: Sequence[Point],
    outcomes: Sequence[str | None],
    received: Sequence[Point],
    *,
    tags: bool = True,
    steps: bool = True,
) -> Matching:
    """Match two lists of points, the likest first.

    In turn: equal points; the same step and content under another tag; the same tag and content at another step; the
    same tag and step with another content; the same content of one kind; the same tag in order. What was not
    acknowledged may be there or not.

    Args:
        sent: What was handed over, in order.
        outcomes: What became of each.
        received: What came back, in stored order.
        tags: Whether tags count.
        steps: Whether steps count.
    """
    here = [identity(point, tags=tags, steps=steps) for point in sent]
    there = [identity(point, tags=tags, steps=steps) for point in received]
    sent_left = [index for index in range(len(sent)) if outcomes[index] != REFUSED]
    received_left = list(range(len(received)))
    pairs: list[tuple[int, int]] = []
    again: list[int] = []
    for number, key in enumerate(_ROUNDS):
        if not sent_left or not received_left:
            break
        if number == 1:
            # A repeat must not stand in for a point that is missing.
            received_left, again = _split_twice(received_left, pairs, here, there)
        found = _round(
            {index: key(here[index]) for index in sent_left}, {index: key(there[index]) for index in received_left}
        )
        pairs += found
        used_sent, used_received = {pair[0] for pair in found}, {pair[1] for pair in found}
        sent_left = [index for index in sent_left if index not in used_sent]
        received_left = [index for index in received_left if index not in used_received]
    extra, more = _split_twice(received_left, pairs, here, there)
    return Matching(
        tuple(sent),
        tuple(outcomes),
        tuple(received),
        tuple(sorted(pairs)),
        tuple(index for index in sent_left if outcomes[index] == ACKNOWLEDGED),
        tuple(sorted([*again, *more])),
        tuple(extra),
    )


def _round(sent: dict[int, Hashable], received: dict[int, Hashable]) -> list[tuple[int, int]]:
    waiting: dict[Hashable, deque[int]] = defaultdict(deque)
    for index, key in received.items():
        waiting[key].append(index)
    return [(index, waiting[key].popleft()) for index, key in sent.items() if waiting.get(key)]


def _split_twice(
    left: Sequence[int], pairs: Sequence[tuple[int, int]], here: Sequence[Identity], there: Sequence[Identity]
) -> tuple[list[int], list[int]]:
    """Part received points into those that are new and those that repeat a paired one."""
    known = {here[index] for index, _ in pairs} | {there[index] for _, index in pairs}
    new = [index for index in left if there[index] not in known]
    return new, [index for index in left if there[index] in known]
