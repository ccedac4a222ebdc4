"""Statistics become points with the names of the tag grammar."""

from __future__ import annotations

import math

import pytest

from torchlens_conformance.protocol import DEFAULT_DESCRIPTOR, GridDescriptor, Refusal
from torchlens_conformance.statistics import compute, histogram_point, scalar_points

from .oracle import torch


def test_scalars_of_an_ordinary_tensor() -> None:
    """Seven scalars of one site at the caller's step, in the order of the clause (STAT-1, TAG-1)."""
    points = scalar_points(compute(torch.tensor([0.0, 3.0, -4.0, 1.0])), family="gradients", leaf="h.0.w", step=7)
    assert {point.tag: point.value for point in points} == {
        "gradients/mean/h.0.w": 0.0,
        "gradients/std/h.0.w": pytest.approx(math.sqrt(6.5)),
        "gradients/norm/h.0.w": pytest.approx(math.sqrt(26)),
        "gradients/min/h.0.w": -4.0,
        "gradients/max/h.0.w": 3.0,
        "gradients/count/h.0.w": 4,
        "gradients/zero_fraction/h.0.w": 0.25,
    }
    assert {point.step for point in points} == {7}
    assert [point.tag.split("/")[1] for point in points] == [
        "mean",
        "std",
        "norm",
        "min",
        "max",
        "count",
        "zero_fraction",
    ]


@pytest.mark.parametrize(
    ("values", "statistics"),
    [
        ([], {"count"}),
        ([math.nan], {"count", "zero_fraction"}),
        ([1.0], {"mean", "norm", "min", "max", "count", "zero_fraction"}),
    ],
)
def test_what_is_not_known_is_left_out(values: list[float], statistics: set[str]) -> None:
    """An empty or all-nonfinite tensor emits its count and no mean; one value has no deviation (STAT-3, STAT-1)."""
    points = scalar_points(compute(torch.tensor(values)), family="parameters", leaf="w", step=0)
    assert {point.tag.split("/")[1] for point in points if point.tag.startswith("parameters/")} == statistics


def test_non_finite_counts_come_together_and_name_their_stream() -> None:
    """One non-finite value brings all three counts, as integers, each naming its stream (STAT-2, TAG-5)."""
    statistics = compute(torch.tensor([1.0, math.inf, math.nan, math.nan]))
    points = scalar_points(statistics, family="activations", leaf="act", step=1, name="teacher")
    assert {point.tag: point.value for point in points[-3:]} == {
        "nonfinite/teacher/activations_nan/act": 2,
        "nonfinite/teacher/activations_posinf/act": 1,
        "nonfinite/teacher/activations_neginf/act": 0,
    }
    assert all(type(point.value) is int for point in points[-3:])
    assert points[0].tag == "activations/teacher/mean/act"
    for value in (math.nan, math.inf, -math.inf):
        alone = scalar_points(compute(torch.tensor([value, 1.0])), family="updates", leaf="w", step=1)
        assert [point.value for point in alone[-3:]] == [value != value, value == math.inf, value == -math.inf]
    clean = scalar_points(compute(torch.ones(2)), family="activations", leaf="act", step=1)
    assert not [point for point in clean if point.tag.startswith("nonfinite")]


def test_overflow_rides_a_scalar_when_there_is_any() -> None:
    """Values beyond the grid are drawn into no bucket; their number is a scalar of its own (GRID-2)."""
    descriptor = GridDescriptor(lo_exp=-4, hi_exp=2)
    statistics = compute(torch.tensor([1.0, 4.0, -100.0, 3.9]), descriptor=descriptor)
    points = scalar_points(statistics, family="updates", leaf="w", step=2, namespace="left")
    assert (points[-1].tag, points[-1].value) == ("left/updates/overflow/w", 2)
    assert sum(histogram_point(statistics, family="updates", leaf="w", step=2).counts) == 2
    inside = compute(torch.ones(2), descriptor=descriptor)
    assert not [p for p in scalar_points(inside, family="updates", leaf="w", step=2) if "overflow" in p.tag]


def test_the_histogram_point_carries_grid_and_summary() -> None:
    """Counts, the grid's own edges, and a summary of the finite values only (POINT-2, GRID-1)."""
    statistics = compute(torch.tensor([0.5, -0.25, math.nan]), descriptor=DEFAULT_DESCRIPTOR)
    point = histogram_point(statistics, family="gradients", leaf="w", step=3, name="a")
    assert (point.tag, point.step) == ("gradients/a/hist/w", 3)
    assert point.edges is DEFAULT_DESCRIPTOR.edges
    assert (len(point.counts), sum(point.counts)) == (513, 2)
    assert dict(point.summary) == {"min": -0.25, "max": 0.5, "num": 2, "sum": 0.25, "sum_squares": 0.3125}


def test_no_histogram_without_a_grid() -> None:
    """Statistics that were computed without a descriptor have no histogram and say so (GRID-1)."""
    with pytest.raises(Refusal) as refused:
        histogram_point(compute(torch.ones(2)), family="gradients", leaf="w", step=3)
    assert refused.value.code == "grid_invalid"
