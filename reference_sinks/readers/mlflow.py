"""Reading an MLflow run from its sqlite file and its folder of artifacts (MLFLOW-1, FID-1).

Neither MLflow nor SQLAlchemy is needed: the database is read with the standard library, and never written.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from math import nan
from pathlib import Path
from sqlite3 import Connection
from sys import float_info
from typing import Any

from torchlens_conformance.protocol import Point, Refusal, ScalarPoint

from ..mlflow_layout import TEXTS_UNDER_WAY, decode_texts_under_way
from .mlflow_artifacts import ArtifactReader, find_artifacts, is_local
from .mlflow_database import READER, find_database, opened
from .result import ReadResult, Unplaced

_LARGEST = float_info.max
_LARGEST_FLOATS = "metrics at the largest float, which is also what MLflow makes of an infinity"
_HIDDEN = "mlflow."
# What the tags begin with that MLflow sets itself.


def read_mlflow(place: str | os.PathLike[str], *, run_id: str | None = None) -> ReadResult:
    """Read one run: its metrics in the order they were stored, then its histograms and texts.

    Placed: metrics (floats, since MLflow stores nothing else; NaN where the row says so), and the artifacts
    ``<tag>/step_<10 digits>.json`` (histograms) and ``.txt`` (texts), series by series in the order of tags, each in
    the order of its steps: files keep no other. Integers come back as floats of the same value. MLflow's own client
    gives metrics in the order of their timestamps, then steps, then values.

    In ``unplaced``: metrics whose step is negative or no integer, parameters, tags of the run that are not MLflow's
    own, and every other artifact with its size. Metrics of logged models, and traces, are not looked at.

    A writer that was killed leaves a transaction, which sqlite takes back, or a cut file; ``torn`` says which. A cut
    text is told by the sizes that the sink leaves in the run. sqlite keeps no checksums: a changed number is not seen.

    Args:
        place: The database's file, or a folder with exactly one. The artifacts are where the run says, or below the
            database's folder where that is gone or was on a server; if there are none, ``notes`` say so.
        run_id: Needed where the database holds several runs; deleted ones count only when they are named.

    ``closed`` is whether the run has ended. Raises ``reader_path_missing`` (also for a run that is not there),
    ``reader_path_ambiguous``, ``reader_file_empty`` (no bytes, no database, no run), ``reader_file_foreign``,
    ``reader_file_truncated``, ``reader_file_corrupt`` and ``reader_version_unsupported``.

    Clause: MLFLOW-1, FID-1.
    """
    file = find_database(place)
    points: list[Point] = []
    unplaced: list[Unplaced] = []
    notes: Counter[str] = Counter()
    with opened(file) as (database, torn):
        run = _run(database, file, run_id)
        _read_metrics(database, run, points, unplaced, notes)
        under_way = _read_facts(database, run, unplaced)
    artifacts = ArtifactReader(points, unplaced)
    folder = find_artifacts(run.artifact_uri, run.id, beside=file.parent)
    if folder is None:
        notes[f"folders of artifacts that were not found, {run.artifact_uri}"] += 1
    if folder is not None or is_local(run.artifact_uri):
        artifacts.read(folder, under_way)
    torn_files = ([] if torn is None else [torn]) + artifacts.torn
    told = tuple(f"{text}: {count}" for text, count in sorted(notes.items()))
    return ReadResult(
        tuple(points),
        tuple(unplaced),
        torn="; ".join(torn_files) or None,
        closed=run.status not in ("RUNNING", "SCHEDULED"),
        reader=READER,
        notes=told,
    )


@dataclass(frozen=True, slots=True)
class _Run:
    id: str
    status: str
    artifact_uri: str


def _run(database: Connection, file: Path, run_id: str | None) -> _Run:
    columns = "SELECT run_uuid, status, artifact_uri FROM runs"
    if run_id is not None:
        rows = database.execute(f"{columns} WHERE run_uuid = ?", (run_id,)).fetchall()
        code, what = "reader_path_missing", f"no run {run_id}"
    else:
        rows = database.execute(f"{columns} WHERE lifecycle_stage = 'active' ORDER BY rowid").fetchall()
        code, what = "reader_file_empty", "no run"
    if len(rows) == 1:
        return _Run(*map(str, rows[0]))
    if rows:
        raise Refusal(
            "reader_path_ambiguous",
            f"{file.name} holds {len(rows)} runs.",
            remedy="Give run_id=, the id of one run.",
            path=str(file),
            reader=READER,
            runs=[row[0] for row in rows],
        )
    raise Refusal(
        code,
        f"There is {what} in {file.name}.",
        remedy="Give the database, and the id of a run, that the tracker wrote to.",
        path=str(file),
        reader=READER,
        run_id=run_id,
    )


def _read_metrics(
    database: Connection, run: _Run, points: list[Point], unplaced: list[Unplaced], notes: Counter[str]
) -> None:
    rows = database.execute(
        "SELECT rowid, key, value, is_nan, step FROM metrics WHERE run_uuid = ? ORDER BY rowid", (run.id,)
    )
    for number, key, value, is_nan, step in rows:
        if type(step) is int and step >= 0 and isinstance(key, str) and isinstance(value, (int, float)):
            points.append(ScalarPoint(key, step, nan if is_nan else float(value)))
            if abs(value) == _LARGEST and not is_nan:
                notes[_LARGEST_FLOATS] += 1
        else:
            content = {"tag": key, "step": step, "value": value, "is_nan": bool(is_nan)}
            unplaced.append(Unplaced(f"metrics@{number}", _why_not(step), content))


def _why_not(step: Any) -> str:
    if type(step) is not int:
        return "the step is no integer"
    return "the step is negative" if step < 0 else "the metric is no number under a name"


def _read_facts(database: Connection, run: _Run, unplaced: list[Unplaced]) -> dict[str, int]:
    """Note parameters and tags; return the texts that were under way, with their sizes."""
    under_way: dict[str, int] = {}
    for table, what in (("params", "parameter"), ("tags", "tag of the run")):
        rows = database.execute(f"SELECT key, value FROM {table} WHERE run_uuid = ? ORDER BY rowid", (run.id,))
        for key, value in rows:
            if key == TEXTS_UNDER_WAY:
                under_way = decode_texts_under_way(value)
            elif table == "params" or not str(key).startswith(_HIDDEN):
                unplaced.append(Unplaced(f"{table}@{key}", what, {"key": key, "value": value}))
    return under_way
