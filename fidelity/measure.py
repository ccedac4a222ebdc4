"""From sent and received to numbers, one cell at a time (FID-1). No word and no expectation stands here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any

from torchlens_conformance.protocol import GraphPoint, HistogramPoint, Point, ScalarPoint, TextPoint
from torchlens_conformance.protocol.compare import (
    HistogramDifference,
    as_float32,
    compare_histograms,
    same_value,
    value_error,
)

from .grids import GRIDS
from .matching import Series, StoredTag, match, same_tag
from .probes import LOG2, ROOT, item_name, shortened
from .received import Received, ReceivedHistogram, ReceivedScalar, lost_items, tracker_itself
from .stimulus import grid_of
from .verdicts import MASS_TOLERANCE


@dataclass(frozen=True, slots=True)
class Cell:
    """The numbers of one cell.

    Args:
        row: The row's id.
        grid: The grid's name in rows that have one cell a grid, else None.
        numbers: What was measured, by name.
        evidence: A few lines that show where the numbers come from.
    """

    row: str
    grid: str | None
    numbers: Mapping[str, Any]
    evidence: tuple[str, ...] = ()


def measure(
    sent: Sequence[Point], received: Received, *, capabilities: Iterable[str], stored_tag: StoredTag = same_tag
) -> list[Cell]:
    """Return every cell of one route that rests on its main run, in the order of the rows.

    Args:
        sent: Data points and probes, as they were sent.
        received: What the store gave back.
        capabilities: The words that the route's sink advertises; rows of other kinds are given nothing to send.
        stored_tag: Under which name the store keeps a sent tag.
    """
    find = partial(match, stored_tag=stored_tag)
    words = frozenset(capabilities)
    data = [point for point in sent if not _is_probe(point)]
    scalars = find([p for p in data if isinstance(p, ScalarPoint)], received.scalars, scalar_key)
    grids = {grid: find([p for p in data if grid_of(p) == grid], received.histograms, histogram_key) for grid in GRIDS}
    cells = [_scalar_values("scalars", scalars, received), _steps("scalar-steps", None, scalars, received, "scalar")]
    differences = {grid: _differences(series) for grid, series in grids.items()}
    for grid, series in grids.items():
        cells.append(_counts(grid, series, differences[grid], received))
    for grid, series in grids.items():
        cells.append(_edges(grid, series, differences[grid], received))
    for grid, series in grids.items():
        cells.append(_summary(grid, series, received))
    for grid, series in grids.items():
        cells.append(_steps("histogram-steps", grid, series, received, "histogram"))
    cells.append(
        _bucket_cap(find(_probe(sent, HistogramPoint, "buckets"), received.histograms, histogram_key), received)
    )
    cells.append(_graph([p for p in sent if isinstance(p, GraphPoint)] if "graph" in words else [], received))
    texts = [p for p in sent if isinstance(p, TextPoint)] if "text_manifest" in words else []
    cells.append(_unchanged("text", find(texts, received.texts, lambda item: item.text), received, _same_text))
    nonfinite = find(_probe(sent, ScalarPoint, "nonfinite"), received.scalars, scalar_key)
    cells.append(_unchanged("nonfinite", nonfinite, received, _same_number))
    precision = find(_probe(sent, ScalarPoint, "precision"), received.scalars, scalar_key)
    cells.append(_scalar_values("precision", precision, received))
    large = find(_probe(sent, ScalarPoint, "large-steps"), received.scalars, scalar_key)
    cells.append(_unchanged("large-steps", large, received, _same_step))
    cells.append(_tags(_probe(sent, ScalarPoint, "tags"), received))
    cells.append(_delivered(scalars, grids, received))
    return cells


def _is_probe(point: Point) -> bool:
    return isinstance(point, (GraphPoint, TextPoint)) or point.tag.startswith(f"{ROOT}/")


def _probe(sent: Sequence[Point], kind: type, name: str) -> list[Any]:
    return [p for p in sent if isinstance(p, kind) and p.tag.startswith(f"{ROOT}/{name}/")]  # type: ignore[union-attr]


def scalar_key(item: Any) -> Any:
    """Return what tells a number from others of its series."""
    return repr(item.value)


def histogram_key(item: Any) -> Any:
    """Return what tells a histogram from others of its series."""
    return tuple(item.counts)


def arrival(series: Series, received: Received, kind: str) -> dict[str, Any]:
    """Return the numbers that every cell has: sent, arrived, refused, delivered share, notices about the missing.

    Where something was refused, what the tracker itself does with it stands beside, as ``itself``.
    """
    missing = {(point.tag, point.step) for point in series.missing}
    refused = sum((item.tag, item.step) in missing for item in received.refused)
    itself = tracker_itself(received, series.missing)
    return {
        "sent": series.sent,
        "arrived": len(series.pairs),
        "delivered": len(series.pairs) / series.sent if series.sent else None,
        "extra": len(series.extra),
        "refused": refused,
        "notices": len(_notices(received, kind, missing)),
        **({"itself": itself} if itself else {}),
    }


def _changed_items(pairs: Iterable[tuple[Any, str]]) -> dict[str, dict[str, str]]:
    """Return, as ``changed``, the name of each point that arrived as something else, and as what."""
    changed = {item_name(point): as_what for point, as_what in pairs}
    return {"changed": changed} if changed else {}


def _notices(received: Received, kind: str, missing: set[tuple[str, int]]) -> list[str]:
    """Lines of the tracker that name the kind, or one of the missing tags."""
    if not missing:
        return []
    tags = {tag for tag, _ in missing}
    lines = [*received.shown, *received.logged]
    return [line for line in lines if kind in line.lower() or any(tag in line for tag in tags)]


def _missing_evidence(series: Series, received: Received, kind: str) -> list[str]:
    missing = {(point.tag, point.step) for point in series.missing}
    reasons = [item.reason for item in received.refused if (item.tag, item.step) in missing]
    lines = [f"raised: {reason}" for reason in dict.fromkeys(reasons)]
    lines += [f"notice: {line}" for line in _notices(received, kind, missing)]
    return lines[:3]


def _scalar_values(row: str, series: Series, received: Received) -> Cell:
    numbers = arrival(series, received, "scalar")
    errors = [(value_error(p.value, r.value), p, r) for p, r in series.pairs]
    numbers["value_error"] = max((error for error, _, _ in errors), default=None)
    numbers["float32_equal"] = all(same_value(as_float32(p.value), as_float32(r.value)) for _, p, r in errors)
    numbers["finite_kept"] = all(isfinite(p.value) == isfinite(r.value) for _, p, r in errors)
    changed = [item for item in errors if item[0] > 0]
    if row != "precision":
        changed = sorted(changed, key=lambda item: -item[0])[:2]
    else:
        numbers |= _changed_items((p, repr(r.value)) for _, p, r in changed) | lost_items(received, series.missing)
    evidence = [f"{p.tag}: sent {p.value!r}, received {r.value!r}" for _, p, r in changed]
    return Cell(row, None, numbers, (*evidence, *_missing_evidence(series, received, "scalar")))


def step_map(series: Series) -> dict[str, list[int | None]]:
    """Return for each sent step, as text, the steps at which its items arrived."""
    found: dict[str, set[int | None]] = {}
    for point, item in series.pairs:
        found.setdefault(str(point.step), set()).add(item.step)
    return {step: sorted(steps, key=lambda value: -1 if value is None else value) for step, steps in found.items()}


def _steps(row: str, grid: str | None, series: Series, received: Received, kind: str) -> Cell:
    numbers = arrival(series, received, kind)
    numbers["steps_kept"] = sum(point.step == item.step for point, item in series.pairs)
    numbers["step_map"] = step_map(series)
    labels = dict.fromkeys(f"step {r.step}, labelled {r.step_label!r}" for _, r in series.pairs if _labelled(r))
    return Cell(row, grid, numbers, (*list(labels)[:3], *_missing_evidence(series, received, kind)))


def _labelled(item: Any) -> bool:
    return getattr(item, "step_label", None) is not None


def _differences(series: Series) -> list[HistogramDifference]:
    return [compare_histograms(p.counts, p.edges, r.counts, r.edges) for p, r in series.pairs]


def _counts(grid: str, series: Series, differences: Sequence[HistogramDifference], received: Received) -> Cell:
    numbers = arrival(series, received, "histogram")
    numbers["counts_l1"] = max((d.counts_l1 for d in differences), default=None)
    numbers["counts_l1_median"] = _median([d.counts_l1 for d in differences])
    numbers["mass_kept"] = max((d.mass_kept for d in differences), key=lambda kept: abs(kept - 1), default=None)
    numbers["mass_kept_median"] = _median([d.mass_kept for d in differences])
    numbers["integral"] = all(d.integral for d in differences)
    numbers["buckets"] = sorted({d.buckets for d in differences})[:8]
    return Cell("histogram-counts", grid, numbers, tuple(_missing_evidence(series, received, "histogram")))


def _edges(grid: str, series: Series, differences: Sequence[HistogramDifference], received: Received) -> Cell:
    numbers = arrival(series, received, "histogram")
    numbers["edge_error_inner"] = max((d.edge_error_inner for d in differences), default=None)
    numbers["edge_error_outer"] = max((d.edge_error_outer for d in differences), default=None)
    numbers["edges_sent"] = max((len(p.edges) for p, _ in series.pairs), default=None)
    numbers["edges_received"] = sorted({len(r.edges) for _, r in series.pairs if r.edges is not None})[:8]
    numbers["edge_decimals"] = _decimals([r for _, r in series.pairs])
    numbers["edges_labelled"] = sorted({len(r.edge_labels) for _, r in series.pairs if r.edge_labels})[:8]
    shown = [
        f"{p.tag}: sent {_some(p.edges)}, received {_some(r.edges or r.edge_labels)}"
        for (p, r), d in zip(series.pairs, differences)
        if d.edge_error_inner or d.edge_error_outer
    ]
    return Cell("histogram-edges", grid, numbers, (*shown[:1], *_missing_evidence(series, received, "histogram")))


def _some(edges: Sequence[float | str]) -> str:
    shown = [repr(edge) for edge in edges[:3]]
    return f"[{', '.join(shown)}{', ...' if len(edges) > 3 else ''}]"


def _decimals(histograms: Sequence[ReceivedHistogram], *, most: int = 6) -> int | None:
    """The fewest decimals that write every received edge in full, or None when more than ``most`` are needed.

    Where a store has no edges, the numbers in its labels are taken for them.
    """
    edges = {edge for histogram in histograms for edge in histogram.edges or map(float, histogram.edge_labels)}
    for decimals in range(most + 1):
        if edges and all(round(edge, decimals) == edge for edge in edges):
            return decimals
    return None


def _summary(grid: str, series: Series, received: Received) -> Cell:
    numbers = arrival(series, received, "histogram")
    kept: dict[str, int] = {}
    sent: dict[str, int] = {}
    worst = 0.0
    for point, item in series.pairs:
        for name, value in point.summary.items():
            sent[name] = sent.get(name, 0) + 1
            if name in item.summary:
                kept[name] = kept.get(name, 0) + 1
                worst = max(worst, value_error(value, item.summary[name]))
    numbers["fields_sent"] = sum(sent.values())
    numbers["fields_kept"] = sum(kept.values())
    numbers["fields"] = sorted(kept)
    numbers["value_error"] = worst
    return Cell("summary", grid, numbers, tuple(_missing_evidence(series, received, "histogram")))


def _bucket_cap(series: Series, received: Received) -> Cell:
    points = [point for point, _ in series.pairs] + series.missing
    numbers = arrival(series, received, "histogram")
    refused = {item.tag for item in received.refused}
    found: dict[str, Any] = {point.tag: "refused" if point.tag in refused else "missing" for point in series.missing}
    exact = rebinned = 0
    for point, difference in zip([p for p, _ in series.pairs], _differences(series)):
        if difference.counts_l1 == 0:
            exact += 1
            found[point.tag] = "exact"
        else:
            rebinned += abs(difference.mass_kept - 1) <= MASS_TOLERANCE
            found[point.tag] = {"buckets": difference.buckets, "mass_kept": difference.mass_kept}
    for name, log2 in (("sizes", False), ("sizes_log2", True)):
        ordered = sorted((len(p.counts), p.tag) for p in points if p.tag.split("/")[-1].startswith(LOG2) is log2)
        numbers[name] = {str(size): found[tag] for size, tag in ordered}
        numbers[name.replace("sizes", "largest_exact")] = max(
            (size for size, tag in ordered if found[tag] == "exact"), default=None
        )
    numbers |= {"exact": exact, "rebinned": rebinned}
    return Cell("bucket-cap", None, numbers, tuple(_missing_evidence(series, received, "histogram")))


def _graph(points: Sequence[GraphPoint], received: Received) -> Cell:
    unchanged = sum(any(_graph_shape(p.graph) == _graph_shape(g) for g in received.graphs) for p in points)
    arrived = min(len(points), len(received.graphs))
    numbers = {
        "sent": len(points),
        "arrived": arrived,
        "delivered": arrived / len(points) if points else None,
        "unchanged": unchanged,
        "nodes": sorted(len(_graph_shape(graph)) for graph in received.graphs),
    }
    evidence = [line for line in received.notes if "graph" in line.lower()]
    return Cell("graph", None, numbers, tuple(evidence[:2]))


def _graph_shape(graph: Mapping[str, Any]) -> dict[str, tuple[str, tuple[str, ...]]]:
    nodes = graph.get("nodes", ())
    return {str(node["name"]): (str(node.get("op", "")), tuple(node.get("inputs", ()))) for node in nodes}


def _unchanged(row: str, series: Series, received: Received, same: Callable[[Any, Any], bool]) -> Cell:
    numbers = arrival(series, received, row)
    numbers["unchanged"] = sum(same(point, item) for point, item in series.pairs)
    other = [(p, r) for p, r in series.pairs if not same(p, r)]
    if row == "nonfinite":
        # Not in the other rows: where a relay counts steps itself, which step a number gets may be chance.
        numbers |= _changed_items((p, repr(r.value)) for p, r in other) | lost_items(received, series.missing)
    changed = [f"{p.tag}: sent {_shown(p)}, received {_shown(r)}" for p, r in other]
    missing = [f"{point.tag}: sent {_shown(point)}, missing" for point in series.missing]
    return Cell(row, None, numbers, (*changed[:6], *missing[:6], *_missing_evidence(series, received, row)))


def _shown(item: Any) -> str:
    text = getattr(item, "text", None)
    return f"{text[:60]!r}" if text is not None else f"{item.value!r} at step {item.step}"


def _same_text(point: Any, item: Any) -> bool:
    return bool(point.text == item.text)


def _same_number(point: Any, item: Any) -> bool:
    return same_value(point.value, item.value)


def _same_step(point: Any, item: Any) -> bool:
    return bool(point.step == item.step)


def _tags(points: Sequence[ScalarPoint], received: Received) -> Cell:
    """Each odd tag is found again by its value, which no other scalar has."""
    by_value: dict[float, ReceivedScalar] = {float(item.value): item for item in received.scalars}
    found = [(point, by_value.get(float(point.value))) for point in points]
    pairs = [(point, item) for point, item in found if item is not None]
    missing = [point for point, item in found if item is None]
    series = Series(len(points), pairs, missing)
    numbers = arrival(series, received, "tag")
    numbers["unchanged"] = sum(point.tag == item.tag for point, item in pairs)
    renamed = [(p, r) for p, r in pairs if p.tag != r.tag]
    numbers |= _changed_items((p, shortened(r.tag)) for p, r in renamed) | lost_items(received, series.missing)
    changed = [f"{_cut(p.tag)} came back as {_cut(r.tag)}" for p, r in renamed]
    gone = [f"{_cut(point.tag)} is missing" for point in missing]
    return Cell("tags", None, numbers, (*changed, *gone, *_missing_evidence(series, received, "tag")))


def _cut(tag: str) -> str:
    return repr(tag) if len(tag) <= 80 else f"{tag[:40]!r}... ({len(tag)} characters)"


def _delivered(scalars: Series, grids: Mapping[str, Series], received: Received) -> Cell:
    every = Series(scalars.sent, list(scalars.pairs), list(scalars.missing), list(scalars.extra))
    for series in grids.values():
        every.sent += series.sent
        every.pairs += series.pairs
        every.missing += series.missing
        every.extra += series.extra
    numbers = arrival(every, received, "histogram")
    numbers["scalars"] = [len(scalars.pairs), scalars.sent]
    numbers["histograms"] = {grid: [len(series.pairs), series.sent] for grid, series in grids.items()}
    return Cell("delivered", None, numbers, tuple(_missing_evidence(every, received, "histogram")))


def _median(values: Sequence[float]) -> float | None:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None
