"""What a plain trip does to points is not held against a sink twice; what a scenario does beside it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from torchlens_conformance.kit.checking import ask, needs_second_look
from torchlens_conformance.kit.checks import CHECKS
from torchlens_conformance.kit.checks.plain_trip import PLAIN, damage, plain_trip
from torchlens_conformance.kit.corpus import moved, ordinary_points
from torchlens_conformance.kit.model import FAILED, PASSED
from torchlens_conformance.protocol import HistogramPoint, Point, ScalarPoint, TextPoint
from torchlens_conformance.protocol.compare import as_float32

from .handmade import ALL_WORDS, NONCE, perfect, written

Habit = Callable[[Sequence[Point]], list[Point]]
POINTS = ordinary_points(NONCE)


def narrow(points: Sequence[Point]) -> list[Point]:
    """Keep scalars as float32 and lose every summary."""
    found: list[Point] = []
    for point in points:
        if isinstance(point, ScalarPoint):
            found.append(replace(point, value=as_float32(float(point.value))))
        elif isinstance(point, HistogramPoint):
            found.append(replace(point, summary={}))
        else:
            found.append(point)
    return found


def shift(points: Sequence[Point]) -> list[Point]:
    """Bring every point back one step later."""
    return [moved(p, tag=p.tag, step=p.step + 1) if hasattr(p, "step") else p for p in points]


def rename(points: Sequence[Point]) -> list[Point]:
    """Bring every point back under another tag."""
    return [moved(p, tag=p.tag + "_", step=p.step) if hasattr(p, "step") else p for p in points]


def lose_texts(points: Sequence[Point]) -> list[Point]:
    """Lose every text."""
    return [point for point in points if not isinstance(point, TextPoint)]


def double(points: Sequence[Point]) -> list[Point]:
    """Bring every point back twice."""
    return [point for point in points for _ in range(2)]


def own_row(points: Sequence[Point]) -> list[Point]:
    """Add a row of the store's own."""
    return [*points, ScalarPoint("rows", 0, float(len(points)))]


HABITS = [narrow, shift, rename, lose_texts, double, own_row]


@pytest.mark.parametrize("habit", HABITS)
def test_a_habit_is_not_told_again(habit: Habit) -> None:
    """What a plain trip does to every point is no finding of teardown, survival or sharing (PROT-10)."""
    part = replace(written("threads", POINTS), read=written("threads", habit(POINTS)).read)
    plain = replace(written(PLAIN, POINTS), read=part.read)
    assert damage({}, part, where="") != []
    assert damage({PLAIN: plain}, part, where="") == []


@pytest.mark.parametrize("habit", HABITS)
def test_loss_beside_a_habit_is_told(habit: Habit) -> None:
    """A point that a plain trip brings back, and the judged one does not, is a finding (PROT-10)."""
    back = habit(POINTS)
    plain = replace(written(PLAIN, POINTS), read=written(PLAIN, back).read)
    lost = next(index for index, point in enumerate(back) if isinstance(point, HistogramPoint))
    part = replace(written("threads", POINTS), read=written("threads", back[:lost] + back[lost + 1 :]).read)
    found = damage({PLAIN: plain}, part, where=" here")
    assert [finding.loss for finding in found] == ["dropped silently"]
    assert " here" in found[0].message


def test_a_changed_value_beside_a_habit_is_told() -> None:
    """A value that differs from what a plain trip gives is a finding, even one nearer to what was sent (PROT-10)."""
    back = narrow(POINTS)
    plain = replace(written(PLAIN, POINTS), read=written(PLAIN, back).read)
    at = next(index for index, point in enumerate(POINTS) if back[index] != point)
    mixed = [*back[:at], POINTS[at], *back[at + 1 :]]
    part = replace(written("threads", POINTS), read=written("threads", mixed).read)
    assert [finding.loss for finding in damage({PLAIN: plain}, part, where="")] == ["coerced"]


def test_points_of_another_sink_are_told_beside_strangers_that_are_known() -> None:
    """A store's own rows excuse no foreign point (PROT-10)."""
    plain = replace(written(PLAIN, POINTS), read=written(PLAIN, own_row(POINTS)).read)
    foreign = ScalarPoint("foreign", 1, 1.0)
    part = replace(written("threads", POINTS), read=written("threads", [*own_row(POINTS), foreign]).read)
    assert [finding.where for finding in damage({PLAIN: plain}, part, where="")] == ["scalar 'foreign' at step 1"]


def test_a_plain_trip_without_any_point_excuses_nothing() -> None:
    """A sink that gives nothing back has no habit that could be learned (PROT-1)."""
    empty = replace(written(PLAIN, POINTS), read=written(PLAIN, []).read)
    assert plain_trip({PLAIN: empty}) is None
    assert plain_trip({}) is None
    part = replace(written("threads", POINTS), read=empty.read)
    assert len(damage({PLAIN: empty}, part, where="")) == len(POINTS)


def test_only_failed_checks_that_may_are_asked_again() -> None:
    """Checks of values never look at the plain trip; those of teardown, survival and sharing do (FID-1)."""
    transcripts = perfect()
    del transcripts[PLAIN]
    again = {check.id for check in CHECKS if check.second_look}
    assert {name.split(".")[0] for name in again} == {"points", "teardown", "survives", "isolation", "concurrency"}
    for check in CHECKS:
        result = ask(check, transcripts, ALL_WORDS)
        assert not needs_second_look(check, result)
        failed = replace(result, outcome=FAILED)
        assert needs_second_look(check, failed) == check.second_look


def test_the_second_look_passes_a_sink_that_only_has_a_habit() -> None:
    """Asked again with its plain trip, a sink of float32 scalars passes the checks of sharing (PROT-10, POINT-3)."""
    transcripts = perfect()
    narrowed = {
        name: transcript
        if transcript.read is None or transcript.read.points is None
        else replace(transcript, read=replace(transcript.read, points=tuple(narrow(transcript.read.points))))
        for name, transcript in transcripts.items()
    }
    outcomes = {check.id: ask(check, narrowed, ALL_WORDS).outcome for check in CHECKS}
    assert (
        outcomes["concurrency.threads"] == outcomes["teardown.close-twice"] == outcomes["points.not-aliased"] == PASSED
    )
    assert outcomes["values.scalar"] == outcomes["values.summary"] == FAILED
    del narrowed[PLAIN]
    assert (
        ask(next(check for check in CHECKS if check.id == "concurrency.threads"), narrowed, ALL_WORDS).outcome == FAILED
    )
