"""TensorBoardSink over real event files."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("tensorboard")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference_sinks import TensorBoardSink
from reference_sinks.readers import read_tensorboard
from torchlens_conformance.protocol import (
    CAPABILITY_METHODS,
    DEFAULT_DESCRIPTOR,
    GraphPoint,
    HistogramPoint,
    ImagePoint,
    Point,
    Refusal,
    ScalarPoint,
    TextPoint,
    advertised_capabilities,
)
from torchlens_conformance.protocol.compare import as_float32, same_value

SUMMARY = {"min": -0.9, "max": 0.4, "num": 7, "sum": 1.25, "sum_squares": 2.5}
INNER = HistogramPoint("p/hist/x", 5, (0, 3, 4, 0), (-2.0, -1.0, 0.0, 0.5, 2.0), SUMMARY)
OUTER = HistogramPoint("p/hist/x", 6, (1, 3, 4, 2), (-2.0, -1.0, 0.0, 0.5, 2.0), {**SUMMARY, "min": -1.5})
SPECIALS = (0.1, math.nan, math.inf, -math.inf, 5e-324, 1e300, -0.0, 16777217, 2**53, 3)


def emit(sink: TensorBoardSink, points: Iterable[Point]) -> None:
    """Hand points to the methods of their kinds."""
    for point in points:
        getattr(sink, CAPABILITY_METHODS[point.capability])(point)


def stored(logdir: Path, points: Iterable[Point], **settings_: Any) -> tuple[Point, ...]:
    """Return what a new sink on ``logdir`` has stored."""
    sink = TensorBoardSink(logdir, **settings_)
    emit(sink, points)
    sink.close()
    return read_tensorboard(logdir).points


def refused(call: Callable[[], object]) -> Refusal:
    """Return the refusal that a call raises."""
    with pytest.raises(Refusal) as caught:
        call()
    return caught.value


def test_advertises_what_it_has(tmp_path: Path) -> None:
    """Every advertised word has its method (PROT-1, PROT-2)."""
    sink = TensorBoardSink(tmp_path)
    assert advertised_capabilities(sink) == {"scalar", "raw_histogram", "text_manifest", "image", "graph"}
    sink.close()


@pytest.mark.parametrize("wire", ["leading-edge", "tensor"])
@pytest.mark.parametrize("point", [INNER, OUTER], ids=["empty-outside", "occupied-outside"])
def test_edge_forms_return_the_histogram_whole(tmp_path: Path, wire: str, point: HistogramPoint) -> None:
    """Counts and all edges return exactly in the two forms that carry the leftmost edge (TB-1)."""
    (got,) = stored(tmp_path, [point], histogram_wire=wire)
    assert isinstance(got, HistogramPoint)
    assert (got.tag, got.step, got.counts, got.edges) == (point.tag, point.step, point.counts, point.edges)
    assert got.summary == ({} if wire == "tensor" else point.summary)


@pytest.mark.parametrize("wire", ["plain", "trimmed"])
def test_limit_forms_return_a_run_of_the_edges(tmp_path: Path, wire: str) -> None:
    """Without a leading edge the occupied run returns, its left edge inferred from min (TB-1)."""
    first, last = stored(tmp_path, [INNER, OUTER], histogram_wire=wire)
    assert isinstance(first, HistogramPoint) and isinstance(last, HistogramPoint)
    if wire == "plain":
        # An empty first bucket reads as a leading edge: nothing but that empty bucket is lost.
        assert (first.counts, first.edges) == ((3, 4, 0), INNER.edges[1:])
    else:
        assert (first.counts, first.edges) == ((3, 4), (-0.9, 0.0, 0.5))
    assert (last.counts, last.edges) == (OUTER.counts, (-1.5, *OUTER.edges[1:]))
    assert first.summary == INNER.summary and last.summary == OUTER.summary


def test_trimmed_with_a_leading_edge_returns_exactly_the_occupied_run(tmp_path: Path) -> None:
    """The run of occupied buckets returns with all of its own edges (TB-1)."""
    first, last = stored(tmp_path, [INNER, OUTER], histogram_wire="trimmed-leading-edge")
    assert isinstance(first, HistogramPoint) and isinstance(last, HistogramPoint)
    assert (first.counts, first.edges) == ((3, 4), INNER.edges[1:4])
    assert (last.counts, last.edges) == (OUTER.counts, OUTER.edges)


def test_a_whole_grid_survives_with_counts_beyond_float32(tmp_path: Path) -> None:
    """513 buckets with counts past 2**24 return exactly (TB-1, GRID-1)."""
    counts = tuple((index * 7919) % 40_000_003 for index in range(513))
    point = HistogramPoint("h", 1, counts, DEFAULT_DESCRIPTOR.edges, {"min": -4e4})
    (got,) = stored(tmp_path, [point])
    assert isinstance(got, HistogramPoint)
    assert (got.counts, got.edges) == (counts, DEFAULT_DESCRIPTOR.edges)


def test_missing_summary_fields_are_not_invented(tmp_path: Path) -> None:
    """A field that was not sent does not come back where the buckets contradict a zero (POINT-2)."""
    edges = (1.0, 2.0, 4.0)
    sent = [
        HistogramPoint("none", 1, (3, 4), (-1.0, -0.5, -0.25)),
        HistogramPoint("some", 1, (0, 0, 4), (-1.0, 0.0, 0.5, 1.0), {"min": 0.5, "num": 4}),
        HistogramPoint("beside", 1, (3, 4), edges, {"max": 3.0}),
    ]
    none, some, beside = stored(tmp_path, sent)
    assert isinstance(none, HistogramPoint) and isinstance(some, HistogramPoint) and isinstance(beside, HistogramPoint)
    # A grid that does not reach zero contradicts no zero minimum: only the number of elements is known to be missing.
    assert none.summary == {"min": 0.0, "max": 0.0, "sum": 0.0, "sum_squares": 0.0}
    assert some.summary == {"min": 0.5, "num": 4}
    assert beside.summary == {"min": 0.0, "max": 3.0, "sum": 0.0, "sum_squares": 0.0}


def test_float32_form_rounds_as_documented(tmp_path: Path) -> None:
    """The default form returns the nearest float32, beyond its range an infinity, and every NaN as NaN (POINT-3)."""
    got = stored(tmp_path, [ScalarPoint("s", step, value) for step, value in enumerate(SPECIALS)])
    for value, point in zip(SPECIALS, got):
        assert isinstance(point, ScalarPoint)
        assert same_value(point.value, as_float32(value))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.tuples(st.integers(0, 2**63 - 1), st.floats() | st.integers(-(2**53), 2**53)), min_size=1))
def test_float64_form_is_exact(tmp_path_factory: pytest.TempPathFactory, values: list[tuple[int, float]]) -> None:
    """Every float, every NaN and every step returns bit for bit in the float64 form (POINT-3, TB-1)."""
    logdir = tmp_path_factory.mktemp("law")
    got = stored(logdir, [ScalarPoint("s", *pair) for pair in values], scalar_form="float64")
    assert [point.step for point in got if isinstance(point, ScalarPoint)] == [step for step, _ in values]
    assert all(same_value(point.value, pair[1]) for point, pair in zip(got, values) if isinstance(point, ScalarPoint))


def test_other_kinds_return_exactly(tmp_path: Path) -> None:
    """Texts, graphs and images return as they were sent, in order (TB-1)."""
    nodes = [
        {"name": "x", "op": "input", "inputs": []},
        {"name": "y", "op": "relu", "inputs": ["x"], "device": "cpu", "attributes": {"k": 3, "on": True, "f": 0.5}},
    ]
    sent = (
        TextPoint("run/note", 1, "line\n\0 é \U0001f600 NaN"),
        TextPoint("run/text_summary", 2**31, ""),
        GraphPoint({"nodes": nodes}),
        ImagePoint("i", 4, bytes(range(12)), (2, 2, 3), "uint8"),
        ImagePoint("i", 5, bytes(range(6)), (3, 2, 1), "uint8"),
        ImagePoint("i", 6, bytes(range(8)), (1, 2, 4), "uint8"),
    )
    assert stored(tmp_path, sent) == sent


@pytest.mark.parametrize(
    ("code", "point"),
    [
        ("tracker_value_unsupported", ScalarPoint("s", 1, 10**400)),
        ("tracker_value_unsupported", TextPoint("t", 1, "\ud800")),
        ("tracker_tag_unsafe", TextPoint("\ud800", 1, "t")),
        ("tracker_tag_unsafe", ScalarPoint("a/\udfff", 1, 1.0)),
        ("tracker_value_unsupported", HistogramPoint("h", 1, (2**53 + 1,), (0.0, 1.0))),
        ("tracker_value_unsupported", HistogramPoint("h", 1, (1,), (0.0, 1.0), {"sum": 10**400})),
        ("tracker_value_unsupported", ImagePoint("i", 1, b"\0\0", (1, 2), "uint8")),
        ("tracker_value_unsupported", ImagePoint("i", 1, b"\0\0\0\0", (1, 1, 1), "float32")),
        ("tracker_value_unsupported", GraphPoint({"nodes": [{"name": "x", "op": "y", "time": 3}]})),
        ("tracker_value_unsupported", GraphPoint({"nodes": [{"name": "x", "op": "y", "attributes": {"f": 0.1}}]})),
        ("tracker_value_unsupported", GraphPoint({"edges": []})),
    ],
)
def test_what_the_store_cannot_carry_is_refused(tmp_path: Path, code: str, point: Point) -> None:
    """A value that would come back changed is refused by name, and the sink goes on (POINT-3, PROT-9)."""
    sink = TensorBoardSink(tmp_path)
    assert refused(lambda: emit(sink, [point])).code == code
    sink.emit_scalar(ScalarPoint("after", 1, 1.0))
    sink.close()
    assert read_tensorboard(tmp_path).points == (ScalarPoint("after", 1, 1.0),)


def test_the_tensor_form_refuses_counts_that_no_float_holds(tmp_path: Path) -> None:
    """A count past 2**53 refuses in the tensor form too; 2**53 itself returns (POINT-3)."""
    point = HistogramPoint("h", 1, (2**53,), (0.0, 1.0))
    assert stored(tmp_path, [point], histogram_wire="tensor") == (point,)
    sink = TensorBoardSink(tmp_path, histogram_wire="tensor")
    large = HistogramPoint("h", 1, (2**53 + 1,), (0.0, 1.0))
    assert refused(lambda: emit(sink, [large])).code == "tracker_value_unsupported"
    sink.close()


def test_unsafe_tags_are_stored_and_only_impossible_ones_refused(tmp_path: Path) -> None:
    """The preflight refuses only what UTF-8 cannot hold; odd tags return unchanged (TAG-3, PROT-7)."""
    tags = ["a b", " a", "a/", "//a", "a.b", "x" * 300, "é", "", "a\0b"]
    sink = TensorBoardSink(tmp_path)
    sink.preflight_tags(tags)
    assert refused(lambda: sink.preflight_tags(["ok", "\ud800"])).code == "tracker_tag_unsafe"
    emit(sink, [ScalarPoint(tag, 1, 1.0) for tag in tags])
    sink.close()
    assert [point.tag for point in read_tensorboard(tmp_path).points if isinstance(point, ScalarPoint)] == tags


def test_a_borrowed_writer_stays_open(tmp_path: Path) -> None:
    """The sink closes only a writer that it opened (TB-1)."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        sink = TensorBoardSink(writer)
        sink.emit_scalar(ScalarPoint("s", 1, 1.0))
        sink.flush()
        sink.close()
        writer.add_scalar("own", 2.0, 2)
    assert len(list(tmp_path.iterdir())) == 1
    assert [point.tag for point in read_tensorboard(tmp_path).points if isinstance(point, ScalarPoint)] == ["s", "own"]


