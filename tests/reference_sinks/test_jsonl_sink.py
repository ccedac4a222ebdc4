"""JSONLSink: what stands in the file, who may write to it, and what it refuses."""

from __future__ import annotations

import copy
import gc
import json
import math
import os
import pickle
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference_sinks import JSONLSink
from reference_sinks.jsonl_rows import _encoded_edges, encode_histogram, encode_point, encode_scalar, encode_text
from reference_sinks.readers import read_jsonl
from torchlens_conformance.protocol import (
    CAPABILITY_METHODS,
    EventPoint,
    GraphPoint,
    HistogramPoint,
    KnowsLastStep,
    Point,
    Refusal,
    ScalarPoint,
    Sink,
    TextPoint,
    advertised_capabilities,
    point_to_row,
)

from .jsonl_points import ONE_OF_EACH, anything, emit, same

ENCODERS: dict[type, Callable[[Any], bytes]] = {
    ScalarPoint: encode_scalar,
    HistogramPoint: encode_histogram,
    TextPoint: encode_text,
}


def refuse_constant(token: str) -> NoReturn:
    """Fail on NaN and Infinity, which are no JSON."""
    raise AssertionError(f"{token} is not standard JSON")


def strict_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, by a parser that knows nothing of this format."""
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b""
    return [json.loads(line, parse_constant=refuse_constant) for line in lines]


def refused(call: Callable[..., object], *arguments: object, **keywords: object) -> Refusal:
    """Return the refusal that a call raises."""
    with pytest.raises(Refusal) as caught:
        call(*arguments, **keywords)
    return caught.value


def open_descriptors() -> int:
    """Return how many files this process holds open."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_a_file_has_header_rows_and_footer(tmp_path: Path) -> None:
    """First comes a row with format, version and encoding, then the points, last a footer (JSONL-1)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    emit(sink, ONE_OF_EACH)
    sink.close()
    header, *rows, footer = strict_rows(sink.path)
    assert header == {"format": "torchlens.trackers.jsonl.v1", "version": 1, "nonfinite": "$float"}
    assert rows == [point_to_row(point) for point in ONE_OF_EACH]
    assert footer == {"kind": "closed"}


def test_all_capabilities_are_offered(tmp_path: Path) -> None:
    """The sink offers all eight words with their methods, and the hook that tells the last step (PROT-2, PROT-11)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    assert advertised_capabilities(sink) == set(CAPABILITY_METHODS)
    assert isinstance(sink, Sink) and isinstance(sink, KnowsLastStep)
    sink.close()


@given(anything)
def test_a_line_says_what_the_row_says(point: Point) -> None:
    """A fast line parses, strictly, to the protocol's row: types, signs, order of keys (JSONL-1, JSONL-3)."""
    line = ENCODERS.get(type(point), encode_point)(point)
    parsed = json.loads(line, parse_constant=refuse_constant)
    assert json.dumps(parsed) == json.dumps(point_to_row(point))
    assert line.isascii() and line.endswith(b"}\n") and len(line.decode().splitlines()) == 1


@settings(max_examples=30)
@given(st.lists(anything, max_size=8))
def test_every_point_returns_bit_for_bit(points: list[Point]) -> None:
    """What was emitted is what is read, in order, whatever the point holds (JSONL-1, JSONL-3, POINT-3)."""
    with tempfile.TemporaryDirectory() as folder:
        sink = JSONLSink(Path(folder) / "points.jsonl")
        emit(sink, points)
        sink.close()
        result = read_jsonl(sink.path)
    assert same(result, points)
    assert (result.unplaced, result.torn, result.closed) == ((), None, True)


@pytest.mark.parametrize("value", [-0.0, 5e-324, 1e308, 0.1, 1e16, 1e22, 16777217, 2**53 + 1, -(2**63) - 1, 10**400])
def test_hard_numbers_keep_every_bit(tmp_path: Path, value: int | float) -> None:
    """Signed zero, the smallest float, large floats and integers of any size return with their type (JSONL-3)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    sink.emit_scalar(ScalarPoint("a", 0, value))
    sink.close()
    assert same(read_jsonl(sink.path), [ScalarPoint("a", 0, value)])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nonfinite_numbers_are_standard_json(tmp_path: Path, value: float) -> None:
    """NaN and the infinities are strict JSON in the file and floats again when read (JSONL-3)."""
    points = [ScalarPoint("a", 0, value), HistogramPoint("h", 0, (1,), (0.0, 1.0), {"num": 1, "max": value})]
    sink = JSONLSink(tmp_path / "points.jsonl")
    emit(sink, points)
    sink.close()
    assert strict_rows(sink.path)[1]["value"].keys() == {"$float"}
    assert same(read_jsonl(sink.path), points)


def test_endless_integers_are_refused(tmp_path: Path) -> None:
    """An integer that Python does not turn into text refuses by name and leaves no trace (POINT-3, PROT-9)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    try:
        str(10**5000)
    except ValueError:
        assert refused(sink.emit_scalar, ScalarPoint("a", 0, 10**5000)).code == "tracker_value_unsupported"
    sink.emit_scalar(ScalarPoint("a", 1, 1.0))
    sink.close()
    assert read_jsonl(sink.path).points[-1] == ScalarPoint("a", 1, 1.0)


