"""Checks of delivery: all there, once, in order, and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from ..model import Check, Finding, Transcript
from .matching import Matching, match
from .showing import place_of, shown_point, tag_of
from .telling import special_about
from .trouble import capped, trouble

_SCENARIOS = ("round-trip", "order")


def _matchings(transcripts: Mapping[str, Transcript]) -> tuple[list[Finding], list[tuple[Transcript, Matching]]]:
    broken: list[Finding] = []
    found: list[tuple[Transcript, Matching]] = []
    for scenario in _SCENARIOS:
        wrong = trouble(transcripts, scenario)
        broken += wrong
        if not wrong:
            found.append((transcripts[scenario], match(transcripts[scenario])))
    return broken, found


def lost_findings(matching: Matching, *, where: str = "", special: bool = False) -> list[Finding]:
    """Return a finding for every acknowledged point that did not come back.

    Args:
        matching: What became of the points.
        where: For the findings, in words.
        special: Whether to say what tells a lost point from the others.
    """
    return [
        Finding(
            f"The sink took {place_of(matching.sent[index])}{where} (emit {index + 1} of {len(matching.sent)}), "
            f"and it did not come back{special_about(matching, index) if special else ''}.",
            shown_point(matching.sent[index]),
            "nothing",
            "dropped silently",
            place_of(matching.sent[index]),
        )
        for index in matching.missing
    ]


def extra_findings(matching: Matching, *, where: str = "") -> list[Finding]:
    """Return a finding for every received point that nobody sent."""
    return [
        Finding(
            f"A point came back that was not sent{where}, or that was refused: {place_of(matching.received[index])}.",
            "nothing",
            shown_point(matching.received[index]),
            "coerced",
            place_of(matching.received[index]),
        )
        for index in matching.extra
    ]


def twice_findings(matching: Matching, *, where: str = "") -> list[Finding]:
    """Return a finding for every received point that repeats another."""
    return [
        Finding(
            f"{place_of(matching.received[index])} was sent once and came back again{where}.",
            "one point",
            f"again: {shown_point(matching.received[index])}",
            "coerced",
            place_of(matching.received[index]),
        )
        for index in matching.twice
    ]


def _find_lost(transcripts: Mapping[str, Transcript]) -> Sequence[Finding]:
    broken, found = _matchings(transcripts)
    unplaced = sum(t.read.unplaced for t, _ in found if t.read is not None)
    note = f" (the reader could not place {unplaced} things)" if unplaced else ""
    return capped(
        [*broken, *(finding for _, matching in found for finding in lost_findings(matching, where=note, special=True))]
    )


def _find_extra(transcripts: Mapping[str, Transcript]) -> Sequence[Finding]:
    return _told(extra_findings, transcripts)


def _find_twice(transcripts: Mapping[str, Transcript]) -> Sequence[Finding]:
    return _told(twice_findings, transcripts)


def _told(tell: Callable[[Matching], list[Finding]], transcripts: Mapping[str, Transcript]) -> Sequence[Finding]:
    broken, found = _matchings(transcripts)
    return capped([*broken, *(finding for _, matching in found for finding in tell(matching))])


def _find_disorder(transcripts: Mapping[str, Transcript]) -> Sequence[Finding]:
    broken, found = _matchings(transcripts)
    findings = list(broken)
    for transcript, matching in found:
        if not matching.pairs and matching.sent:
            message = f"Nothing came back in the scenario {transcript.scenario}, so there is no order."
            findings.append(Finding(message, "points in order", "nothing", "dropped silently", transcript.scenario))
        findings += _disorder(matching)
    return capped(findings)


def _disorder(matching: Matching) -> list[Finding]:
    series: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for here, there in matching.pairs:
        series[matching.sent[here].capability, tag_of(matching.sent[here])].append((here, there))
    findings = []
    for pairs in series.values():
        for (before, place), (after, next_place) in pairwise(pairs):
            if next_place < place:
                findings.append(
                    Finding(
                        f"{place_of(matching.sent[after])} was sent after {place_of(matching.sent[before])} and came "
                        f"back before it.",
                        f"emit {before + 1}, then emit {after + 1}",
                        f"read as number {place + 1} and number {next_place + 1}",
                        "coerced",
                        place_of(matching.sent[after]),
                    )
                )
                break
    return findings


DELIVERY_CHECKS = (
    Check(
        "order.kept",
        ("PROT-1", "POINT-3"),
        "Does every series come back in the order it was sent?",
        _SCENARIOS,
        _find_disorder,
        remedy="Append; where the store sorts, store a running number beside each point and read by it.",
    ),
    Check(
        "delivery.nothing-lost",
        ("PROT-1",),
        "Does every point that the sink took come back?",
        _SCENARIOS,
        _find_lost,
        remedy="Refuse with a code what the store cannot hold, two points of one tag and step included.",
    ),
    Check(
        "delivery.nothing-extra",
        ("PROT-1",),
        "Does nothing come back that was not sent?",
        _SCENARIOS,
        _find_extra,
        remedy="A sink computes nothing of its own, and what it refuses it does not write.",
    ),
    Check(
        "delivery.nothing-twice",
        ("PROT-1",),
        "Does every point come back once?",
        _SCENARIOS,
        _find_twice,
        remedy="Clear buffers when they were written, and make flush and close write nothing again.",
    ),
)
"""Checks of delivery and order."""
