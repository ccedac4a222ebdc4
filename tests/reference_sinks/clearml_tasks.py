"""Programs that drive ClearMLSink over a real offline task, each in a process of its own: ClearML has one task each."""

from __future__ import annotations

START = """
import json, math, os, sys
from pathlib import Path
from reference_sinks.clearml_offline import offline_environment, start_offline_task
os.environ.update(offline_environment(Path.cwd()))
from clearml import Task
from reference_sinks import ClearMLSink
from tests.reference_sinks.telling import code, emit
from torchlens_conformance.protocol import (
    DEFAULT_DESCRIPTOR, HistogramPoint, ScalarPoint, TextPoint, advertised_capabilities)
def end(told):
    print(json.dumps(told), flush=True)
task = start_offline_task("sink")
told = {"folder": str(task.get_offline_mode_folder())}
"""
"""Starts an offline task under the working directory; what a program tells goes into ``told``."""

NUMBERS = (0.1, 1e300, 16777217, 2**53, 2**60, 10**22, 5e-324, -0.0, 3.0, -1e-7, -(2**63))
"""Numbers that a float64 holds."""

CHANGED = (2**53 + 1, 2**63 - 1, 10**400, float("nan"), float("inf"), float("-inf"))
"""Numbers that ClearML would change."""

TEXTS = ("text", "NaN", "", "a\0b\r\n\u2028\u0085", "\u00e9\U0001f600", "x" * 100_000, "{}", "\ud800")
"""Texts, one a step from 120 on."""

TAGS = (
    "a/b",
    "a_b/c",
    "a/b_c",
    "a",
    "a/a",
    "a/",
    "/a",
    "//a",
    "a//b",
    "/",
    "",
    "a b/ c",
    "\u00e9/\n",
    "x" * 300,
    "a\\b",
)
"""Tags that some way of cutting them would bring together, and odd ones."""

STORED = """
sink = ClearMLSink(task)
told |= {"words": sorted(advertised_capabilities(sink)), "state-before": sink.relay_state().state,
         "last-before": sink.last_step(), "own": [task.get_logger().report_scalar("by", "hand", 0.5, 3)]}
numbers, changed, texts, tags = eval(sys.argv[1])
for offset, value in enumerate(numbers):
    emit(sink, ScalarPoint("numbers/all", 100 + offset, value))
told["changed"] = [code(emit, sink, ScalarPoint("changed/all", 100, value)) for value in changed]
for offset, text in enumerate(texts):
    emit(sink, TextPoint("texts/all", 120 + offset, text))
told["tags-preflight"] = code(sink.preflight_tags, [tag for tag in tags])
emit(sink, *[kind for index, tag in enumerate(tags) for kind in (
    ScalarPoint(tag, 200, index + 0.5), TextPoint(tag, 200, str(index)), HistogramPoint(tag, 200, [index], [0, 1]))])
told["surrogates"] = [code(sink.preflight_tags, ["\\ud800"]), code(emit, sink, ScalarPoint("\\ud800", 1, 1.0)),
                      code(emit, sink, TextPoint("\\ud800", 1, "t"))]
counts = [(index * 7919) % 1000 for index in range(513)]
counts[3], counts[4] = 2**60 + 1, 2**70
summary = {"min": -1.0, "max": 5e-324, "num": 3, "sum": math.nan, "sum_squares": math.inf}
emit(sink, HistogramPoint("p/hist/grid", 210, counts, DEFAULT_DESCRIPTOR.edges, summary),
     HistogramPoint("p/hist/zero", 210, [1, 2], [-0.5, -0.0, 1e-300]),
     HistogramPoint("p/hist/wide", 210, [1] * 5000, [index / 7 for index in range(5001)]))
for step in (9, 5, 5, 2**31 - 1, 2**31 + 5, 2**53 + 1, 2**63 - 1, 0):
    emit(sink, ScalarPoint("steps/all", step, step / 3))
    emit(sink, TextPoint("steps/all", step, str(step)))
told["unseen"] = sink.relay_state().evidence
sink.flush()
told |= {"state": [sink.relay_state().state, sink.relay_state().evidence], "last": sink.last_step()}
second = ClearMLSink(task)
emit(second, TextPoint("second/sink", 300, "another"), ScalarPoint("second/sink", 300, 1.0))
second.flush()
task.set_initial_iteration(101)
told["shifted"] = [code(ClearMLSink, task), code(emit, sink, ScalarPoint("shifted/x", 1, 1.0)),
                   code(emit, sink, TextPoint("shifted/x", 1, "t"))]
task.set_initial_iteration(0)
child = os.fork()
if child == 0:
    ok = code(emit, sink, ScalarPoint("child/x", 500, 1.0))[0] == "tracker_sink_forked" == code(sink.flush)[0]
    sink.close()
    os._exit(0 if ok else 1)
told["child"] = os.waitpid(child, 0)[1]
emit(sink, TextPoint("before/close", 400, "still there"), ScalarPoint("before/close", 400, 0.25))
sink.close(); sink.close()
told["closed"] = [code(emit, sink, ScalarPoint("closed/x", 1, 1.0)), code(sink.flush)]
emit(second, TextPoint("too/late", 300, "lost, and told"))
task.upload_artifact("facts", {"a": 1}, wait_on_upload=True)
task.close()
told["finished"] = [code(emit, second, ScalarPoint("late/x", 1, 1.0)), code(second.close), code(ClearMLSink, task)]
told["no-task"] = [code(ClearMLSink, object()), code(ClearMLSink, Task)]
end(told)
"""
"""One of everything."""

