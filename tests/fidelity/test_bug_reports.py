"""Public reports about relays, with the right value: over every measured version, and in a small real run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fidelity.probes import BUCKETS, bucket_probe
from fidelity.received import Received
from fidelity.verdicts import PRESERVED, REBINNED, REFUSED, REWRITTEN
from fidelity.versions.columns import MEASURED
from fidelity.versions.store import load_columns
from reference_sinks.readers import read_wandb
from torchlens_conformance.protocol import Point, ScalarPoint

from ..reference_sinks.conftest import run_program
from .trip import trip

CAP = 512
"""The largest histogram that wandb keeps as it is, at every measured version."""

VERSIONS = {"0.19.0", "0.19.11", "0.28.2", "0.30.0", "0.31.0"}
"""Versions of wandb that the committed table has to hold; more may be measured."""


def _cells(route: str, row: str) -> dict[str, Mapping[str, Any]]:
    """The cell of a row that has no grids, by version, from the committed table; never fewer than :data:`VERSIONS`."""
    cells = {
        column["version"]: cell
        for column in load_columns(validate=False)
        if column["route"] == route and column["status"] == MEASURED
        for cell in column["cells"]
        if cell["id"] == row and cell["grid"] in (None, "uniform-64")
    }
    assert cells.keys() >= VERSIONS
    return cells


def _outcomes(cell: Mapping[str, Any], sizes: str) -> dict[int, Any]:
    """What became of each size, of all that are sent."""
    outcomes = {int(size): outcome for size, outcome in cell["numbers"][sizes].items()}
    assert tuple(outcomes) == BUCKETS and {31, 32, 33, 64, 497, 511, 512, 513, 600} <= outcomes.keys()
    return outcomes


@pytest.mark.parametrize("sizes", ["sizes", "sizes_log2"])
def test_report_23_natively_what_is_over_the_cap_is_refused_at_every_version(sizes: str) -> None:
    """Natively 512 buckets are exact, uniform or signed-log2, and 513 raise (WANDB-1, ATTACH-4)."""
    for version, cell in _cells("wandb", "bucket-cap").items():
        assert cell["verdict"] == REFUSED, version
        outcomes = _outcomes(cell, sizes)
        assert outcomes == {size: "exact" if size <= CAP else "refused" for size in BUCKETS}, version


@pytest.mark.parametrize("sizes", ["sizes", "sizes_log2"])
def test_report_23_relayed_histograms_over_the_cap_are_rebinned_at_every_version(sizes: str) -> None:
    """Through the relay 512 buckets are exact and 513 arrive as 512 with the whole mass; none vanishes (FID-8)."""
    for version, cell in _cells("wandb-relay", "bucket-cap").items():
        assert cell["verdict"] == REBINNED, version
        assert cell["numbers"]["arrived"] == cell["numbers"]["sent"], version
        for size, outcome in _outcomes(cell, sizes).items():
            if size <= CAP:
                assert outcome == "exact", (version, size)
            else:
                assert outcome["buckets"] == CAP, (version, size)
                assert outcome["mass_kept"] == pytest.approx(1), (version, size)


_PREFLIGHT = """
import json
from types import SimpleNamespace
import wandb
from reference_sinks import WandbSink
from torchlens_conformance.protocol import GridDescriptor, Refusal
run = wandb.init(project="preflight", dir=".", settings=wandb.Settings(
    silent=True, console="off", x_disable_stats=True, x_disable_meta=True))

def grid(buckets):
    # The protocol's own grids have odd numbers of buckets; for the cap itself a grid of another make stands in.
    if buckets % 2 == 0:
        return SimpleNamespace(bucket_count=buckets)
    made = GridDescriptor(bins_per_octave=1, lo_exp=-(buckets // 2 - 128), hi_exp=128)
    assert made.bucket_count == buckets
    return made

def told(sink, *sizes):
    answers = {}
    for buckets in sizes:
        try:
            answers[buckets] = sink.preflight_histograms(grid(buckets))
        except Refusal as refusal:
            answers[buckets] = [refusal.code, refusal.fields["buckets"]]
    return {"cap": sink.bucket_cap, "answers": answers}

answers = {"as it is": told(WandbSink(run), 511, 512, 513)}
# The cap is wandb's own: where wandb's is another, the sink's is.
wandb.Histogram.MAX_LENGTH = 510
answers["lower"] = told(WandbSink(run), 509, 510, 511)
run.finish()
print(json.dumps(answers))
"""


@pytest.mark.trackers
def test_report_23_the_preflight_cap_is_the_measured_one(tmp_path: Path) -> None:
    """A sink takes its cap from wandb: 511 and 512 buckets pass its preflight, 513 do not, as measured (ATTACH-4)."""
    pytest.importorskip("wandb")
    answers = run_program(_PREFLIGHT, home=tmp_path).printed
    assert {cell["numbers"]["largest_exact"] for cell in _cells("wandb", "bucket-cap").values()} == {CAP}
    code = "tracker_histogram_bucket_cap"
    assert answers == {
        "as it is": {"cap": CAP, "answers": {"511": None, "512": None, "513": [code, 513]}},
        "lower": {"cap": 510, "answers": {"509": None, "510": None, "511": [code, 511]}},
    }


def test_report_22_the_relay_rewrites_steps_at_every_version() -> None:
    """At every measured version the relay replaces the caller's steps by a counter, and wandb's own path keeps them."""
    relayed, native = _cells("wandb-relay", "scalar-steps"), _cells("wandb", "scalar-steps")
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


_SYNCED = """
import json, sys
from pathlib import Path
import wandb
run = wandb.init(project="synced", dir=".", sync_tensorboard=True, settings=wandb.Settings(
    silent=True, console="off", x_disable_stats=True, x_disable_meta=True))
from torch.utils.tensorboard import SummaryWriter
from fidelity.routes.wandb import finish_run
writer = SummaryWriter("log")
for tag, offset, steps in json.loads(sys.argv[1]):
    for step in steps:
        writer.add_scalar(tag, step + offset, step)
writer.close()
file = run.settings.sync_file
finish_run(run, Path("."))
print(json.dumps(file))
"""


@pytest.mark.trackers
def test_report_22_every_tag_has_a_step_map_and_global_step_survives(tmp_path: Path) -> None:
    """The flag sync_tensorboard makes one rising counter of all tags; the caller's steps are global_step (FID-1)."""
    for package in ("wandb", "tensorboard", "torch"):
        pytest.importorskip(package)
    sent: list[tuple[str, float, list[int]]] = [
        ("first", 0.25, list(range(100))),
        ("second", 0.5, list(range(100))),
        ("batch/loss", 0.25, [1000, 2000, 3000, 4000]),
        ("epoch/loss", 0.5, [1, 2, 3, 4]),
        ("even", 0.25, [100, 102, 104]),
    ]
    file = tmp_path / run_program(_SYNCED, json.dumps(sent), home=tmp_path).printed
    points = [point for point in read_wandb(file) if isinstance(point, ScalarPoint)]
    global_step = {point.step: point.value for point in points if point.tag == "global_step"}
    rows = 0
    for tag, offset, steps in sent:
        series = [point for point in points if point.tag == tag]
        # Every value is there, once and in order, so a row can be told from the step that it was sent at.
        assert [point.value for point in series] == [step + offset for step in steps], tag
        step_map = dict(zip(steps, (point.step for point in series)))
        assert step_map == dict(zip(steps, range(rows, rows + len(steps)))), tag
        assert [global_step[row] for row in step_map.values()] == steps, tag
        rows += len(steps)
    assert global_step.keys() == set(range(rows))


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