def test_a_closed_sink_takes_nothing(tmp_path: Path) -> None:
    """After close every emission and flush refuses, and close may be called again (PROT-6, PROT-11)."""
    sink = TensorBoardSink(tmp_path)
    sink.close()
    sink.close()
    calls = [lambda: emit(sink, [INNER]), lambda: emit(sink, [ScalarPoint("s", 1, 10**400)]), sink.flush]
    assert [refused(call).code for call in calls] == ["tracker_sink_closed"] * 3
    assert len(list(tmp_path.iterdir())) == 1
    assert read_tensorboard(tmp_path).points == ()


@pytest.mark.parametrize("setting", [{"histogram_wire": "other"}, {"scalar_form": "float16"}])
def test_unknown_settings_are_refused(tmp_path: Path, setting: dict[str, Any]) -> None:
    """A misspelt setting is refused before a file is made (PROT-9)."""
    assert refused(lambda: TensorBoardSink(tmp_path / "log", **setting)).code == "tracker_sink_settings_invalid"
    assert not (tmp_path / "log").exists()


def test_a_target_that_is_no_writer_is_refused(tmp_path: Path) -> None:
    """Neither a folder nor a writer: refused; a folder that cannot be made: refused by its own name (TB-1, PROT-10)."""
    assert refused(lambda: TensorBoardSink(object())).code == "tracker_sink_settings_invalid"
    (tmp_path / "file").write_text("x")
    assert refused(lambda: TensorBoardSink(tmp_path / "file")).code == "tracker_sink_write_failed"


