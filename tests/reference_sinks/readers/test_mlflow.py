"""read_mlflow over real runs, against MLflow's own client, and over damaged, moved and foreign stores."""

from __future__ import annotations

import json
import shutil
import sqlite3
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from ..mlflow_runs import Run, emit, new_run, one_of_everything

import mlflow  # isort: skip
from reference_sinks.readers import ReadResult, read_mlflow
from torchlens_conformance.kit.subjects.mlflow import DATABASE
from torchlens_conformance.protocol import HistogramPoint, Refusal, ScalarPoint, TextPoint

from ..conftest import run_program


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run with one of everything; tests only look at it."""
    run = new_run(tmp_path_factory.mktemp("full"))
    sink = run.sink()
    emit(sink, one_of_everything())
    sink.close()
    return run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a run in a database of its own, with a number, a text and a histogram."""
    folder = tmp_path / "store"
    folder.mkdir()
    run = new_run(folder)
    sink = run.sink()
    emit(sink, [ScalarPoint("loss", 1, 0.5), TextPoint("notes", 1, "words"), HistogramPoint("h", 1, [1, 2], [0, 1, 3])])
    sink.close()
    return run


def refused(place: Any, **keywords: Any) -> Refusal:
    """Return the refusal that reading raises."""
    with pytest.raises(Refusal) as caught:
        read_mlflow(place, **keywords)
    return caught.value


def artifacts(run: Run) -> Path:
    """Return the folder of a run's artifacts."""
    return run.folder / "artifacts" / run.id / "artifacts"


def reasons(result: ReadResult) -> list[str]:
    """Return why things were not placed."""
    return [item.reason for item in result.unplaced]


def test_agrees_with_mlflows_own_client(full: Run) -> None:
    """Every metric that MLflow's client gives is there, with equal step and value, and every file it lists (FID-1)."""
    result = read_mlflow(full.folder)
    names = full.client.get_run(full.id).data.metrics
    for name in names:
        theirs = full.client.get_metric_history(full.id, name)
        ours = [point for point in result if isinstance(point, ScalarPoint) and point.tag == name]
        # Later points of a series have later timestamps, so both orders are one.
        assert [point.step for point in ours] == [metric.step for metric in theirs]
        assert all(p.value == m.value or (isnan(p.value) and isnan(m.value)) for p, m in zip(ours, theirs))
    files = [point for point in result if not isinstance(point, ScalarPoint)]
    assert {point.tag for point in result if isinstance(point, ScalarPoint)} == set(names)
    for tag in {point.tag for point in files}:
        assert len(full.files(tag)) == sum(point.tag == tag for point in files)
    assert result.reader == "read_mlflow" and result.torn is None


def test_needs_no_mlflow(full: Run, tmp_path: Path) -> None:
    """The reader imports neither MLflow nor SQLAlchemy, and reads the same in another process (FID-1, MLFLOW-1)."""
    program = """
import json, sys
sys.modules["mlflow"] = sys.modules["sqlalchemy"] = None
from reference_sinks.readers import read_mlflow
print(json.dumps([repr(point) for point in read_mlflow(sys.argv[1])]))
"""
    finished = run_program(program, str(full.folder), home=tmp_path)
    assert finished.printed == [repr(point) for point in read_mlflow(full.folder)]


def test_the_largest_float_gets_a_note(full: Run) -> None:
    """It may have been an infinity before MLflow got it, and the reader says so (MLFLOW-1)."""
    (note,) = [note for note in read_mlflow(full.folder).notes if "infinity" in note]
    assert note.endswith(": 1")


def test_the_file_itself_may_be_named(full: Run) -> None:
    """The database's path reads like its folder (FID-1)."""
    assert len(read_mlflow(full.folder / DATABASE)) == len(read_mlflow(full.folder))


def test_an_ended_run_is_closed(run: Run) -> None:
    """A run is closed once MLflow was told that it has ended (MLFLOW-1)."""
    assert read_mlflow(run.folder).closed is False
    run.client.set_terminated(run.id)
    assert read_mlflow(run.folder).closed is True


