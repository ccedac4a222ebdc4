"""Programs around CometSink and real offline experiments, each run in a process of its own.

Comet keeps one experiment a process, changes the process when it is imported, and does less where pytest is loaded.
Each program works in its working directory and prints what it tells as JSON.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reference_sinks import CometSink
from reference_sinks.comet_offline import import_comet, start_offline_experiment
from torchlens_conformance.protocol import (
    CAPABILITY_METHODS,
    DEFAULT_DESCRIPTOR,
    Point,
    Refusal,
    ScalarPoint,
    TextPoint,
)

ROOT = Path(__file__).parents[2]

PROGRAM = f"""
import sys
sys.path.append({str(ROOT)!r})
from tests.reference_sinks import comet_experiments
getattr(comet_experiments, sys.argv[1])(*sys.argv[2:])
"""
"""Runs the function that its first argument names."""

NUMBERS: tuple[float, ...] = (
    *(0.1, 1e300, 5e-324, 2.2250738585072014e-308, -0.0, 0.0, 3.0, 3, -1e-7, 1.0 + 2.0**-52, 1.7976931348623157e308),
    *(math.nan, math.inf, -math.inf, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 + 1, 10**400),
)
"""Numbers that the archive holds, one a step."""

STEPS = (2**31 + 5, 2**53 + 1, 2**63 - 1, 7, 7, 0)
"""Steps of one series: large ones, smaller ones after them, and one twice."""

TEXTS = ("text", "", " ", "NaN", "a\0b\r\nc\rd\u2028\x85", "\ufeff\u00e9\U0001f600", "x" * 100_000, '{"tag": "other"}')
"""Texts, one a step."""

TAGS = (
    "a/b",
    "a.b",
    "a b",
    " a",
    "a/",
    "//a",
    "",
    "curr_step",
    "\u00e9",
    "x" * 100,
    "\U0001f600" * 100,
    "a\\b",
    "a\0\n",
)
"""Names of metrics that the archive keeps."""

LONG_TAG = "t" * 3000
"""A tag of a text; it stands in the metadata, which Comet does not cut."""


def emit(sink: CometSink, *points: Point) -> None:
    """Emit points of any kind."""
    for point in points:
        getattr(sink, CAPABILITY_METHODS[point.capability])(point)


def emit_and_flush(sink: CometSink, *points: Point) -> None:
    """Emit points and wait for them."""
    emit(sink, *points)
    sink.flush()


def refused(call: Callable[..., object], *arguments: Any) -> list[Any] | None:
    """Return code, message and fields, as text, of what a call refuses with; None when it returns."""
    try:
        call(*arguments)
    except Refusal as refusal:
        return [refusal.code, refusal.message, {key: str(value)[:300] for key, value in refusal.fields.items()}]
    return None


def tell(**told: Any) -> None:
    """Print the last line of the program."""
    print(json.dumps(told), flush=True)


def start() -> tuple[Any, CometSink]:
    """Start an experiment here and open a sink on it."""
    experiment = start_offline_experiment(Path.cwd())
    return experiment, CometSink(experiment)


def numbers(count: int, *, first: int = 0) -> list[Point]:
    """Return scalars of one series."""
    return [ScalarPoint("loss", step, step / 7) for step in range(first, first + count)]


def stored() -> None:
    """Store one of everything."""
    experiment, sink = start()
    told: dict[str, Any] = {"words": sorted(sink.capabilities()), "before": sink.relay_state().state}
    emit(sink, *(ScalarPoint("numbers", step, value) for step, value in enumerate(NUMBERS, 100)))
    emit(sink, *(ScalarPoint("steps", step, index / 3) for index, step in enumerate(STEPS)))
    emit(
        sink, *(TextPoint("texts", step, text) for step, text in enumerate(TEXTS, 200)), TextPoint(LONG_TAG, 1, "long")
    )
    sink.preflight_tags(TAGS)
    emit(sink, *(ScalarPoint(tag, 300, 1.5) for tag in TAGS))
    with experiment.train():
        emit(sink, ScalarPoint("in-context", 1, 0.5), TextPoint("in-context", 1, "text"))
        experiment.log_metric("by-hand", 2.5, step=4)
    names = ("y" * 101, "process duration")
    told["names"] = [refused(emit, sink, ScalarPoint(name, 1, 0.5)) for name in names]
    told["preflight"] = [refused(sink.preflight_tags, ["fine", name]) for name in names]
    told["unprintable"] = refused(emit, sink, ScalarPoint("unprintable", 1, 10**5000))
    told["surrogates"] = refused(emit, sink, TextPoint("surrogates", 1, "\ud800"))
    experiment.log_metric("no-step-of-its-own", 1)
    experiment.log_metric("words", "hello", step=5)
    experiment.log_metric("half", 1, step=1.5)
    experiment.log_text("untagged", step=5)
    experiment.log_parameter("rate", 0.1)
    experiment.log_other("other", "fact")
    experiment.log_histogram_3d([0.5, 0.5, 2.0], name="h/inside", step=6)
    histogram = import_comet().Histogram(start=1.0, stop=8.0, step=2.0)
    histogram.counts[0] = histogram.counts[-2] = 3
    experiment.log_histogram_3d(histogram, name="h/outside", step=6)
    told["child"] = _fork(sink)
    told["state"] = [sink.relay_state().state, sink.relay_state().evidence]
    sink.flush()
    sink.close()
    sink.close()
    told["closed"] = [refused(emit, sink, *numbers(1)), refused(sink.flush)]
    experiment.end()
    told["after-end"] = refused(CometSink, experiment)
    tell(**told)


def _fork(sink: CometSink) -> list[Any]:
    """Return the status of a child that emits, flushes and closes, all in vain."""
    child = os.fork()
    if child == 0:
        codes = [told and told[0] for told in (refused(emit, sink, *numbers(1)), refused(sink.flush))]
        sink.close()
        os._exit(0 if codes == ["tracker_sink_forked"] * 2 else 1)
    return [os.waitpid(child, 0)[1]]


def killed(count: str) -> None:
    """Emit, flush, and be killed."""
    experiment, sink = start()
    emit(sink, *numbers(int(count)), TextPoint("texts", 3, "x" * 50_000))
    sink.flush()
    tell(folder=experiment.tmpdir)
    os.kill(os.getpid(), signal.SIGKILL)


def replaced(count: str) -> None:
    """Emit and flush, start another experiment and emit to both sinks; again without a flush; end one too early."""
    experiment, sink = start()
    emit(sink, *numbers(int(count)), TextPoint("texts", 3, "first"))
    sink.flush()
    second, other = start()
    late = refused(emit, sink, *numbers(1, first=int(count)))
    emit(other, ScalarPoint("second", 1, 2.5))
    flushed = refused(sink.flush)
    sink.close()
    other.close()
    again = refused(CometSink, experiment)
    third, unflushed = start()
    emit(unflushed, *numbers(10))
    unflushed.flush()
    with third.streamer.__write_lock__:  # a slow disk
        emit(unflushed, *numbers(20, first=10))
        fourth, sink = start()
    lost = [refused(emit, unflushed, *numbers(1)), refused(unflushed.close)]
    emit(sink, *numbers(3), TextPoint("texts", 3, "last"))
    fourth.end()
    ended = [refused(emit, sink, *numbers(1, first=3)), refused(sink.flush), refused(sink.close)]
    ended.append(refused(CometSink, fourth))
    keys = [each.get_key() for each in (experiment, second, third, fourth)]
    tell(
        keys=keys,
        late=late,
        flushed=flushed,
        again=again,
        ended=ended,
        lost=lost,
        state=[sink.relay_state().state, sink.relay_state().evidence],
    )


def useless() -> None:
    """Tell what importing Comet changes; offer experiments that log nothing, and what is no experiment."""
    same, finders = _import_told()
    os.environ |= {"COMET_URL_OVERRIDE": "http://127.0.0.1:9/clientlib/", "COMET_LOGGING_CONSOLE": "CRITICAL"}
    os.environ |= {"COMET_GET_OR_ADD_EXPERIMENT_RETRY_TOTAL": "0", "COMET_HTTP_SESSION_RETRY_TOTAL": "0"}
    comet = import_comet()
    off = dict.fromkeys(("log_code", "log_graph", "auto_output_logging", "parse_args", "log_env_details"), False)
    told = [refused(CometSink, comet.OfflineExperiment(offline_directory=".", disabled=True, **off))]
    unreachable = comet.Experiment(api_key="a" * 40, log_git_metadata=False, log_git_patch=False, **off)
    unreachable.log_metric("loss", 0.5, step=1)
    told.append(refused(CometSink, unreachable))
    os.environ["COMET_AUTO_LOG_DISABLE"] = "true"
    told.append(refused(CometSink, comet.OfflineExperiment(offline_directory=".", **off)))
    told += [refused(CometSink, object()), refused(CometSink, comet.APIExperiment)]
    tell(told=told, files=os.listdir(), same=same, finders=finders)


def _import_told() -> tuple[bool, list[str]]:
    """Return whether importing Comet leaves hooks, filters and threads alone, and the finders it adds."""
    before = (sys.excepthook, list(warnings.filters), threading.active_count())
    finders = [type(finder).__module__ for finder in sys.meta_path]
    import_comet()
    new = {type(finder).__module__ for finder in sys.meta_path} - set(finders)
    same = before == (sys.excepthook, list(warnings.filters), threading.active_count())
    return same, [module for module in new if module.startswith("comet")]


def troubles() -> None:
    """Let things go wrong, each in an experiment of its own, whose key is told as well."""
    tell(threads=_threads(), moved=_moved(), full_disk=_full_disk(), without_a_writer=_without_a_writer())
    os._exit(0)


def _threads() -> list[Any]:
    """Let eight threads emit at once."""
    experiment, sink = start()

    def work(number: int) -> None:
        for step in range(40):
            emit(sink, ScalarPoint(f"thread-{number}", step, step / 3))
        emit(sink, TextPoint(f"thread-{number}", number, f"text {number}"))

    running = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    sink.close()
    experiment.end()
    return [experiment.get_key()]


def _moved() -> list[Any]:
    """Let the experiment's step change between setting it and using it, as another thread may do."""
    experiment, sink = start()
    emit(sink, *numbers(2))
    set_step = experiment._set_step

    def interrupted(step: int | None, *arguments: Any, **named: Any) -> None:
        set_step(step, *arguments, **named)
        experiment.curr_step = 99

    experiment._set_step = interrupted
    told = refused(emit_and_flush, sink, *numbers(1, first=2))
    experiment._set_step = set_step
    return [experiment.get_key(), told, *_afterwards(experiment, sink)]