def test_an_object_that_is_no_point_is_refused(tmp_path: Path) -> None:
    """Each method refuses a stranger by name and writes nothing (PROT-9)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    for method in CAPABILITY_METHODS.values():
        assert refused(getattr(sink, method), object()).code == "point_field_invalid"
    sink.close()
    assert read_jsonl(sink.path).points == ()


def test_edges_are_remembered_by_identity_and_bounded(tmp_path: Path) -> None:
    """A hundred grids of their own are written right, and only some of them are kept in memory (PROT-10, JSONL-1)."""
    # No edges outlive their point, so that a later grid can get the place in memory of an earlier one.
    grids = [[float(edge) for edge in range(step, step + 60)] for step in range(100)]
    sink = JSONLSink(tmp_path / "points.jsonl")
    for step, grid in enumerate(grids):
        emit(sink, [HistogramPoint("h", step, (step,) * 59, tuple(grid))] * 2)
    sink.close()
    edges = [list(point.edges) for point in read_jsonl(sink.path) if isinstance(point, HistogramPoint)]
    assert edges == [grid for grid in grids for _ in range(2)]
    assert len(_encoded_edges) <= 32
    encode_histogram(HistogramPoint("h", 0, (0,) * 5000, tuple(map(float, range(5001)))))
    assert all(len(edges) < 5000 for edges, _ in _encoded_edges.values())


def test_a_closed_sink_refuses(tmp_path: Path) -> None:
    """After close every emit and flush refuses, close may be called again, the file stays (PROT-6, PROT-11)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    sink.close()
    before = sink.path.read_bytes()
    for point in ONE_OF_EACH:
        assert refused(emit, sink, [point]).code == "tracker_sink_closed"
    assert refused(sink.flush).code == "tracker_sink_closed"
    sink.close()
    assert sink.path.read_bytes() == before


def test_rows_are_there_before_flush_and_close(tmp_path: Path) -> None:
    """What an emit has returned for is read at once, while the sink goes on (JSONL-2, PROT-10)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    for count, point in enumerate(ONE_OF_EACH, 1):
        emit(sink, [point])
        result = read_jsonl(sink.path)
        assert same(result, ONE_OF_EACH[:count])
        assert (result.torn, result.closed) == (None, False)
    sink.flush()
    sink.close()
    assert read_jsonl(sink.path).closed is True


@pytest.mark.parametrize("content", [b"x", b"\n", b'{"format": "torchlens.trackers.jsonl.v1", "version": 1}\n'])
def test_an_existing_path_is_not_touched(tmp_path: Path, content: bytes) -> None:
    """Whatever a path holds stays there unless asked otherwise; an empty file counts as free (JSONL-4)."""
    path = tmp_path / "points.jsonl"
    path.write_bytes(content)
    refusal = refused(JSONLSink, path)
    assert (refusal.code, refusal.fields["path"]) == ("tracker_sink_path_exists", str(path))
    assert path.read_bytes() == content
    path.write_bytes(b"")
    JSONLSink(path).close()
    assert read_jsonl(path).closed is True


def test_overwrite_starts_again(tmp_path: Path) -> None:
    """overwrite=True drops what was there, of whatever kind, and overwrite with resume refuses (JSONL-4)."""
    path = tmp_path / "points.jsonl"
    path.write_text("a letter to a friend")
    assert refused(JSONLSink, path, resume=True, overwrite=True).code == "tracker_sink_settings_invalid"
    assert path.read_text() == "a letter to a friend"
    sink = JSONLSink(path, overwrite=True)
    emit(sink, ONE_OF_EACH[:1])
    sink.close()
    assert same(read_jsonl(path), ONE_OF_EACH[:1])


def test_resume_continues_in_a_new_segment(tmp_path: Path) -> None:
    """A resumed file gives the points of both segments in order, and the notes name the segments (JSONL-4)."""
    path = tmp_path / "points.jsonl"
    for start in (0, 4):
        sink = JSONLSink(path, resume=True)
        emit(sink, ONE_OF_EACH[start : start + 4])
        sink.close()
    result = read_jsonl(path)
    assert same(result, ONE_OF_EACH[:8])
    assert (result.torn, result.closed) == (None, True)
    assert result.notes == ("segment 1 starts in row 1, before point 0", "segment 2 starts in row 7, before point 4")


def test_the_last_step_is_known_across_resumes(tmp_path: Path) -> None:
    """last_step is the largest step of the whole file, not the latest one (PROT-11)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    assert sink.last_step() is None
    sink.emit_graph(GraphPoint({"nodes": []}))
    assert sink.last_step() is None
    sink.emit_text(TextPoint("t", 0, ""))
    assert sink.last_step() == 0
    sink.emit_event(EventPoint("e", 2**63 - 1, "far"))
    sink.emit_scalar(ScalarPoint("a", 7, 1.0))
    assert sink.last_step() == 2**63 - 1
    sink.close()
    resumed = JSONLSink(sink.path, resume=True)
    assert resumed.last_step() == 2**63 - 1
    resumed.close()
    assert resumed.last_step() == 2**63 - 1


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"a letter to a friend", "reader_file_foreign"),
        (b"{}\n", "reader_file_foreign"),
        (b"\n\n", "reader_file_empty"),
        (b'{"format":"torchlens.trackers.jsonl.v2","ver', "reader_file_truncated"),
        (b'{"format":"torchlens.trackers.jsonl.v2","version":2}\n', "reader_version_unsupported"),
        (b'{"format":"torchlens.trackers.jsonl.v1","version":1}\nx\n{}\n', "reader_file_corrupt"),
    ],
)
def test_resume_refuses_what_it_cannot_continue(tmp_path: Path, content: bytes, code: str) -> None:
    """A foreign, later or damaged file is refused, left as it is, and not kept locked (JSONL-4)."""
    path = tmp_path / "points.jsonl"
    path.write_bytes(content)
    before = open_descriptors()
    assert refused(JSONLSink, path, resume=True).code == code
    assert (path.read_bytes(), open_descriptors()) == (content, before)
    JSONLSink(path, overwrite=True).close()


