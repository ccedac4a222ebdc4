"""Moments: right, stable, and the same whole as in parts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlens_conformance.protocol import DEFAULT_DESCRIPTOR, WANDB_SAFE_DESCRIPTOR, Refusal
from torchlens_conformance.statistics import TensorStatistics, compute, merge

from .oracle import BACKENDS, DTYPES, assert_same_sums, exact_fields, exact_moments, from_bits, torch

finite_values = st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=50)


def std(statistics: TensorStatistics) -> float:
    """Return the standard deviation, which must be there."""
    assert statistics.std is not None
    return statistics.std


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(deadline=None, max_examples=40)
@given(values=finite_values)
def test_moments_are_the_exact_ones_rounded(dtype: torch.dtype, backend: str, values: list[float]) -> None:
    """Sum, sum of squares and squared deviation agree with exact rational arithmetic (STAT-1)."""
    tensor = torch.tensor(values, dtype=torch.float64).clamp(-6e4, 6e4).to(dtype)
    total, squares, deviation = exact_moments(tensor.double().tolist())
    got = compute(tensor, backend=backend)
    largest = math.sqrt(squares)
    assert got.total == pytest.approx(float(total), rel=1e-13, abs=1e-14 * largest)
    assert got.sum_squares == pytest.approx(float(squares), rel=1e-13)
    assert got.squared_deviation == pytest.approx(float(deviation), rel=1e-12, abs=1e-28 * float(squares))
    assert got.mean == pytest.approx(float(total / len(values)), rel=1e-13, abs=1e-14 * largest)
    assert got.norm == pytest.approx(largest, rel=1e-13)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", [1000, 300_000])
def test_deviation_survives_a_large_mean(backend: str, number: int) -> None:
    """A mean a billion times the deviation costs no digits of the deviation (STAT-1)."""
    spread = torch.arange(number, dtype=torch.float64).remainder_(5).sub_(2)
    assert std(compute(1e6 + 1e-3 * spread, backend=backend)) == pytest.approx(1e-3 * math.sqrt(2), rel=1e-6)
    offset = (4096 + spread).float()
    assert std(compute(offset, backend=backend)) == pytest.approx(math.sqrt(2), rel=1e-12)
    assert std(compute(torch.full((number,), 0.1), backend=backend)) == 0.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_deviation_survives_a_mean_that_moves(backend: str) -> None:
    """Blocks around different means are joined without cancellation (STAT-1)."""
    steps = torch.repeat_interleave(torch.tensor([1e8, 0.0, -1e8], dtype=torch.float64), 100_000)
    wanted = 1e8 * math.sqrt(2 / 3)
    assert std(compute(steps, backend=backend)) == pytest.approx(wanted, rel=1e-14)
    assert std(compute(steps + 1e10, backend=backend)) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_non_finite_values_touch_no_moment(backend: str) -> None:
    """NaNs and infinities are counted exactly and leave the moments of the finite values alone (STAT-1, STAT-2)."""
    clean = torch.linspace(-1, 2, 40_000)
    dirty = torch.cat([clean[:100], torch.tensor([math.nan, math.inf, -math.inf, math.inf]), clean[100:]])
    got, wanted = (compute(t, descriptor=DEFAULT_DESCRIPTOR, backend=backend) for t in (dirty, clean))
    assert (got.nan, got.posinf, got.neginf, got.nonfinite) == (1, 2, 1, 4)
    assert (got.elements, got.finite) == (40_004, 40_000)
    assert (got.counts, got.minimum, got.maximum) == (wanted.counts, wanted.minimum, wanted.maximum)
    assert_same_sums(got, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("values", [[], [math.nan] * 3, [math.inf, -math.inf, math.nan] * 2000], ids=len)
def test_nothing_is_invented_without_values(values: list[float], dtype: torch.dtype, backend: str) -> None:
    """An empty or all-nonfinite tensor has counts and neither mean, extremes, norm nor deviation (STAT-3)."""
    got = compute(torch.tensor(values, dtype=dtype), descriptor=DEFAULT_DESCRIPTOR, backend=backend)
    assert (got.elements, got.finite, got.zeros) == (len(values), 0, 0)
    assert got.minimum is got.maximum is got.mean is got.std is got.norm is got.total is got.sum_squares is None
    assert got.squared_deviation is None
    assert got.zero_fraction == (0.0 if values else None)
    assert dict(got.summary) == {"num": 0}
    assert got.counts == (0,) * 513


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_value_has_no_deviation(backend: str) -> None:
    """The deviation needs two finite values; the mean needs one (STAT-1)."""
    got = compute(torch.tensor([2.5, math.nan]), backend=backend)
    assert (got.mean, got.norm, got.minimum, got.maximum, got.std) == (2.5, 2.5, 2.5, 2.5, None)
    assert compute(torch.tensor([2.5, 2.5]), backend=backend).std == 0.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_zeros_of_both_signs(backend: str) -> None:
    """Zero fraction counts both zeros over all elements; an extreme that is zero is +0.0 (STAT-1)."""
    got = compute(torch.tensor([-0.0, 0.0, -0.0, math.nan]), backend=backend)
    assert (got.zeros, got.zero_fraction) == (3, 0.75)
    assert math.copysign(1, got.minimum or 0.0) == math.copysign(1, got.maximum or 0.0) == 1.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_sums_beyond_float64(backend: str) -> None:
    """Sums that overflow are infinite, what can be known stays right, and nothing becomes NaN (STAT-1)."""
    huge = torch.full((5000,), 1e308, dtype=torch.float64)
    got = compute(huge, backend=backend)
    assert (got.total, got.mean, got.std, got.norm) == (math.inf, pytest.approx(1e308), 0.0, math.inf)
    mixed = compute(torch.cat([huge, -huge]), backend=backend)
    assert mixed.mean == pytest.approx(0.0, abs=1e295)
    assert (mixed.total, mixed.std) == (pytest.approx(0.0, abs=1e299), math.inf)


@pytest.mark.skipif(len(BACKENDS) < 2, reason="the compiled backend cannot run here")
@settings(deadline=None, max_examples=60)
@given(data=st.data(), number=st.sampled_from([1, 7, 255, 256, 257, 2049, 8191, 8193, 20_000]))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_backends_agree(dtype: torch.dtype, data: st.DataObject, number: int) -> None:
    """Both backends give counts and extremes that are equal bit for bit, and sums equal up to rounding (GRID-2)."""
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32)))
    width = torch.finfo(dtype).bits
    tensor = (torch.randn(number, generator=generator, dtype=torch.float64) * 2 ** data.draw(st.floats(-50, 14))).to(
        dtype
    )
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, number - 1))
        tensor[place] = from_bits([data.draw(st.integers(0, (1 << width) - 1))], dtype)[0]
    first, second = (compute(tensor, descriptor=DEFAULT_DESCRIPTOR, backend=backend) for backend in BACKENDS)
    assert exact_fields(first) == exact_fields(second)
    assert_same_sums(first, second)


@settings(deadline=None, max_examples=60)
@given(
    values=st.lists(st.one_of(st.floats(width=32), st.floats(-8, 8, width=32)), max_size=60),
    data=st.data(),
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_parts_merge_to_the_whole(backend: str, values: list[float], data: st.DataObject) -> None:
    """Split anywhere, computed apart and merged, a tensor has the statistics of the whole (STAT-1, GRID-3)."""
    cut = data.draw(st.integers(0, len(values)))
    whole, left, right = (
        compute(torch.tensor(part), descriptor=DEFAULT_DESCRIPTOR, backend=backend)
        for part in (values, values[:cut], values[cut:])
    )
    merged = merge(left, right)
    assert exact_fields(merged) == exact_fields(whole)
    assert_same_sums(merged, whole)


def test_merging_needs_equal_grids() -> None:
    """There is no re-binning: another grid, or none on one side, refuses ``grid_mismatch`` (GRID-3)."""
    tensor = torch.ones(3)
    grids = (DEFAULT_DESCRIPTOR, WANDB_SAFE_DESCRIPTOR, None)
    found = [compute(tensor, descriptor=descriptor) for descriptor in grids]
    for first in found:
        for second in found:
            if first is second:
                assert merge(first, second).elements == 6
            else:
                with pytest.raises(Refusal) as refused:
                    merge(first, second)
                assert refused.value.code == "grid_mismatch"
