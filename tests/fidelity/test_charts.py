"""What a person sees: the drawing of a page follows from what is stored."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fidelity.charts import charted
from fidelity.received import ReceivedHistogram


def _stored(counts: tuple[float, ...], edges: tuple[float, ...] | None, **more: object) -> ReceivedHistogram:
    return ReceivedHistogram("gradients/hist/w", 100, counts, edges, **more)  # type: ignore[arg-type]


def test_thirty_bins_over_the_range_of_all_steps() -> None:
    """TensorBoard's page has 30 equal bins from the smallest to the largest value of the series (FID-1)."""
    narrow = _stored((0, 4, 0), (-9.0, 0.0, 1.0, 9.0), summary={"min": 0.0, "max": 1.0})
    wide = _stored((1, 1), (0.0, 1.0, 3.0), summary={"min": 0.0, "max": 3.0})
    drawn = charted("thirty bins", narrow, [narrow, wide])
    assert len(drawn["heights"]) == 30 and drawn["step"] == "100"
    assert (drawn["edges"][0], drawn["edges"][-1]) == (0.0, 3.0)
    assert sum(drawn["heights"][:10]) == pytest.approx(4) and sum(drawn["heights"][10:]) == pytest.approx(0)


def test_outer_edges_become_min_and_max() -> None:
    """TensorBoard's server leaves out empty outer buckets and puts min and max for the outer edges (FID-1)."""
    stored = _stored((0, 2, 2, 0), (-8.0, -4.0, 0.0, 4.0, 8.0), summary={"min": -1.0, "max": 2.0})
    drawn = charted("thirty bins", stored, [stored])
    assert (drawn["edges"][0], drawn["edges"][-1]) == (-1.0, 2.0)
    assert sum(drawn["heights"]) == pytest.approx(4)
    assert sum(drawn["heights"][:10]) == pytest.approx(2)


def test_one_value_gets_a_range() -> None:
    """A histogram whose min and max are one value is drawn, not divided by zero (FID-1)."""
    stored = _stored((0, 3), (0.0, 2.0, 4.0), summary={"min": 2.5, "max": 2.5})
    drawn = charted("thirty bins", stored, [stored])
    assert drawn["edges"][0] < 2.5 < drawn["edges"][-1]
    assert all(math.isfinite(height) for height in drawn["heights"]) and sum(drawn["heights"]) == pytest.approx(3)


def test_an_empty_histogram_is_drawn_flat() -> None:
    """A histogram without any element is a flat line (FID-1)."""
    stored = _stored((0, 0), (0.0, 1.0, 2.0))
    assert charted("thirty bins", stored, [stored])["heights"] == [0.0] * 30


def test_bars_are_the_stored_buckets() -> None:
    """The chart of wandb has a bar for each stored bucket (FID-1)."""
    stored = _stored((1, 2), (0.0, 1.0, 4.0))
    drawn = charted("bars", stored, [stored])
    assert (drawn["heights"], drawn["edges"]) == ([1, 2], [0.0, 1.0, 4.0])


def test_a_surface_has_heights_labels_and_a_label_for_the_step() -> None:
    """ClearML's surface has no positions: labels stand in their place, and a text for the step (FID-1)."""
    stored = _stored((1.5, 2.5), None, edge_labels=("0.00",), step_label="102")
    drawn = charted("surface", stored, [stored])
    assert (drawn["heights"], drawn["edges"], drawn["labels"], drawn["step"]) == ([1.5, 2.5], None, ["0.00"], "102")


@pytest.mark.parametrize("chart", ["none", "bars"])
def test_what_is_not_there_is_not_drawn(chart: str) -> None:
    """Without a stored histogram, or without a chart for it, nothing is drawn (FID-1)."""
    stored = None if chart == "bars" else _stored((1,), (0.0, 1.0))
    assert charted(chart, stored, [])["heights"] is None  # type: ignore[arg-type]


def test_pictures_of_every_kind_are_drawn(tmp_path: Path) -> None:
    """Bars, surfaces, files and missing histograms each give a picture, the same one twice (FID-1)."""
    pytest.importorskip("matplotlib")
    from fidelity.pictures import draw_seen

    stored = _stored((1, 5, 2), (0.0, 1.0, 2.0, 3.0))
    surface = _stored((1.0, 5.0, 2.0), None, edge_labels=("0.0", "1.0"))
    kinds = {"bars": stored, "thirty bins": stored, "surface": surface, "none": stored}
    panels = {
        name: {"counts": [1, 5, 2], "edges": [0.0, 1.0, 2.0, 3.0], "seen": charted(name, found, [found])}  # type: ignore[arg-type]
        for name, found in kinds.items()
    } | {"missing": {"counts": [1, 5, 2], "edges": [0.0, 1.0, 2.0, 3.0], "seen": charted("bars", None, [])}}
    for name in ("one.svg", "two.svg"):
        draw_seen("Tracker", panels, tmp_path / name)
    first = (tmp_path / "one.svg").read_bytes()
    assert first == (tmp_path / "two.svg").read_bytes() and not list(tmp_path.glob("*.partial"))
