"""Sent against received: alignment of series, errors of values, differences of histograms."""

from __future__ import annotations

import itertools
import math
import struct
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from torchlens_conformance.protocol import DEFAULT_DESCRIPTOR
from torchlens_conformance.protocol.compare import (
    HistogramDifference,
    align_series,
    as_float32,
    compare_histograms,
    float_bits,
    same_value,
    spread_evenly,
    value_error,
)

finite = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.floats() | st.integers(-(2**80), 2**80) | st.integers(2**53 - 3, 2**53 + 3)


def bits(value: float) -> bytes:
    """Return the bytes of a float; every NaN has the same."""
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


@settings(deadline=None, max_examples=200)
@given(numbers, numbers)
def test_values_are_the_same_only_with_the_same_bits(first: float, second: float) -> None:
    """The error is 0.0 exactly when both are one value with one sign, and never a NaN (FID-1)."""
    error = value_error(first, second)
    same = bits(float(first)) == bits(float(second)) and (first == second or math.isnan(first))
    assert same_value(first, second) is same is same_value(second, first)
    assert (error == 0.0) is same
    assert error >= 0.0


@settings(deadline=None, max_examples=200)
@given(finite | st.integers(-(2**80), 2**80), finite | st.integers(-(2**80), 2**80))
def test_the_error_is_the_true_relative_error(sent: float, received: float) -> None:
    """Between finite numbers it is the rounded exact quotient, free of overflow and cancellation (FID-1)."""
    assume(not same_value(sent, received))
    exact = abs(Fraction(sent) - Fraction(received)) / (abs(Fraction(sent)) or 1)
    try:
        expected = exact.numerator / exact.denominator
    except OverflowError:
        expected = math.inf
    assert value_error(sent, received) == max(expected, 5e-324)


@pytest.mark.parametrize(
    ("sent", "received", "error"),
    [
        (math.nan, math.nan, 0.0),
        (math.nan, -math.nan, 0.0),
        (math.inf, math.inf, 0.0),
        (math.inf, -math.inf, math.inf),
        (math.nan, 0.0, math.inf),
        (1.0, math.inf, math.inf),
        (math.inf, 1e308, math.inf),
        (0.0, -0.0, 5e-324),
        (-0.0, 0.0, 5e-324),
        (0, -0.0, 5e-324),
        (0.0, 0.25, 0.25),
        (2.0, 1.0, 0.5),
        (-2.0, 2.0, 2.0),
        (1.7e308, -1.7e308, 2.0),
        (5e-324, 1e300, math.inf),
        (3, 3.0, 0.0),
        (2**53, 2.0**53, 0.0),
        (2**53 + 1, 2.0**53, 1 / (2**53 + 1)),
        (2.0**53, 2**53 + 1, 2.0**-53),
        (2**63 - 1, 2.0**63, 1 / (2**63 - 1)),
        (10**400, 10**400, 0.0),
        (10**400, 10**400 + 1, 5e-324),
        (10**400, 1.0, 1.0),
        (1.0, 10**400, math.inf),
        (10**400, math.inf, math.inf),
    ],
)
def test_errors_at_the_edges_of_numbers(sent: float, received: float, error: float) -> None:
    """Kinds, signs of zeros, integers beyond 2**53 and beyond all floats are told apart (FID-1)."""
    assert value_error(sent, received) == error


@given(st.floats())
@settings(deadline=None)
def test_bits_of_floats(value: float) -> None:
    """The bits are those of IEEE 754, with one NaN (FID-1)."""
    expected = 0x7FF8000000000000 if math.isnan(value) else int.from_bytes(struct.pack(">d", value), "big")
    assert float_bits(value) == expected


@settings(deadline=None, max_examples=200)
@given(st.floats() | st.floats(width=32))
def test_float32_is_what_numpy_rounds_to(value: float) -> None:
    """Rounding to float32 agrees with numpy over all floats, with infinities beyond its range (FID-1)."""
    numpy = pytest.importorskip("numpy")
    with numpy.errstate(all="ignore"):
        assert same_value(as_float32(value), float(numpy.float32(value)))


def test_float32_of_integers() -> None:
    """Integers are rounded too; beyond the range they become infinities of their sign (FID-1)."""
    assert as_float32(16777217) == 16777216.0
    assert [as_float32(value) for value in (10**400, -(10**400), 10**39)] == [math.inf, -math.inf, math.inf]


