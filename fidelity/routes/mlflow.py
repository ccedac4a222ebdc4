"""MLflow's own path: metrics and artifacts of a run in a sqlite database, read back without MLflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import Point, ScalarPoint

from ..answers import raised_answer, stored_answer
from ..received import Received, Refused, from_result
from .asked import answered, hearing
from .base import Route, emit_each
from .resuming import Resume, Way, begun_run_id, continue_run, keep_run_id

WORDS = frozenset({"scalar", "raw_histogram", "text_manifest"})
"""What the MLflow sink carries of the stimulus."""

_DATABASE = "mlflow.db"
_WAY = "mlflow.start_run(run_id=...)"


def environment(place: Path) -> Mapping[str, str]:
    """Keep MLflow off the network and inside ``place``."""
    return {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_TRACKING_URI": f"sqlite:///{place / _DATABASE}",
    }


def send(points: Sequence[Point], place: Path) -> list[Refused]:
    """Log the points through our MLflow sink; where the sink refuses a number, MLflow itself is asked as well."""
    client, run_id = _fresh_run(place)
    refused = _log(points, client, run_id)
    client.set_terminated(run_id)
    asked = client.create_run(client.get_run(run_id).info.experiment_id).info.run_id
    numbers = {(p.tag, p.step): p for p in points if isinstance(p, ScalarPoint)}
    answers = [_with_mlflows_word(item, numbers.get((item.tag, item.step)), client, asked) for item in refused]
    # Deleted, so that one run is left to read.
    client.delete_run(asked)
    return answers


def begin(points: Sequence[Point], place: Path) -> list[Refused]:
    """Log the points to a fresh run and end it."""
    client, run_id = _fresh_run(place)
    keep_run_id(place, run_id)
    refused = _log(points, client, run_id)
    client.set_terminated(run_id)
    return refused


def go_on(points: Sequence[Point], place: Path) -> list[Refused]:
    """Start the ended run again, log the points, and end it."""
    import mlflow

    run_id = begun_run_id(place)
    continue_run(lambda: mlflow.start_run(run_id=run_id))
    refused = _log(points, mlflow.MlflowClient(), run_id)
    mlflow.end_run()
    return refused


def _fresh_run(place: Path) -> tuple[Any, str]:
    """Return a client and the id of a new run whose store is under ``place``."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{place / _DATABASE}")
    experiment = client.create_experiment("fidelity", artifact_location=str(place / "artifacts"))
    # Not mlflow.start_run, which starts git to ask for the program's version.
    return client, client.create_run(experiment).info.run_id


def _log(points: Sequence[Point], client: Any, run_id: str) -> list[Refused]:
    from reference_sinks import MLflowSink

    sink = MLflowSink(client, run_id=run_id)
    refused = emit_each(sink, points, WORDS)
    sink.close()
    return refused


def read(place: Path) -> Received:
    """Read the database and the artifacts."""
    from reference_sinks.readers import read_mlflow

    return from_result(read_mlflow(place))


def _with_mlflows_word(item: Refused, point: ScalarPoint | None, client: Any, run_id: str) -> Refused:
    """Add what MLflow itself does with the same number, so that no refusal rests on our word alone."""
    if point is None:
        return item
    try:
        with hearing("mlflow") as heard:
            client.log_metric(run_id, point.tag, point.value, step=point.step)
        history = client.get_metric_history(run_id, point.tag)
    except Exception as error:
        return answered(item, "MLflow", raised_answer(error), at_length=f"{type(error).__name__}: {error}")
    stored = next((ScalarPoint(point.tag, found.step, found.value) for found in history[-1:]), None)
    return answered(item, "MLflow", stored_answer(point, stored, warned=heard.anything))


_RESUME = Resume(begin, (Way(_WAY, go_on),), read)

ROUTE = Route("mlflow", "MLflow", "mlflow", send, read, WORDS, environment=environment, resume=_RESUME)
