"""torchlens 2.36's own sinks as subjects, from outside: nothing but public names of ``torchlens.trackers``.

Run in this folder: ``torchlens-conformance certify torchlens_subjects:JSONL --profile 2026.1-torchlens``.
Their points are made by the same engine that made the sinks, so each point is handed over as theirs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torchlens.trackers as theirs
from torchlens_readers import read_wandb_with_texts

from torchlens_conformance.kit import Subject
from torchlens_conformance.kit.subjects.jsonl import read_jsonl_place
from torchlens_conformance.kit.subjects.readers import read_tensorboard_place
from torchlens_conformance.protocol import (
    CAPABILITY_METHODS,
    GraphPoint,
    GridDescriptor,
    HistogramPoint,
    Point,
    ScalarPoint,
    TextPoint,
)


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


def grid_as_theirs(grid: GridDescriptor) -> Any:
    """Return a grid as torchlens has it; the class is the one of the grid that they publish."""
    return replace(
        theirs.WANDB_SAFE_DESCRIPTOR, bins_per_octave=grid.bins_per_octave, lo_exp=grid.lo_exp, hi_exp=grid.hi_exp
    )


def grid_as_ours(grid: Any) -> GridDescriptor:
    """Return one of their grids as the protocol has it."""
    return GridDescriptor(bins_per_octave=grid.bins_per_octave, lo_exp=grid.lo_exp, hi_exp=grid.hi_exp)


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
        if name.startswith("emit_"):
            return lambda point: found(as_theirs(point))
        if name == "preflight_histograms":
            return lambda grid: found(grid_as_theirs(grid))
        if name == "default_histogram_descriptor":
            return lambda: grid_as_ours(found())
        return found

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


def subject(
    name: str,
    open_: Callable[[Path], Theirs],
    read: Callable[[Path], Any],
    *,
    words: Iterable[str] = (),
    lacks: Iterable[str] = (),
    in_process_read: bool = False,
) -> Subject:
    """Return one of their sinks as a subject, driven with what it has methods for.

    That some advertise more fails ``surface.methods``. If the missing methods were called as well, most other checks
    would only tell that again.

    Args:
        name: Its class.
        open_: Opens it on a place.
        read: Reads the place.
        words: The words it has methods for, beside scalars, histograms and texts.
        lacks: The words that it advertises without a method.
        in_process_read: Whether it has no store.
    """
    driven = {"scalar", "raw_histogram", "text_manifest", *words}
    reasons = {word: f"{name} does not advertise it" for word in CAPABILITY_METHODS if word not in driven}
    return Subject(
        name=f"torchlens {name}",
        open=open_,
        read=read,
        distribution="torchlens",
        capabilities=driven,
        undeclared={**reasons, **{word: f"{name} advertises it and has no method for it" for word in lacks}},
        in_process_read=in_process_read,
    )


JSONL = subject("JSONLSink", open_jsonl, read_jsonl_place, words=["graph"], lacks=["structured_event"])
MEMORY = subject(
    "MemorySink",
    open_memory,
    read_memory,
    words=["graph"],
    lacks=["run_metadata", "structured_event"],
    in_process_read=True,
)
TENSORBOARD = subject("TensorBoardSink", open_tensorboard, read_tensorboard_place, lacks=["graph", "run_metadata"])
WANDB = subject("WandbSink", open_wandb, read_wandb_with_texts, lacks=["run_metadata"])
