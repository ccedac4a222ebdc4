"""What a plain trip makes of points, so that other checks judge a sink by what it does to points at all times.

The checks of values say what a plain trip changes. A check of teardown, of survival or of sharing asks something else:
whether *that* changed anything more. It is asked again with the subject's own plain trip in hand when it fails.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from ...protocol import Point
from ..model import ACKNOWLEDGED, REFUSED, Finding, Transcript
from .delivery import extra_findings, lost_findings, twice_findings
from .matching import Matching, emitted, identity, match, match_points, received_points, settled
from .showing import place_of, point_key, shown_point, step_of, tag_of
from .trouble import trouble

PLAIN = "plain"
"""The scenario: every point of the scenarios that are judged against it, written, flushed, closed and read."""


@dataclass(frozen=True, slots=True)
class PlainTrip:
    """What became of points on a plain trip.

    Args:
        stored: By the key of a sent point, what came back for it; nothing for one that was lost.
        strangers: Kind and tag of what came back though nobody sent it.
        steps_change: Whether any point came back at another step.
        tags_change: Whether any point came back under another tag.
    """

    stored: Mapping[Hashable, tuple[Point, ...]]
    strangers: frozenset[tuple[str, str]]
    steps_change: bool
    tags_change: bool


def plain_trip(transcripts: Mapping[str, Transcript]) -> PlainTrip | None:
    """Return what the subject's plain trip did; None where there was none, or where nothing came back from it."""
    transcript = transcripts.get(PLAIN)
    if transcript is None or trouble(transcripts, PLAIN):
        return None
    for known, trip in _recent:
        if known is transcript:
            return trip
    trip = _learned(match_points(*emitted(transcript), received_points(transcript)))
    _recent[:] = [(transcript, trip)]
    return trip


_recent: list[tuple[Transcript, PlainTrip | None]] = []
"""The last answer: many checks ask about one transcript, which never changes."""


def _learned(matching: Matching) -> PlainTrip | None:
    if not matching.pairs:
        return None
    sent, received = matching.sent, matching.received
    stored: dict[Hashable, list[Point]] = {
        point_key(point): [] for point, outcome in zip(sent, matching.outcomes) if outcome == ACKNOWLEDGED
    }
    senders: dict[Hashable, Hashable] = {}
    for here, there in matching.pairs:
        key = point_key(sent[here])
        stored.setdefault(key, []).append(received[there])
        senders[point_key(received[there])] = senders[key] = key
    for index in matching.twice:
        stored[senders[point_key(received[index])]].append(received[index])
    return PlainTrip(
        {key: tuple(points) for key, points in stored.items()},
        frozenset((received[index].capability, tag_of(received[index])) for index in matching.extra),
        any(step_of(sent[here]) != step_of(received[there]) for here, there in matching.pairs),
        any(tag_of(sent[here]) != tag_of(received[there]) for here, there in matching.pairs),
    )


def as_stored(
    trip: PlainTrip, sent: Sequence[Point], outcomes: Sequence[str | None]
) -> tuple[list[Point], list[str | None]]:
    """Return points in the form in which a plain trip brings them back, with what became of each.

    What a plain trip loses may be there or not; a point that it was not asked about stays as it was sent.
    """
    points: list[Point] = []
    kept: list[str | None] = []
    for point, outcome in zip(sent, outcomes):
        stored = trip.stored.get(point_key(point))
        if not stored:
            lost = stored is not None and outcome != REFUSED
            points.append(point)
            kept.append(None if lost else outcome)
            continue
        points += stored
        kept += [outcome] * len(stored)
    return points, kept


def damage(
    transcripts: Mapping[str, Transcript],
    part: Transcript,
    *,
    where: str,
    only_settled: bool = False,
    whole: bool = True,
) -> list[Finding]:
    """Return every way in which what came back is not what went in, or not what a plain trip makes of that.

    Args:
        transcripts: By scenario id; with the plain trip among them it is what counts.
        part: What is judged.
        where: For the findings, in words.
        only_settled: Whether only what a flush or close settled must be there.
        whole: Whether points of others, and changed ones, count beside lost and doubled ones.
    """
    trip = plain_trip(transcripts)
    if trip is None and not only_settled:
        matching = match(part)
    else:
        sent, outcomes = settled(part) if only_settled else emitted(part)
        received: Sequence[Point] = received_points(part)
        if trip is not None:
            sent, outcomes = as_stored(trip, sent, outcomes)
            received = [point for point in received if (point.capability, tag_of(point)) not in trip.strangers]
        matching = match_points(sent, outcomes, received, **_counting(trip))
    findings = lost_findings(matching, where=where) + twice_findings(matching, where=where)
    if whole:
        findings += extra_findings(matching, where=where) + _changed_findings(matching, trip, where)
    return findings


def _counting(trip: PlainTrip | None) -> dict[str, bool]:
    """Say whether tags and steps count: what a plain trip rewrites, other checks tell."""
    return {"tags": trip is None or not trip.tags_change, "steps": trip is None or not trip.steps_change}


def _changed_findings(matching: Matching, trip: PlainTrip | None, where: str) -> list[Finding]:
    counting = _counting(trip)
    return [
        Finding(
            f"{place_of(matching.sent[here])} came back changed{where}.",
            shown_point(matching.sent[here]),
            shown_point(matching.received[there]),
            "coerced",
            place_of(matching.sent[here]),
        )
        for here, there in matching.pairs
        if identity(matching.sent[here], **counting) != identity(matching.received[there], **counting)
    ]