def test_what_is_no_point_is_told(run: Run) -> None:
    """Odd steps, parameters, the caller's tags and foreign files are listed with a reason, and nothing else (FID-1)."""
    run.client.log_batch(run.id, [mlflow.entities.Metric("odd", 1.0, 1, step) for step in (-1, 1.5)])
    run.client.log_param(run.id, "rate", 0.1)
    run.client.set_tag(run.id, "mine", "yes")
    written = {
        "model/weights.bin": b"\0",
        "step_0000000001.txt": b"no tag",
        "notes/step_1.txt": b"too short",
        "notes/step_9999999999999999999.txt": b"no step",
        "notes/step_0000000002.txt": b"\xff",
        "h/step_0000000002.json": b"[]",
        "h/step_0000000003.json": b'{"counts": [0.5], "edges": [0, 1]}',
        "h/step_0000000004.json": b'{"tag": "other", "step": 4, "counts": [1], "edges": [0, 1]}',
        "h/step_0000000005.json": b'{"counts": [1], "edges": [0, 1], "summary": {"max": NaN}}',
    }
    for path, content in written.items():
        (artifacts(run) / path).parent.mkdir(exist_ok=True)
        (artifacts(run) / path).write_bytes(content)
    result = read_mlflow(run.folder)
    found = {item.where: item.reason for item in result.unplaced}
    assert [reason for where, reason in found.items() if where.startswith("metrics@")] == [
        "the step is negative",
        "the step is no integer",
    ]
    assert found["params@rate"] == "parameter" and found["tags@mine"] == "tag of the run"
    for path in list(written)[:4]:
        assert found[path] == "artifact"
    assert found["notes/step_0000000002.txt"] == "not UTF-8"
    assert found["h/step_0000000002.json"] == "JSON that is no histogram"
    assert found["h/step_0000000003.json"].startswith("no histogram of the protocol")
    assert found["h/step_0000000004.json"] == "the histogram is of another series than its path"
    assert len(found) == 12 and result.torn is None
    # Counts and edges alone, as other writers of such files leave them, are a point.
    bare = [point for point in result if isinstance(point, HistogramPoint) and point.step == 5]
    assert [point.tag for point in bare] == ["h"] and isnan(bare[0].summary["max"])
    halves = [item.content for item in result.unplaced if item.where == "h/step_0000000003.json"]
    assert halves == [{"tag": "h", "step": 3, "counts": [0.5], "edges": [0, 1]}]


def test_one_run_is_read(run: Run) -> None:
    """Of several runs one must be named; deleted ones do not count, and an unknown one is missing (MLFLOW-1)."""
    other = run.client.create_run(run.client.get_run(run.id).info.experiment_id).info.run_id
    refusal = refused(run.folder)
    runs: Any = refusal.fields["runs"]
    assert refusal.code == "reader_path_ambiguous" and set(runs) == {run.id, other}
    assert len(read_mlflow(run.folder, run_id=run.id)) == 3
    assert len(read_mlflow(run.folder, run_id=other)) == 0
    run.client.delete_run(other)
    assert len(read_mlflow(run.folder)) == 3
    run.client.delete_run(run.id)
    assert refused(run.folder).code == "reader_file_empty"
    assert len(read_mlflow(run.folder, run_id=run.id)) == 3
    assert refused(run.folder, run_id="0" * 32).code == "reader_path_missing"


def test_a_moved_store_is_read(run: Run, tmp_path: Path) -> None:
    """Artifacts are found below the database where the run's own path is gone; a note says where there are none."""
    moved = tmp_path / "moved"
    shutil.move(run.folder, moved)
    result = read_mlflow(moved)
    assert len(result) == 3 and result.notes == ()
    shutil.rmtree(moved / "artifacts")
    result = read_mlflow(moved)
    assert [type(point) for point in result] == [ScalarPoint]
    assert any("not found" in note for note in result.notes)


@pytest.mark.parametrize(
    ("path", "keep", "words"),
    [
        ("notes/step_0000000001.txt", 3, "3 of 5 bytes"),
        ("notes/step_0000000001.txt", 0, "0 of 5 bytes"),
        ("notes/step_0000000001.txt", None, "none of 5 bytes"),
        ("h/step_0000000001.json", 20, "the JSON is cut"),
        ("h/step_0000000001.json", 0, "the JSON is cut"),
    ],
)
def test_a_cut_file_is_torn(run: Run, path: str, keep: int | None, words: str) -> None:
    """A text or histogram that a killed writer left cut is named and is no point, the others are there (PROT-10)."""
    file = artifacts(run) / path
    if keep is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:keep])
    result = read_mlflow(run.folder)
    assert result.torn is not None and path in result.torn and words in result.torn
    assert len(result) == 2 and result.unplaced == ()


