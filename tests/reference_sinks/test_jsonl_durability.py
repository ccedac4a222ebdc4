"""JSONLSink under kills, full disks, interrupts and torn tails."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reference_sinks import JSONLSink
from reference_sinks.readers import read_jsonl
from torchlens_conformance.protocol import Refusal, ScalarPoint

from .jsonl_points import ONE_OF_EACH, emit, same

_START = """
import json, os, random, resource, signal
from reference_sinks import JSONLSink
from reference_sinks.readers import read_jsonl
from torchlens_conformance.protocol import HistogramPoint, Refusal, ScalarPoint, TextPoint
def refusal(call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except Refusal as refusal:
        return refusal.as_dict()
"""

# The writer acknowledges every row through a pipe; whatever was acknowledged before the kill must be read back.
_KILLED = """
def point(step):
    if step % 3 == 0:
        return HistogramPoint("h", step, (step,) * 3, (0.0, 0.1, 0.2, 0.3))
    return TextPoint("t", step, "x" * 200_000) if step % 10 == 1 else ScalarPoint("a", step, step / 7)
def write(path, acknowledge):
    sink = JSONLSink(path)
    os.write(acknowledge, b".")
    emit = {HistogramPoint: sink.emit_histogram, TextPoint: sink.emit_text, ScalarPoint: sink.emit_scalar}
    for step in range(10_000):
        row = point(step)
        emit[type(row)](row)
        os.write(acknowledge, b".")
chance = random.Random(7)
told = {"runs": 0, "rows": 0, "wrong": []}
for run in range(300):
    path = "killed.jsonl"
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        write(path, send)
        os._exit(0)
    os.close(send)
    wanted, acknowledged = chance.randint(1, 25), 0
    while acknowledged < wanted:
        acknowledged += len(os.read(receive, 1))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(receive, 65536):
        acknowledged += len(more)
    os.close(receive)
    result = read_jsonl(path)
    steps = [row.step for row in result]
    whole = steps == list(range(len(steps))) and all(row == point(row.step) for row in result)
    # One row may have been written whole and not acknowledged any more.
    if not whole or len(steps) - (acknowledged - 1) not in (0, 1) or result.closed:
        told["wrong"].append([run, acknowledged, len(steps), result.torn])
    if result.torn or run % 20 == 0:
        sink = JSONLSink(path, resume=True)
        sink.emit_scalar(ScalarPoint("a", len(steps), 1.0))
        sink.close()
        result = read_jsonl(path)
        if len(result) != len(steps) + 1 or result.torn or not result.closed:
            told["wrong"].append([run, "resume"])
    os.unlink(path)
    told = {**told, "runs": run + 1, "rows": told["rows"] + len(steps)}
print(json.dumps(told))
"""


def test_a_killed_writer_loses_no_acknowledged_row(program: Callable[..., Any]) -> None:
    """After 300 kills every acknowledged row is read back whole, and the file can be continued (JSONL-2, PROT-10)."""
    told = program(_START + _KILLED).printed
    assert told["wrong"] == []
    assert told["runs"] == 300 and told["rows"] > 1000


_LIMITED = """
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
sink = JSONLSink("limited.jsonl")
sink.emit_scalar(ScalarPoint("a", 0, 0.5))
size = os.path.getsize("limited.jsonl")
told = {"cuts": []}
for room in range(0, 40, 3):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, hard))
    failed = refusal(sink.emit_text, TextPoint("t", 1, "x" * 50))
    told["cuts"].append([failed["code"], failed["fields"], os.path.getsize("limited.jsonl") == size])
