"""MLflowSink over a real MLflow run in sqlite, read back by our reader, by MLflow's client and from the database."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

from .mlflow_runs import GRID, LARGE_STEPS, Run, emit, histogram, new_run, one_of_everything, refused, scalar, text

import mlflow  # isort: skip
from reference_sinks import MLflowSink, mlflow_batch
from reference_sinks.readers import read_mlflow
from torchlens_conformance.kit.checks.showing import point_key
from torchlens_conformance.protocol import HistogramPoint, ScalarPoint, TextPoint


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a run in a database of its own."""
    return new_run(tmp_path)


def test_everything_comes_back_exactly(run: Run) -> None:
    """Numbers, NaN, steps, texts and histograms return bit by bit, series by series in order (MLFLOW-1, POINT-3)."""
    sink = run.sink()
    sent = one_of_everything()
    emit(sink, sent)
    sink.close()
    result = read_mlflow(run.folder)
    for tag in {point.tag for point in sent}:
        for kind in (ScalarPoint, TextPoint, HistogramPoint):
            ours = [point_key(point) for point in sent if type(point) is kind and point.tag == tag]
            assert [point_key(point) for point in result if type(point) is kind and point.tag == tag] == ours
    assert len(result) == len(sent) and result.torn is None and result.unplaced == ()


def test_numbers_that_mlflow_changes_are_refused(run: Run) -> None:
    """What MLflow itself gives back as another number, or not at all, refuses, and nothing is stored (POINT-3)."""
    sink = run.sink()
    changed = (inf, -inf, -0.0, 2**53 + 1, 2**63 - 1, 10**400)
    for value in changed:
        assert refused(sink.emit_scalar, ScalarPoint("loss", 1, value)).code == "tracker_value_unsupported"
    sink.close()
    assert run.rows("loss") == []
    largest = 1.7976931348623157e308
    assert [repr(run.answer(f"alone {value}", value)[0]) for value in changed[:5]] == list(
        map(repr, (largest, -largest, 0.0, float(2**53), float(2**63)))
    )
    with pytest.raises(OverflowError):
        run.answer("alone", changed[5])


_NAMES = ("a b", " a", "a ", "a:b", "a.b-c_d", "A", "\u00e9", "\u0663", "x" * 250, "x/" * 124 + "x")
_NO_NAMES = (
    *(
        "",
        " /a/../b",
        ".",
        "..",
        "..a",
        "a/../b",
        "../x",
        "/a",
        "a/",
        "a//b",
        "a/./b",
        "x" * 251,
        "a\t",
        "a\0b",
        "\ud800",
    ),
    *("a@b", "a(b", "a,b", "a[0]", "a%b", "a\\b", "a?b", "a#b", "a|b", "a\u0301", "\U0001f600", "a+b", "a=b"),
)


def test_a_tag_passes_exactly_when_mlflow_takes_it(run: Run) -> None:
    """Preflight and emit refuse the tags that MLflow refuses, and no other (PROT-7, MLFLOW-1)."""
    sink = run.sink()
    for tag in _NAMES:
        assert run.answer(tag, 1.0) == [1.0]
        sink.preflight_tags([tag])
        emit(sink, [scalar(tag), text(tag)])
    for tag in _NO_NAMES:
        with pytest.raises((mlflow.MlflowException, UnicodeEncodeError)):
            run.answer(tag, 1.0)
        for call, argument in (
            (sink.preflight_tags, [tag]),
            (sink.emit_scalar, scalar(tag)),
            (sink.emit_text, text(tag)),
        ):
            assert refused(call, argument).code == "tracker_tag_unsafe", tag
    sink.close()
    assert {point.tag for point in read_mlflow(run.folder)} == set(_NAMES)


def test_a_line_feed_at_the_end_is_refused(run: Run) -> None:
    """MLflow's check lets it slip through, and its server then does not find the file (MLFLOW-1)."""
    assert run.answer("a\n", 1.0) == [1.0]
    assert refused(run.sink().preflight_tags, ["a\n"]).code == "tracker_tag_unsafe"


def test_a_tag_that_cannot_be_a_folder_is_refused_for_files(run: Run) -> None:
    """Over 255 bytes, or the name of another point's file: a metric can be called so, a folder cannot (MLFLOW-1)."""
    sink = run.sink()
    tags = ("\u00e9" * 128, "a/step_0000000001.txt", "step_0000000001.json/a")
    for tag in tags:
        for call, argument in ((sink.emit_text, text(tag)), (sink.emit_histogram, histogram(tag))):
            assert refused(call, argument).code == "tracker_tag_unsafe"
        assert refused(sink.preflight_tags, [tag]).code == "tracker_tag_unsafe"
        sink.emit_scalar(scalar(tag))
    sink.close()
    assert all(run.rows(tag) == [(1, 0.5)] for tag in tags)


