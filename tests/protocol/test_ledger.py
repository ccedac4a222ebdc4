"""The ledger: one failing sink starves no other, and no report claims more than its evidence."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from reference_sinks import MemorySink
from torchlens_conformance.protocol import (
    CAPABILITY_METHODS,
    Ledger,
    Point,
    Refusal,
    ScalarPoint,
    SinkFailure,
    TextPoint,
)

from ..reference_sinks.jsonl_points import ONE_OF_EACH


class Recorder:
    """A sink that notes every call, and raises where it is told to."""

    words: tuple[str, ...] = tuple(CAPABILITY_METHODS)

    def __init__(self, **failures: BaseException) -> None:
        self.calls: list[str] = []
        self.points: list[Point] = []
        self.failures: dict[str, BaseException] = failures

    def capabilities(self) -> Iterable[str]:
        """Advertise ``words``."""
        return self.words

    def _called(self, method: str) -> None:
        self.calls.append(method)
        if method in self.failures:
            raise self.failures[method]

    def flush(self) -> None:
        """Note the call."""
        self._called("flush")

    def close(self) -> None:
        """Note the call."""
        self._called("close")

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("emit_"):
            raise AttributeError(name)

        def emit(point: Point) -> None:
            self._called(name)
            self.points.append(point)

        return emit


class ScalarsOnly(Recorder):
    """A sink for scalars."""

    words = ("scalar",)


def scalar(step: int) -> ScalarPoint:
    """Return a point at ``step``."""
    return ScalarPoint("loss", step, 0.5)


def test_every_kind_of_point_reaches_its_method() -> None:
    """Each point is handed to the method of its capability, unchanged and in order, and is counted (PROT-2)."""
    recorder, memory = Recorder(), MemorySink()
    ledger = Ledger([recorder, memory])
    for point in ONE_OF_EACH:
        ledger.deliver(point)
    assert recorder.calls == [CAPABILITY_METHODS[point.capability] for point in ONE_OF_EACH]
    assert all(kept is sent for kept, sent in zip(recorder.points, ONE_OF_EACH, strict=True))
    assert all(kept is sent for kept, sent in zip(memory.points, ONE_OF_EACH, strict=True))
    assert [row.emitted for row in ledger.rows] == [{word: 1 + (word == "scalar") for word in CAPABILITY_METHODS}] * 2


def test_a_sink_without_the_capability_is_skipped() -> None:
    """A point of a kind that a sink does not advertise passes it by, without a failure (PROT-2, PROT-5)."""
    narrow, wide = ScalarsOnly(), Recorder()
    ledger = Ledger([narrow, wide])
    ledger.deliver(TextPoint("t", 0, "x"))
    ledger.deliver(scalar(1))
    assert (narrow.calls, wide.calls) == (["emit_scalar"], ["emit_text", "emit_scalar"])
    assert [row.failure for row in ledger.rows] == [None, None]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_raising_sink_is_latched_and_the_others_get_everything(failing: int) -> None:
    """After its first exception a sink gets nothing more; every other sink gets every later point (PROT-5)."""
    sinks = [Recorder() for _ in range(3)]
    ledger = Ledger(sinks)
    for step in range(5):
        if step == 2:
            sinks[failing].failures["emit_scalar"] = OSError(28, "No space left")
        ledger.deliver(scalar(step))
    for index, (sink, row) in enumerate(zip(sinks, ledger.rows)):
        steps = [point.step for point in sink.points if isinstance(point, ScalarPoint)]
        if index == failing:
            assert steps == [0, 1] and sink.calls == ["emit_scalar"] * 3 and row.emitted == {"scalar": 2}
            assert row.failure == SinkFailure("emit_scalar", "OSError", "[Errno 28] No space left")
        else:
            assert steps == [0, 1, 2, 3, 4] and row.failure is None and row.emitted == {"scalar": 5}


def test_the_first_failure_is_kept() -> None:
    """Failures of flush and close after the first one do not replace it (PROT-5, PROT-6)."""
    sink = Recorder(emit_scalar=ValueError("first"), flush=OSError("second"), close=OSError("third"))
    ledger = Ledger([sink])
    ledger.deliver(scalar(0))
    ledger.close()
    assert ledger.rows[0].failure == SinkFailure("emit_scalar", "ValueError", "first")
    assert sink.calls == ["emit_scalar", "flush", "close"]


def test_the_code_of_a_refusal_is_kept() -> None:
    """When a sink refuses, its code stands in the row beside the text (PROT-5, PROT-9)."""
    refusal = Refusal("tracker_tag_unsafe", "No.", remedy="Rename it.", tag="a")
    ledger = Ledger([Recorder(emit_scalar=refusal)])
    ledger.deliver(scalar(0))
    assert ledger.rows[0].failure == SinkFailure("emit_scalar", "Refusal", str(refusal), "tracker_tag_unsafe")
    row = ledger.rows[0].as_dict()
    assert (row["failed"], row["failed_code"]) == (f"emit_scalar: Refusal: {refusal}", "tracker_tag_unsafe")


class Unreadable(Exception):
    """An exception that raises when it is shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_exception_without_a_text_does_not_escape() -> None:
    """Not even an exception whose text cannot be made reaches the training loop (PROT-5)."""
    other = Recorder()
    ledger = Ledger([Recorder(emit_scalar=Unreadable()), other])
    ledger.deliver(scalar(0))
    failure = ledger.rows[0].failure
    assert failure is not None and failure.exception_type == "Unreadable"
    assert len(other.points) == 1


