"""What the measurement makes of the runs beside the main one: writer first, and ended and continued."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fidelity.losses import losses
from fidelity.measure import Cell
from fidelity.measure_runs import measure_resume, measure_writer_first, no_resume
from fidelity.probes import resume_points, writer_first_points
from fidelity.received import Received, ReceivedScalar, Refused, from_points
from fidelity.verdicts import judge
from fidelity.versions.significant import significant
from torchlens_conformance.protocol import HistogramPoint, ScalarPoint

BEFORE, AFTER = resume_points()
WORDS = frozenset({"scalar", "raw_histogram"})
PERFECT = from_points([*BEFORE, *AFTER])


def _cell(received: Received, **settings: Any) -> Cell:
    return measure_resume(BEFORE, AFTER, received, **{"capabilities": WORDS, **settings})


def _word(cell: Cell) -> str:
    return judge(cell.row, cell.numbers)


def _moved(change: Callable[[int], int], *, behind: int = 100) -> Received:
    """The perfect store with the steps of the scalars behind a step changed."""
    moved = [replace(s, step=change(s.step)) if (s.step or 0) > behind else s for s in PERFECT.scalars]  # type: ignore[arg-type]
    return replace(PERFECT, scalars=tuple(moved))


def _without(kind: str, index: int, **more: Any) -> Received:
    items = getattr(PERFECT, kind)
    return replace(PERFECT, **{kind: items[:index] + items[index + 1 :]}, **more)


def test_writer_first_counts_what_arrives() -> None:
    """No relay is not applicable, nothing is not captured, everything is preserved (FID-8)."""
    points = writer_first_points()
    for received, word in ((None, "not applicable"), (Received(), "not captured"), (from_points(points), "preserved")):
        assert _word(measure_writer_first(points, received)) == word


def test_the_parts_have_the_steps_of_the_report_and_can_be_told_apart() -> None:
    """Report 24: 0, 50 and 100, then 101, 150 and 200; no two scalars have one value, no two histograms one (FID-8)."""
    scalars = [point for point in (*BEFORE, *AFTER) if isinstance(point, ScalarPoint)]
    histograms = [point for point in (*BEFORE, *AFTER) if isinstance(point, HistogramPoint)]
    assert [point.step for point in scalars] == [0, 50, 100, 101, 150, 200]
    assert len({point.value for point in scalars}) == 6
    assert len({point.counts for point in histograms}) == len(histograms) == 2


def test_a_perfect_store_is_preserved() -> None:
    """Everything once and every scalar at its step is preserved, with a shift of 0 (FID-8)."""
    cell = _cell(PERFECT)
    assert _word(cell) == "preserved"
    numbers = cell.numbers
    assert (numbers["sent"], numbers["arrived"], numbers["shift"], numbers["overlaps"]) == (8, 8, 0, 0)
    assert numbers["before"] == numbers["after"] == [4, 4]
    assert numbers["histogram_step_map"] == {"100": [100], "200": [200]}


@pytest.mark.parametrize("shift", [1, 101, -1, -100, -101])
def test_a_planted_shift_is_rewritten_and_measured(shift: int) -> None:
    """Report 24: an offset on what follows is rewritten, and its size stands in the numbers (FID-8)."""
    cell = _cell(_moved(lambda step: step + shift))
    assert _word(cell) == "rewritten"
    assert cell.numbers["shift"] == shift
    assert cell.numbers["step_map"]["101"] == [101 + shift]
    assert cell.numbers["steps_kept"] == 3


def test_one_step_off_by_one_is_rewritten() -> None:
    """The last step alone off by one is a rewritten run, and no shift of all (FID-8)."""
    cell = _cell(_moved(lambda step: step + 1, behind=199))
    assert _word(cell) == "rewritten"
    assert cell.numbers["shift"] is None


def test_rows_that_count_from_zero_again_overlap() -> None:
    """A counter that starts again is rewritten, and the rows that lie on earlier ones are counted (FID-8)."""
    steps = iter([0, 1, 2, 0, 1, 2])
    counted = replace(PERFECT, scalars=tuple(replace(s, step=next(steps)) for s in PERFECT.scalars))
    cell = _cell(counted)
    assert _word(cell) == "rewritten"
    assert (cell.numbers["overlaps"], cell.numbers["shift"]) == (3, None)
    told = losses([{"id": cell.row, "grid": None, "verdict": "rewritten", "numbers": cell.numbers}])
    assert told == [
        "resume: points of a run that you continue arrive changed (step 50 becomes 1, step 100 becomes 2, "
        "step 101 becomes 0, step 150 becomes 1, step 200 becomes 2, on top of what was there)"
    ]


@pytest.mark.parametrize(("kind", "index"), [("scalars", 0), ("scalars", 5), ("histograms", 0), ("histograms", 1)])
def test_a_missing_point_is_dropped_silently_or_with_notice(kind: str, index: int) -> None:
    """What is missing of either part is a drop; a line about the continuing makes it one with notice (FID-8)."""
    assert _word(_cell(_without(kind, index))) == "dropped silently"
    said = _without(kind, index, shown=("WARNING `resume` will be ignored",))
    assert _word(_cell(said)) == "dropped with notice"
    # The closing words of a tracker list every tag of the run; that is no notice.
    assert _word(_cell(_without(kind, index, shown=("probe/resume/value 25.25",)))) == "dropped silently"


def test_shifted_and_missing_is_a_drop() -> None:
    """A drop outranks a shift (FID-8)."""
    shifted = _moved(lambda step: step + 1)
    assert _word(_cell(replace(shifted, scalars=shifted.scalars[:-1]))) == "dropped silently"


def _refused(points: Any) -> tuple[Refused, ...]:
    return tuple(
        Refused(point.tag, point.step, point.capability, "Refusal: [tracker_step_shifted]") for point in points
    )


def test_what_raised_after_the_continuing_is_refused() -> None:
    """Refused points are no drop, whether all that follow or one; a shift beside them is one (FID-8)."""
    kept = replace(from_points(BEFORE), refused=_refused(AFTER))
    cell = _cell(kept)
    assert _word(cell) == "refused"
    assert (cell.numbers["after"], cell.numbers["refused"]) == ([0, 4], 4)
    assert cell.evidence[0] == "raised: Refusal: [tracker_step_shifted]"
    assert _word(_cell(_without("scalars", 5, refused=_refused(AFTER[2:3])))) == "refused"
    shifted = _moved(lambda step: step + 1)
    assert _word(_cell(replace(shifted, scalars=shifted.scalars[:-1], refused=_refused(AFTER[2:3])))) == "rewritten"
    # A line about the continuing is no notice of what was refused.
    said = replace(shifted, scalars=shifted.scalars[:-1], refused=_refused(AFTER[2:3]), shown=("continuing",))
    assert _word(_cell(said)) == "rewritten"
    lost = replace(from_points(BEFORE[1:]), refused=_refused(AFTER))
    assert _word(_cell(lost)) == "dropped silently"


def test_something_twice_is_rewritten() -> None:
    """A row that arrives twice, or one of the series that nobody sent, is no preserved run (FID-8)."""
    for more in (PERFECT.scalars[0], replace(PERFECT.scalars[0], value=99.0)):
        cell = _cell(replace(PERFECT, scalars=(*PERFECT.scalars, more)))
        assert _word(cell) == "rewritten"
        assert cell.numbers["extra"] == 1
    other = ReceivedScalar("global_step", 0, 101)
    assert _word(_cell(replace(PERFECT, scalars=(*PERFECT.scalars, other)))) == "preserved"


def test_only_what_the_route_carries_counts() -> None:
    """A route without histograms sends none, and renamed series are found (FID-8)."""
    renamed = tuple(replace(s, tag=s.tag.replace("/", "_")) for s in PERFECT.scalars)
    cell = _cell(
        Received(scalars=renamed), capabilities={"scalar"}, stored_tag=lambda tag, capability: tag.replace("/", "_")
    )
    assert _word(cell) == "preserved"
    assert cell.numbers["sent"] == 6


def test_other_ways_stand_beside_and_do_not_change_the_word() -> None:
    """The word speaks about the default way; the numbers of the others and what is not measured are kept (FID-8)."""
    shifted = _moved(lambda step: step + 101)
    cell = _cell(PERFECT, variants={"offset": shifted, "later": "not measured: crashed"})
    assert _word(cell) == "preserved"
    assert cell.numbers["variants"]["offset"]["shift"] == 101
    assert any(line == "later: not measured: crashed" for line in cell.evidence)
    assert any(line.startswith("offset: 8 of 8 arrived") and "101 at 202" in line for line in cell.evidence)


def test_numbers_of_other_ways_are_compared_without_chance() -> None:
    """Between versions the variants count like other numbers, and how many lines were logged does not (FID-3)."""
    said = _without("scalars", 5, shown=("continuing",))
    numbers = _cell(PERFECT, variants={"other": said}).numbers
    assert "notices" not in significant(numbers)["variants"]["other"]
    assert significant(numbers)["variants"]["other"]["after"] == [3, 4]


def test_a_tracker_without_a_way_is_not_applicable() -> None:
    """Where a run cannot be continued the cell is not applicable and says why (FID-8)."""
    cell = no_resume("Run(resume=...) is not offered: TypeError")
    assert _word(cell) == "not applicable"
    assert cell.evidence == ("Run(resume=...) is not offered: TypeError",)
