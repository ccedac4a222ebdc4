"""MLflowSink as a subject: a run in a sqlite database beside its artifacts, with the limits of MLflow (MLFLOW-1)."""

from __future__ import annotations

import base64
import os
import tempfile
import warnings
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from reference_sinks import MLflowSink
from reference_sinks.readers.mlflow import read_mlflow

from ...protocol import Refusal
from ..subject import Subject

DATABASE = "mlflow.db"
"""The file of the database in a place; the artifacts lie beside it."""


_PREPARED = "TORCHLENS_CONFORMANCE_MLFLOW_DATABASE"
# The variable that hands an empty database, compressed to 23 kB, on to processes started from this one.


@cache
def empty_database() -> bytes:
    """Return an empty database as MLflow itself makes it, with all of its migrations.

    Those take seconds, so they are run once, here or in the process that this one was started from. Raises
    ``ImportError`` where MLflow is not installed.
    """
    # MLflow reads these when it is imported, and would call its makers' server.
    os.environ.update({"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"})
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        # What MLflow's makers are warned of by SQLAlchemy is none of ours.
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient

        if prepared := os.environ.get(_PREPARED):
            return zlib.decompress(base64.b64decode(prepared))
        MlflowClient(f"sqlite:///{folder}/{DATABASE}").search_experiments()
        content = Path(folder, DATABASE).read_bytes()
    os.environ[_PREPARED] = base64.b64encode(zlib.compress(content, 9)).decode()
    return content


_EXPERIMENT = "conformance"

with suppress(ImportError):
    # Once here, and not again in every process that opens a sink; a missing package is refused when one is opened.
    empty_database()


def open_mlflow(place: Path) -> MLflowSink:
    """Open a sink on the one run of ``place``, which is made when there is none yet.

    Raises what ``MLflowSink`` raises, and ``tracker_sink_write_failed`` for a place that cannot be written.
    """
    try:
        client, run_id = run_in(place)
    except ImportError:
        return MLflowSink()  # which refuses by name
    return MLflowSink(client, run_id=run_id)


def run_in(place: Path) -> tuple[Any, str]:
    """Return a client and the id of the one run of ``place``, which is made when there is none yet.

    Raises ``tracker_sink_write_failed`` for a place that cannot be written, and ``ImportError``.
    """
    empty = empty_database()
    from mlflow import MlflowClient

    database = place / DATABASE
    known = database.exists()
    if not known:
        _write(database, empty)
    client = MlflowClient(f"sqlite:///{database}")
    if known:
        experiment = client.get_experiment_by_name(_EXPERIMENT).experiment_id
        run = client.search_runs([experiment])[0]
    else:
        # Not mlflow.start_run, which starts git to ask for the program's version.
        run = client.create_run(client.create_experiment(_EXPERIMENT, artifact_location=str(place / "artifacts")))
    return client, run.info.run_id


def _write(database: Path, content: bytes) -> None:
    try:
        database.write_bytes(content)
    except OSError as error:
        raise Refusal(
            "tracker_sink_write_failed",
            f"The database cannot be written: {error}",
            remedy="Give MLflow a folder that can be written.",
            path=str(database),
        ) from error


MLFLOW = Subject(
    name="MLflowSink",
    open=open_mlflow,
    read=read_mlflow,
    distribution="torchlens-conformance",
    undeclared={
        "embedding_module": "MLflow has no series of tables of vectors",
        "graph": "MLflow draws no graphs",
        "image": "MLflow keeps images as files; the sink does not write them",
        "run_metadata": "facts about the run belong into its parameters and tags, which the caller owns",
        "structured_event": "MLflow has no place for a payload at a step but a file",
    },
)
"""A run of MLflow in sqlite, written without a server."""
