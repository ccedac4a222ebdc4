"""read_tensorboard over real event files, against TensorBoard's own accumulator, and over damaged ones."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("tensorboard")

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from reference_sinks import TensorBoardSink
from reference_sinks.readers import read_tensorboard
from reference_sinks.readers.tensorboard import largest_step
from torchlens_conformance.protocol import (
    WANDB_SAFE_DESCRIPTOR,
    GraphPoint,
    HistogramPoint,
    Refusal,
    ScalarPoint,
    TextPoint,
)
from torchlens_conformance.protocol.compare import same_value


def write_events(logdir: Path, events: Iterable[dict[str, Any]], *, suffix: str = "") -> Path:
    """Write raw events with TensorBoard's own writer; return the file."""
    before = set(logdir.glob("*")) if logdir.exists() else set()
    writer = EventFileWriter(str(logdir), filename_suffix=suffix)
    for event in events:
        writer.add_event(Event(**event))
    writer.close()
    (file,) = set(logdir.glob("*")) - before
    return file


def summary_event(step: int, **value: Any) -> dict[str, Any]:
    """Return an event with one value."""
    return {"step": step, "summary": Summary(value=[value])}


def refused(path: Path, **arguments: Any) -> Refusal:
    """Return the refusal that reading raises."""
    with pytest.raises(Refusal) as caught:
        read_tensorboard(path, **arguments)
    return caught.value


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an event file of a few hundred bytes."""
    logdir = tmp_path_factory.mktemp("small")
    sink = TensorBoardSink(logdir)
    sink.emit_scalar(ScalarPoint("a", 1, 0.5))
    sink.emit_histogram(HistogramPoint("h", 2, (1, 2), (0.0, 1.0, 2.0), {"min": 0.5, "num": 3}))
    sink.emit_text(TextPoint("t", 3, "text"))
    sink.emit_scalar(ScalarPoint("a", 4, math.nan))
    sink.close()
    (file,) = logdir.iterdir()
    return file


def test_edges_near_the_end_of_float64_are_read(tmp_path: Path) -> None:
    """A histogram whose edges square to infinity comes back as it was sent (TB-1, POINT-2)."""
    point = HistogramPoint("h", 1, (3, 4), (1e300, 2e300, 1.7e308), {"num": 7})
    sink = TensorBoardSink(tmp_path)
    sink.emit_histogram(point)
    sink.close()
    (got,) = read_tensorboard(tmp_path).points
    assert isinstance(got, HistogramPoint)
    assert (got.counts, got.edges) == (point.counts, point.edges)


def test_every_event_is_read(tmp_path: Path) -> None:
    """25,000 scalars and 600 histograms on one tag each: all of them, in order, no sample (FID-1)."""
    counts = tuple(range(497))
    sink = TensorBoardSink(tmp_path)
    for step in range(25_000):
        sink.emit_scalar(ScalarPoint("s", step, float(step)))
    for step in range(600):
        sink.emit_histogram(HistogramPoint("h", step, counts, WANDB_SAFE_DESCRIPTOR.edges))
    sink.close()
    result = read_tensorboard(tmp_path)
    scalars = [point for point in result if isinstance(point, ScalarPoint)]
    assert [point.step for point in scalars] == [point.value for point in scalars] == list(range(25_000))
    histograms = [point for point in result if isinstance(point, HistogramPoint)]
    assert [point.step for point in histograms] == list(range(600))
    assert {(point.counts, point.edges) for point in histograms} == {(counts, WANDB_SAFE_DESCRIPTOR.edges)}
    assert (result.reader, result.unplaced, result.torn, result.closed) == ("read_tensorboard", (), None, None)


@pytest.mark.parametrize("form", ["float32", "float64"])
def test_agrees_point_by_point_with_the_accumulator(tmp_path: Path, form: str) -> None:
    """TensorBoard's own accumulator without sampling reads the same points (FID-1)."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    generator = random.Random(5)
    sink = TensorBoardSink(tmp_path, scalar_form=form)
    for step in range(400):
        sink.emit_scalar(ScalarPoint(f"s{step % 3}", step // 3, generator.choice([generator.gauss(0, 1e3), math.inf])))
        counts = tuple(generator.randrange(1000) for _ in range(9))
        edges = tuple(sorted(generator.gauss(0, 1) for _ in range(10)))
        sink.emit_histogram(HistogramPoint("h", step, counts, edges, {"min": edges[0], "max": 3.0, "num": sum(counts)}))
        sink.emit_text(TextPoint("t", step, f"text {step}"))
    sink.close()
    accumulator = EventAccumulator(
        str(tmp_path),
        size_guidance={key: 0 for key in ("scalars", "tensors", "histograms", "compressedHistograms")},
        purge_orphaned_data=False,
    )
    accumulator.Reload()
    got = read_tensorboard(tmp_path)
    for tag in ("s0", "s1", "s2"):
        ours = [(point.step, point.value) for point in got if isinstance(point, ScalarPoint) and point.tag == tag]
        if form == "float32":
            theirs = [(event.step, event.value) for event in accumulator.Scalars(tag)]
        else:
            theirs = [(e.step, tensor_util.make_ndarray(e.tensor_proto).item()) for e in accumulator.Tensors(tag)]
        assert len(ours) == len(theirs) >= 133
        assert all(a[0] == b[0] and same_value(a[1], b[1]) for a, b in zip(ours, theirs))
    histograms = [point for point in got if isinstance(point, HistogramPoint)]
    for point, event in zip(histograms, accumulator.Histograms("h"), strict=True):
        value = event.histogram_value
        assert (point.step, list(point.edges), [0, *point.counts]) == (event.step, value.bucket_limit, value.bucket)
        assert (point.summary["min"], point.summary["max"], point.summary["num"]) == (value.min, value.max, value.num)
    texts = [(point.step, point.text) for point in got if isinstance(point, TextPoint)]
    theirs_text = accumulator.Tensors("t/text_summary")
    assert texts == [(event.step, event.tensor_proto.string_val[0].decode()) for event in theirs_text]


def test_a_file_cut_at_every_byte_reads_up_to_its_last_whole_record(small_file: Path, tmp_path: Path) -> None:
    """A cut names its offset and loses nothing before it; without allow_torn it refuses (FID-1)."""
    data = small_file.read_bytes()
    whole = read_tensorboard(small_file).points
    borders = [0]
    while borders[-1] < len(data):
        borders.append(borders[-1] + struct.unpack_from("<Q", data, borders[-1])[0] + 16)
    cut = tmp_path / "events.out.tfevents.cut"
    for size in range(1, len(data)):
        cut.write_bytes(data[:size])
        before = max(border for border in borders if border <= size)
        points = whole[: max(borders.index(before) - 1, 0)]
        result = read_tensorboard(cut, allow_torn=True)
        assert [repr(point) for point in result.points] == [repr(point) for point in points]
        if size in borders:
            assert result.torn is None
            assert len(read_tensorboard(cut).points) == len(points)
        else:
            assert result.torn is not None and f"byte {before};" in result.torn
            refusal = refused(cut)
            assert refusal.code == "reader_file_truncated"
            assert (refusal.fields["offset"], refusal.fields["points_before"]) == (before, len(points))


def test_every_flipped_byte_is_found(small_file: Path, tmp_path: Path) -> None:
    """No flipped byte, wherever it is, gives a result: damage is always named (FID-1)."""
    data = small_file.read_bytes()
    flipped = tmp_path / "events.out.tfevents.flipped"
    first = struct.unpack_from("<Q", data)[0] + 16
    for position in range(len(data)):
        flipped.write_bytes(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])
        refusal = refused(flipped, allow_torn=True)
        assert refusal.code == ("reader_file_foreign" if position < 12 else "reader_file_corrupt")
        assert refusal.fields["offset"] <= position  # type: ignore[operator]
        if position < first:
            assert refusal.fields["points_before"] == 0


def test_places_that_hold_no_events_refuse_by_name(tmp_path: Path) -> None:
    """Nothing there, an empty folder, an empty file and foreign files each have their own refusal (FID-1)."""
    assert refused(tmp_path / "none").code == "reader_path_missing"
    assert refused(tmp_path).code == "reader_file_empty"
    file = tmp_path / "events.out.tfevents.1"
    file.write_bytes(b"")
    assert refused(tmp_path).code == refused(file).code == "reader_file_empty"
    for content in (b"hello, world, this is text", b"hello", b"\x89PNG\r\n\x1a\n" + bytes(100)):
        file.write_bytes(content)
        assert refused(file, allow_torn=True).code == "reader_file_foreign"


def test_a_record_file_of_something_else_is_foreign(tmp_path: Path) -> None:
    """Well framed records that are no events, or do not start with a version, are foreign (FID-1)."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    for content in (b"\xff\xff\xff", Event(step=3, summary=Summary()).SerializeToString()):
        file = tmp_path / "records"
        with file.open("wb") as stream:
            RecordWriter(stream).write(content)
        assert refused(file).code == "reader_file_foreign"


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    """An event file of a later version is refused by name (FID-1)."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    file = tmp_path / "events.out.tfevents.1"
    with file.open("wb") as stream:
        RecordWriter(stream).write(Event(file_version="brain.Event:3").SerializeToString())
    assert refused(file).code == "reader_version_unsupported"


def test_files_are_read_in_the_order_they_were_numbered(tmp_path: Path) -> None:
    """File 10 of a process comes after file 9, and sub-folders come last with a note (FID-1)."""
    for folder, number, step in ((tmp_path / "b", 1, 7), (tmp_path, 10, 3), (tmp_path, 9, 2), (tmp_path / "a", 2, 5)):
        file = write_events(folder, [summary_event(step, tag="s", simple_value=1.0)])
        file.rename(folder / f"events.out.tfevents.100.host.1.{number}")
    result = read_tensorboard(tmp_path)
    assert [point.step for point in result if isinstance(point, ScalarPoint)] == [2, 3, 5, 7]
    assert result.notes == (
        "points 2 to 2 come from the sub-folder 'a'",
        "points 3 to 3 come from the sub-folder 'b'",
    )
    assert largest_step(tmp_path) == 3


def test_what_is_no_point_is_told(tmp_path: Path) -> None:
    """Values and events outside the protocol are unplaced with their content, not dropped (FID-1)."""
    fraction = {"min": -1.0, "num": 3.0, "bucket_limit": [-1.0, 0.0, 1.0], "bucket": [0.0, 1.5, 1.5]}
    vector = {"dtype": "DT_FLOAT", "float_val": [1.0, 2.0], "tensor_shape": {"dim": [{"size": 2}]}}
    write_events(
        tmp_path,
        [
            summary_event(1, tag="fraction", histo=fraction),
            summary_event(2, tag="edge", histo={"bucket_limit": [0.0, math.inf], "bucket": [1.0, 1.0]}),
            summary_event(3, tag="order", histo={"bucket_limit": [1.0, 0.5], "bucket": [1.0, 1.0]}),
            summary_event(4, tag="none", histo={}),
            summary_event(5, tag="image", image={"encoded_image_string": b"GIF89a"}),
            summary_event(6, tag="audio", audio={"encoded_audio_string": b"RIFF"}),
            summary_event(-7, tag="negative", simple_value=1.0),
            summary_event(8, tag="vector", tensor=vector),
            summary_event(8, tag="broken", tensor={"dtype": "DT_FLOAT", "float_val": [1.0, 2.0]}),
            {"step": 9, "session_log": {"status": "START"}},
            {"step": 10, "tagged_run_metadata": {"tag": "step1", "run_metadata": b""}},
            {"step": 11, "graph_def": b"\xff"},
            summary_event(12, tag="last", simple_value=1.0),
        ],
    )
    result = read_tensorboard(tmp_path)
    assert result.points == (ScalarPoint("last", 12, 1.0),)
    assert [item.reason for item in result.unplaced] == [
        "a histogram whose counts are not integers",
        "a histogram with an edge that is not finite",
        "a histogram whose edges do not increase",
        "a histogram without buckets",
        "an image that is no plain PNG",
        "a value of kind audio",
        "a value that no point can hold",
        "a tensor that is no single number",
        "a tensor that does not decode",
        "an event of kind tagged_run_metadata",
        "a graph that does not parse",
    ]
    content = result.unplaced[0].content
    assert content["tag"] == "fraction" and content["step"] == 1
    assert (content["counts"], content["edges"]) == ((1.5, 1.5), (-1.0, 0.0, 1.0))
    assert content["summary"]["num"] == 3  # type: ignore[index]


@pytest.mark.parametrize(
    ("histogram", "edges", "counts", "note"),
    [
        ({"min": -3.0, "bucket_limit": [-1.0, 1.0], "bucket": [2.0, 1.0]}, (-3.0, -1.0, 1.0), (2, 1), "from min"),
        ({"min": -1.0, "bucket_limit": [-1.0, 1.0], "bucket": [2.0, 1.0]}, None, (2, 1), "right below"),
        ({"min": math.nan, "bucket_limit": [-1.0, 1.0], "bucket": [2.0, 1.0]}, None, (2, 1), "right below"),
        ({"bucket_limit": [1.0, 2.0], "bucket": [2.0, 1.0]}, None, (2, 1), "right below"),
        ({"bucket_limit": [-1.0, 1.0], "bucket": [0.0, 1.0]}, (-1.0, 1.0), (1,), None),
        ({"min": -2.0, "bucket_limit": [1.0], "bucket": [0.0]}, (-2.0, 1.0), (0,), "from min"),
    ],
)
def test_the_left_edge_is_explicit_or_told_as_inferred(
    tmp_path: Path,
    histogram: dict[str, Any],
    edges: tuple[float, ...] | None,
    counts: tuple[int, ...],
    note: str | None,
) -> None:
    """An empty first bucket gives the left edge; otherwise it is inferred and a note says how (TB-1)."""
    write_events(tmp_path, [summary_event(1, tag="h", histo=histogram)])
    result = read_tensorboard(tmp_path)
    (point,) = result.points
    assert isinstance(point, HistogramPoint)
    if edges is None:
        limits = histogram["bucket_limit"]
        edges = (math.nextafter(limits[0], -math.inf), *limits)
    assert (point.edges, point.counts) == (edges, counts)
    assert [note in text for text in result.notes] == ([True] if note else []) if note else result.notes == ()


def test_a_plugin_named_once_holds_for_the_tag(tmp_path: Path) -> None:
    """Writers that say the plugin with the first value only are read right, text without suffix too (FID-1)."""

    def text(content: str, **further: Any) -> dict[str, Any]:
        return {"tag": "note", "tensor": {"dtype": "DT_STRING", "string_val": [content.encode()]}, **further}

    plugin = {"metadata": {"plugin_data": {"plugin_name": "text"}}}
    number = {"dtype": "DT_INT64", "int64_val": [2**53 + 1]}
    events = [summary_event(1, **text("first", **plugin)), summary_event(2, **text("second"))]
    write_events(tmp_path, [*events, summary_event(3, tag="n", tensor=number)])
    result = read_tensorboard(tmp_path)
    assert result.points == (
        TextPoint("note", 1, "first"),
        TextPoint("note", 2, "second"),
        ScalarPoint("n", 3, 2**53 + 1),
    )
    assert result.notes == ()


def test_a_graph_with_foreign_attributes_is_read(tmp_path: Path) -> None:
    """A graph of another writer arrives with names, ops, inputs and every attribute, odd ones as text (GRAPH-1)."""
    definition = GraphDef()
    definition.node.add(name="x", op="Placeholder", attr={"shape": {"shape": {"dim": [{"size": 3}]}}})
    definition.node.add(name="y", op="aten::relu", input=["x", "^z"], attr={"raw": {"s": b"\xff"}, "k": {"i": -1}})
    write_events(tmp_path, [{"graph_def": definition.SerializeToString()}])
    nodes = [
        {"name": "x", "op": "Placeholder", "inputs": [], "attributes": {"shape": "shape { dim { size: 3 } }"}},
        {"name": "y", "op": "aten::relu", "inputs": ["x", "^z"], "attributes": {"k": -1, "raw": b"\xff"}},
    ]
    assert read_tensorboard(tmp_path).points == (GraphPoint({"nodes": nodes}),)


def test_reading_needs_neither_torch_nor_tensorflow(program: Callable[..., Any], small_file: Path) -> None:
    """The reader loads no torch and no tensorflow, so a fresh process reads quickly (FID-1)."""
    finished = program(
        """
import json, sys
from reference_sinks.readers import read_tensorboard
count = len(read_tensorboard(sys.argv[1]))
print(json.dumps([count, sorted({"torch", "tensorflow"} & set(sys.modules))]))
""",
        str(small_file),
    )
    assert finished.printed == [4, []]


def test_a_missing_package_names_its_extra(program: Callable[..., Any], small_file: Path) -> None:
    """Without tensorboard the reader refuses and names the extra (PROT-9)."""
    finished = program(
        """
import json, sys
sys.modules["google_crc32c"] = None
from reference_sinks.readers import read_tensorboard
from torchlens_conformance.protocol import Refusal
try:
    read_tensorboard(sys.argv[1])
except Refusal as refusal:
    print(json.dumps([refusal.code, refusal.fields["extra"]]))
""",
        str(small_file),
    )
    assert finished.printed == ["tracker_sink_unavailable", "tensorboard"]
