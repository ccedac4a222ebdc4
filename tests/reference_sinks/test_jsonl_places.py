"""JSONLSink in places that are no usual file, and in forked children."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reference_sinks import JSONLSink
from torchlens_conformance.protocol import Refusal, ScalarPoint

from .jsonl_points import ONE_OF_EACH, emit


def test_a_full_device_is_refused(tmp_path: Path) -> None:
    """/dev/full refuses at the header, by name, and leaks no descriptor (PROT-10)."""
    before = len(os.listdir("/proc/self/fd"))
    for keywords in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(Refusal) as caught:
            JSONLSink("/dev/full", **keywords)
        assert caught.value.code == "tracker_sink_write_failed"
        assert caught.value.fields == {"path": "/dev/full", "errno": "ENOSPC", "row": 1}
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_device_takes_rows_without_lock(tmp_path: Path) -> None:
    """Two sinks may write to /dev/null: a device is neither locked nor cut nor synchronised (JSONL-2)."""
    sinks = [JSONLSink("/dev/null"), JSONLSink("/dev/null", resume=True)]
    for sink in sinks:
        emit(sink, ONE_OF_EACH)
        sink.flush()
        sink.close()
        assert sink.last_step() == 10


def test_a_pipe_takes_rows(tmp_path: Path) -> None:
    """A named pipe gets header, row and footer as its reader expects them (JSONL-1)."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as pipe:
        sink = JSONLSink(path)
        sink.emit_scalar(ScalarPoint("a", 1, 0.5))
        sink.close()
        rows = [json.loads(line) for line in pipe]
    assert [row.get("kind") for row in rows] == [None, "scalar", "closed"]


@pytest.mark.parametrize(
    ("place", "names"),
    [("file/points.jsonl", {"ENOTDIR", "EEXIST"}), ("folder", {"EISDIR"}), ("x" * 300, {"ENAMETOOLONG"})],
)
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, place: str, names: set[str]) -> None:
    """A path below a file, a folder as path and a name too long refuse by name with the errno (PROT-10)."""
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(Refusal) as caught:
        JSONLSink(tmp_path / place)
    assert caught.value.code == "tracker_sink_write_failed"
    assert caught.value.fields["errno"] in names and caught.value.fields["row"] == 0


def test_a_read_only_file_system_is_refused() -> None:
    """A place that nobody may write to, not even the superuser, refuses by name (PROT-10)."""
    with pytest.raises(Refusal) as caught:
        JSONLSink("/proc/points.jsonl")
    assert caught.value.code == "tracker_sink_write_failed"


_START = """
import errno, json, os, signal
from reference_sinks import JSONLSink
from reference_sinks.readers import read_jsonl
from torchlens_conformance.protocol import Refusal, ScalarPoint
def refusal(call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except Refusal as refusal:
        return refusal.as_dict()
"""

_FORKED = """
sink = JSONLSink("forked.jsonl")
sink.emit_scalar(ScalarPoint("a", 0, 1.0))
descriptor = sink._file.descriptor
receive, send = os.pipe()
child = os.fork()
if child == 0:
    told = [refusal(sink.emit_scalar, ScalarPoint("a", 1, 1.0))["code"], refusal(sink.flush)["code"], sink.close()]
    try:
        os.fstat(descriptor)
    except OSError as error:
        told.append(error.errno == errno.EBADF)
    told.append(refusal(JSONLSink, "forked.jsonl", resume=True)["code"])
    os.write(send, json.dumps(told).encode())
    os._exit(0)
os.waitpid(child, 0)
told = {"child": json.loads(os.read(receive, 4096))}
sink.emit_scalar(ScalarPoint("a", 2, 1.0))
sink.close()
result = read_jsonl("forked.jsonl")
told["read"] = [[row.step for row in result], result.torn, result.closed]

# A writer dies and its forked child lives on: the path must be free.
child = os.fork()
if child == 0:
    sink = JSONLSink("orphan.jsonl")
    grandchild = os.fork()
    if grandchild == 0:
        os.write(send, b"%d" % os.getpid())
        while True:
            signal.pause()
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)
grandchild = int(os.read(receive, 4096))
told["orphan"] = refusal(lambda: JSONLSink("orphan.jsonl", resume=True).close())
os.kill(grandchild, signal.SIGKILL)
print(json.dumps(told))
"""


def test_a_forked_child_writes_nothing(program: Callable[..., Any]) -> None:
    """A child is refused, its close does nothing, its copies of descriptor and lock are gone (PROT-10)."""
    told = program(_START + _FORKED).printed
    assert told["child"] == ["tracker_sink_forked", "tracker_sink_forked", None, True, "tracker_sink_path_locked"]
    assert told["read"] == [[0, 2], None, True]
    assert told["orphan"] is None


_FORKED_WHILE_LOCKED = """
import threading
sink = JSONLSink("locked.jsonl")
inside, leave = threading.Event(), threading.Event()
def hold():
    with sink._lock:
        inside.set()
        leave.wait()
thread = threading.Thread(target=hold)
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    code = refusal(sink.emit_scalar, ScalarPoint("a", 1, 1.0))["code"]
    sink.close()
    os._exit(0 if code == "tracker_sink_forked" else 1)
status = os.waitpid(child, 0)[1]
leave.set()
thread.join()
sink.close()
print(json.dumps(status))
"""


def test_a_child_does_not_wait_for_a_thread_that_it_lacks(program: Callable[..., Any]) -> None:
    """A child forked while another thread writes is refused at once instead of hanging (PROT-10)."""
    assert program("import warnings; warnings.simplefilter('ignore')\n" + _START + _FORKED_WHILE_LOCKED).printed == 0