def test_two_sinks_live_side_by_side(tmp_path: Path) -> None:
    """Two sinks on two places in one process do not touch each other (PROT-10)."""
    first, second = TensorBoardSink(tmp_path / "a"), TensorBoardSink(tmp_path / "b")
    first.emit_scalar(ScalarPoint("s", 1, 1.0))
    second.emit_scalar(ScalarPoint("s", 2, 2.0))
    first.close()
    second.emit_scalar(ScalarPoint("s", 3, 3.0))
    second.close()
    assert read_tensorboard(tmp_path / "a").points == (ScalarPoint("s", 1, 1.0),)
    assert read_tensorboard(tmp_path / "b").points == (ScalarPoint("s", 2, 2.0), ScalarPoint("s", 3, 3.0))


def test_several_threads_lose_nothing(tmp_path: Path) -> None:
    """Four threads on one sink: every point arrives whole, each thread's in order (PROT-10)."""
    sink = TensorBoardSink(tmp_path)

    def work(number: int) -> None:
        emit(sink, [ScalarPoint(f"t{number}", step, 1.0) for step in range(250)])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.close()
    got = [point for point in read_tensorboard(tmp_path).points if isinstance(point, ScalarPoint)]
    for number in range(4):
        assert [point.step for point in got if point.tag == f"t{number}"] == list(range(250))


