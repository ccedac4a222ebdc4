"""torchlens 2.36's own sinks as subjects, from outside: nothing but public names of ``torchlens.trackers``.

``torchlens-conformance certify torchlens_subjects:JSONL --profile 2026.1-torchlens``, run in this folder, certifies one.
Their points are made by the same engine that made the sinks, so each point is handed over as theirs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torchlens.trackers as theirs

from torchlens_conformance.kit import Subject
from torchlens_conformance.kit.subjects.jsonl import read_jsonl_place
from torchlens_conformance.kit.subjects.readers import read_tensorboard_place, read_wandb_place
from torchlens_conformance.protocol import GraphPoint, HistogramPoint, Point, ScalarPoint, TextPoint


def thawed(value: Any) -> Any:
    """Return a frozen value of a point as dictionaries and lists, which their JSON writer takes."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    return [thawed(item) for item in value] if isinstance(value, tuple) else value


def as_theirs(point: Point) -> Any:
    """Return a point of the protocol as torchlens has it; a graph is a mapping there, other kinds stay as they are."""
    if isinstance(point, ScalarPoint):
        return theirs.ScalarPoint(point.tag, point.step, point.value)
    if isinstance(point, HistogramPoint):
        return theirs.HistogramPoint(point.tag, point.step, point.counts, point.edges, dict(point.summary))
    if isinstance(point, TextPoint):
        return theirs.TextPoint(point.tag, point.step, point.text)
    return thawed(point.graph) if isinstance(point, GraphPoint) else point


class Theirs:
    """One of their sinks that takes points of the protocol; everything but the form of the points is the sink's own.

    Args:
        sink: Their sink.
        after_close: Called once after their ``close``, in the process that opened the sink: ends what the caller owns.
    """

    def __init__(self, sink: Any, after_close: Callable[[], Any] | None = None) -> None:
        self._sink = sink
        self._after_close = after_close
        self._owner = os.getpid()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._sink, name)
        return (lambda point: found(as_theirs(point))) if name.startswith("emit_") else found

    def close(self) -> None:
        """Close their sink, then end what belongs to the caller, a run of wandb for example."""
        self._sink.close()
        after, self._after_close = self._after_close, None
        if after is not None and os.getpid() == self._owner:
            after()


def open_jsonl(place: Path) -> Theirs:
    """Open their JSONLSink on a file in ``place``, under the name that our reader looks for."""
    return Theirs(theirs.JSONLSink(Path(place) / "run.jsonl"))


def open_tensorboard(place: Path) -> Theirs:
    """Open their TensorBoardSink on ``place``."""
    return Theirs(theirs.TensorBoardSink(str(place)))


def open_wandb(place: Path) -> Theirs:
    """Start an offline run in ``place``, and open their WandbSink on it; the run ends after close."""
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_ERROR_REPORTING="false")
    import wandb

    settings = wandb.Settings(x_disable_stats=True, x_disable_meta=True, console="off")
    run = wandb.init(mode="offline", dir=str(place), project="conformance", settings=settings, reinit="create_new")
    return Theirs(theirs.WandbSink(run), run.finish)


_MEMORY: dict[str, list[Any]] = {}


def open_memory(place: Path) -> Theirs:
    """Make their MemorySink and remember it under ``place``."""
    sink = theirs.MemorySink()
    _MEMORY.setdefault(str(place), []).append(sink)
    return Theirs(sink)


def read_memory(place: Path) -> list[Point]:
    """Return what the sinks of ``place`` hold; they keep one list a kind, so the order is kept within a kind only."""
    points: list[Point] = []
    for sink in _MEMORY.get(str(place), ()):
        points += [ScalarPoint(point.tag, point.step, point.value) for point in sink.scalars]
        points += [HistogramPoint(p.tag, p.step, p.counts, p.edges, p.summary) for p in sink.histograms]
        points += [TextPoint(point.tag, point.step, point.text) for point in sink.texts]
        points += [GraphPoint(graph) for graph in sink.graphs]
    return points


NO_METHOD = "torchlens 2.36 advertises it, and the sink has no method for it"
_WORDS = frozenset({"scalar", "raw_histogram", "text_manifest"})
# What each is driven with: the words that it has a method for. That it advertises more fails surface.methods; if the
# missing methods were called as well, most other checks would only tell the same again.


def subject(name: str, open_: Callable[[Path], Theirs], read: Callable[[Path], Any], *more: str, **rest: Any) -> Subject:
    """Return one of their sinks as a subject, driven with the three common words and ``more``."""
    words = _WORDS | set(more)
    undeclared = {word: NO_METHOD for word in ("run_metadata", "structured_event", "graph") if word not in words}
    return Subject(
        name=f"torchlens {name}",
        open=open_,
        read=read,
        distribution="torchlens",
        capabilities=words,
        undeclared={**undeclared, **rest.pop("undeclared", {})},
        **rest,
    )


JSONL = subject("JSONLSink", open_jsonl, read_jsonl_place, "graph")
MEMORY = subject("MemorySink", open_memory, read_memory, "graph", in_process_read=True)
TENSORBOARD = subject("TensorBoardSink", open_tensorboard, read_tensorboard_place)
WANDB = subject("WandbSink", open_wandb, read_wandb_place)
