"""Matching tells each kind of damage apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torchlens_conformance.kit.checks.matching import match_points
from torchlens_conformance.kit.checks.showing import key_of, point_key, shown
from torchlens_conformance.kit.corpus import ordinary_points
from torchlens_conformance.kit.model import ACKNOWLEDGED, REFUSED
from torchlens_conformance.protocol import Point, ScalarPoint

POINTS = ordinary_points("nmatch")
ALL = [ACKNOWLEDGED] * len(POINTS)


@given(st.randoms(use_true_random=False))
def test_any_order_matches_whole(random: object) -> None:
    """Equal points match in whatever order they come back (FID-1)."""
    shuffled = list(POINTS)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    matching = match_points(POINTS, ALL, shuffled)
    assert len(matching.pairs) == len(POINTS)
    assert all(point_key(POINTS[i]) == point_key(shuffled[j]) for i, j in matching.pairs)
    assert matching.missing == matching.twice == matching.extra == ()


def test_a_repeat_does_not_stand_in_for_a_missing_point() -> None:
    """A point that came twice and one that is missing are two findings (FID-1)."""
    sent: list[Point] = [ScalarPoint("a", step, step / 3.0) for step in range(4)]
    matching = match_points(sent, [ACKNOWLEDGED] * 4, [sent[0], sent[0], sent[1], sent[3]])
    assert matching.missing == (2,)
    assert matching.twice == (1,)
    assert matching.extra == ()


def test_a_changed_value_step_or_tag_is_paired() -> None:
    """A change of one field leaves a pair that shows it, not a loss (FID-1)."""
    sent: list[Point] = [ScalarPoint("a", step, step / 3.0) for step in range(4)]
    for other in (ScalarPoint("a", 2, 9.0), ScalarPoint("a", 77, 2 / 3.0), ScalarPoint("b", 2, 2 / 3.0)):
        matching = match_points(sent, [ACKNOWLEDGED] * 4, [sent[0], sent[1], other, sent[3]])
        assert (2, 2) in matching.pairs
        assert matching.missing == matching.extra == ()


def test_a_shifted_series_is_paired_by_content() -> None:
    """A series that comes back one step late shows changed steps and no changed values (POINT-3)."""
    sent: list[Point] = [ScalarPoint("a", step, step / 3.0) for step in range(4)]
    late: list[Point] = [ScalarPoint("a", step + 1, step / 3.0) for step in range(4)]
    assert match_points(sent, [ACKNOWLEDGED] * 4, late).pairs == ((0, 0), (1, 1), (2, 2), (3, 3))


def test_a_refused_point_that_came_back_is_extra() -> None:
    """What a sink refuses it does not write (PROT-9)."""
    sent: list[Point] = [ScalarPoint("a", step, step / 3.0) for step in range(2)]
    assert match_points(sent, [ACKNOWLEDGED, REFUSED], sent).extra == (1,)
    assert match_points(sent, [ACKNOWLEDGED, REFUSED], sent[:1]).missing == ()
    assert match_points(sent, [ACKNOWLEDGED, None], sent).extra == ()


@given(st.floats() | st.integers(), st.floats() | st.integers())
def test_keys_follow_value_and_bits(first: float, second: float) -> None:
    """Keys are equal for equal values, NaN included, and tell the sign of zero (POINT-3)."""
    same = (first != first and second != second) or (
        first == second and str(float_sign(first)) == str(float_sign(second))
    )
    assert (key_of(first) == key_of(second)) == same
    assert shown(first)


def float_sign(value: float) -> str:
    """Return whether a number is the negative zero."""
    return "-0" if isinstance(value, float) and value == 0 and str(value).startswith("-") else "other"


def test_truth_and_one_differ() -> None:
    """True inside a mapping is not the number one (POINT-1)."""
    assert key_of({"a": True}) != key_of({"a": 1})
