"""Report 21 as it was told: a run that is resumed in a new process, under the same wandb id and on the same paths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reference_sinks.readers import read_jsonl, read_tensorboard, read_wandb

from ..reference_sinks.conftest import run_program

pytestmark = pytest.mark.trackers

SERIES = "gradients/norm/0.weight"
BEGUN, RESUMED = list(range(0, 121, 10)), list(range(100, 131, 10))
OWN = ["torchlens/meta/manifest", "torchlens/run/attached", "torchlens/run/last_step", "torchlens/run/segment"]
"""What a resumed session that trains nothing leaves: the manifest and its company."""

_PROGRAM = """
import json, sys
from pathlib import Path
import torch
import wandb
import torchlens_conformance.trackers as trk
from fidelity.routes.wandb import finish_run
from tests.watch.helpers import small_model, train_step

torch.set_num_threads(1)
phase = sys.argv[1]
run = wandb.init(project="resumed", dir=".", id="sameid", resume="allow", settings=wandb.Settings(
    silent=True, console="off", x_disable_stats=True, x_disable_meta=True))

def attach(*sinks, **options):
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return trk.watch(model, sinks, optimizer=optimizer, every=10, **options), model, optimizer

def refused(watch, step):
    try:
        watch.step(step).__enter__()
    except trk.Refusal as refusal:
        return [refusal.code, refusal.fields["last_step"]]

def taken(watch):
    return {row.name: [row.scalars + row.texts, row.failed_code] for row in watch.close().sinks}

resume = phase != "begin"
told = {"wandb-knows": trk.WandbSink(run).last_step()}
sinks = (trk.WandbSink(run), trk.JSONLSink("run.jsonl", resume=resume), trk.TensorBoardSink("log"))
if phase == "manifest":
    watch, _, _ = attach(*sinks, allow_missing_phases=True)
    told["refused"] = refused(watch, 0)
    with watch.step(0, new_segment=True):
        pass
    told["taken"] = taken(watch)
    # What a server tells a run that it resumes: the step it is at.
    run.log({"before": 1.0}, step=131)
    behind, _, _ = attach(trk.WandbSink(run), allow_missing_phases=True)
    told["behind-refused"] = refused(behind, 0)
    with behind.step(0, new_segment=True):
        pass
    told["behind-taken"] = taken(behind)
else:
    watch, model, optimizer = attach(*sinks)
    first, last = (100, 130) if resume else (0, 120)
    told["refused"] = refused(watch, first) if resume else None
    for n in range(first, last + 1, 10):
        with watch.step(n, new_segment=resume and n == first):
            train_step(model, optimizer, n)
    told["taken"] = taken(watch)
file = run.settings.sync_file
finish_run(run, Path("."))
print(json.dumps({**told, "file": file}))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Three processes on one wandb id, one file and one folder: 0 to 120, 100 to 130, and a mere manifest at 0."""
    for package in ("torch", "wandb", "tensorboard"):
        pytest.importorskip(package)
    home = tmp_path_factory.mktemp("resumed")
    return home, {phase: run_program(_PROGRAM, phase, home=home).printed for phase in ("begin", "resume", "manifest")}


def _steps(points: Any) -> dict[str, list[int]]:
    """Return the steps of each series in stored order."""
    series: dict[str, list[int]] = {}
    for point in points:
        series.setdefault(point.tag, []).append(point.step)
    return series


def test_a_step_that_was_seen_is_refused_without_a_word(runs: tuple[Path, dict[str, Any]]) -> None:
    """Report 21: resumed without new_segment, step 100 after 120 and step 0 after 130 refuse (STEP-2, PROT-11)."""
    _, told = runs
    assert told["resume"]["refused"] == ["watch_step_regression", 120]
    assert told["manifest"]["refused"] == ["watch_step_regression", 130]
    # Offline, wandb knows nothing of the process before: what refuses are the stores that do.
    assert [told[phase]["wandb-knows"] for phase in told] == [None, None, None]


@pytest.mark.parametrize(
    ("place", "read"), [("run.jsonl", read_jsonl), ("log", read_tensorboard)], ids=["jsonl", "tensorboard"]
)
def test_a_store_that_goes_on_keeps_every_segment(
    place: str, read: Callable[[Path], Any], runs: tuple[Path, dict[str, Any]]
) -> None:
    """Report 21: all rows of all three processes are there, and each segment says where it begins (STEP-8)."""
    home, _ = runs
    series = _steps(read(home / place))
    assert series[SERIES] == [*BEGUN, *RESUMED]
    assert series["torchlens/meta/manifest"] == [0, 100, 0] == series["torchlens/run/attached"]
    assert series["torchlens/run/segment"] == [100, 0]


def test_the_same_wandb_id_keeps_each_process_apart(runs: tuple[Path, dict[str, Any]]) -> None:
    """Report 21: offline, every process has a file of its own under the one id, with all of its rows (STEP-8)."""
    home, told = runs
    files = [home / told[phase]["file"] for phase in ("begin", "resume", "manifest")]
    assert {file.name for file in files} == {"run-sameid.wandb"} and len(set(files)) == 3
    begun, resumed, manifest = (_steps(read_wandb(file)) for file in files)
    assert (begun[SERIES], resumed[SERIES]) == (BEGUN, RESUMED)
    assert resumed["torchlens/meta/manifest"] == [100] == resumed["torchlens/run/segment"]
    assert "torchlens/run/segment" not in begun
    # The third process was moved behind step 131 afterwards, as a server moves a resumed run.
    assert manifest == {**{tag: [0] for tag in OWN}, "before": [131]}


def test_rows_behind_the_run_are_reported_and_not_counted(runs: tuple[Path, dict[str, Any]]) -> None:
    """Report 21: a manifest at step 0 of a run that is at 131 is refused by name, and nothing claims it (STEP-8)."""
    _, told = runs
    assert told["manifest"]["behind-refused"] == ["watch_step_regression", 130]
    assert told["manifest"]["behind-taken"] == {"WandbSink": [0, "tracker_step_regressed"]}
    sinks = ("WandbSink", "JSONLSink", "TensorBoardSink")
    assert told["manifest"]["taken"] == {sink: [len(OWN), None] for sink in sinks}
    for phase in ("begin", "resume"):
        assert {failed for _, failed in told[phase]["taken"].values()} == {None}
        assert len({count for count, _ in told[phase]["taken"].values()}) == 1