KILLED = """
sink = ClearMLSink(task)
for step in range(50):
    emit(sink, ScalarPoint("s/x", step, step / 3), TextPoint("t/x", step, str(step)))
sink.flush()
end(told)
os.kill(os.getpid(), 9)
"""
"""Everything is flushed, then the process is killed."""

FULL = """
import resource, signal
sink = ClearMLSink(task)
emit(sink, ScalarPoint("s/x", 0, 0.5), TextPoint("t/x", 0, "before"))
sink.flush()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
emit(sink, *[ScalarPoint("s/x", step, step / 3) for step in range(1, 200)])
told["full"] = code(sink.flush)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
told["again"] = [code(emit, sink, ScalarPoint("s/x", 900, 1.0)), code(emit, sink, TextPoint("t/x", 900, "no")),
                 code(sink.close), code(sink.close)]
end(told)
os._exit(0)
"""
"""The file of scalars cannot grow any more; afterwards there is room again."""

FULL_ARTIFACT = """
import resource, signal
sink = ClearMLSink(task)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
emit(sink, TextPoint("t/x", 0, "x" * 100_000))
told["full"] = code(sink.flush)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
told["again"] = code(emit, sink, TextPoint("t/x", 1, "no"))
end(told)
os._exit(0)
"""
"""An artifact finds no room."""

CONTINUED = """
log = task.get_logger()
for step in range(0, 101, 50):
    log.report_scalar("hand", "before", step / 3, step)
task.close()
told["offsets"] = {}
for name in ("True", "0", "7"):
    task = Task.init("conformance", "sink", continue_last_task=eval(name), reuse_last_task_id=task.id,
        auto_connect_frameworks=False, auto_resource_monitoring=False, auto_connect_streams=False)
    told["offsets"][name] = task.get_initial_iteration()
    told[name] = code(ClearMLSink, task)
    task.get_logger().report_scalar("hand", name, 0.5, 100)
    if told[name] is not None:
        task.flush(wait_for_uploads=True)
        task.set_initial_iteration(0)
    sink = ClearMLSink(task)
    emit(sink, ScalarPoint("sink/" + name, 100, 0.5), TextPoint("text/" + name, 100, name))
    told["last-" + name] = sink.last_step()
    sink.close()
    task.close()
end(told)
"""
"""The same offline task continued three times (bug report 24)."""

NO_PLACE = """
import shutil
folder = Path(told["folder"])
sink = ClearMLSink(task)
if sys.argv[1] == "gone":
    shutil.rmtree(folder / "data")
    (folder / "data").write_text("a file stands here")
else:
    task.get_logger().set_default_upload_destination((Path.cwd() / "elsewhere").as_uri())
emit(sink, TextPoint("t/x", 0, "lost"))
told["said"] = code(sink.flush)
told["again"] = code(emit, sink, ScalarPoint("s/x", 1, 1.0))
end(told)
os._exit(0)
"""
"""The folder of artifacts cannot be had, or artifacts go to another place."""

CONTINUED_RELAY = """
told["offsets"] = {}
for name in ("False", "True", "200", "0"):
    task.close()
    task = Task.init("conformance", "sink", continue_last_task=eval(name), reuse_last_task_id=task.id,
        auto_connect_frameworks={"tensorboard": True, "detect_repository": False}, auto_resource_monitoring=False,
        auto_connect_streams=False)
    told["offsets"][name] = task.get_initial_iteration()
    told["folder"] = str(task.get_offline_mode_folder())
    from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter("events-" + name)
    for step in (0, 50, 100) if name == "False" else (100, 150, 300):
        writer.add_scalar("relay/" + name, 0.5, step)
    writer.close()
task.close()
end(told)
os._exit(0)
"""
"""A task whose TensorBoard relay is continued (bug report 24)."""
