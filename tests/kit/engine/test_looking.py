"""How laws look at numbers, on hand-made rows."""

from __future__ import annotations

from math import inf, isclose, nan, nextafter, sqrt

from hypothesis import given
from hypothesis import strategies as st

from torchlens_conformance.kit.engine.laws.values import bin_of, judge_histogram
from torchlens_conformance.kit.engine.looking import judge_law, judge_statistics, statistics_of
from torchlens_conformance.kit.engine.observation import RAISED, Event, Law, Observed, Row
from torchlens_conformance.protocol import DEFAULT_DESCRIPTOR

EDGES = DEFAULT_DESCRIPTOR.edges


def test_statistics_leave_out_what_is_not_known() -> None:
    """One value has no deviation, none has nothing but its count (STAT-1, STAT-3)."""
    assert statistics_of([3.0, nan]) == {
        "count": 1,
        "zero_fraction": 0.0,
        "mean": 3.0,
        "norm": 3.0,
        "min": 3.0,
        "max": 3.0,
    }
    assert statistics_of([nan, inf]) == {"count": 0, "zero_fraction": 0.0}
    assert statistics_of([]) == {"count": 0}
    assert isclose(statistics_of([1.0, 3.0])["std"], 1.0) and isclose(statistics_of([1e300] * 4)["norm"], 2e300)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-(2.0**16) + 1, max_value=2.0**16 - 1))
def test_bins_hold_what_falls_into_them(value: float) -> None:
    """A positive value lies in [low, high), a negative one mirrored (GRID-2)."""
    index = bin_of(value, EDGES)
    low, high = EDGES[index], EDGES[index + 1]
    if abs(value) >= 2.0**-48:
        assert low <= value < high if value > 0 else low < value <= high


def histogram(values: list[float], **changes: int) -> Row:
    """Return a right histogram of values inside the grid, with changes to counts by bucket."""
    counts = [0] * (len(EDGES) - 1)
    for value in values:
        counts[len(counts) // 2 if abs(value) < 2.0**-48 else bin_of(value, EDGES)] += 1
    for bucket, change in changes.items():
        counts[int(bucket[1:])] += change
    return Row("histogram", "gradients/hist/w", 1, counts=tuple(counts), edges=EDGES, summary={"num": len(values)})


def test_a_histogram_is_judged_bucket_by_bucket() -> None:
    """A count in the wrong bucket, a float count and a wrong summary are each found (GRID-2, POINT-2)."""
    values = [1.0, -1.0, 0.0, nextafter(1.0, 0.0), 2.0**-60]
    assert judge_histogram(histogram(values), values, "hand") == []
    assert "not exact" in judge_histogram(histogram(values, b3=1), values, "hand")[0].message
    right = histogram(values)
    floats = Row("histogram", right.tag, 1, counts=tuple(map(float, right.counts)), edges=EDGES)
    assert "not integers" in judge_histogram(floats, values, "hand")[0].message
    summed = Row("histogram", right.tag, 1, counts=right.counts, edges=EDGES, summary={"sum": 99.0})
    assert "sum is wrong" in judge_histogram(summed, values, "hand")[0].message


def test_a_statistic_is_missing_wrong_or_made_up() -> None:
    """Each of the three is a finding of its own (STAT-1)."""
    values = [1.0, 3.0]
    right = [Row("scalar", f"gradients/{key}/w", 1, value) for key, value in statistics_of(values).items()]
    assert judge_statistics(right, "gradients", 1, {"w": values}, "hand") == []
    assert "missing" in judge_statistics(right[1:], "gradients", 1, {"w": values}, "hand")[0].message
    wrong = [Row("scalar", "gradients/norm/w", 1, 2.0) if "norm" in row.tag else row for row in right]
    found = judge_statistics(wrong, "gradients", 1, {"w": values}, "hand")
    assert [finding.expected.split(" ")[0] for finding in found] == [repr(sqrt(10.0))]
    made_up = [*right, Row("scalar", "gradients/std/x", 1, 0.0)]
    told = {finding.message for finding in judge_statistics(made_up, "gradients", 1, {"x": [nan]}, "hand")}
    assert told == {"A statistic is missing.", "A statistic that does not exist was made up."}


def test_an_engine_that_cannot_be_attached_passes_no_law() -> None:
    """A refused or crashed attach is a finding of every law that needs it (ATTACH-6)."""
    law = Law("values.any", ("STAT-1",), "?", ("some",), lambda observations: [])
    crashed = Observed("some/case", events=(Event("attach", RAISED, exception="TypeError: no"),))
    assert [found.loss for found in judge_law(law, {"some/case": crashed})] == ["crashed"]
