"""The grid: its edges against exact arithmetic, its bucket counts, and what is refused."""

from __future__ import annotations

import decimal
import itertools
import json
import math
import pickle
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlens_conformance.protocol import (
    DEFAULT_DESCRIPTOR,
    WANDB_SAFE_DESCRIPTOR,
    GridDescriptor,
    HistogramPoint,
    Refusal,
    require_same_grid,
)


def is_nearest(edge: float, base_exponent: int, part: int, per_octave: int) -> bool:
    """Whether ``edge`` is the float64 nearest to ``2**(base_exponent + part/per_octave)``, in exact fractions."""
    power = Fraction(2) ** (base_exponent * per_octave + part)
    below = (Fraction(math.nextafter(edge, 0.0)) + Fraction(edge)) / 2
    above = (Fraction(edge) + Fraction(math.nextafter(edge, math.inf))) / 2
    return below**per_octave <= power <= above**per_octave


@st.composite
def descriptors(draw: st.DrawFn) -> GridDescriptor:
    """Return grids of a few octaves, anywhere in the range of float64."""
    octaves = draw(st.integers(1, 4))
    lo_exp = draw(st.integers(-1074, 1023 - octaves) | st.integers(-1030, -1018))
    return GridDescriptor(
        bins_per_octave=draw(st.integers(1, 16)),
        lo_exp=lo_exp,
        hi_exp=lo_exp + octaves,
    )


@pytest.mark.parametrize(
    ("descriptor", "buckets", "smallest"),
    [(DEFAULT_DESCRIPTOR, 513, 2.0**-48), (WANDB_SAFE_DESCRIPTOR, 497, 2.0**-46)],
)
def test_the_named_grids(descriptor: GridDescriptor, buckets: int, smallest: float) -> None:
    """The default grid has 513 buckets and wandb's 497, both from the smallest edge to 2**16 (GRID-1)."""
    assert descriptor.bucket_count == buckets == len(descriptor.edges) - 1
    assert descriptor.bins_per_side == (buckets - 1) // 2
    assert descriptor.side_edges[0] == smallest and descriptor.side_edges[-1] == 65536.0
    assert WANDB_SAFE_DESCRIPTOR.bucket_count <= 512 < DEFAULT_DESCRIPTOR.bucket_count


def test_the_default_grid_is_the_one_of_the_specification() -> None:
    """Base 2, four bins an octave, from -48 to 16, signed and dense, in plain JSON values (GRID-1)."""
    plain = DEFAULT_DESCRIPTOR.as_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain == {"base": 2, "bins_per_octave": 4, "lo_exp": -48, "hi_exp": 16, "signed": True, "dense": True}
    assert GridDescriptor() == DEFAULT_DESCRIPTOR


