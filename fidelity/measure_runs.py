"""The cells of the runs beside the main one: the writer made before the relay, and the run that is continued (FID-8).

No word and no expectation stands here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchlens_conformance.protocol import HistogramPoint, Point, ScalarPoint

from .matching import Series, StoredTag, match, same_tag
from .measure import Cell, arrival, histogram_key, scalar_key, step_map
from .probes import ROOT
from .received import Received, ReceivedScalar, lost_items

RESUME_ROW = "resume"
"""The id of the row about a run that is continued."""


def measure_writer_first(sent: Sequence[Point], received: Received | None, *, stored_tag: StoredTag = same_tag) -> Cell:
    """Return the cell of the run whose writer was constructed before the relay; None means the route has no relay."""
    if received is None:
        return Cell("writer-first", None, {"sent": 0, "arrived": 0, "delivered": None})
    series = match([p for p in sent if isinstance(p, ScalarPoint)], received.scalars, scalar_key, stored_tag)
    return Cell("writer-first", None, arrival(series, received, "scalar"), tuple(received.shown[:3]))


def no_resume(reason: str) -> Cell:
    """Return the cell of a route whose runs cannot be continued, with the reason."""
    return Cell(RESUME_ROW, None, {"sent": 0, "arrived": 0, "delivered": None}, (reason,))


def measure_resume(
    before: Sequence[Point],
    after: Sequence[Point],
    received: Received,
    *,
    capabilities: Iterable[str],
    stored_tag: StoredTag = same_tag,
    variants: Mapping[str, Received | str] | None = None,
) -> Cell:
    """Return the cell of the run that was ended and continued.

    Args:
        before: What was sent before the run was ended; its last step is its largest.
        after: What was sent after it was continued.
        received: What the store holds of the run, continued in the tracker's default way.
        capabilities: The words that the route's sink advertises; other points were not sent.
        stored_tag: Under which name the store keeps a sent tag.
        variants: The same for other ways of continuing by name; a text says why a way was not measured.
    """
    words = frozenset(capabilities)
    early, late = ([point for point in part if point.capability in words] for part in (before, after))
    numbers, evidence = _resumed(early, late, received, stored_tag)
    if variants:
        numbers["variants"] = {}
    for name, found in (variants or {}).items():
        if isinstance(found, str):
            evidence.append(f"{name}: {found}")
            continue
        variant, said = _resumed(early, late, found, stored_tag)
        numbers["variants"][name] = variant
        evidence.append(f"{name}: {_fate(variant)}")
        evidence += [f"{name}: {line}" for line in said[:1] if variant["refused"]]
    return Cell(RESUME_ROW, None, numbers, tuple(evidence))


def _resumed(
    before: Sequence[Point], after: Sequence[Point], received: Received, stored_tag: StoredTag
) -> tuple[dict[str, Any], list[str]]:
    """Return numbers and evidence of one way of continuing.

    Arrival counts scalars and histograms; steps are those of the scalars, since what a tracker makes of a histogram's
    step has a row of its own. The map of the histograms' steps stands beside.
    """
    sent = [*before, *after]
    scalars = _by_value([p for p in sent if isinstance(p, ScalarPoint)], received.scalars, stored_tag)
    histograms = match(
        [p for p in sent if isinstance(p, HistogramPoint)], received.histograms, histogram_key, stored_tag
    )
    every = Series(
        scalars.sent + histograms.sent,
        scalars.pairs + histograms.pairs,
        scalars.missing + histograms.missing,
        scalars.extra + histograms.extra,
    )
    said = _said(received)
    numbers = arrival(every, received, RESUME_ROW)
    # The closing words of some trackers list every tag, which is no notice about a missing one.
    numbers["notices"] = len(said) if every.missing else 0
    last = max(point.step for point in before)  # type: ignore[union-attr]
    for name, part in (("before", before), ("after", after)):
        late = name == "after"
        numbers[name] = [sum((point.step > last) is late for point, _ in every.pairs), len(part)]
    numbers |= lost_items(received, every.missing)
    numbers["scalars"] = len(scalars.pairs)
    numbers["steps_kept"] = sum(point.step == item.step for point, item in scalars.pairs)
    numbers["step_map"] = step_map(scalars)
    numbers["histogram_step_map"] = step_map(histograms)
    numbers["shift"] = _shift([(p.step, r.step) for p, r in scalars.pairs if p.step > last])
    taken = {r.step for p, r in scalars.pairs if p.step <= last}
    numbers["overlaps"] = sum(p.step > last and r.step in taken for p, r in scalars.pairs)
    missing = {(point.tag, point.step) for point in every.missing}
    raised = dict.fromkeys(item.reason for item in received.refused if (item.tag, item.step) in missing)
    return numbers, [*(f"raised: {reason}" for reason in list(raised)[:1]), *(f"shown: {line}" for line in said[:2])]


def _by_value(sent: Sequence[ScalarPoint], received: Iterable[ReceivedScalar], stored_tag: StoredTag) -> Series:
    """Match by value, which every sent point has for itself, so that no rewritten step can mislead."""
    tags = {stored_tag(point.tag, point.capability) for point in sent}
    left: dict[float, list[ReceivedScalar]] = {}
    extra: list[ReceivedScalar] = []
    values = {float(point.value) for point in sent}
    for item in received:
        if item.tag in tags:
            (left.setdefault(float(item.value), []) if float(item.value) in values else extra).append(item)
    series = Series(len(sent), extra=extra)
    for point in sent:
        found = left.get(float(point.value), [])
        if not found:
            series.missing.append(point)
            continue
        kept = next((item for item in found if item.step == point.step), found[0])
        series.pairs.append((point, kept))
        found.remove(kept)
        series.extra += found
    return series


def _shift(steps: Sequence[tuple[int, int | None]]) -> int | None:
    """Return by how much all steps were moved, or None where they were not moved alike."""
    moved = {None if stored is None else stored - sent for sent, stored in steps}
    return moved.pop() if len(moved) == 1 else None


def _fate(numbers: Mapping[str, Any]) -> str:
    steps = ", ".join(f"{sent} at {'/'.join(map(str, found))}" for sent, found in numbers["step_map"].items())
    return f"{numbers['arrived']} of {numbers['sent']} arrived, steps {steps or 'none'}"


def _said(received: Received) -> list[str]:
    """Lines of the tracker about the continuing, printed or logged; lines that name a tag of ours are none."""
    lines = [line for line in (*received.shown, *received.logged) if f"{ROOT}/" not in line]
    return list(dict.fromkeys(line for line in lines if any(part in line.lower() for part in ("resum", "continu"))))