def pairs_of(*arguments: Any, **keys: Any) -> tuple[Any, Any, Any]:
    """Return pairs, missing and extra of an alignment."""
    alignment = align_series(*arguments, **keys)
    return alignment.pairs, alignment.missing, alignment.extra


def test_kept_steps_match_by_step() -> None:
    """Steps that survived match, in whatever order they are stored, with losses named (FID-1)."""
    assert pairs_of([100, 102, 104], [100, 102, 104]) == (((0, 0), (1, 1), (2, 2)), (), ())
    assert pairs_of([100, 102, 104], [104, 100, 102]) == (((0, 1), (1, 2), (2, 0)), (), ())
    assert pairs_of([100, 102, 104], [104, 100]) == (((0, 1), (2, 0)), (1,), ())
    assert pairs_of([104, 100, 102], [100, 102, 104]) == (((0, 2), (1, 0), (2, 1)), (), ())


def test_rewritten_steps_match_by_order() -> None:
    """Steps rewritten to 0, 1, 2, or lost altogether, match in order (FID-1)."""
    straight = ((0, 0), (1, 1), (2, 2))
    assert pairs_of([100, 102, 104], [0, 1, 2]) == (straight, (), ())
    assert pairs_of([100, 102, 104], [None, None, None]) == (straight, (), ())
    assert pairs_of([100, 102, 104], [0, 0, 0]) == (straight, (), ())
    assert pairs_of([0, 2, 4], [0, 1, 2]) == (straight, (), ())


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_loss_among_rewritten_steps_is_found_by_the_keys(lost: int) -> None:
    """When steps are rewritten and one point is lost, the values tell which one it was (FID-1)."""
    values = [0.5, 0.25, 0.125]
    kept = [index for index in range(3) if index != lost]
    found = align_series([100, 102, 104], [0, 1], sent_keys=values, received_keys=[values[index] for index in kept])
    assert found.pairs == tuple((index, position) for position, index in enumerate(kept))
    assert (found.missing, found.extra) == ((lost,), ())


def test_duplicates_are_named_extra() -> None:
    """A point that arrives twice is extra once; one key is enough to tell which (FID-1)."""
    assert pairs_of([1, 2], [1, 2, 2]) == (((0, 0), (1, 1)), (), (2,))
    assert pairs_of([1, 2], [0, 1, 2], sent_keys=["a", "b"], received_keys=["a", "a", "b"])[2] == (1,)
    assert pairs_of([], [1, 2]) == ((), (), (0, 1))
    assert pairs_of([1, 2], []) == ((), (0, 1), ())


def test_steps_that_were_sent_twice_match_in_order() -> None:
    """Duplicate, falling and interleaved steps match one by one when nothing is lost (FID-1)."""
    steps = [5, 3, 5, 1, 3]
    assert pairs_of(steps, steps) == (tuple((index, index) for index in range(5)), (), ())
    # A store that keeps one point a step loses the first of each pair.
    values = ["a", "b", "c", "d", "e"]
    found = pairs_of(steps, [5, 1, 3], sent_keys=values, received_keys=["c", "d", "e"])
    assert found == (((2, 0), (3, 1), (4, 2)), (0, 1), ())


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.integers(0, 5), max_size=7),
    st.lists(st.integers(0, 5) | st.none(), max_size=7),
    st.data(),
)
def test_an_alignment_accounts_for_every_item(sent: list[int], received: list[int | None], data: st.DataObject) -> None:
    """Every item of either side is in exactly one pair or named missing or extra (FID-1)."""
    letters = st.sampled_from("ab")
    sent_keys = data.draw(st.lists(letters, min_size=len(sent), max_size=len(sent)))
    received_keys = data.draw(st.lists(letters, min_size=len(received), max_size=len(received)))
    for keys in ({}, {"sent_keys": sent_keys, "received_keys": received_keys}):
        found = align_series(sent, received, **keys)
        assert sorted([pair[0] for pair in found.pairs] + list(found.missing)) == list(range(len(sent)))
        assert sorted([pair[1] for pair in found.pairs] + list(found.extra)) == list(range(len(received)))
        assert [pair[0] for pair in found.pairs] == sorted(pair[0] for pair in found.pairs)


