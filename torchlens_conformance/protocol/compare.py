"""Sent against received, in numbers: the one comparison that certificates and the fidelity table share (FID-1).

Nothing here decides what is good or bad; it only measures. Values are compared as bits, steps as integers, histograms
bucket by bucket.
"""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan


def float_bits(value: int | float) -> int:
    """Return the 64 bits of ``float(value)`` as an integer; every NaN has the same bits."""
    number = float(value)
    if isnan(number):
        return 0x7FF8000000000000
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return int(bits)


def same_value(first: int | float, second: int | float) -> bool:
    """Whether two numbers are equal as values and, for floats, bit for bit (-0.0 is not 0.0, NaN is NaN)."""
    if type(first) is int and type(second) is int:
        return first == second
    try:
        return float_bits(first) == float_bits(second) and (isnan(float(first)) or first == second)
    except OverflowError:
        return first == second


def as_float32(value: int | float) -> float:
    """Return the float32 nearest to ``float(value)``, as a Python float; beyond the range it is an infinity.

    An integer beyond 2**53 is thus rounded twice, as it is by software that holds numbers as floats.
    """
    try:
        (narrow,) = struct.unpack("<f", struct.pack("<f", float(value)))
    except OverflowError:
        return inf if value > 0 else -inf
    return float(narrow)


def value_error(sent: int | float, received: int | float) -> float:
    """Return the relative error: 0.0 exactly when the values are the same, infinity when their kinds differ.

    The kinds are finite, NaN, +infinity, -infinity. For a sent zero the absolute error is returned; two zeros of
    different sign differ by the smallest float. Clause: FID-1.
    """
    if same_value(sent, received):
        return 0.0
    if not (_is_finite(sent) and _is_finite(received)):
        return inf
    # In integers: floats would lose the difference of 2**53 + 1 and 2.0**53, or overflow between 1e308 and -1e308.
    sent_over, sent_under = sent.as_integer_ratio()
    received_over, received_under = received.as_integer_ratio()
    difference = abs(sent_over * received_under - received_over * sent_under)
    try:
        error = difference / (received_under * (abs(sent_over) or sent_under))
    except OverflowError:
        return inf
    return max(error, _SMALLEST)


_SMALLEST = 5e-324
"""The smallest positive float: values that are not the same never have the error 0.0."""


def _is_finite(value: int | float) -> bool:
    # isfinite() converts to a float, which fails for large integers.
    return isinstance(value, int) or isfinite(value)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Which received item stands for which sent one, within one series.

    Args:
        pairs: (index of sent, index of received), in the order of sent.
        missing: Indices of sent items that nothing stands for.
        extra: Indices of received items that stand for nothing.
    """

    pairs: tuple[tuple[int, int], ...]
    missing: tuple[int, ...]
    extra: tuple[int, ...]


def align_series(
    sent_steps: Sequence[int],
    received_steps: Sequence[int | None],
    *,
    sent_keys: Sequence[Hashable] = (),
    received_keys: Sequence[Hashable] = (),
) -> Alignment:
    """Match the items of one series by step where steps survived, else by order.

    When the steps on each side are distinct and all received ones were sent, items match by step. Else, with as many
    received as sent, they match by order. Else (steps rewritten and something lost or doubled) they match in order, so
    that as many keys (values, say) as possible agree.

    Args:
        sent_steps: The caller's steps, in the order they were sent.
        received_steps: The steps found in the store, in stored order; None where the store has none.
        sent_keys: What tells sent items apart beside the step.
        received_keys: The same for received items.
    """
    position = {step: index for index, step in enumerate(sent_steps)}
    distinct = len(set(received_steps)) == len(received_steps) and len(position) == len(sent_steps)
    if distinct and all(step in position for step in received_steps):
        by_sent = sorted((position[step], index) for index, step in enumerate(received_steps) if step is not None)
        return _alignment(by_sent, len(sent_steps), len(received_steps))
    if len(sent_steps) == len(received_steps):
        return _alignment([(index, index) for index in range(len(sent_steps))], len(sent_steps), len(received_steps))
    pairs = _ordered_matching(sent_keys or sent_steps, received_keys or received_steps)
    return _alignment(pairs, len(sent_steps), len(received_steps))


def _alignment(pairs: Sequence[tuple[int, int]], sent: int, received: int) -> Alignment:
    used_sent = {pair[0] for pair in pairs}
    used_received = {pair[1] for pair in pairs}
    return Alignment(
        tuple(pairs),
        tuple(index for index in range(sent) if index not in used_sent),
        tuple(index for index in range(received) if index not in used_received),
    )


def _ordered_matching(sent: Sequence[Hashable], received: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Pair as many as the shorter side has, in order, with as many equal keys as possible."""
    shorter, longer, swapped = (sent, received, False) if len(sent) <= len(received) else (received, sent, True)
    slack = len(longer) - len(shorter)
    # best[j] = most equal keys when the first i of the shorter side end at offset j (position i - 1 + j).
    best = [0] * (slack + 1)
    choices: list[list[int]] = []
    for index, key in enumerate(shorter):
        row, source, top, top_at = [], [], -1, 0
        for offset in range(slack + 1):
            if best[offset] > top:
                top, top_at = best[offset], offset
            row.append(top + (key == longer[index + offset]))
            source.append(top_at)
        best = row
        choices.append(source)
    offset = max(range(slack + 1), key=best.__getitem__) if shorter else 0
    pairs = []
    for index in range(len(shorter) - 1, -1, -1):
        pairs.append((index, index + offset))
        offset = choices[index][offset]
    pairs.reverse()
    return [(there, here) for here, there in pairs] if swapped else pairs