# A smaller row still fits, and with room again the larger one does.
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 60, hard))
sink.emit_scalar(ScalarPoint("a", 2, 1.5))
told["small-then-large"] = refusal(sink.emit_text, TextPoint("t", 3, "x" * 50))["fields"]["row"]
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
sink.emit_text(TextPoint("t", 3, "x" * 50))
# No room for the footer.
descriptors = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize("limited.jsonl") + 5, hard))
told["close"] = [refusal(sink.close), refusal(sink.close)]
told["freed"] = descriptors - len(os.listdir("/proc/self/fd"))
told["after"] = refusal(sink.emit_scalar, ScalarPoint("a", 4, 1.0))["code"]
result = read_jsonl("limited.jsonl")
told["read"] = [[row.step for row in result], result.torn, result.closed]
told["resume-without-room"] = refusal(JSONLSink, "limited.jsonl", resume=True)["fields"]
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
JSONLSink("limited.jsonl", resume=True).close()
result = read_jsonl("limited.jsonl")
told["resumed"] = [[row.step for row in result], result.torn, result.closed]
print(json.dumps(told))
"""


@pytest.fixture
def limited(program: Callable[..., Any], tmp_path: Path) -> Any:
    """Return what a program tells whose files may grow to a limit only."""
    return program(_START + _LIMITED).printed


def test_a_size_limit_cuts_the_torn_row_off(limited: Any, tmp_path: Path) -> None:
    """A row that fits in part is cut off and refused with path, errno and row; later rows are taken (JSONL-2)."""
    for code, fields, intact in limited["cuts"]:
        assert (code, fields) == ("tracker_sink_write_failed", {"path": "limited.jsonl", "errno": "EFBIG", "row": 3})
        assert intact
    assert limited["small-then-large"] == 4
    assert limited["read"] == [[0, 2, 3], None, False]


def test_close_without_room_gives_everything_up(limited: Any) -> None:
    """When the footer does not fit, close refuses once, frees descriptor and lock, and the sink is closed (PROT-6)."""
    first, second = limited["close"]
    assert (first["code"], first["fields"]["errno"], second) == ("tracker_sink_write_failed", "EFBIG", None)
    assert (limited["freed"], limited["after"]) == (1, "tracker_sink_closed")
    assert limited["resume-without-room"]["errno"] == "EFBIG"
    assert limited["resumed"] == [[0, 2, 3], None, True]


def test_a_cut_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No row is written behind a torn one: the next emit cuts first, and refuses while it cannot (JSONL-2)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    sink.emit_scalar(ScalarPoint("a", 0, 1.0))
    real_write, real_truncate, broken = os.write, os.ftruncate, [True]

    def write(descriptor: int, data: bytes) -> int:
        if not broken[0]:
            return real_write(descriptor, data)
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return real_write(descriptor, data[:-10])

    def truncate(descriptor: int, size: int) -> None:
        if broken[0]:
            raise OSError(5, "Input/output error")
        real_truncate(descriptor, size)

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "ftruncate", truncate)
    names = []
    for _ in range(2):
        with pytest.raises(Refusal) as caught:
            sink.emit_scalar(ScalarPoint("a", 1, 1.0))
        names.append(caught.value.fields["errno"])
    assert names == ["ENOSPC", "EIO"]
    assert read_jsonl(sink.path).torn is not None
    broken[0] = False
    sink.emit_scalar(ScalarPoint("a", 2, 1.0))
    sink.close()
    result = read_jsonl(sink.path)
    assert ([point.step for point in result if isinstance(point, ScalarPoint)], result.torn) == ([0, 2], None)


def test_an_interrupted_row_is_cut_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """KeyboardInterrupt in the middle of a row passes, and leaves whole rows only (PROT-5, JSONL-2)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    real_write, calls = os.write, []

    def write(descriptor: int, data: bytes) -> int:
        calls.append(data)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real_write(descriptor, data[:9])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        with pytest.raises(KeyboardInterrupt):
            sink.emit_scalar(ScalarPoint("a", 0, 1.0))
    sink.emit_scalar(ScalarPoint("a", 1, 1.0))
    sink.close()
    assert read_jsonl(sink.path).points == (ScalarPoint("a", 1, 1.0),)


def test_a_short_write_is_completed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """When the system takes a row in pieces, as it does past two gigabytes, the row still ends up whole (JSONL-2)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    real_write = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda descriptor, data: real_write(descriptor, data[:7]))
        emit(sink, ONE_OF_EACH)
    sink.close()
    result = read_jsonl(sink.path)
    assert same(result, ONE_OF_EACH) and result.closed


def test_threads_do_not_mix_pieces_of_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """When rows go out in pieces, no other thread's row gets in between (JSONL-2, PROT-10)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    real_write = os.write
    threads = [threading.Thread(target=emit, args=(sink, ONE_OF_EACH * 5)) for _ in range(4)]
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda descriptor, data: real_write(descriptor, data[:40]))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    sink.close()
    result = read_jsonl(sink.path)
    assert len(result) == 4 * 5 * len(ONE_OF_EACH) and result.unplaced == ()