def best_agreement(sent: list[str], received: list[str]) -> int:
    """Return the most equal keys of any in-order matching of the whole shorter side, by trying all."""
    shorter, longer = sorted((sent, received), key=len)
    if not shorter:
        return 0
    rest = [
        (shorter[0] == longer[at]) + best_agreement(shorter[1:], longer[at + 1 :])
        for at in range(len(longer) - len(shorter) + 1)
    ]
    return max(rest)


@settings(deadline=None, max_examples=150)
@given(st.text("ab", max_size=6), st.text("ab", max_size=6))
def test_a_matching_in_order_agrees_as_much_as_possible(sent: str, received: str) -> None:
    """No other matching in order of all items of the shorter side has more equal keys (FID-1)."""
    assume(len(sent) != len(received))
    found = align_series([7] * len(sent), [None] * len(received), sent_keys=sent, received_keys=received)
    assert len(found.pairs) == min(len(sent), len(received))
    assert [pair[1] for pair in found.pairs] == sorted(pair[1] for pair in found.pairs)
    agreeing = sum(sent[there] == received[here] for there, here in found.pairs)
    assert agreeing == best_agreement(list(sent), list(received))


COUNTS = (3, 0, 2**60 + 1, 7)
EDGES = (-2.0, -1.0, 0.0, 1.0, 4.0)


def test_the_same_histogram_has_no_difference() -> None:
    """Equal counts and edges are ``same`` without an error, as tuples or lists, exactly (FID-1)."""
    expected = HistogramDifference("same", 1.0, 0.0, True, 0.0, 0.0, 4)
    assert compare_histograms(COUNTS, EDGES, COUNTS, EDGES) == expected
    assert compare_histograms(COUNTS, EDGES, list(COUNTS), list(EDGES)) == expected


def test_one_count_off_by_one_is_seen() -> None:
    """One unit beside a count of 2**60 is not lost in rounding (FID-1)."""
    found = compare_histograms(COUNTS, EDGES, (3, 1, 2**60 + 1, 7), EDGES)
    assert found.relation == "same" and found.counts_l1 == 1 / sum(COUNTS) > 0
    assert (found.edge_error_inner, found.edge_error_outer) == (0.0, 0.0)


@settings(deadline=None)
@given(st.integers(0, 512), st.floats(-0.4, 0.4).filter(bool))
def test_one_altered_edge_leaves_the_counts_exact(index: int, shift: float) -> None:
    """An edge off by a part of its bucket is an error of that edge, inner or outer, and of nothing else (FID-1)."""
    sent = DEFAULT_DESCRIPTOR.edges
    edges = list(sent)
    width = min(high - low for low, high in zip(sent[max(index - 1, 0) :], sent[max(index - 1, 0) + 1 : index + 2]))
    edges[index] += shift * width
    assume(edges[index] != sent[index])
    counts = tuple(range(513))
    found = compare_histograms(counts, sent, counts, edges)
    assert (found.relation, found.mass_kept, found.counts_l1, found.integral) == ("same", 1.0, 0.0, True)
    error = abs(edges[index] - sent[index]) / width
    outer = index in (0, 513)
    assert (found.edge_error_outer, found.edge_error_inner) == ((error, 0.0) if outer else (0.0, error))


def test_a_guessed_left_edge_is_an_outer_error_only() -> None:
    """A store that keeps right limits only gets its own left edge judged, and exact counts (FID-1)."""
    found = compare_histograms(COUNTS, EDGES, COUNTS, (-1e308, *EDGES[1:]))
    assert (found.relation, found.counts_l1, found.edge_error_inner) == ("same", 0.0, 0.0)
    assert found.edge_error_outer > 1e307
    assert compare_histograms((5,), (0.0, 1.0), (5,), (-1.0, 1.0)).edge_error_outer == 1.0


@settings(deadline=None)
@given(st.integers(0, 3), st.integers(1, 4))
def test_a_contiguous_run_counts_what_lies_outside_it(start: int, length: int) -> None:
    """A run of the sent buckets is ``run``; the mass of the others is missing from it (FID-1)."""
    counts, edges = (3, 5, 9, 7), EDGES
    end = min(start + length, 4)
    found = compare_histograms(counts, edges, counts[start:end], edges[start : end + 1])
    lost = 24 - sum(counts[start:end])
    assert found.relation == ("same" if end - start == 4 else "run")
    assert (found.mass_kept, found.counts_l1) == ((24 - lost) / 24, lost / 24)
    assert (found.edge_error_inner, found.edge_error_outer, found.buckets) == (0.0, 0.0, end - start)


