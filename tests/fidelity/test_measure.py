"""What the measurement sees, and that it sees nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fidelity import published as published_table
from fidelity.measure import measure
from fidelity.received import Received, from_points
from fidelity.verdicts import LOSSLESS, ROWS, WORDS, judge

from .small_stimulus import small_stimulus

_WORDS = frozenset({"scalar", "raw_histogram", "text_manifest", "graph"})


def _judged(received: Received) -> dict[tuple[str, str | None], str]:
    cells = measure(small_stimulus(), received, capabilities=_WORDS)
    return {(cell.row, cell.grid): judge(cell.row, cell.numbers) for cell in cells}


@pytest.fixture(scope="module")
def honest() -> Received:
    """What a perfect store gives back."""
    return from_points(small_stimulus())


def test_a_perfect_store_is_lossless_in_every_cell(honest: Received) -> None:
    """Everything that comes back as it was sent is called exact or preserved (FID-7)."""
    words = _judged(honest)
    assert {row for row, _ in words} == set(ROWS) - {"writer-first", "resume"}
    assert set(words.values()) <= LOSSLESS


def _scalar(index: int, **changes: object) -> Callable[[Received], Received]:
    def apply(received: Received) -> Received:
        scalars = list(received.scalars)
        scalars[index] = replace(scalars[index], **changes)  # type: ignore[arg-type]
        return replace(received, scalars=tuple(scalars))

    return apply


def _histogram(index: int, field: str, position: int, change: float) -> Callable[[Received], Received]:
    def apply(received: Received) -> Received:
        histograms = list(received.histograms)
        values = list(getattr(histograms[index], field))
        values[position] += change
        histograms[index] = replace(histograms[index], **{field: tuple(values)})
        return replace(received, histograms=tuple(histograms))

    return apply


def _drop(kind: str, index: int) -> Callable[[Received], Received]:
    def apply(received: Received) -> Received:
        items = getattr(received, kind)
        return replace(received, **{kind: items[:index] + items[index + 1 :]})

    return apply


def _histogram_step(received: Received) -> Received:
    histograms = list(received.histograms)
    histograms[0] = replace(histograms[0], step=7)
    return replace(received, histograms=tuple(histograms))


def _histogram_summary(received: Received) -> Received:
    histograms = list(received.histograms)
    histograms[0] = replace(histograms[0], summary={**histograms[0].summary, "sum": 1e9})
    return replace(received, histograms=tuple(histograms))


@pytest.mark.parametrize(
    ("alter", "cell"),
    [
        pytest.param(_scalar(3, value=12345.678), ("scalars", None), id="value"),
        pytest.param(_scalar(3, step=99), ("scalar-steps", None), id="step"),
        pytest.param(_histogram(0, "counts", 32, 1), ("histogram-counts", "uniform-64"), id="count"),
        pytest.param(_histogram(7, "counts", 0, 1), ("histogram-counts", "signed-log2-513"), id="count-513"),
        pytest.param(_histogram(4, "edges", 30, 1e-3), ("histogram-edges", "signed-log2-497"), id="edge"),
        pytest.param(_histogram(2, "edges", 0, -0.01), ("histogram-edges", "uniform-600"), id="outer-edge"),
        pytest.param(_histogram(2, "edges", 30, 1e-4), ("histogram-edges", "uniform-600"), id="inner-edge"),
        pytest.param(_histogram_step, ("histogram-steps", "uniform-64"), id="histogram-step"),
        pytest.param(_histogram_summary, ("summary", "uniform-64"), id="summary"),
        pytest.param(_drop("scalars", 0), ("delivered", None), id="dropped-scalar"),
        pytest.param(_drop("histograms", 1), ("delivered", None), id="dropped-histogram"),
        pytest.param(_drop("graphs", 0), ("graph", None), id="dropped-graph"),
        pytest.param(_drop("texts", 0), ("text", None), id="dropped-text"),
    ],
)
def test_one_altered_field_changes_exactly_its_cell(
    honest: Received, alter: Callable[[Received], Received], cell: tuple[str, str | None]
) -> None:
    """A value, a step, a count, an edge or a dropped item moves the word of its own cell and of no other (FID-1)."""
    before, after = _judged(honest), _judged(alter(honest))
    changed = {key for key in before if before[key] != after[key]}
    assert changed == {cell}


def test_shuffling_the_published_table_changes_no_measured_word(
    honest: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measurement does not know what is published (FID-2)."""
    before = _judged(honest)
    wrong = published_table.Published("anything", WORDS[3])
    monkeypatch.setattr(published_table, "published", lambda *cell: wrong)
    monkeypatch.setattr(published_table, "_SINGLE", {})
    monkeypatch.setattr(published_table, "_BY_GRID", {})
    assert _judged(honest) == before


def test_steps_rewritten_keep_values_and_delivery(honest: Received) -> None:
    """A relay that counts 0, 1, 2 loses steps alone: values and delivery are judged by order (FID-1)."""
    scalars = tuple(replace(s, step=((s.step or 0) - 100) // 2) for s in honest.scalars if s.tag.startswith("grad"))
    words = _judged(replace(honest, scalars=scalars))
    assert words["scalar-steps", None] == "rewritten"
    assert words["scalars", None] == "exact"
    assert words["delivered", None] == "preserved"


def test_everything_lost_is_silent_unless_a_line_says_so(honest: Received) -> None:
    """Nothing arrived is dropped silently, or with notice when the tracker wrote about it (FID-1)."""
    nothing = Received()
    assert _judged(nothing)["scalars", None] == "dropped silently"
    noticed = Received(logged=("WARN: skipping scalar value",))
    assert _judged(noticed)["scalars", None] == "dropped with notice"


def test_a_kind_that_is_not_advertised_is_not_applicable(honest: Received) -> None:
    """A route whose sink carries no graph has nothing to lose there (FID-1)."""
    cells = measure(small_stimulus(), honest, capabilities={"scalar", "raw_histogram"})
    words = {cell.row: judge(cell.row, cell.numbers) for cell in cells}
    assert words["graph"] == words["text"] == "not applicable"
