"""Public reports about relays, with the right value: over every measured version, and in a small real run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fidelity.probes import BUCKETS, bucket_probe
from fidelity.received import Received
from fidelity.verdicts import PRESERVED, REBINNED, REFUSED, REWRITTEN
from fidelity.versions.columns import MEASURED
from fidelity.versions.store import load_columns
from torchlens_conformance.protocol import GridDescriptor, Point, Refusal, ScalarPoint

from .trip import trip

CAP = 512
"""The largest histogram that wandb keeps as it is, at every measured version."""


def _cells(route: str, row: str) -> dict[str, Mapping[str, Any]]:
    """The cell of a row that has no grids, by version, from the committed table."""
    return {
        column["version"]: cell
        for column in load_columns(validate=False)
        if column["route"] == route and column["status"] == MEASURED
        for cell in column["cells"]
        if cell["id"] == row and cell["grid"] in (None, "uniform-64")
    }


@pytest.mark.parametrize("sizes", ["sizes", "sizes_log2"])
def test_report_23_natively_what_is_over_the_cap_is_refused_at_every_version(sizes: str) -> None:
    """Natively 512 buckets are exact, uniform or signed-log2, and 513 raise (WANDB-1, ATTACH-4)."""
    for version, cell in _cells("wandb", "bucket-cap").items():
        assert cell["verdict"] == REFUSED, version
        assert cell["numbers"][sizes] == {str(size): "exact" if size <= CAP else "refused" for size in BUCKETS}, version


@pytest.mark.parametrize("sizes", ["sizes", "sizes_log2"])
def test_report_23_relayed_histograms_over_the_cap_are_rebinned_at_every_version(sizes: str) -> None:
    """Through the relay 512 buckets are exact and 513 arrive as 512 with the whole mass; none vanishes (FID-8)."""
    for version, cell in _cells("wandb-relay", "bucket-cap").items():
        assert cell["verdict"] == REBINNED, version
        assert cell["numbers"]["arrived"] == cell["numbers"]["sent"], version
        for size, outcome in cell["numbers"][sizes].items():
            if int(size) <= CAP:
                assert outcome == "exact", (version, size)
            else:
                assert outcome["buckets"] == CAP, (version, size)
                assert outcome["mass_kept"] == pytest.approx(1), (version, size)


def test_report_23_the_preflight_cap_is_the_measured_one() -> None:
    """Our sink's preflight refuses what wandb refuses: 511 buckets pass, 513 do not, and the cap is 512 (ATTACH-4)."""
    wandb = pytest.importorskip("wandb")
    from reference_sinks import WandbSink

    # Neither a run nor a store is needed for a preflight.
    sink = object.__new__(WandbSink)
    sink.bucket_cap = wandb.Histogram.MAX_LENGTH
    assert {cell["numbers"]["largest_exact"] for cell in _cells("wandb", "bucket-cap").values()} == {sink.bucket_cap}
    sink.preflight_histograms(GridDescriptor(bins_per_octave=1, lo_exp=-127, hi_exp=128))
    with pytest.raises(Refusal) as caught:
        sink.preflight_histograms(GridDescriptor(bins_per_octave=1, lo_exp=-128, hi_exp=128))
    assert caught.value.code == "tracker_histogram_bucket_cap"
    assert caught.value.fields["buckets"] == sink.bucket_cap + 1


def test_report_22_the_relay_rewrites_steps_at_every_version() -> None:
    """At every measured version the relay replaces the caller's steps by a counter, and wandb's own path keeps them."""
    relayed, native = _cells("wandb-relay", "scalar-steps"), _cells("wandb", "scalar-steps")
    assert len(relayed) >= 4
    assert {cell["verdict"] for cell in relayed.values()} == {REWRITTEN}
    for version, cell in relayed.items():
        assert set(cell["numbers"]["step_map"]) == {"100", "102", "104"}, version
    assert {cell["verdict"] for cell in native.values()} == {PRESERVED}


def _restarting() -> list[Point]:
    """A batch series at steps 1000*k, then an epoch series at steps k."""
    batch = [ScalarPoint("batch/loss", 1000 * k, k + 0.5) for k in range(4)]
    return [*batch, *(ScalarPoint("epoch/loss", k, k + 0.25) for k in range(4))]


def _step_map(received: Received, tag: str) -> dict[float, int | None]:
    """Where each value of a series arrived."""
    return {float(item.value): item.step for item in received.scalars if item.tag == tag}


@pytest.mark.trackers
def test_report_22_series_with_restarting_steps_through_the_relay(tmp_path: Path) -> None:
    """Both series arrive whole at steps of the relay's own; the caller's travel beside them as global_step (FID-1)."""
    pytest.importorskip("wandb")
    pytest.importorskip("tensorboard")
    pytest.importorskip("torch")
    received = trip("wandb-relay", _restarting(), tmp_path)
    batch, epoch = _step_map(received, "batch/loss"), _step_map(received, "epoch/loss")
    assert list(batch) == [0.5, 1.5, 2.5, 3.5]
    assert list(epoch) == [0.25, 1.25, 2.25, 3.25]
    assert list(batch.values()) == [0, 1, 2, 3]
    global_steps = {item.step: item.value for item in received.scalars if item.tag == "global_step"}
    assert [global_steps[step] for step in batch.values()] == [0, 1000, 2000, 3000]  # type: ignore[index]


@pytest.mark.trackers
def test_report_22_the_native_sink_says_what_it_cannot_keep(tmp_path: Path) -> None:
    """Natively the first series keeps its steps; points behind wandb's current step are lost, and never in silence."""
    pytest.importorskip("wandb")
    received = trip("wandb", _restarting(), tmp_path)
    assert _step_map(received, "batch/loss") == {k + 0.5: 1000 * k for k in range(4)}
    lost = {k for k in range(4) if k + 0.25 not in _step_map(received, "epoch/loss")}
    told = {item.step for item in received.refused if item.tag == "epoch/loss"}
    assert lost and lost <= told


@pytest.mark.trackers
def test_report_23_the_boundary_in_a_real_run(tmp_path: Path) -> None:
    """31 to 600 buckets through the installed wandb, both ways: exact to 512, then re-binned or refused (ATTACH-4)."""
    pytest.importorskip("wandb")
    pytest.importorskip("tensorboard")
    pytest.importorskip("torch")
    points = [point for point in bucket_probe() if len(point.counts) <= 600]  # type: ignore[union-attr]
    relayed, native = (trip(route, points, tmp_path / route) for route in ("wandb-relay", "wandb"))
    for point in points:
        small = len(point.counts) <= CAP  # type: ignore[union-attr]
        (arrived,) = [item for item in relayed.histograms if item.tag == point.tag]  # type: ignore[union-attr]
        assert (arrived.counts == point.counts) is small  # type: ignore[union-attr]
        assert sum(arrived.counts) == pytest.approx(sum(point.counts))  # type: ignore[union-attr]
        assert any(item.tag == point.tag for item in native.refused) is not small  # type: ignore[union-attr]
        assert any(item.tag == point.tag for item in native.histograms) is small  # type: ignore[union-attr]