@pytest.mark.parametrize("descriptor", [DEFAULT_DESCRIPTOR, WANDB_SAFE_DESCRIPTOR])
def test_edges_of_the_named_grids_are_rounded_right(descriptor: GridDescriptor) -> None:
    """Every side edge is the power of two as 60 decimal digits round it, and as exact fractions judge it (GRID-1)."""
    with decimal.localcontext() as context:
        context.prec = 60
        quarters = [decimal.Decimal(2) ** (decimal.Decimal(index) / 4) for index in range(4)]
        expected = [
            float(decimal.Decimal(2) ** (descriptor.lo_exp + index // 4) * quarters[index % 4])
            for index in range(descriptor.bins_per_side + 1)
        ]
    assert list(descriptor.side_edges) == expected
    assert all(is_nearest(edge, descriptor.lo_exp, index, 4) for index, edge in enumerate(expected))


@settings(deadline=None, max_examples=60)
@given(descriptors())
def test_edges_of_any_grid(descriptor: GridDescriptor) -> None:
    """Edges are nearest to the true powers (subnormal ones too), strictly increasing and mirrored (GRID-1)."""
    try:
        side = descriptor.side_edges
    except Refusal as refusal:
        # Only where float64 has no bits left can two edges fall together.
        assert refusal.code == "grid_invalid" and descriptor.lo_exp < -1074 + 8
        return
    per_octave = descriptor.bins_per_octave
    assert len(side) == (descriptor.hi_exp - descriptor.lo_exp) * per_octave + 1
    assert all(is_nearest(edge, descriptor.lo_exp, index, per_octave) for index, edge in enumerate(side))
    assert all(low < high for low, high in itertools.pairwise(side))
    edges = descriptor.edges
    assert edges == tuple(-edge for edge in side[::-1]) + side
    assert len(edges) == descriptor.bucket_count + 1 == 2 * len(side)
    # The middle bucket is the centre band, and every power of two of the range is an edge.
    assert edges[len(side) - 1] == -(2.0**descriptor.lo_exp) and edges[len(side)] == 2.0**descriptor.lo_exp
    assert all(2.0**exponent in side for exponent in range(descriptor.lo_exp, descriptor.hi_exp + 1))


def test_coinciding_edges_are_refused() -> None:
    """Where float64 cannot tell two edges apart, the grid is refused, by both views of its edges (GRID-1)."""
    descriptor = GridDescriptor(bins_per_octave=4, lo_exp=-1074, hi_exp=-1070)
    for view in ("side_edges", "edges"):
        with pytest.raises(Refusal) as caught:
            getattr(descriptor, view)
        assert caught.value.code == "grid_invalid" and caught.value.fields["lo_exp"] == -1074


def test_the_widest_grid_works() -> None:
    """One bin an octave over the whole range of float64 has an edge at every power of two (GRID-1)."""
    side = GridDescriptor(bins_per_octave=1, lo_exp=-1074, hi_exp=1023).side_edges
    assert side == tuple(math.ldexp(1.0, exponent) for exponent in range(-1074, 1024))


def test_equal_descriptors_share_one_tuple_of_edges() -> None:
    """Edges are computed once, also when many other grids came between and after pickling (GRID-1)."""
    first = GridDescriptor(lo_exp=-47).edges
    for lo_exp in range(-40, 0):
        assert len(GridDescriptor(bins_per_octave=1, lo_exp=lo_exp).edges) == 2 * (16 - lo_exp) + 2
    assert GridDescriptor(lo_exp=-47).edges is first
    assert pickle.loads(pickle.dumps(GridDescriptor(lo_exp=-47))).edges is first


@settings(deadline=None, max_examples=20)
@given(descriptors())
def test_edges_of_a_grid_make_a_legal_histogram(descriptor: GridDescriptor) -> None:
    """The edges pass the check of a histogram in earnest, not only by being known (GRID-1, POINT-2)."""
    try:
        edges = descriptor.edges
    except Refusal:
        return
    counts = (0,) * descriptor.bucket_count
    assert HistogramPoint("h", 0, counts, edges).edges is edges
    assert HistogramPoint("h", 0, counts, list(edges)).edges == edges  # type: ignore[arg-type]


FIELDS = ("bins_per_octave", "lo_exp", "hi_exp")


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [1.0, True, "4", None, [4], float("nan")])
def test_every_field_is_an_integer(field: str, value: Any) -> None:
    """A field that is no Python integer is refused with all fields (GRID-1, PROT-9)."""
    with pytest.raises(Refusal) as caught:
        GridDescriptor(**{field: value})
    assert caught.value.code == "grid_invalid"
    assert set(caught.value.fields) == set(FIELDS)
    assert caught.value.fields[field] is value or caught.value.fields[field] == value


@pytest.mark.parametrize(
    "fields",
    [
        {"bins_per_octave": 0},
        {"bins_per_octave": -1},
        {"bins_per_octave": 1025},
        {"lo_exp": 16},
        {"lo_exp": 17},
        {"hi_exp": -48},
        {"lo_exp": -1075},
        {"hi_exp": 1024},
    ],
)
def test_fields_out_of_range_are_refused(fields: dict[str, int]) -> None:
    """No bins, an empty range, and exponents beyond float64 are refused (GRID-1)."""
    with pytest.raises(Refusal) as caught:
        GridDescriptor(**fields)
    assert caught.value.code == "grid_invalid"


def test_fields_have_names() -> None:
    """A descriptor takes no positional arguments and cannot be changed (GRID-1)."""
    with pytest.raises(TypeError):
        GridDescriptor(4, -48, 16)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        DEFAULT_DESCRIPTOR.lo_exp = 0  # type: ignore[misc]


def test_unequal_grids_do_not_merge() -> None:
    """Equal descriptors pass; any difference is refused and names both (GRID-3)."""
    require_same_grid(DEFAULT_DESCRIPTOR, GridDescriptor())
    for other in (WANDB_SAFE_DESCRIPTOR, GridDescriptor(hi_exp=15), GridDescriptor(bins_per_octave=2)):
        with pytest.raises(Refusal) as caught:
            require_same_grid(DEFAULT_DESCRIPTOR, other)
        assert caught.value.code == "grid_mismatch"
        assert caught.value.fields == {"first": DEFAULT_DESCRIPTOR.as_dict(), "second": other.as_dict()}