@dataclass(frozen=True, slots=True)
class HistogramDifference:
    """How far a received histogram is from the sent one.

    Args:
        relation: ``same`` (as many edges, at least half of them equal), ``run`` (a contiguous run of the sent edges,
            at least half of them equal), ``other``, or ``no-edges``.
        mass_kept: Received mass divided by sent mass; 1.0 when both are zero.
        counts_l1: Sum of absolute differences over the sent buckets, divided by the sent mass; received buckets on
            other edges are spread evenly, mass outside the sent edges counts in full.
        integral: Whether every received count is an integer.
        edge_error_inner: Largest distance of an inner received edge from the sent edge it stands for (the nearest
            one under ``other``), in widths of the smaller sent bucket beside it; infinity when edges are missing.
        edge_error_outer: The same for the two outer edges.
        buckets: Received buckets.
    """

    relation: str
    mass_kept: float
    counts_l1: float
    integral: bool
    edge_error_inner: float
    edge_error_outer: float
    buckets: int


def compare_histograms(
    sent_counts: Sequence[int],
    sent_edges: Sequence[float],
    counts: Sequence[int | float],
    edges: Sequence[float] | None,
) -> HistogramDifference:
    """Compare one received histogram with the one that was sent.

    Args:
        sent_counts: ``n`` integers.
        sent_edges: ``n + 1`` increasing numbers.
        counts: What came back, integers or not.
        edges: ``len(counts) + 1`` increasing numbers, or None when the store has no edges.

    Clause: FID-1.
    """
    sent_mass = sum(sent_counts)
    mass = sum(counts)
    kept = mass / sent_mass if sent_mass else float(mass == 0) or inf
    if edges == sent_edges and counts == sent_counts:
        return HistogramDifference("same", kept, 0.0, True, 0.0, 0.0, len(counts))
    integral = all(float(count).is_integer() for count in counts)
    if edges is None:
        return HistogramDifference("no-edges", kept, inf, integral, inf, inf, len(counts))
    start = _common_run(sent_edges, edges)
    if start is not None:
        # Edges are judged apart: one wrong edge must not make the counts beside it look wrong as well.
        spread, outside = [0.0] * len(sent_counts), 0.0
        spread[start : start + len(counts)] = list(counts)
        relation = "same" if len(edges) == len(sent_edges) else "run"
        errors = [_edge_error(sent_edges, start + index, edge) for index, edge in enumerate(edges)]
    else:
        spread, outside = spread_evenly(counts, edges, sent_edges)
        relation = "other"
        errors = [_edge_error(sent_edges, _nearest(sent_edges, edge), edge) for edge in edges]
    inner, outer = max(errors[1:-1], default=0.0), max(errors[0], errors[-1])
    total = sum(abs(got - there) for got, there in zip(spread, sent_counts)) + outside
    return HistogramDifference(
        relation, kept, total / sent_mass if sent_mass else float(total), integral, inner, outer, len(counts)
    )


def _common_run(sent_edges: Sequence[float], edges: Sequence[float]) -> int | None:
    """Where the run of sent edges starts that at least half of the received edges lie on, or None."""
    position = {edge: index for index, edge in enumerate(sent_edges)}
    starts = Counter(position[edge] - index for index, edge in enumerate(edges) if edge in position)
    if not starts:
        return None
    start, hits = starts.most_common(1)[0]
    fits = start >= 0 and start + len(edges) <= len(sent_edges)
    return start if fits and 2 * hits >= len(edges) else None


def _nearest(sent_edges: Sequence[float], edge: float) -> int:
    right = min(max(bisect_left(sent_edges, edge), 1), len(sent_edges) - 1)
    return right if sent_edges[right] - edge <= edge - sent_edges[right - 1] else right - 1


def _edge_error(sent_edges: Sequence[float], index: int, edge: float) -> float:
    beside = sent_edges[max(index - 1, 0) : index + 2]
    width = min(high - low for low, high in itertools.pairwise(beside))
    return abs(edge - sent_edges[index]) / width


def spread_evenly(
    counts: Sequence[int | float], edges: Sequence[float], target_edges: Sequence[float]
) -> tuple[list[float], float]:
    """Spread each bucket evenly over the target buckets that it covers.

    Returns the mass of each target bucket, and the mass that falls outside all of them.
    """
    spread = [0.0] * (len(target_edges) - 1)
    outside = 0.0
    for count, low, high in zip(counts, edges, edges[1:]):
        if not count:
            continue
        inside = 0.0
        index = max(bisect_left(target_edges, low) - 1, 0)
        while index < len(spread) and target_edges[index] < high:
            left, right = max(low, target_edges[index]), min(high, target_edges[index + 1])
            if left < right:
                share = count * _covered(left, right, low, high)
                spread[index] += share
                inside += share
            index += 1
        outside += abs(count - inside)
    return spread, outside


def _covered(left: float, right: float, low: float, high: float) -> float:
    """Return which part of the bucket from ``low`` to ``high`` lies between ``left`` and ``right``."""
    width = high - low
    if isfinite(width):
        return (right - left) / width
    # A bucket wider than the largest float: halves still fit.
    return (right / 2 - left / 2) / (high / 2 - low / 2)