def _full_disk() -> list[Any]:
    """Let the system refuse to let the message file grow."""
    experiment, sink = start()
    emit(sink, *numbers(5))
    sink.flush()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = os.path.getsize(os.path.join(experiment.tmpdir, "messages.json"))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
    told = refused(emit_and_flush, sink, *numbers(1, first=5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    return [experiment.get_key(), told, *_afterwards(experiment, sink)]


def _afterwards(experiment: Any, sink: CometSink) -> list[Any]:
    """Return what emit, flush and close of a sink do that has met a failure, and end the experiment."""
    told = [refused(emit, sink, *numbers(1, first=100)), refused(sink.flush), refused(sink.close)]
    experiment.end()
    return told


def _without_a_writer() -> list[Any]:
    """Make Comet swallow an error of its own, and stop its writer under the sink."""
    experiment, sink = start()
    emit(sink, *numbers(1))
    experiment._log_metric = None
    told = [refused(emit, sink, *numbers(1, first=1))]
    other = CometSink(experiment)
    del experiment._log_metric
    experiment.streamer.abort_and_wait()
    told.append(refused(emit_and_flush, other, *numbers(1, first=2)))
    return [experiment.get_key(), *told]


def attached() -> None:
    """Ask for histograms at attach, then watch without; and measure our grid against Comet's."""
    import torch

    import torchlens_conformance.trackers as trk

    experiment, sink = start()
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def watch(**more: Any) -> Any:
        return trk.watch(model, to=sink, optimizer=optimizer, every=1, **more)

    told = refused(lambda: watch(hist_every=1))
    session = watch()
    for step in (3, 5):
        with session.step(step):
            model(torch.ones(4, 3)).sum().backward()
            optimizer.step()
    report = session.close()
    experiment.end()
    rows = [[row.name, row.relay_state, row.relay_detail, row.failed] for row in report.sinks]
    ours = DEFAULT_DESCRIPTOR.edges
    grid = import_comet().Histogram(start=2.0**-48, stop=2.0**16 * (1 + 1e-12), step=2.0**0.25)
    off = [min(abs(edge - other) for other in grid.values) / abs(edge) for edge in ours]
    tell(told=told, rows=rows, edges=len(ours), exact=off.count(0.0), off=max(off), zero=0 in grid.values)


def missing() -> None:
    """Make a sink where Comet is not installed."""
    clean = "comet_ml" not in sys.modules
    sys.modules["comet_ml"] = None  # type: ignore[assignment]
    tell(clean=clean, told=refused(CometSink, object()), told_offline=refused(import_comet))
