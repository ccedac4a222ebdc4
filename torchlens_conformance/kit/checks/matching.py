"""Which received point stands for which sent one, so that each kind of damage is told by the check named for it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

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
    matching = match_points(sent, outcomes, _points(transcript))
    _recent.append((transcript, matching))
    return matching


_recent: deque[tuple[Transcript, Matching]] = deque(maxlen=4)
"""The last few answers: many checks ask about one transcript, and neither of the two ever changes."""


def match_settled(transcript: Transcript) -> Matching:
    """Match where only what a flush or close settled must be there, and all else may be.

    Emits are settled by the next flush or close that returns; whatever is refused or raised before that gives notice
    of the loss of all that was not settled yet. A point that was handed over last and never returned may be there.
    """
    emits = [call for call in transcript.calls if call.point is not None]
    settled = _settled(transcript)
    sent: list[Point] = [call.point for call in emits if call.point is not None]
    outcomes: list[str | None] = [ACKNOWLEDGED if index in settled else None for index in range(len(sent))]
    if len(sent) < len(transcript.sent):
        sent.append(transcript.sent[len(sent)])
        outcomes.append(None)
    return match_points(sent, outcomes, _points(transcript))


def _settled(transcript: Transcript) -> set[int]:
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


def _points(transcript: Transcript) -> tuple[Point, ...]:
    read = transcript.read
    return read.points if read is not None and read.points is not None else ()


def match_points(sent: Sequence[Point], outcomes: Sequence[str | None], received: Sequence[Point]) -> Matching:
    """Match two lists of points, the likest first.

    In turn: equal points; the same tag and step with another content; the same tag and content at another step; the
    same step and content under another tag; the same content of one kind; the same tag in order. What was not
    acknowledged may be there or not.
    """
    rounds: tuple[Callable[[Point, Hashable], Hashable], ...] = (
        lambda point, body: (point.capability, tag_of(point), step_of(point), body),
        lambda point, body: (point.capability, tag_of(point), step_of(point)),
        lambda point, body: (point.capability, tag_of(point), body),
        lambda point, body: (point.capability, step_of(point), body),
        lambda point, body: (point.capability, body),
        lambda point, body: (point.capability, tag_of(point)),
    )
    sent_bodies = [body_key(point) for point in sent]
    received_bodies = [body_key(point) for point in received]
    sent_left = [index for index in range(len(sent)) if outcomes[index] != REFUSED]
    received_left = list(range(len(received)))
    pairs: list[tuple[int, int]] = []
    again: list[int] = []
    for number, key in enumerate(rounds):
        if not sent_left or not received_left:
            break
        if number == 1:
            # A repeat must not stand in for a point that is missing.
            received_left, again = _split_twice(received_left, received, received_bodies, pairs, sent, sent_bodies)
        found = _round(
            {index: key(sent[index], sent_bodies[index]) for index in sent_left},
            {index: key(received[index], received_bodies[index]) for index in received_left},
        )
        pairs += found
        used_sent, used_received = {pair[0] for pair in found}, {pair[1] for pair in found}
        sent_left = [index for index in sent_left if index not in used_sent]
        received_left = [index for index in received_left if index not in used_received]
    extra, more = _split_twice(received_left, received, received_bodies, pairs, sent, sent_bodies)
    again = sorted([*again, *more])
    return Matching(
        tuple(sent),
        tuple(outcomes),
        tuple(received),
        tuple(sorted(pairs)),
        tuple(index for index in sent_left if outcomes[index] == ACKNOWLEDGED),
        tuple(again),
        tuple(extra),
    )


def _round(sent: dict[int, Hashable], received: dict[int, Hashable]) -> list[tuple[int, int]]:
    waiting: dict[Hashable, deque[int]] = defaultdict(deque)
    for index, key in received.items():
        waiting[key].append(index)
    return [(index, waiting[key].popleft()) for index, key in sent.items() if waiting.get(key)]


def _split_twice(
    left: Sequence[int],
    received: Sequence[Point],
    bodies: Sequence[Hashable],
    pairs: Sequence[tuple[int, int]],
    sent: Sequence[Point],
    sent_bodies: Sequence[Hashable],
) -> tuple[list[int], list[int]]:
    """Part received points into those that are new and those that repeat a paired one."""
    known = {(sent[i].capability, tag_of(sent[i]), step_of(sent[i]), sent_bodies[i]) for i, _ in pairs}
    known |= {(received[j].capability, tag_of(received[j]), step_of(received[j]), bodies[j]) for _, j in pairs}
    new: list[int] = []
    again: list[int] = []
    for index in left:
        point = received[index]
        key = (point.capability, tag_of(point), step_of(point), bodies[index])
        (again if key in known else new).append(index)
    return new, again
