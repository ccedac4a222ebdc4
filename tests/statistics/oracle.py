"""A slow reference in plain Python floats (float64), and tensors made of chosen bit patterns."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction

import pytest

from torchlens_conformance.protocol import GridDescriptor
from torchlens_conformance.statistics import TensorStatistics, compiled_available

torch = pytest.importorskip("torch")

WORDS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}
"""The supported dtypes, each with the integer dtype of its width."""

DTYPES = list(WORDS)

BACKENDS = ["compiled", "torch"] if compiled_available() else ["torch"]

EXACT_FIELDS = (
    "elements",
    "finite",
    "zeros",
    "nan",
    "posinf",
    "neginf",
    "minimum",
    "maximum",
    "counts",
    "overflow_positive",
    "overflow_negative",
)
"""Fields that are the same bit for bit whatever the backend, the order or the cut."""


def from_bits(patterns: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return the tensor of the floats with these bit patterns, given as unsigned integers."""
    width = 8 * torch.empty((), dtype=dtype).element_size()
    signed = [bits - (1 << width) if bits >> (width - 1) else bits for bits in patterns]
    return torch.tensor(signed, dtype=WORDS[dtype]).view(dtype)


def expected(values: Sequence[float], descriptor: GridDescriptor) -> dict[str, object]:
    """Return the fields of :data:`EXACT_FIELDS`, counted one value at a time by comparison in float64."""
    finite = [value for value in values if math.isfinite(value)]
    side = descriptor.side_edges
    bins = len(side) - 1
    counts = [0] * (2 * bins + 1)
    overflow_positive = overflow_negative = 0
    for value in finite:
        reached = bisect_right(side, abs(value))
        if reached <= bins:
            counts[bins + reached if value > 0 else bins - reached] += 1
        elif value > 0:
            overflow_positive += 1
        else:
            overflow_negative += 1
    return {
        "elements": len(values),
        "finite": len(finite),
        "zeros": sum(value == 0 for value in finite),
        "nan": sum(math.isnan(value) for value in values),
        "posinf": sum(value == math.inf for value in values),
        "neginf": sum(value == -math.inf for value in values),
        "minimum": min(finite) + 0.0 if finite else None,
        "maximum": max(finite) + 0.0 if finite else None,
        "counts": tuple(counts),
        "overflow_positive": overflow_positive,
        "overflow_negative": overflow_negative,
    }


def exact_moments(values: Sequence[float]) -> tuple[Fraction, Fraction, Fraction]:
    """Return sum, sum of squares and sum of squared deviations from the mean, without rounding."""
    fractions = [Fraction(value) for value in values]
    total = sum(fractions, Fraction(0))
    mean = total / len(fractions)
    squares = sum((value * value for value in fractions), Fraction(0))
    return total, squares, sum(((value - mean) ** 2 for value in fractions), Fraction(0))


def exact_fields(statistics: TensorStatistics) -> dict[str, object]:
    """Return the fields that must not differ in a single bit."""
    return {name: getattr(statistics, name) for name in EXACT_FIELDS}


def assert_same_sums(got: TensorStatistics, other: TensorStatistics) -> None:
    """Assert that sums agree within float64 rounding of sums over so many elements."""
    if other.finite == 0:
        assert got.total is got.mean is got.sum_squares is got.squared_deviation is None
        return
    assert got.sum_squares == pytest.approx(other.sum_squares, rel=1e-12, abs=0)
    assert got.squared_deviation is not None and other.squared_deviation is not None
    assert other.norm is not None and got.mean is not None and other.mean is not None
    # A total may cancel; its rounding is in proportion to the magnitudes added.
    slack = 1e-13 * other.norm * math.sqrt(other.finite) if math.isfinite(other.norm) else math.inf
    assert got.total == pytest.approx(other.total, rel=1e-12, abs=slack)
    assert got.mean == pytest.approx(other.mean, rel=1e-12, abs=slack / other.finite)
    assert got.squared_deviation == pytest.approx(other.squared_deviation, rel=1e-9, abs=1e-25 * (other.norm**2))