def test_a_method_that_was_lost_does_not_escape() -> None:
    """A sink that loses its method after it was entered is latched like any other (PROT-5)."""

    class Losing(ScalarsOnly):
        def __getattribute__(self, name: str) -> Any:
            if name == "emit_scalar" and object.__getattribute__(self, "calls"):
                raise RuntimeError("the connection is gone")
            return super().__getattribute__(name)

    sink, other = Losing(), Recorder()
    ledger = Ledger([sink, other])
    for step in range(3):
        ledger.deliver(scalar(step))
    assert ledger.rows[0].failure == SinkFailure("emit_scalar", "RuntimeError", "the connection is gone")
    assert len(other.points) == 3


@pytest.mark.parametrize("exit_with", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("method", ["emit_scalar", "flush", "close"])
def test_interrupts_pass_through(exit_with: type[BaseException], method: str) -> None:
    """KeyboardInterrupt and SystemExit are not swallowed, and latch nothing (PROT-5)."""
    ledger = Ledger([Recorder(**{method: exit_with()})])
    with pytest.raises(exit_with):
        ledger.deliver(scalar(0))
        ledger.flush()
        ledger.close()
    assert ledger.rows[0].failure is None
    assert ledger.rows[0].emitted == ({} if method == "emit_scalar" else {"scalar": 1})


def test_a_close_that_was_interrupted_can_be_finished() -> None:
    """After an interrupt a second close reaches the sinks that the first one left open (PROT-6)."""
    sinks = [Recorder(), Recorder(close=KeyboardInterrupt()), Recorder()]
    ledger = Ledger(sinks)
    with pytest.raises(KeyboardInterrupt):
        ledger.close()
    sinks[1].failures.clear()
    ledger.close()
    assert [sink.calls.count("close") for sink in sinks] == [1, 2, 1]
    assert all(row.closed for row in ledger.rows)


@pytest.mark.parametrize("failed_method", ["emit_scalar", "flush"])
def test_a_failing_flush_does_not_prevent_close(failed_method: str) -> None:
    """Flush and close are separate attempts, for every sink, whatever failed before (PROT-6)."""
    sinks = [Recorder(), Recorder(**{failed_method: OSError("x")}), Recorder(flush=OSError("x"), close=OSError("y"))]
    ledger = Ledger(sinks)
    ledger.deliver(scalar(0))
    ledger.close()
    for sink in sinks:
        assert sink.calls == ["emit_scalar", "flush", "close"]
    assert [row.failure and row.failure.where for row in ledger.rows] == [None, failed_method, "flush"]


def test_flush_latches_and_skips_what_has_failed() -> None:
    """A flush that fails latches its sink: it gets no later point and no later flush (PROT-5, PROT-6)."""
    failing, healthy = Recorder(flush=OSError("x")), Recorder()
    ledger = Ledger([failing, healthy])
    ledger.flush()
    ledger.deliver(scalar(0))
    ledger.flush()
    assert failing.calls == ["flush"] and healthy.calls == ["flush", "emit_scalar", "flush"]


def test_closing_again_leaves_the_sinks_alone() -> None:
    """A second close or flush does not touch a closed sink, so its refusals latch nothing (PROT-6)."""
    memory, recorder = MemorySink(), Recorder()
    ledger = Ledger([memory, recorder])
    ledger.deliver(scalar(0))
    ledger.close()
    ledger.flush()
    ledger.close()
    assert recorder.calls == ["emit_scalar", "flush", "close"]
    assert [row.failure for row in ledger.rows] == [None, None]


def test_nothing_is_emitted_after_close() -> None:
    """After close a point is refused before any sink sees it, also one with no check of its own (PROT-6, PROT-11)."""
    sink = Recorder()
    ledger = Ledger([sink])
    ledger.close()
    with pytest.raises(Refusal) as caught:
        ledger.deliver(scalar(0))
    assert caught.value.code == "tracker_sink_closed"
    assert sink.points == [] and ledger.rows[0].failure is None and not ledger.rows[0].emitted


class JSONLSink(Recorder):
    """A sink of a well-known name."""


def test_rows_are_named_by_class_and_number() -> None:
    """Several objects of one class are numbered from the second on, in order (ATTACH-1)."""
    ledger = Ledger([JSONLSink(), MemorySink(), JSONLSink(), JSONLSink(), MemorySink()])
    assert [row.name for row in ledger.rows] == [
        "JSONLSink",
        "MemorySink",
        "JSONLSink#2",
        "JSONLSink#3",
        "MemorySink#2",
    ]


def test_one_object_twice_is_refused() -> None:
    """The same object may stand in a session once; an equal one is another object (ATTACH-1)."""

    class Equal(Recorder):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = Recorder.__hash__

    first, second = Equal(), Equal()
    assert len(Ledger([first, second]).rows) == 2
    with pytest.raises(Refusal) as caught:
        Ledger([first, second, first])
    assert (caught.value.code, caught.value.fields["sink"]) == ("tracker_sink_duplicate", "Equal")
    assert first.calls == second.calls == []


def test_an_object_that_is_no_sink_is_refused_before_anything_is_emitted() -> None:
    """One foreign object among sinks refuses the session (PROT-3, PROT-4)."""
    sink = Recorder()
    with pytest.raises(Refusal) as caught:
        Ledger([sink, object()])
    assert caught.value.code == "tracker_sink_invalid" and sink.calls == []


def test_a_row_is_plain_values() -> None:
    """A row for programs is standard JSON and holds counts, failure and delivery (PROT-8, PROT-9)."""
    ledger = Ledger([Recorder(close=OSError("gone"))])
    ledger.deliver(scalar(0))
    ledger.rows[0].notes.append("a note")
    ledger.close()
    row = ledger.rows[0].as_dict()
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert row == {
        "name": "Recorder",
        "emitted": {"scalar": 1},
        "failed": "close: OSError: gone",
        "failed_code": None,
        "delivery": "emitted",
        "evidence": "points taken without an error: 1",
        "notes": ["a note"],
    }


def test_data_points_are_counted_apart() -> None:
    """Data counts as data where it was taken; heartbeat, manifest and what a sink refused do not (CLOSE-2)."""
    healthy, failing, scalars = Recorder(), Recorder(emit_scalar=OSError("full")), ScalarsOnly()
    ledger = Ledger([healthy, failing, scalars])
    ledger.deliver(TextPoint("torchlens/meta/manifest", 0, "sites"))
    ledger.deliver(scalar(0))
    assert [row.data_points for row in ledger.rows] == [0, 0, 0]
    ledger.deliver(scalar(1), data=True)
    ledger.deliver(TextPoint("torchlens/meta/note", 1, "a text that is data"), data=True)
    assert [row.data_points for row in ledger.rows] == [2, 0, 1]
    assert [sum(row.emitted.values()) for row in ledger.rows] == [4, 1, 2]


def test_a_sink_that_others_hold_is_flushed_and_left_open() -> None:
    """``keep_open`` names sinks by identity: they are flushed and stay open, the others are closed (ATTACH-7)."""

    class Equal(Recorder):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = Recorder.__hash__

    shared, own = Equal(), Equal()
    ledger = Ledger([shared, own])
    ledger.close(keep_open=[shared])
    assert (shared.calls, own.calls) == (["flush"], ["flush", "close"])
    assert [row.closed for row in ledger.rows] == [False, True]
    with pytest.raises(Refusal, match="tracker_sink_closed"):
        ledger.deliver(scalar(0))
    assert shared.points == []


def test_the_last_holder_closes_a_shared_sink() -> None:
    """Of two ledgers with one sink, the second one still reaches it after the first was closed (ATTACH-7)."""
    shared = Recorder()
    first, last = Ledger([shared]), Ledger([shared])
    first.close(keep_open=[shared])
    last.deliver(scalar(1), data=True)
    last.close()
    assert shared.calls == ["flush", "emit_scalar", "flush", "close"]
    assert (first.rows[0].data_points, last.rows[0].data_points) == (0, 1)
    assert [row.failure for row in (*first.rows, *last.rows)] == [None, None]


@pytest.mark.parametrize("method", ["flush", "emit_scalar"])
def test_a_kept_sink_that_fails_is_latched_and_left_open(method: str) -> None:
    """A failure latches a kept sink, and closing it stays with its other holder (ATTACH-7, PROT-5)."""
    shared = Recorder(**{method: OSError("gone")})
    ledger = Ledger([shared])
    ledger.deliver(scalar(0), data=True)
    ledger.close(keep_open=[shared])
    assert "close" not in shared.calls and not ledger.rows[0].closed
    assert ledger.rows[0].failure == SinkFailure(method, "OSError", "gone")
    assert ledger.rows[0].data_points == (1 if method == "flush" else 0)
    ledger.close()
    assert shared.calls[-1] == "close" and ledger.rows[0].closed
