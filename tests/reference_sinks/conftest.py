"""Programs in processes of their own: relays, forks, limits and kills stay out of the test process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import reference_sinks

_ROOT = Path(reference_sinks.__file__).parents[1]
_CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Finished:
    """A program that ended: its exit status, what it printed as JSON in its last line, and its error output."""

    status: int
    printed: Any
    errors: str


def run_program(code: str, *arguments: str, home: Path, may_fail: bool = False) -> Finished:
    """Run ``code`` in a fresh interpreter with ``home`` as its place for files, and wait for it."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB_", "CLEARML_"))}
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
        "WANDB_MODE": "offline",
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_CONFIG_DIR": str(home / "wandb-config"),
        "WANDB_CACHE_DIR": str(home / "wandb-cache"),
        "WANDB_DATA_DIR": str(home / "wandb-data"),
        "HOME": str(home),
    }
    # The tests' own modules are found last, behind the installed packages.
    program = f"import sys; sys.path.append({str(_CHECKOUT)!r})\n{code}"
    process = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if process.returncode and not may_fail:
        pytest.fail(f"the program ended with {process.returncode}:\n{process.stderr}")
    lines = process.stdout.splitlines()
    return Finished(process.returncode, json.loads(lines[-1]) if lines else None, process.stderr)


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Finished]:
    """Return a function that runs a program in ``tmp_path``; ``may_fail=True`` allows any exit status."""

    def run(code: str, *arguments: str, may_fail: bool = False) -> Finished:
        return run_program(code, *arguments, home=tmp_path, may_fail=may_fail)

    return run


@dataclass(frozen=True)
class WandbRun:
    """A finished program that logged to an offline wandb run, and the folder of that run."""

    printed: Any
    folder: Path


_RUN = """
import json, math, os, sys
import wandb
if sys.argv[1:] == ["relay"]:
    # Without a root the relay waits for ten seconds when the run finishes.
    wandb.tensorboard.patch(root_logdir=os.path.abspath("events"))
run = wandb.init(project="conformance", dir=".", settings=wandb.Settings(
    silent=True, console="off", x_disable_stats=True, x_disable_meta=True))
from reference_sinks import TensorBoardSink, WandbSink
from torchlens_conformance.protocol import (
    DEFAULT_DESCRIPTOR, WANDB_SAFE_DESCRIPTOR, CAPABILITY_METHODS, HistogramPoint, Refusal, ScalarPoint, TextPoint,
    advertised_capabilities)
def code(call, *arguments):
    try:
        call(*arguments)
    except Refusal as refusal:
        return [refusal.code, {key: str(value) for key, value in refusal.fields.items()}]
def emit(sink, *points):
    for point in points:
        getattr(sink, CAPABILITY_METHODS[point.capability])(point)
"""

