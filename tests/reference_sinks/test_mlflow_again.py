"""Several MLflow sinks, one after the other, on one run in sqlite: no number that was acknowledged is lost."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .mlflow_runs import Run, emit, new_run, refused, scalar

from reference_sinks import mlflow_sink  # isort: skip
from torchlens_conformance.protocol import ScalarPoint

MOMENT = 1_700_000_000_000
"""The millisecond at which the clock stands still here, so that every stamp is ahead of it."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a run whose sinks all begin within one millisecond."""
    monkeypatch.setattr(mlflow_sink, "time", SimpleNamespace(time_ns=lambda: MOMENT * 1_000_000))
    return new_run(tmp_path)


def _log(run: Run, points: list[ScalarPoint]) -> None:
    sink = run.sink()
    emit(sink, points)
    sink.close()
    assert sink.relay_state().evidence.endswith(f"MLflow has acknowledged {len(points)}")


def _counting(monkeypatch: pytest.MonkeyPatch, run: Run) -> list[str]:
    """Return the series whose history is asked for from here on."""
    asked: list[str] = []
    real: Callable[..., Any] = run.client.get_metric_history

    def ask(run_id: str, key: str) -> Any:
        asked.append(key)
        return real(run_id, key)

    monkeypatch.setattr(run.client, "get_metric_history", ask)
    return asked


def test_what_a_second_sink_repeats_is_kept(run: Run) -> None:
    """The same numbers at the same step through two sinks are all there; so is NaN (MLFLOW-1, PROT-6)."""
    points = [scalar() for _ in range(20)] + [ScalarPoint("nan", 3, nan)] * 5
    for _ in range(3):
        _log(run, points)
    assert len(run.rows("loss")) == 60
    assert len(run.rows("nan")) == 15


def test_a_step_before_the_latest_is_kept_as_well(run: Run) -> None:
    """Stamps run ahead at small steps too, where MLflow's latest number says nothing of them (MLFLOW-1, PROT-6)."""
    points = [scalar(step=9)] + [scalar(step=1)] * 20
    _log(run, points)
    _log(run, [scalar(step=10)] * 30 + points)
    assert len(run.rows("loss")) == 72


def test_the_order_of_one_sink_stays(run: Run) -> None:
    """Behind what was there, numbers come back from MLflow in the order in which they were logged (MLFLOW-1)."""
    _log(run, [scalar(step=5)] * 10)
    _log(run, [ScalarPoint("loss", step, float(step)) for step in (7, 3, 6, 5, 5, 1)])
    history = run.client.get_metric_history(run.id, "loss")
    ordered = sorted(history, key=lambda metric: metric.timestamp)
    assert [metric.step for metric in ordered if metric.value != 0.5] == [7, 3, 6, 5, 5, 1]


def test_a_run_that_only_goes_on_asks_for_no_history(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps past the latest of a series cost nothing; a smaller or the same one asks once a series (MLFLOW-1)."""
    _log(run, [scalar(step=5), scalar("other", 5)])
    asked = _counting(monkeypatch, run)
    sink = run.sink()
    emit(sink, [scalar(step=6), scalar("other", 6), scalar("new", 1), scalar("new", 1)])
    assert asked == []
    emit(sink, [scalar(step=5), scalar(step=4), scalar(step=4), scalar("new", 0)])
    sink.close()
    assert asked == ["loss"]


def test_a_history_that_cannot_be_read_refuses(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What MLflow raises when it is asked is a refusal by name (PROT-10)."""
    _log(run, [scalar()])
    sink = run.sink()

    def fail(run_id: str, key: str) -> Any:
        raise OSError("gone")

    monkeypatch.setattr(run.client, "get_metric_history", fail)
    refusal = refused(sink.emit_scalar, scalar())
    assert (refusal.code, refusal.fields["error"]) == ("tracker_sink_write_failed", "OSError")
    monkeypatch.undo()
    emit(sink, [scalar()])
    sink.close()
    assert len(run.rows("loss")) == 2