def test_an_upload_that_did_not_end_is_torn(run: Run) -> None:
    """What MLflow's server was still receiving is named (PROT-10)."""
    (artifacts(run) / "notes/.artifact.uploading.x1").write_bytes(b"wor")
    result = read_mlflow(run.folder)
    assert result.torn == "notes/.artifact.uploading.x1: an upload that did not end" and len(result) == 3


_KILLED = """
import os, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA cache_size = 1")
database.execute("BEGIN")
columns = "key, value, timestamp, step, is_nan, run_uuid"
for step in range(2000):
    row = f"SELECT {columns.replace('step', str(step + 2))} FROM metrics LIMIT 1"
    database.execute(f"INSERT INTO metrics ({columns}) {row}")
os.kill(os.getpid(), 9)
"""


def test_a_transaction_of_a_killed_writer_is_taken_back(run: Run, tmp_path: Path) -> None:
    """Half a transaction is in the file; it is named, does not come back, and the reader writes nothing (PROT-10)."""
    file = run.folder / DATABASE
    run_program(_KILLED, str(file), home=tmp_path, may_fail=True)
    before = {path.name: path.read_bytes() for path in run.folder.iterdir() if path.is_file()}
    assert f"{DATABASE}-journal" in before
    result = read_mlflow(run.folder)
    assert result.torn is not None and "taken back" in result.torn
    assert len(result) == 3
    assert {path.name: path.read_bytes() for path in run.folder.iterdir() if path.is_file()} == before


def test_a_writer_at_work_is_no_trouble(run: Run) -> None:
    """While a transaction is open in a living process, what stood before is read, and nothing is torn (FID-1)."""
    with sqlite3.connect(run.folder / DATABASE, isolation_level=None) as database:
        database.execute("BEGIN IMMEDIATE")
        database.execute("UPDATE metrics SET value = 7")
        result = read_mlflow(run.folder)
        database.execute("ROLLBACK")
    assert result.torn is None and [p.value for p in result if isinstance(p, ScalarPoint)] == [0.5]


def test_a_cut_database_is_refused_at_every_length(run: Run, tmp_path: Path) -> None:
    """Empty, truncated in its header or behind it: refused by name (MLFLOW-1)."""
    content = (run.folder / DATABASE).read_bytes()
    cut = tmp_path / "cut.db"
    for size in (0, 1, 16, 50, 100, 4096, len(content) // 2, len(content) - 1):
        cut.write_bytes(content[:size])
        assert refused(cut).code == ("reader_file_truncated" if size else "reader_file_empty"), size


def test_a_damaged_database_is_refused(run: Run, tmp_path: Path) -> None:
    """Pages that are no pages are refused by name (MLFLOW-1)."""
    content = (run.folder / DATABASE).read_bytes()
    broken = tmp_path / "broken.db"
    broken.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    assert refused(broken).code == "reader_file_corrupt"


def test_other_things_are_refused(run: Run, tmp_path: Path) -> None:
    """No path, no database, another database, two, another version of the tables (FID-1)."""
    assert refused(tmp_path / "nothing").code == "reader_path_missing"
    (tmp_path / "mlruns").mkdir()
    assert refused(tmp_path / "mlruns").code == "reader_file_empty"
    (tmp_path / "text").write_text("no database, but some words")
    assert refused(tmp_path / "text").code == "reader_file_foreign"
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE runs (id)")
    assert refused(tmp_path / "other.db").code == "reader_version_unsupported"
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("DROP TABLE runs")
        other.execute("CREATE TABLE tables (id)")
    assert refused(tmp_path / "other.db").code == "reader_file_foreign"
    shutil.copy(run.folder / DATABASE, run.folder / "again.db")
    assert refused(run.folder).code == "reader_path_ambiguous"
    with sqlite3.connect(run.folder / "again.db") as later:
        later.execute("ALTER TABLE params RENAME COLUMN value TO worth")
    assert refused(run.folder / "again.db").code == "reader_version_unsupported"


def test_nothing_else_is_a_tag_of_the_sink(run: Run) -> None:
    """The run's tag about texts on their way is no finding, and another form of it says nothing (MLFLOW-1)."""
    for value in ("{", "[]", json.dumps({"notes/step_0000000001.txt": "5"})):
        run.client.set_tag(run.id, "torchlens.texts_under_way", value)
        result = read_mlflow(run.folder)
        assert (len(result), result.torn, reasons(result)) == (3, None, [])