def test_flush_and_close_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An emit leaves the row to the system; flush and close wait until the disk has it (PROT-10)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    real_sync, synchronised = os.fsync, []

    def sync(descriptor: int) -> None:
        synchronised.append(os.fstat(descriptor).st_size)
        real_sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    emit(sink, ONE_OF_EACH)
    assert synchronised == []
    sink.flush()
    sink.close()
    size = sink.path.stat().st_size
    assert synchronised == [size - len(b'{"kind":"closed"}\n'), size]


def test_a_failing_disk_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An error of the disk at flush or close is refused by name, and close still frees the path (PROT-6, PROT-10)."""
    sink = JSONLSink(tmp_path / "points.jsonl")

    def sync(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", sync)
        for call in (sink.flush, sink.close):
            with pytest.raises(Refusal) as caught:
                call()
            assert (caught.value.code, caught.value.fields["errno"]) == ("tracker_sink_write_failed", "EIO")
    JSONLSink(sink.path, resume=True).close()


def test_a_path_replaced_while_it_is_opened_is_followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file that is removed between opening and locking is not written to: the path's own is (JSONL-2)."""
    real_lock, calls = fcntl.flock, []

    def lock(descriptor: int, operation: int) -> None:
        calls.append(operation)
        if len(calls) == 1:
            (tmp_path / "points.jsonl").unlink()
        real_lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock)
    sink = JSONLSink(tmp_path / "points.jsonl")
    emit(sink, ONE_OF_EACH)
    sink.close()
    assert same(read_jsonl(sink.path), ONE_OF_EACH)


def test_close_frees_the_lock_of_copies_too(tmp_path: Path) -> None:
    """A copy of the descriptor that another program inherited does not keep the path locked (JSONL-2)."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    copy = os.dup(sink._file.descriptor)
    sink.close()
    JSONLSink(sink.path, resume=True).close()
    os.close(copy)


@pytest.mark.parametrize("tail", [b'{"kind":"sca', b'{"kind":"text","tag":"t","step":9,"text":""}', b"\0\0\0", b"x\n"])
def test_resume_cuts_a_torn_tail(tmp_path: Path, tail: bytes) -> None:
    """What stands behind the last whole row is cut off before the new segment starts (JSONL-4)."""
    path = tmp_path / "points.jsonl"
    sink = JSONLSink(path)
    emit(sink, ONE_OF_EACH[:3])
    sink.close()
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert read_jsonl(path).torn is not None
    resumed = JSONLSink(path, resume=True)
    emit(resumed, ONE_OF_EACH[3:])
    resumed.close()
    assert path.read_bytes().startswith(whole)
    result = read_jsonl(path)
    assert same(result, ONE_OF_EACH)
    assert (result.torn, result.closed, result.unplaced) == (None, True, ())


def test_a_file_cut_anywhere_can_be_continued(tmp_path: Path) -> None:
    """At whatever byte a file was cut, resuming keeps every whole row and adds the new ones (JSONL-2, JSONL-4)."""
    sink = JSONLSink(tmp_path / "whole.jsonl")
    emit(sink, ONE_OF_EACH)
    sink.close()
    whole = sink.path.read_bytes()
    path = tmp_path / "points.jsonl"
    for size in range(0, len(whole), 5):
        path.write_bytes(whole[:size])
        kept = ONE_OF_EACH[: max(0, whole[:size].count(b"\n") - 1)]
        resumed = JSONLSink(path, resume=True)
        resumed.emit_scalar(ScalarPoint("new", 99, 1.0))
        resumed.close()
        result = read_jsonl(path)
        assert same(result, [*kept, ScalarPoint("new", 99, 1.0)])
        assert (result.torn, result.closed) == (None, True)
