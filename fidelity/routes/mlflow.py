"""MLflow's own path: metrics and artifacts of a run in a sqlite database, read back without MLflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import Point, ScalarPoint
from torchlens_conformance.protocol.compare import same_value

from ..received import Received, Refused, from_result
from .base import Route, emit_each

WORDS = frozenset({"scalar", "raw_histogram", "text_manifest"})
"""What the MLflow sink carries of the stimulus."""

_DATABASE = "mlflow.db"


def environment(place: Path) -> Mapping[str, str]:
    """Keep MLflow off the network and inside ``place``."""
    return {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_TRACKING_URI": f"sqlite:///{place / _DATABASE}",
    }


def send(points: Sequence[Point], place: Path) -> list[Refused]:
    """Log the points through our MLflow sink; where the sink refuses a number, MLflow itself is asked as well."""
    from mlflow import MlflowClient

    from reference_sinks import MLflowSink

    client = MlflowClient(f"sqlite:///{place / _DATABASE}")
    experiment = client.create_experiment("fidelity", artifact_location=str(place / "artifacts"))
    # Not mlflow.start_run, which starts git to ask for the program's version.
    run_id = client.create_run(experiment).info.run_id
    sink = MLflowSink(client, run_id=run_id)
    refused = emit_each(sink, points, WORDS)
    sink.close()
    client.set_terminated(run_id)
    asked = client.create_run(experiment).info.run_id
    numbers = {(p.tag, p.step): p for p in points if isinstance(p, ScalarPoint)}
    answers = [_with_mlflows_word(item, numbers.get((item.tag, item.step)), client, asked) for item in refused]
    # Deleted, so that one run is left to read.
    client.delete_run(asked)
    return answers


def read(place: Path) -> Received:
    """Read the database and the artifacts."""
    from reference_sinks.readers import read_mlflow

    return from_result(read_mlflow(place))


def _with_mlflows_word(item: Refused, point: ScalarPoint | None, client: Any, run_id: str) -> Refused:
    """Add what MLflow itself does with the same number, so that no refusal rests on our word alone."""
    if point is None:
        return item
    try:
        client.log_metric(run_id, point.tag, point.value, step=point.step)
        stored = [found.value for found in client.get_metric_history(run_id, point.tag) if found.step == point.step]
    except Exception as error:
        word = f"MLflow itself: {type(error).__name__}: {error}"
    else:
        if any(same_value(point.value, value) for value in stored):
            word = f"our sink alone, MLflow stores it unchanged: {item.reason}"
        else:
            word = f"MLflow itself takes it and gives back {', '.join(map(repr, stored)) or 'nothing'}"
    return Refused(item.tag, item.step, item.kind, word)


ROUTE = Route("mlflow", "MLflow", "mlflow", send, read, WORDS, environment=environment)