STORED_RUN = """
sink = WandbSink(run)
told = {"words": sorted(advertised_capabilities(sink)), "state-before": sink.relay_state().state,
        "cap": sink.bucket_cap, "grid": sink.default_histogram_descriptor() == WANDB_SAFE_DESCRIPTOR,
        "last-before": sink.last_step()}
numbers = [0.1, 1e300, 16777217, 2**53 + 1, 2**63 - 1, -2**63, 2**63, 2.0**60, math.nan, math.inf, -math.inf, 5e-324,
           -0.0, 3.0, -1e-7]
for offset, value in enumerate(numbers):
    emit(sink, ScalarPoint("numbers", 100 + offset, value))
texts = ["text", "NaN", "", "a\\0b\\n\\u2028", "\\u00e9\\U0001f600", "x" * 100_000, "{}", "1.5"]
for offset, text in enumerate(texts):
    emit(sink, TextPoint("texts", 120 + offset, text))
tags = ["a/b", "a.b", "a b", " a", "a/", "//a", "_private", "global_step", "\\u00e9", "x" * 300, "a\\\\b", "a\\0b"]
sink.preflight_tags(tags)
emit(sink, *[ScalarPoint(tag, 200, 1.0) for tag in tags])
counts = [(index * 7919) % 1000 for index in range(497)]
counts[3] = 2**60 + 1
emit(sink, HistogramPoint("p/hist/grid", 210, counts, WANDB_SAFE_DESCRIPTOR.edges, {"min": -1.0, "num": 3}),
     HistogramPoint("p/hist/cap", 210, [1] * 512, [index / 512 for index in range(513)]),
     HistogramPoint("p/hist/zero", 210, [1, 2], [-0.5, -0.0, 1e-300]))
wide = HistogramPoint("p/hist/wide", 211, [1] * 513, [index / 513 for index in range(514)])
told["cap-emit"] = code(emit, sink, wide)
told["cap-preflight"] = code(sink.preflight_histograms, DEFAULT_DESCRIPTOR)
told["cap-safe"] = code(sink.preflight_histograms, WANDB_SAFE_DESCRIPTOR)
reserved = ("", "_step", "_timestamp", "_runtime", "_wandb")
told["reserved"] = [code(emit, sink, ScalarPoint(tag, 211, 1.0)) for tag in reserved]
told["reserved-preflight"] = code(sink.preflight_tags, ["fine", "_step"])
surrogates = (ScalarPoint("\\ud800", 211, 1.0), TextPoint("t", 211, "\\ud800"))
told["surrogates"] = [code(emit, sink, point) for point in surrogates]
told["large"] = [code(emit, sink, ScalarPoint("large", 211, value)) for value in (2**63 + 1, -2**63 - 1, 10**400)]
told["large-count"] = code(emit, sink, HistogramPoint("h", 211, [2**63], [0, 1]))
emit(sink, ScalarPoint("once", 300, 1.0))
told["twice"] = code(emit, sink, ScalarPoint("once", 300, 2.0))
told["smaller"] = code(emit, sink, ScalarPoint("smaller", 299, 2.0))
run.log({"elsewhere": 1}); run.log({"elsewhere": 2}); run.log({"elsewhere": 3})
told["overtaken"] = code(emit, sink, ScalarPoint("overtaken", 301, 1.0))
told["last"] = sink.last_step()
emit(sink, ScalarPoint("first", 310, 1.0))
run.log({"elsewhere": 4}, step=311)
told["overtaken-inside"] = code(emit, sink, ScalarPoint("second", 310, 1.0))
emit(sink, ScalarPoint("after", 320, 1.0))
run.log({"truth": True, "null": None, "list": [1, 2], "nested": {"a": {"b": 1.5}}, "plain": 1}, step=400)
child = os.fork()
if child == 0:
    ok = code(emit, sink, ScalarPoint("child", 500, 1.0))[0] == "tracker_sink_forked" == code(sink.flush)[0]
    sink.close()
    os._exit(0 if ok else 1)
told["child"] = os.waitpid(child, 0)[1]
for step in (2**31 + 5, 2**53 + 1, 2**63 - 2):
    emit(sink, ScalarPoint("far", step, 1.0))
# What the sink keeps away from the store, so that wandb's own log has something to say.
run.log({"lost": 1.0}, step=5)
sink.flush()
told["state"] = [sink.relay_state().state, sink.relay_state().evidence]
second = WandbSink(run)
sink.close(); sink.close()
told["closed"] = [code(emit, sink, ScalarPoint("closed", 2**63 - 1, 1.0)), code(sink.flush)]
run.finish()
late = ScalarPoint("finished", 2**63 - 1, 1.0)
told["finished"] = [code(emit, second, late), code(WandbSink, run), code(second.flush)]
told["no-run"] = [code(WandbSink, object()), code(WandbSink, wandb.init(mode="disabled"))]
told["folder"] = os.path.dirname(run.dir)
print(json.dumps(told))
"""

RELAY_RUN = """
from torch.utils.tensorboard import SummaryWriter
events = TensorBoardSink("events")
told = {"tensorboard": [events.relay_state().state, events.relay_state().evidence],
        "preflight": code(events.preflight_histograms, WANDB_SAFE_DESCRIPTOR)}
for step, value in ((100, 0.5), (102, math.nan), (104, -math.inf)):
    emit(events, ScalarPoint("s", step, value))
counts = [0, *range(63)]
edges = [index / 32 - 1 for index in range(65)]
summary = {"min": -0.95, "max": 0.99, "num": sum(counts), "sum": 1.0, "sum_squares": 2.0}
emit(events, HistogramPoint("h", 100, counts, edges, summary))
wide = [index / 300 - 1 for index in range(601)]
emit(events, HistogramPoint("wide", 102, [1] * 600, wide, {"min": -1.0, "max": 1.0, "num": 600}))
events.close()
native = WandbSink(run)
told["native"] = [code(native.preflight_tags, []), native.relay_state().evidence]
emit(native, ScalarPoint("native", 7, 1.0), ScalarPoint("native", 9, 2.0))
native.close()
run.finish()
told["folder"] = os.path.dirname(run.dir)
print(json.dumps(told))
"""

KILLED_RUN = """
sink = WandbSink(run)
for step in range(500):
    emit(sink, ScalarPoint("s", step, float(step)))
sink.flush()
print(json.dumps({"folder": os.path.dirname(run.dir)}), flush=True)
os.kill(os.getpid(), 9)
"""


def _wandb_run(code: str, home: Path, *arguments: str, may_fail: bool = False) -> WandbRun:
    finished = run_program(_RUN + code, *arguments, home=home, may_fail=may_fail)
    return WandbRun(finished.printed, home / finished.printed["folder"])


@pytest.fixture(scope="session")
def stored_run(tmp_path_factory: pytest.TempPathFactory) -> WandbRun:
    """Return a run that WandbSink wrote one of everything to."""
    return _wandb_run(STORED_RUN, tmp_path_factory.mktemp("stored"))


@pytest.fixture(scope="session")
def relay_run(tmp_path_factory: pytest.TempPathFactory) -> WandbRun:
    """Return a run with wandb's TensorBoard relay on."""
    return _wandb_run(RELAY_RUN, tmp_path_factory.mktemp("relay"), "relay")


@pytest.fixture(scope="session")
def killed_run(tmp_path_factory: pytest.TempPathFactory) -> WandbRun:
    """Return a run whose process was killed after 500 rows."""
    return _wandb_run(KILLED_RUN, tmp_path_factory.mktemp("killed"), may_fail=True)