def test_other_edges_are_spread_evenly() -> None:
    """On other edges each bucket is spread over the sent ones, and mass outside counts in full (FID-1)."""
    found = compare_histograms((4, 4), (0.0, 1.0, 2.0), (8,), (0.5, 1.5))
    assert (found.relation, found.mass_kept, found.counts_l1) == ("other", 1.0, 0.0)
    assert (found.edge_error_inner, found.edge_error_outer) == (0.0, 0.5)
    beyond = compare_histograms((4, 4), (0.0, 1.0, 2.0), (8,), (4.0, 5.0))
    assert (beyond.mass_kept, beyond.counts_l1) == (1.0, 2.0)
    half = compare_histograms((4, 4), (0.0, 1.0, 2.0), (8,), (1.25, 2.75))
    assert half.counts_l1 == (4 + 0 + 4) / 8


def test_counts_that_are_no_integers_are_told() -> None:
    """Whether received counts are whole numbers is told apart from their type (FID-1)."""
    assert compare_histograms((4,), (0.0, 1.0), (3.5,), (0.0, 1.0)).integral is False
    assert compare_histograms((4,), (0.0, 1.0), (3.0,), (0.0, 1.0)).integral is True


def test_a_store_without_edges() -> None:
    """Without edges only the mass can be judged; the rest is infinitely wrong (FID-1)."""
    found = compare_histograms((4, 4), (0.0, 1.0, 2.0), (3, 3), None)
    assert found == HistogramDifference("no-edges", 0.75, math.inf, True, math.inf, math.inf, 2)


def test_an_empty_histogram() -> None:
    """No mass sent and none received is all of it kept; some received is infinitely too much (FID-1)."""
    assert compare_histograms((0,), (0.0, 1.0), (0,), (0.0, 1.0)).mass_kept == 1.0
    assert compare_histograms((0,), (0.0, 1.0), (0,), (0.0, 2.0)).mass_kept == 1.0
    found = compare_histograms((0,), (0.0, 1.0), (2,), (0.0, 1.0))
    assert (found.mass_kept, found.counts_l1) == (math.inf, 2.0)


def test_a_bucket_wider_than_the_largest_float_is_spread() -> None:
    """A bucket whose width overflows is halved in the middle like any other (FID-1)."""
    assert spread_evenly((8,), (-1.7e308, 1.7e308), (-1.7e308, 0.0, 1.7e308)) == ([4.0, 4.0], 0.0)
    assert spread_evenly((8,), (-1.7e308, 1.7e308), (-1.7e308, 1.7e308)) == ([8.0], 0.0)


edge_lists = st.sets(finite, min_size=2, max_size=7).map(sorted)


@settings(deadline=None, max_examples=150)
@given(edge_lists, edge_lists, st.data())
def test_spreading_conserves_mass(edges: list[float], target: list[float], data: st.DataObject) -> None:
    """Mass inside and outside the target edges adds up to what was spread, none negative (FID-1)."""
    amounts = st.integers(0, 2**60) | st.floats(0, 1e9)
    counts = data.draw(st.lists(amounts, min_size=len(edges) - 1, max_size=len(edges) - 1))
    spread, outside = spread_evenly(counts, edges, target)
    assert len(spread) == len(target) - 1
    assert all(part >= 0 for part in spread) and outside >= 0
    assert math.isclose(math.fsum(spread) + outside, math.fsum(counts), rel_tol=1e-9, abs_tol=1e-9)


@settings(deadline=None)
@given(edge_lists, st.data())
def test_spreading_over_finer_edges_loses_nothing(edges: list[float], data: st.DataObject) -> None:
    """Edges that contain the received ones take all of the mass, each bucket its own (FID-1)."""
    middles = [low / 2 + high / 2 for low, high in itertools.pairwise(edges)]
    target = sorted({*edges, *middles})
    counts = data.draw(st.lists(st.integers(0, 2**40), min_size=len(edges) - 1, max_size=len(edges) - 1))
    spread, outside = spread_evenly(counts, edges, target)
    assert outside <= 1e-9 * max(1, sum(counts))
    for count, low, high in zip(counts, edges, edges[1:]):
        inside = math.fsum(part for part, left in zip(spread, target) if low <= left < high)
        assert math.isclose(inside, count, rel_tol=1e-9, abs_tol=0)
