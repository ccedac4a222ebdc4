"""Scenarios of plain writing: everything out, everything back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ...protocol import Point, ScalarPoint, TextPoint
from ..corpus import corpus, histogram, odd_tags, ordinary_points
from ..model import Transcript
from .driving import Driver, Setting, drive


def write_all_of(place: Path, *, flush: bool = True) -> Callable[[Driver], None]:
    """Return the work of a child that opens a sink, emits everything, flushes and closes."""

    def work(driver: Driver) -> None:
        sink = driver.open(place)
        if sink is None:
            return
        driver.emit_all(sink)
        if flush:
            driver.call(sink, "flush")
        driver.call(sink, "close")
        driver.read_back(place)

    return work


def round_trip(setting: Setting) -> Transcript:
    """Send the whole corpus to one sink, flush, close, and read it back.

    Facts: ``ordinary``, a truth value for every point of ``sent``. Clause: PROT-1, POINT-1..3.
    """
    entries = corpus(setting.nonce, setting.size)
    place = setting.place()
    points = [entry.point for entry in entries]
    transcript = drive("round-trip", setting, points, write_all_of(place), read=place)
    words = transcript.facts.get("words", ())
    ordinary = tuple(entry.ordinary for entry in entries if entry.point.capability in words)
    return replace(transcript, facts={**transcript.facts, "ordinary": ordinary})


def close_only(setting: Setting) -> Transcript:
    """Send the ordinary points and close without a flush. Clause: PROT-6."""
    place = setting.place()
    return drive("close-only", setting, ordinary_points(setting.nonce), write_all_of(place, flush=False), read=place)


def order(setting: Setting) -> Transcript:
    """Send interleaved series, among them two points of one tag and step, and steps that fall.

    A store that cannot hold the latter refuses them with a code. Clause: POINT-3, STEP-1.
    """
    place = setting.place()
    return drive("order", setting, order_points(setting.nonce), write_all_of(place), read=place)


def order_points(nonce: str) -> tuple[Point, ...]:
    """Return the points of the order scenario."""
    points: list[Point] = []
    for step in range(12):
        for series in range(3):
            points.append(ScalarPoint(f"updates/norm/{nonce}.{series}", step, (step * 3 + series + 1) / 7.0))
        if step % 4 == 0:
            points.append(histogram(f"updates/hist/{nonce}.0", step, 8))
            points.append(TextPoint(f"torchlens/meta/{nonce}.order", step, f"{nonce} order {step}"))
    points += [ScalarPoint(f"updates/norm/{nonce}.twice", 20, value) for value in (0.25, 1.0 / 3.0, 0.75)]
    points += [TextPoint(f"torchlens/meta/{nonce}.twice", 20, f"{nonce} {word}") for word in ("first", "second")]
    points += [ScalarPoint(f"updates/norm/{nonce}.falling", step, step / 9.0) for step in (30, 29, 5, 31, 0)]
    return tuple(points)


def tags(setting: Setting) -> Transcript:
    """Send one scalar, text and histogram a tag, with tags that a store might be tempted to rewrite.

    Clause: TAG-3.
    """
    place = setting.place()
    return drive("tags", setting, tag_points(setting.nonce), write_all_of(place), read=place)


def tag_points(nonce: str) -> tuple[Point, ...]:
    """Return the points of the tags scenario."""
    points: list[Point] = []
    for step, tag in enumerate(odd_tags(nonce)):
        points.append(ScalarPoint(tag, step, (step + 1) / 11.0))
        # Tags of their own: one store may well keep kinds apart by tag.
        points.append(TextPoint(f"{tag}.t" if step else f"text/{tag}", step, f"{nonce} tag {step}"))
        points.append(histogram(f"{tag}.h" if step else f"hist/{tag}", step, 4))
    return tuple(points)


def fresh(setting: Setting) -> Transcript:
    """Send the ordinary points, and read the place in a fresh interpreter where the reader can be imported."""
    place = setting.place()
    return drive("fresh", replace(setting, fresh=True), ordinary_points(setting.nonce), write_all_of(place), read=place)


def changes(setting: Setting) -> Transcript:
    """Write two places that differ in one point of every kind, and read both.

    Facts: ``reads`` with the read-back of the second place under ``b``, and ``changed``, what was sent there. The
    reader must tell the two apart: a constant answer does not. Clause: FID-1.
    """
    first, second = setting.place("a"), setting.place("b")
    transcript = drive("changes", setting, ordinary_points(setting.nonce), write_all_of(first), read=first)
    other = drive("changes", setting, ordinary_points(setting.nonce + "z"), write_all_of(second), read=second)
    reads = {"b": other.read}
    ended = transcript.ended if other.ended == "ok" else other.ended
    return replace(
        transcript,
        ended=ended,
        calls=transcript.calls + other.calls,
        facts={**transcript.facts, "reads": reads, "changed": other.sent},
    )