def test_two_sinks_on_one_path_refuse(tmp_path: Path) -> None:
    """While a sink is open no other takes its path, under no name and with no option (JSONL-2)."""
    first = JSONLSink(tmp_path / "points.jsonl")
    (tmp_path / "link.jsonl").symlink_to(first.path)
    before = open_descriptors()
    for keywords in ({}, {"resume": True}, {"overwrite": True}):
        for name in ("points.jsonl", "link.jsonl"):
            refusal = refused(JSONLSink, tmp_path / name, **keywords)
            assert (refusal.code, refusal.fields["path"]) == ("tracker_sink_path_locked", str(tmp_path / name))
    assert open_descriptors() == before
    first.emit_scalar(ScalarPoint("a", 1, 1.0))
    first.close()
    JSONLSink(first.path, resume=True).close()
    assert len(read_jsonl(first.path)) == 1


def test_sinks_on_two_paths_do_not_meet(tmp_path: Path) -> None:
    """A second sink on another place works beside the first (PROT-10)."""
    sinks = [JSONLSink(tmp_path / name / "points.jsonl") for name in ("one", "two")]
    for step in range(10):
        sinks[step % 2].emit_scalar(ScalarPoint("a", step, float(step)))
    for sink in sinks:
        sink.close()
    assert [[point.step for point in read_jsonl(sink.path)] for sink in sinks] == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]


def test_another_process_cannot_take_the_path(tmp_path: Path, program: Callable[..., Any]) -> None:
    """The lock holds across processes (JSONL-2)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    code = """
import json, sys
from reference_sinks import JSONLSink
from torchlens_conformance.protocol import Refusal
try:
    JSONLSink(sys.argv[1], overwrite=True).close()
    print(json.dumps("taken"))
except Refusal as refusal:
    print(json.dumps(refusal.code))
"""
    assert program(code, str(sink.path)).printed == "tracker_sink_path_locked"
    sink.close()
    assert program(code, str(sink.path)).printed == "taken"


def test_threads_share_a_sink(tmp_path: Path) -> None:
    """Rows of several threads stay whole, none is lost, and each thread's rows keep their order (PROT-10)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    start = threading.Barrier(4)

    def write(tag: str) -> None:
        start.wait()
        for step in range(300):
            sink.emit_scalar(ScalarPoint(tag, step, 1.0))
            sink.emit_text(TextPoint(tag, step, tag * 2000))

    threads = [threading.Thread(target=write, args=(tag,)) for tag in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.close()
    result = read_jsonl(sink.path)
    for tag in "abcd":
        mine = [point.step for point in result if isinstance(point, ScalarPoint) and point.tag == tag]
        assert mine == list(range(300))
    assert len(result) == 2400 and result.closed


def test_a_sink_is_neither_copied_nor_pickled(tmp_path: Path) -> None:
    """Copying and pickling refuse with a reason, since the lock belongs to one object (PROT-10)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            attempt(sink)
    sink.close()


def test_a_forgotten_sink_frees_its_path(tmp_path: Path) -> None:
    """A sink that goes away without close leaves its rows, no footer, no descriptor and no lock (PROT-6)."""
    before = open_descriptors()
    sink = JSONLSink(tmp_path / "points.jsonl")
    path = sink.path
    sink.emit_scalar(ScalarPoint("a", 1, 1.0))
    del sink
    assert open_descriptors() == before
    result = read_jsonl(path)
    assert (len(result), result.closed, result.torn) == (1, False, None)
    JSONLSink(path, resume=True).close()