def test_files_have_their_names_and_contents(run: Run) -> None:
    """Files lie where a person looks: tag, step of ten digits, text as it is, JSON with three parts (MLFLOW-1)."""
    sink = run.sink()
    emit(sink, [text(words="a\r\nb"), GRID, text("far", LARGE_STEPS[2])])
    sink.close()
    folder = run.folder / "artifacts" / run.id / "artifacts"
    assert run.files("notes") == ["notes/step_0000000001.txt"]
    assert (folder / "notes/step_0000000001.txt").read_bytes() == b"a\r\nb"
    assert run.files("far") == ["far/step_9223372036854775807.txt"]
    row = json.loads((folder / "p/hist/grid/step_0000000210.json").read_text())
    assert tuple(row["counts"]) == GRID.counts and tuple(row["edges"]) == GRID.edges
    assert row["summary"]["num"] == 2**53 + 1


def test_a_file_is_never_replaced(run: Run) -> None:
    """A second text or histogram of one tag and step refuses: gathered, stored, or of an earlier sink (MLFLOW-1)."""
    sink = run.sink()
    emit(sink, [text(step=5), histogram(step=5), text(step=3)])
    assert refused(sink.emit_text, text(step=5, words="other")).code == "tracker_point_repeated"
    sink.flush()
    assert refused(sink.emit_histogram, histogram(step=5)).code == "tracker_point_repeated"
    emit(sink, [text(step=4)])
    sink.close()
    later = run.sink()
    for step in (3, 5):
        assert refused(later.emit_text, text(step=step)).code == "tracker_point_repeated"
    emit(later, [text(step=2), text(step=6), histogram(step=4), text("new", 1)])
    assert refused(later.emit_text, text(step=6)).code == "tracker_point_repeated"
    later.close()
    texts = [point for point in read_mlflow(run.folder) if isinstance(point, TextPoint)]
    assert [point.step for point in texts if point.tag == "notes"] == [2, 3, 4, 5, 6]
    assert {point.text for point in texts} == {"words"}