def test_a_resumed_logdir_tells_its_last_step(tmp_path: Path) -> None:
    """A second sink on the logdir knows the largest step, of its own too; sub-folders do not count (PROT-11)."""
    sink = TensorBoardSink(tmp_path)
    assert sink.last_step() is None
    emit(sink, [ScalarPoint("s", 120, 1.0), ScalarPoint("s", 7, 1.0), GraphPoint({"nodes": []})])
    assert sink.last_step() == 120
    sink.close()
    stored(tmp_path / "other-run", [ScalarPoint("s", 999, 1.0)])
    resumed = TensorBoardSink(tmp_path)
    assert resumed.last_step() == 120
    resumed.close()
    assert resumed.last_step() == 120


def test_without_a_relay_nothing_is_refused(tmp_path: Path) -> None:
    """No relay: any grid passes, and the state claims no more than was handed over (PROT-8, ATTACH-4)."""
    sink = TensorBoardSink(tmp_path)
    sink.preflight_histograms(DEFAULT_DESCRIPTOR)
    assert sink.relay_state().state == "computed"
    emit(sink, [INNER])
    assert sink.relay_state().state == "emitted" and "1 points" in sink.relay_state().evidence
    sink.close()


def test_a_writer_of_tensorboardx_takes_what_it_can(tmp_path: Path) -> None:
    """A writer of tensorboardX takes scalars, histograms and texts; what would end it is refused (TB-1, PROT-2)."""
    library = pytest.importorskip("tensorboardX")
    writer = library.SummaryWriter(str(tmp_path))
    for forms in ({"histogram_wire": "tensor"}, {"scalar_form": "float64"}):
        with pytest.raises(Refusal) as caught:
            TensorBoardSink(writer, **forms)
        assert caught.value.code == "tracker_sink_settings_invalid"
    sink = TensorBoardSink(writer)
    assert sink.capabilities() == {"scalar", "raw_histogram", "text_manifest"}
    for refused in (
        lambda: sink.emit_graph(GraphPoint({"nodes": []})),
        lambda: sink.emit_image(ImagePoint("images/a", 1, bytes(12), (2, 2, 3), "uint8")),
    ):
        with pytest.raises(Refusal) as caught:
            refused()
        assert caught.value.code == "tracker_sink_capability_missing"
    sink.emit_scalar(ScalarPoint("loss", 3, 0.5))
    sink.close()
    writer.close()
    (point,) = read_tensorboard(tmp_path)
    assert (point.tag, point.step, point.value) == ("loss", 3, 0.5)
