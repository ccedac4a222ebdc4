"""The compiled sweep: whole cache lines, what follows them, blocks, and the way back from a non-finite block."""

from __future__ import annotations

from typing import Any

import pytest

from torchlens_conformance.protocol import DEFAULT_DESCRIPTOR, GridDescriptor
from torchlens_conformance.statistics import compiled_available, compute_many

from .oracle import assert_same_sums, exact_fields, torch

pytestmark = pytest.mark.skipif(not compiled_available(), reason="the compiled backend cannot run here")

LENGTHS = (1, 7, 8, 9, 15, 16, 17, 33, 2047, 2048, 2049, 8191, 8192, 8193, 16389)
"""Around a line of either width, the length from which tables are filled, and a block."""

GRIDS = [DEFAULT_DESCRIPTOR, GridDescriptor(bins_per_octave=1), GridDescriptor(bins_per_octave=16), None]
"""Thresholds for one sweep of comparisons, for none, and for five."""


def agree(tensors: list[Any], descriptor: GridDescriptor | None) -> None:
    """Assert that both backends find the same in every tensor."""
    both = [compute_many(tensors, descriptor=descriptor, backend=name) for name in ("compiled", "torch")]
    for got, wanted in zip(*both, strict=True):
        assert exact_fields(got) == exact_fields(wanted)
        assert_same_sums(got, wanted)


@pytest.mark.parametrize("descriptor", GRIDS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_length(dtype: Any, descriptor: GridDescriptor | None) -> None:
    """Lines, rests and blocks of values of both signs, and of one sign only, are all counted once (STAT-1, GRID-2)."""
    generator = torch.Generator().manual_seed(11)
    tensors = []
    for length in LENGTHS:
        values = torch.randn(length, generator=generator, dtype=dtype) * 10.0 ** float(length % 5 - 2)
        tensors += [
            values,
            values.abs(),
            -values.abs(),
            torch.zeros(length, dtype=dtype),
            torch.full_like(values, -0.0),
        ]
    agree(tensors, descriptor)


@pytest.mark.parametrize("descriptor", GRIDS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_a_non_finite_value_at_every_place(dtype: Any, descriptor: GridDescriptor | None) -> None:
    """In a line, in the last one, behind it, alone or in company: nothing is counted twice or lost (STAT-2, GRID-2)."""
    generator = torch.Generator().manual_seed(12)
    tensors = []
    for length in (17, 2048, 2049, 8200):
        for place in (0, 15, 16, length - 17, length - 1):
            values = torch.randn(length, generator=generator).to(dtype)
            values[place] = (torch.nan, torch.inf, -torch.inf)[place % 3]
            tensors.append(values)
        tensors.append(torch.full((length,), torch.nan, dtype=dtype))
        tensors[-1][length - 1] = 3.0
    agree(tensors, descriptor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_any_alignment(dtype: Any) -> None:
    """A tensor may begin at any element, on no border of a cache line (STAT-1)."""
    values = torch.randn(5000, generator=torch.Generator().manual_seed(13), dtype=dtype)
    agree([values[start : start + 4000] for start in range(20)], DEFAULT_DESCRIPTOR)
