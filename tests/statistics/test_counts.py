"""Histogram counts are exact in every dtype, at every edge, with both backends."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlens_conformance.protocol import DEFAULT_DESCRIPTOR, WANDB_SAFE_DESCRIPTOR, GridDescriptor
from torchlens_conformance.statistics import compute

from .oracle import BACKENDS, DTYPES, WORDS, exact_fields, expected, from_bits, torch

GRIDS = [
    DEFAULT_DESCRIPTOR,
    WANDB_SAFE_DESCRIPTOR,
    GridDescriptor(bins_per_octave=1, lo_exp=-3, hi_exp=3),
    GridDescriptor(bins_per_octave=3, lo_exp=-126, hi_exp=127),
    GridDescriptor(bins_per_octave=11, lo_exp=-20, hi_exp=2),
    GridDescriptor(bins_per_octave=64, lo_exp=-12, hi_exp=-8),
    GridDescriptor(bins_per_octave=2, lo_exp=-149, hi_exp=128),
    GridDescriptor(bins_per_octave=4, lo_exp=-40, hi_exp=300),
    GridDescriptor(bins_per_octave=1, lo_exp=-1074, hi_exp=1023),
]
"""Grids that are counted by cells, in one round and in several, and grids that have to be searched."""


def near_edges(descriptor: GridDescriptor, dtype: torch.dtype) -> torch.Tensor:
    """Return every edge rounded to ``dtype``, its three neighbours on both sides, and all of it negated."""
    edges = torch.tensor(descriptor.side_edges, dtype=torch.float64).to(dtype)
    words = edges.view(WORDS[dtype])
    around = torch.cat([words + offset for offset in range(-3, 4)])
    values = around.clamp(min=0).view(dtype)
    return torch.cat([values, -values])


def check(tensor: torch.Tensor, descriptor: GridDescriptor, backend: str) -> None:
    """Assert that all exact fields are the oracle's."""
    got = compute(tensor, descriptor=descriptor, backend=backend)
    assert exact_fields(got) == expected(tensor.double().flatten().tolist(), descriptor)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("descriptor", GRIDS, ids=lambda grid: f"{grid.bins_per_octave}@{grid.lo_exp}..{grid.hi_exp}")
def test_every_edge_and_its_neighbours(descriptor: GridDescriptor, dtype: torch.dtype, backend: str) -> None:
    """A value at an edge opens the bin, the float just below it does not, on both sides (GRID-2)."""
    tensor = near_edges(descriptor, dtype)
    check(tensor, descriptor, backend)
    # Another path is taken for many elements than for few.
    check(tensor[:1500], descriptor, backend)
    check(tensor.repeat(1 + 5000 // tensor.numel()), descriptor, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("descriptor", [DEFAULT_DESCRIPTOR, GRIDS[4], GRIDS[6]], ids=["default", "11", "subnormal"])
def test_every_pattern_of_a_half(descriptor: GridDescriptor, dtype: torch.dtype, backend: str) -> None:
    """All 65,536 patterns of a 16-bit float, NaN payloads and subnormals among them, are counted right (GRID-2)."""
    tensor = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(dtype)
    check(tensor, descriptor, backend)


def special_patterns(dtype: torch.dtype) -> list[int]:
    """Return zeros, the least and greatest subnormals and normals, infinities and NaNs with several payloads."""
    info = torch.finfo(dtype)
    width, mantissa = info.bits, round(-math.log2(info.eps))
    sign = 1 << (width - 1)
    infinity = ((1 << (width - 1 - mantissa)) - 1) << mantissa
    positive = [0, 1, (1 << mantissa) - 1, 1 << mantissa, infinity - 1, infinity, infinity + 1]
    positive += [infinity | (1 << (mantissa - 1)), infinity | ((1 << mantissa) - 1)]
    return positive + [sign | bits for bits in positive]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_patterns(dtype: torch.dtype, backend: str) -> None:
    """-0.0 is a zero in the centre; infinities and NaNs of any payload are counted apart, in no bucket (GRID-2)."""
    for descriptor in (DEFAULT_DESCRIPTOR, GRIDS[6], GRIDS[8]):
        check(from_bits(special_patterns(dtype), dtype), descriptor, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_random_bit_patterns(dtype: torch.dtype, backend: str, data: st.DataObject) -> None:
    """Any mixture of bit patterns over any grid is counted as the float64 oracle counts it (GRID-2)."""
    low = data.draw(st.integers(-160, 20))
    descriptor = GridDescriptor(
        bins_per_octave=data.draw(st.integers(1, 9)), lo_exp=low, hi_exp=low + data.draw(st.integers(1, 40))
    )
    width = torch.finfo(dtype).bits
    anything = st.integers(0, (1 << width) - 1)
    patterns = st.one_of(anything, st.sampled_from(special_patterns(dtype)))
    check(from_bits(data.draw(st.lists(patterns, max_size=40)), dtype), descriptor, backend)


@settings(deadline=None, max_examples=60)
@given(
    values=st.lists(st.floats(width=32), min_size=1, max_size=30),
    repeats=st.sampled_from([1, 300, 3000]),
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_grid_and_specials_make_up_all_elements(backend: str, values: list[float], repeats: int) -> None:
    """Buckets, overflow, NaNs and infinities together are always the number of elements (GRID-2)."""
    got = compute(torch.tensor(values).repeat(repeats), descriptor=DEFAULT_DESCRIPTOR, backend=backend)
    assert got.counts is not None and got.overflow is not None
    assert sum(got.counts) + got.overflow + got.nan + got.posinf + got.neginf == got.elements == len(values) * repeats


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_render_is_mirrored(backend: str) -> None:
    """Buckets run from the outermost negative over the centre to the outermost positive, as the edges do (GRID-1)."""
    descriptor = GridDescriptor(bins_per_octave=1, lo_exp=0, hi_exp=2)
    values = torch.tensor([-3.0, -3.5, -1.0, -0.5, 0.0, 0.25, 1.5, 2.0, 2.5, 3.0, 4.0, -4.0, -9.0])
    got = compute(values, descriptor=descriptor, backend=backend)
    assert descriptor.edges == (-4.0, -2.0, -1.0, 1.0, 2.0, 4.0)
    assert got.counts == (2, 1, 3, 1, 3)
    assert (got.overflow_positive, got.overflow_negative, got.overflow) == (1, 2, 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_flushing_subnormals_changes_no_count(backend: str, flush_subnormals: Callable[[], bool]) -> None:
    """Counts and extremes come from bits, so a thread that flushes subnormals counts the same (GRID-2)."""
    if not flush_subnormals():
        pytest.skip("this processor cannot flush subnormals")
    for dtype in (torch.float16, torch.float32):
        tensor = from_bits([1, 2, 3, 0x3FF], dtype)
        got = compute(tensor, descriptor=GridDescriptor(lo_exp=-149, hi_exp=0), backend=backend)
        assert got.zeros == 0 and got.counts is not None
        scale = -24 if dtype is torch.float16 else -149
        assert got.minimum == 2.0**scale
        assert got.maximum == 0x3FF * 2.0**scale
        assert sum(got.counts[len(got.counts) // 2 + 1 :]) == 4
