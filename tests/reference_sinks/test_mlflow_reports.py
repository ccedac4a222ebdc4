"""Reports 30 and 31: what people met in MLflow, each with its right value."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import nan
from pathlib import Path

import pytest

from .mlflow_runs import Run, emit, new_run, refused, scalar

import mlflow  # isort: skip
from reference_sinks import MLflowSink
from reference_sinks.readers import read_mlflow
from torchlens_conformance.protocol import ScalarPoint


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a run in a database of its own."""
    return new_run(tmp_path)


def test_names_that_are_legal_elsewhere_are_refused_at_attach(run: Run) -> None:
    """Report 30: a name that MLflow cannot carry refuses before anything is set or written, and says which (TAG-3)."""
    torch = pytest.importorskip("torch")
    import torchlens_conformance.trackers as trk

    for name in ("at@home", "pair(1)", "a,b", "x" * 251):
        model = torch.nn.Sequential()
        model.add_module(name, torch.nn.Linear(1, 1))
        sink, other = run.sink(), trk.MemorySink()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        refusal = refused(trk.watch, model, to=(other, sink), signals=("parameters",), optimizer=optimizer)
        assert refusal.code == "tracker_tag_unsafe" and name in str(refusal.fields["tag"])
        assert other.points == [] and not any(module._forward_hooks for module in model.modules())
        # Alone, or in another sink, the name is no trouble.
        trk.watch(model, to=other, signals=("parameters",), optimizer=optimizer).close()
    for tag in ("a//b", "../x"):
        assert refused(sink.preflight_tags, ["fine", tag]).fields["tag"] == tag
    sink.preflight_tags(["with space", "colon:0", "\u00e9t\u00e9", "x" * 250])
    assert read_mlflow(run.folder).points == ()


def test_a_number_that_repeats_is_kept(run: Run) -> None:
    """Report 31: equal points of one millisecond are all there, where MLflow itself makes one of them (MLFLOW-1)."""
    sink = run.sink()
    emit(sink, [scalar(value=nan), scalar(value=nan), scalar(), scalar(), scalar(step=0), scalar()])
    sink.flush()
    assert [step for step, _ in run.rows("loss")] == [1, 1, 1, 1, 0, 1]
    assert sink.relay_state().evidence.startswith("6 points")
    entities = mlflow.entities
    run.client.log_batch(run.id, [entities.Metric("alone", 0.5, 1000, 1), entities.Metric("alone", 0.5, 1000, 1)])
    assert run.rows("alone") == [(1, 0.5)]


@contextmanager
def tracking(uri: str) -> Iterator[None]:
    """Let MLflow's module use a store, and none of ours afterwards."""
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(None)


def test_a_store_that_cannot_be_opened_refuses_at_attach(run: Run, tmp_path: Path) -> None:
    """Report 31: a store that MLflow does not open refuses in MLflow's own words, with a remedy (PROT-9)."""
    newer = mlflow.__version__ >= "3"
    uri = f"{'file' if newer else 'nothing-known'}://{tmp_path}/mlruns"
    with tracking(uri):
        refusal = refused(MLflowSink, run_id="0" * 32)
    assert refusal.code == "tracker_sink_settings_invalid" and "sqlite" in refusal.remedy
    assert refusal.fields["setting"] == "client"
    # A run that is not there refuses with the same code, so the reason has to be MLflow's own.
    words = "filesystem tracking backend" if newer else "nothing-known"
    assert words in str(refusal) and "not found" not in str(refusal)
    with tracking(run.client.tracking_uri):
        missing = refused(MLflowSink, run_id="0" * 32)
    assert missing.code == refusal.code and missing.fields["setting"] == "run_id"
    assert words not in str(missing) and "not found" in str(missing)


_LOG_MODEL = """
import sys
import mlflow

class Echo(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input: list[str], params=None) -> list[str]:
        return model_input

mlflow.set_tracking_uri(sys.argv[1])
named = "name" if mlflow.__version__ >= "3" else "artifact_path"
with mlflow.start_run(sys.argv[2]):
    mlflow.pyfunc.log_model(**{named: "model"}, python_model=Echo(), pip_requirements=[])
"""


@pytest.mark.trackers
def test_log_model_after_a_nan_of_ours_works_and_keeps_it(run: Run, tmp_path: Path) -> None:
    """Report 31: log_model on a run with NaN does not fail, takes the step's metrics, and ours stay (MLFLOW-1)."""
    sink = run.sink()
    emit(sink, [scalar(step=0, value=nan), scalar("accuracy", 0), scalar(step=0, value=nan)])
    sink.close()
    command = [sys.executable, "-c", _LOG_MODEL, run.client.tracking_uri, run.id]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    if mlflow.__version__ >= "3":
        # It did what the report speaks of: the metrics of step 0 are the model's as well.
        experiment = run.client.get_run(run.id).info.experiment_id
        (model,) = run.client.search_logged_models(experiment_ids=[experiment])
        names = sorted((metric.key, metric.step) for metric in model.metrics)
        assert names == [("accuracy", 0), ("loss", 0), ("loss", 0)]
    found = [(p.tag, p.step, repr(p.value)) for p in read_mlflow(run.folder) if isinstance(p, ScalarPoint)]
    assert sorted(found) == [("accuracy", 0, "0.5"), ("loss", 0, "nan"), ("loss", 0, "nan")]
