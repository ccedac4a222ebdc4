"""Closed-form corrections against an oracle that divides in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlens_conformance.protocol import DEFAULT_DESCRIPTOR, GridDescriptor, Refusal
from torchlens_conformance.statistics import TensorStatistics, compute
from torchlens_conformance.watch.unscale import scale_exponent, scaled_grid, unscale

torch = pytest.importorskip("torch")

GRID = GridDescriptor(bins_per_octave=4, lo_exp=-12, hi_exp=6)
EXPONENTS = st.integers(-10, 30)
VALUES = st.lists(
    st.floats(-(2.0**10), 2.0**10, width=32) | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 2.0**-3]),
    max_size=40,
)


def derived(scaled: Any, exponent: int, grid: GridDescriptor) -> TensorStatistics:
    """Return the statistics that are derived from scaled values."""
    return unscale(compute(scaled, descriptor=scaled_grid(grid, exponent)), exponent, grid)


def assert_same_counts(found: TensorStatistics, oracle: TensorStatistics) -> None:
    """Counts, extremes and specials are exactly equal."""
    for name in ("elements", "finite", "zeros", "nan", "posinf", "neginf", "minimum", "maximum", "counts"):
        assert getattr(found, name) == getattr(oracle, name), name
    assert found.descriptor == oracle.descriptor
    assert (found.overflow_positive, found.overflow_negative) == (oracle.overflow_positive, oracle.overflow_negative)


@settings(deadline=None, max_examples=200)
@given(VALUES, EXPONENTS)
def test_derived_statistics_are_those_of_values_divided_in_float64(values: list[float], exponent: int) -> None:
    """Counts and extremes are exact, sums agree within float64 rounding, for any tensor and power of two (AMP-3)."""
    scaled = torch.tensor(values, dtype=torch.float32)
    found = derived(scaled, exponent, GRID)
    oracle = compute(scaled.double() / 2.0**exponent, descriptor=GRID)
    assert_same_counts(found, oracle)
    for name in ("total", "mean", "std", "norm", "sum_squares", "squared_deviation"):
        expected, given_value = getattr(oracle, name), getattr(found, name)
        if expected is None:
            assert given_value is None
        else:
            size = (oracle.norm or 0.0) ** (2 if name in ("sum_squares", "squared_deviation") else 1)
            assert given_value == pytest.approx(expected, rel=1e-12, abs=1e-13 * max(size, 1e-300))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(-64.0, 64.0, width=16), max_size=40), st.integers(0, 16))
def test_where_the_division_is_exact_every_field_is_equal_bit_for_bit(values: list[float], exponent: int) -> None:
    """Scaling there and back changes no bit of any statistic (AMP-3)."""
    true = torch.tensor(values, dtype=torch.float32)
    assert derived(true * 2.0**exponent, exponent, GRID) == compute(true, descriptor=GRID)


def test_a_gradient_of_two_under_the_usual_scale_is_no_overflow() -> None:
    """Counted on the shifted grid, 2 * 65536 lies in the bucket of 2 (AMP-3)."""
    found = derived(torch.tensor([2.0 * 65536, -(2.0**-60)]), 16, DEFAULT_DESCRIPTOR)
    assert found.overflow == 0 and found.counts is not None
    bucket = found.counts.index(1, len(found.counts) // 2 + 1)
    assert DEFAULT_DESCRIPTOR.edges[bucket] == 2.0
    # What is below the grid is underflow: the centre band.
    assert found.counts[len(found.counts) // 2] == 1


def test_values_that_overflow_are_told_by_their_true_size() -> None:
    """Overflow is what lies beyond the grid after the division, not before it (AMP-3, GRID-2)."""
    assert derived(torch.tensor([2.0**40, 2.0**70]), 30, DEFAULT_DESCRIPTOR).overflow == 1


@pytest.mark.parametrize(
    ("scale", "exponent"),
    [(65536.0, 16), (1.0, 0), (0.5, -1), (2.0**-149, -149), (3.0, None), (0.0, None), (-2.0, None), (math.inf, None)],
)
def test_which_scales_are_powers_of_two(scale: float, exponent: int | None) -> None:
    """Only an exact power of two has an exponent (AMP-3)."""
    assert scale_exponent(scale) == exponent


def test_nan_is_no_scale_and_a_grid_can_leave_float64() -> None:
    """A scale that is no number is none, and a shift out of float64's range is refused by the grid (AMP-3, GRID-1)."""
    assert scale_exponent(math.nan) is None
    with pytest.raises(Refusal) as caught:
        scaled_grid(DEFAULT_DESCRIPTOR, 1020)
    assert caught.value.code == "grid_invalid"


def test_what_float64_cannot_hold_becomes_infinite() -> None:
    """A corrected sum beyond float64 is an infinity, never an error (AMP-3)."""
    record = compute(torch.tensor([1e300, -1e300, 1e300], dtype=torch.float64))
    found = unscale(record, -100, None)
    assert found.maximum == math.inf and found.minimum == -math.inf