def test_points_are_in_the_store_after_flush_a_second_or_a_batch(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gathered points are not there; flush, a step after a second, and a full batch write them (PROT-6, PROT-10)."""
    monkeypatch.setattr(mlflow_batch, "PATIENCE", 1e9)
    sink = run.sink()
    emit(sink, [scalar(step=1), scalar(step=2), text(step=2)])
    assert run.rows("loss") == [] and run.files("notes") == []
    sink.flush()
    assert [step for step, _ in run.rows("loss")] == [1, 2] and len(run.files("notes")) == 1
    monkeypatch.setattr(mlflow_batch, "PATIENCE", 0.0)
    emit(sink, [scalar(step=3), scalar(step=4)])
    assert [step for step, _ in run.rows("loss")] == [1, 2, 3]
    emit(sink, [scalar("many", 4, float(value)) for value in range(250)])
    assert len(run.rows("many")) + len(run.rows("loss")) == 203
    sink.close()
    assert run.rows("many") == [(4, float(value)) for value in range(250)]


@pytest.mark.parametrize(
    ("name", "most", "points"),
    [
        ("MOST_FILE_BYTES", 10, [text(words="more than ten bytes")]),
        ("LONGEST_RUN_TAG", 10, [text()]),
    ],
)
def test_a_batch_is_written_before_it_grows_too_large(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, most: int, points: list[Any]
) -> None:
    """Bytes of files and of the run's tag are limits of a batch as well (PROT-10)."""
    monkeypatch.setattr(mlflow_batch, name, most)
    emit(run.sink(), points)
    assert len(read_mlflow(run.folder)) == len(points)


def test_what_mlflow_does_not_take_is_refused_with_a_count(run: Run) -> None:
    """A batch for a run that was deleted meanwhile refuses, and close closes all the same (PROT-5, PROT-6)."""
    sink, other = run.sink(), run.sink()
    emit(sink, [scalar(), scalar(step=2)])
    emit(other, [scalar("other")])
    run.client.delete_run(run.id)
    refusal = refused(sink.flush)
    assert (refusal.code, refusal.fields["points"]) == ("tracker_sink_write_failed", 2)
    assert refused(other.close).code == "tracker_sink_write_failed"
    assert refused(other.flush).code == "tracker_sink_closed"
    other.close()
    run.client.restore_run(run.id)
    emit(sink, [scalar(step=3)])
    sink.close()
    assert run.rows("loss") == [(3, 0.5)] and run.rows("other") == []


@pytest.mark.parametrize("written", [True, False])
def test_an_interrupt_loses_nothing(run: Run, monkeypatch: pytest.MonkeyPatch, written: bool) -> None:
    """What Ctrl-C kept from being written, or came just behind, is there once after the next flush (PROT-5)."""
    sink = run.sink()
    emit(sink, [scalar(), text()])
    real = run.client.log_artifacts

    def interrupted(*arguments: Any) -> None:
        if written:
            real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run.client, "log_artifacts", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sink.flush()
    sink.close()
    assert run.rows("loss") == [(1, 0.5)] and len(read_mlflow(run.folder)) == 2


def test_a_closed_sink_takes_nothing_and_leaves_the_run_alone(run: Run) -> None:
    """After close every call refuses, close may be repeated, and the run still runs (PROT-6, PROT-11, MLFLOW-1)."""
    sink = run.sink()
    assert sink.relay_state().state == "computed"
    emit(sink, [scalar()])
    sink.close()
    sink.close()
    for point in (scalar(), text(words="\ud800"), histogram("no@name")):
        assert refused(emit, sink, [point]).code == "tracker_sink_closed"
    assert refused(sink.flush).code == "tracker_sink_closed"
    assert sink.relay_state().state == "emitted" and "acknowledged 1" in sink.relay_state().evidence
    assert run.client.get_run(run.id).info.status == "RUNNING"


def test_text_without_a_form_in_utf8_is_refused(run: Run) -> None:
    """A lone surrogate is not replaced (POINT-3)."""
    assert refused(run.sink().emit_text, text(words="\ud800")).code == "tracker_value_unsupported"


def test_a_forked_child_writes_nothing(run: Run) -> None:
    """The child's calls refuse, its close is silent, and the parent's points are there once (PROT-10)."""
    sink = run.sink()
    emit(sink, [scalar()])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            codes = {refused(emit, sink, [scalar(step=2)]).code, refused(sink.flush).code}
            sink.close()
            code = 0 if codes == {"tracker_sink_forked"} and sink.last_step() is None else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    sink.close()
    assert run.rows("loss") == [(1, 0.5)]


def test_the_last_step_of_a_resumed_run_is_known(run: Run) -> None:
    """None for a run without metrics, else the largest step of any, also after close (PROT-11)."""
    sink = run.sink()
    assert sink.last_step() is None
    emit(sink, [scalar(step=7), scalar("other", 2**53 + 1), scalar(step=3)])
    assert sink.last_step() == 2**53 + 1
    sink.close()
    assert sink.last_step() == run.sink().last_step() == 2**53 + 1


def test_only_a_live_run_is_taken(run: Run) -> None:
    """No client, no run, an unknown and a deleted run refuse at attach (MLFLOW-1, PROT-11)."""
    told = [
        refused(MLflowSink, object(), run_id=run.id),
        refused(MLflowSink, json),
        refused(MLflowSink, run.client),
        refused(MLflowSink, run.client, run_id="0" * 32),
    ]
    run.client.delete_run(run.id)
    told.append(refused(run.sink))
    assert {refusal.code for refusal in told} == {"tracker_sink_settings_invalid"}
    assert [refusal.fields["setting"] for refusal in told] == ["client", "client", "run_id", "run_id", "run_id"]


def test_the_fluent_module_gives_its_active_run(run: Run) -> None:
    """The module, or nothing, means the active run; without one the sink starts none (MLFLOW-1)."""
    mlflow.set_tracking_uri(f"sqlite:///{run.folder}/mlflow.db")
    try:
        for arguments in ((), (mlflow,)):
            assert refused(MLflowSink, *arguments).fields["setting"] == "run_id"
        # An existing run: a new one would ask git for the program's version.
        with mlflow.start_run(run_id=run.id):
            for step, arguments in enumerate(((), (mlflow,))):
                sink = MLflowSink(*arguments)
                emit(sink, [scalar(step=step)])
                sink.close()
            assert mlflow.active_run().info.run_id == run.id
        named = MLflowSink(mlflow, run_id=run.id)
        emit(named, [scalar(step=2)])
        named.close()
    finally:
        mlflow.set_tracking_uri(None)
    assert [step for step, _ in run.rows("loss")] == [0, 1, 2]


def test_a_missing_package_names_its_extra(program: Callable[..., Any]) -> None:
    """Without MLflow the sink refuses and names the extra; importing the module needs no MLflow (PROT-9)."""
    finished = program(
        """
import json, sys
import reference_sinks.mlflow_sink
clean = "mlflow" not in sys.modules
sys.modules["mlflow"] = None
from torchlens_conformance.protocol import Refusal
try:
    reference_sinks.mlflow_sink.MLflowSink()
except Refusal as refusal:
    print(json.dumps([clean, refusal.code, refusal.fields["extra"]]))
"""
    )
    assert finished.printed == [True, "tracker_sink_unavailable", "mlflow"]


def test_the_database_is_closed_to_no_one(run: Run) -> None:
    """A sink that holds gathered points holds no lock: others write the same database meanwhile (PROT-10)."""
    sink = run.sink()
    emit(sink, [scalar()])
    with sqlite3.connect(run.folder / "mlflow.db", timeout=0) as database:
        database.execute("UPDATE runs SET name = 'renamed'")
    sink.close()
    assert run.rows("loss") == [(1, 0.5)]
