"""ClearML's TensorBoard relay: a SummaryWriter whose events ClearML captures, read back from the offline session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reference_sinks.readers import ReadResult, Unplaced
from torchlens_conformance.protocol import Point

from ..received import Received, ReceivedHistogram, Refused, from_result, with_histograms
from .base import Route, emit_each
from .tensorboard import WORDS

# No server is dialled: every address is a closed port of this machine. The reporter runs in this process, since its
# usual subprocess can hang at close when git is started while it forks.
_CONFIG = """\
api {
  api_server: "http://127.0.0.1:9"
  web_server: "http://127.0.0.1:9"
  files_server: "http://127.0.0.1:9"
  credentials { access_key: "offline", secret_key: "offline" }
}
sdk {
  development {
    report_use_subprocess: false
    vcs_repo_detect_async: false
    store_uncommitted_code_diff: false
    detect_with_pip_freeze: false
    worker { log_stdout: false, report_event_flush_threshold: 1000000 }
  }
}
"""

# Frameworks that are not listed are on; detect_repository asks a host for updates in a thread.
_OTHER_FRAMEWORKS = (
    *("matplotlib", "tensorflow", "pytorch", "megengine", "xgboost", "scikit", "detect_repository", "fastai"),
    *("lightgbm", "hydra", "jsonargparse", "joblib", "catboost", "gradio", "tfdefines"),
)


def environment(place: Path) -> Mapping[str, str]:
    """Keep ClearML's cache inside ``place``, name the configuration that :func:`send` writes there, and stay offline.

    Version 2.1.0 logs in when it is imported, before anyone can call ``set_offline``.
    """
    return {
        "CLEARML_CACHE_DIR": str(place / "cache"),
        "CLEARML_CONFIG_FILE": str(place / "clearml.conf"),
        "CLEARML_OFFLINE_MODE": "1",
    }


def start_task() -> Any:
    """Start an offline task that captures TensorBoard and nothing else."""
    from clearml import Task

    Task.set_offline(True)
    return Task.init(
        project_name="fidelity",
        task_name="relay",
        auto_connect_arg_parser=False,
        auto_connect_frameworks={"tensorboard": True, **dict.fromkeys(_OTHER_FRAMEWORKS, False)},
        auto_resource_monitoring=False,
        auto_connect_streams=False,
        reuse_last_task_id=False,
    )


def send(points: Sequence[Point], place: Path) -> list[Refused]:
    """Start the task, then construct the writer, then write."""
    return _send(points, place, writer_first=False)


def send_writer_first(points: Sequence[Point], place: Path) -> list[Refused]:
    """Construct the writer, then start the task, then write."""
    return _send(points, place, writer_first=True)


def _send(points: Sequence[Point], place: Path, *, writer_first: bool) -> list[Refused]:
    from reference_sinks import TensorBoardSink

    from .wire import sink_settings

    (place / "clearml.conf").write_text(_CONFIG, encoding="utf-8")
    sink = TensorBoardSink(place / "log", **sink_settings()) if writer_first else None
    task = start_task()
    sink = sink or TensorBoardSink(place / "log", **sink_settings())
    refused = emit_each(sink, points, WORDS)
    sink.close()
    task.close()
    return refused


def read(place: Path) -> Received:
    """Read the offline session; the relay's histogram surfaces become histograms without edges."""
    from reference_sinks.readers import read_clearml

    result = read_clearml(place / "cache")
    return with_histograms(from_result(result), _surface_histograms(result))


def _surface_histograms(result: ReadResult) -> Iterable[ReceivedHistogram]:
    """Yield a histogram for each row of the last surface of each series; every surface repeats the rows before it."""
    latest: dict[str, Unplaced] = {}
    for item in result.unplaced:
        if item.reason == "histogram surface":
            latest[str(item.content["tag"])] = item
    for tag, item in latest.items():
        rows: Sequence[Sequence[float]] = item.content["z"]  # type: ignore[assignment]
        steps: Sequence[str] = item.content["y_labels"]  # type: ignore[assignment]
        labels: Sequence[str] = item.content["x_labels"]  # type: ignore[assignment]
        # A surface needs two rows; where only one histogram was kept, the first row is made of zeros.
        for row, label in zip(rows[-len(steps) :], steps):
            yield ReceivedHistogram(
                tag,
                item.content["step"],  # type: ignore[arg-type]
                tuple(row),
                None,
                edge_labels=tuple(text for text in labels if text),
                step_label=label,
            )


def stored_tag(tag: str, capability: str) -> str:
    """Return the name under which the relay stores ``tag``: cut into metric and variant, slashes made underscores."""
    from reference_sinks.readers.clearml_tags import relayed_tag

    return relayed_tag(tag, capability) if capability in ("scalar", "raw_histogram", "text_manifest") else tag


ROUTE = Route(
    "clearml-relay",
    "ClearML relay",
    "clearml",
    send,
    read,
    WORDS,
    send_writer_first,
    environment,
    stored_tag,
)
