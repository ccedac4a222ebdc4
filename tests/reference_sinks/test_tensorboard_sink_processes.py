"""TensorBoardSink in processes of their own: forks, kills, limits, relays and missing packages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("tensorboard")

from reference_sinks.readers import read_tensorboard
from torchlens_conformance.protocol import HistogramPoint, ScalarPoint

_PRELUDE = """
import json, os, sys
from reference_sinks import TensorBoardSink
from torchlens_conformance.protocol import Refusal, ScalarPoint
def code(call):
    try:
        call()
    except Refusal as refusal:
        return refusal.code
sink = TensorBoardSink("log")
"""


def test_a_forked_child_writes_nothing(program: Callable[..., Any], tmp_path: Path) -> None:
    """In a forked child emit and flush refuse, close is silent, and the store is the parent's alone (PROT-10)."""
    finished = program(
        _PRELUDE
        + """
sink.emit_scalar(ScalarPoint("s", 1, 1.0))
read, write = os.pipe()
child = os.fork()
if child == 0:
    calls = [lambda: sink.emit_scalar(ScalarPoint("s", 2, 2.0)), sink.flush, sink.close]
    os.write(write, json.dumps([code(call) for call in calls]).encode())
    os._exit(0)
os.waitpid(child, 0)
sink.emit_scalar(ScalarPoint("s", 3, 3.0))
sink.close()
print(os.read(read, 1000).decode())
"""
    )
    assert finished.printed == ["tracker_sink_forked", "tracker_sink_forked", None]
    got = read_tensorboard(tmp_path / "log").points
    assert got == (ScalarPoint("s", 1, 1.0), ScalarPoint("s", 3, 3.0))


def test_what_was_flushed_survives_a_kill(program: Callable[..., Any], tmp_path: Path) -> None:
    """Everything before the last flush is readable after kill -9 (PROT-10)."""
    finished = program(
        _PRELUDE
        + """
for step in range(500):
    sink.emit_scalar(ScalarPoint("s", step, 1.0))
sink.flush()
sink.emit_scalar(ScalarPoint("s", 500, 1.0))
os.kill(os.getpid(), 9)
""",
        may_fail=True,
    )
    assert finished.status == -9
    got = read_tensorboard(tmp_path / "log", allow_torn=True).points
    assert [point.step for point in got if isinstance(point, ScalarPoint)][:500] == list(range(500))


def test_a_full_disk_is_refused_and_what_was_written_reads(program: Callable[..., Any], tmp_path: Path) -> None:
    """A file that may not grow refuses by name at the next call, and its whole rows read (PROT-10)."""
    finished = program(
        _PRELUDE
        + """
import resource, signal, threading
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
threading.excepthook = lambda arguments: None
sink.emit_scalar(ScalarPoint("s", 0, 1.0))
sink.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
def fill():
    for step in range(1, 500):
        sink.emit_scalar(ScalarPoint("s", step, 1.0))
    sink.flush()
calls = [fill, lambda: sink.emit_scalar(ScalarPoint("s", 999, 1.0)), sink.close, sink.close]
print(json.dumps([code(call) for call in calls]))
"""
    )
    assert finished.printed == ["tracker_sink_write_failed"] * 3 + [None]
    result = read_tensorboard(tmp_path / "log", allow_torn=True)
    assert [point.step for point in result if isinstance(point, ScalarPoint)] == list(range(len(result)))
    assert 10 < len(result) < 100 and result.torn is not None


@pytest.mark.parametrize("missing", ["tensorboard", "torch"])
def test_a_missing_package_names_its_extra(program: Callable[..., Any], missing: str) -> None:
    """Without its packages the sink refuses and names the extra to install (TB-1, PROT-9)."""
    finished = program(
        """
import json, sys
sys.modules[sys.argv[1]] = None
from reference_sinks import TensorBoardSink
from torchlens_conformance.protocol import Refusal
try:
    TensorBoardSink("log")
except Refusal as refusal:
    print(json.dumps([refusal.code, refusal.fields["extra"], "torchlens-conformance[tensorboard]" in refusal.remedy]))
""",
        missing,
    )
    assert finished.printed == ["tracker_sink_unavailable", "tensorboard", True]


def test_wandb_relay_is_detected_and_refused_beforehand(request: pytest.FixtureRequest) -> None:
    """With wandb's relay on histograms refuse in the preflight, emission still works (TB-1, ATTACH-4)."""
    pytest.importorskip("wandb")
    run = request.getfixturevalue("relay_run")
    state, evidence = run.printed["tensorboard"]
    assert state == "relay_configured" and "wandb.patched" in evidence
    code, fields = run.printed["preflight"]
    assert (code, fields["relay"]) == ("tracker_relay_histogram_unsupported", "wandb")
    got = read_tensorboard(run.folder.parents[1] / "events")
    assert [point.tag for point in got if isinstance(point, HistogramPoint)] == ["h", "wide"]


def test_clearml_relay_is_detected_while_its_task_is_live(program: Callable[..., Any], tmp_path: Path) -> None:
    """A rebound add_event counts as a relay as long as a task is live; the remedy names the native sink (TB-1)."""
    pytest.importorskip("clearml")
    (tmp_path / "clearml.conf").write_text(
        'api { web_server: "http://127.0.0.1:9", api_server: "http://127.0.0.1:9" }\n'
        'api { files_server: "http://127.0.0.1:9" }\n'
        "sdk { development { report_use_subprocess: false, store_uncommitted_code_diff: false } }\n"
    )
    finished = program(
        """
import json, os
os.environ |= {"CLEARML_CONFIG_FILE": os.path.abspath("clearml.conf"), "CLEARML_CACHE_DIR": os.path.abspath("cache")}
from clearml import Task
from reference_sinks import TensorBoardSink
from torchlens_conformance.protocol import DEFAULT_DESCRIPTOR, Refusal
early = TensorBoardSink("early")
told = [early.relay_state().state]
Task.set_offline(True)
frameworks = {"tensorboard": True, "pytorch": False, "matplotlib": False}
task = Task.init("project", "task", auto_connect_frameworks=frameworks,
                 auto_connect_arg_parser=False, auto_connect_streams=False, auto_resource_monitoring=False)
told += [sink.relay_state().state for sink in (early, TensorBoardSink("late"))]
try:
    early.preflight_histograms(DEFAULT_DESCRIPTOR)
except Refusal as refusal:
    told += [refusal.code, refusal.fields["relay"], "ClearMLSink" in refusal.remedy]
task.close()
told += [early.relay_state().state]
print()
print(json.dumps(told))
"""
    )
    relay = ["relay_configured", "relay_configured", "tracker_relay_histogram_unsupported", "clearml", True]
    assert finished.printed == ["computed", *relay, "computed"]
