"""Reports 30 and 31: what people met in MLflow, each with its right value."""

from __future__ import annotations

from contextlib import suppress
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


def test_a_store_that_cannot_be_opened_refuses_at_attach(tmp_path: Path) -> None:
    """Report 31: a store that MLflow does not open, a file store in newer versions, refuses with a remedy (PROT-9)."""
    uri = f"{'file' if mlflow.__version__ >= '3' else 'nothing-known'}://{tmp_path}/mlruns"
    mlflow.set_tracking_uri(uri)
    try:
        refusal = refused(MLflowSink, run_id="0" * 32)
    finally:
        mlflow.set_tracking_uri(None)
    assert refusal.code == "tracker_sink_settings_invalid" and "sqlite" in refusal.remedy


def test_a_nan_of_ours_survives_what_mlflow_does_with_it(run: Run) -> None:
    """Report 31: MLflow's log_model takes a step's metrics out and logs them again; ours are there once (MLFLOW-1)."""
    sink = run.sink()
    emit(sink, [scalar(step=0, value=nan), scalar("accuracy", 0)])
    sink.close()
    histories = [run.client.get_metric_history(run.id, tag) for tag in ("loss", "accuracy")]
    assert [metric.step for history in histories for metric in history] == [0, 0]
    # 2.22.5 raises for the NaN, whoever logged it.
    with suppress(mlflow.MlflowException):
        run.client.log_batch(run.id, [metric for history in histories for metric in history])
    found = [(point.step, repr(point.value)) for point in read_mlflow(run.folder) if isinstance(point, ScalarPoint)]
    assert found == [(0, "nan"), (0, "0.5")]
