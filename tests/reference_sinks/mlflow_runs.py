"""Runs of a real MLflow in sqlite, written by the sink, and what MLflow itself holds of them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# Before MLflow is imported, which would call its makers' server.
os.environ.update({"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"})
pytest.importorskip("mlflow")

from reference_sinks import MLflowSink
from torchlens_conformance.kit.subjects.mlflow import DATABASE, run_in
from torchlens_conformance.protocol import (
    CAPABILITY_METHODS,
    DEFAULT_DESCRIPTOR,
    HistogramPoint,
    Refusal,
    ScalarPoint,
    TextPoint,
)

NUMBERS = (
    0.1,
    1e300,
    16777217,
    2**53,
    -(2**53),
    0.0,
    3,
    3.0,
    float("nan"),
    5e-324,
    1.0 + 2.0**-52,
    1.7976931348623157e308,
)
"""Numbers that MLflow carries."""

TEXTS = ("text", "", "a\0b\r\n\u2028", "\u00e9\U0001f600", "x" * 100_000, '{"counts": [1]}', "\ufeffmark")
"""Texts that MLflow carries."""

LARGE_STEPS = (2**31 + 5, 2**53 + 1, 2**63 - 1)
"""Steps past the usual widths."""

GRID = HistogramPoint(
    "p/hist/grid",
    210,
    (*((index * 7919) % 1000 for index in range(512)), 2**63 + 1),
    DEFAULT_DESCRIPTOR.edges,
    {"min": -0.0, "max": float("inf"), "num": 2**53 + 1, "sum": float("nan")},
)
"""A histogram of the default grid, with a count and summary fields that are hard to carry."""


@dataclass(frozen=True)
class Run:
    """One run: its folder, a client, its id."""

    folder: Path
    client: Any
    id: str

    def sink(self) -> MLflowSink:
        """Return a sink on the run."""
        return MLflowSink(self.client, run_id=self.id)

    def rows(self, key: str) -> list[tuple[int, float]]:
        """Return step and value of one metric as the database holds them, in stored order."""
        with sqlite3.connect(self.folder / DATABASE) as database:
            found = database.execute("SELECT step, value FROM metrics WHERE key = ? ORDER BY rowid", (key,))
            return [(step, value) for step, value in found]

    def files(self, folder: str) -> list[str]:
        """Return the paths of artifacts that MLflow itself lists."""
        return [item.path for item in self.client.list_artifacts(self.id, folder)]

    def answer(self, tag: str, value: Any, *, step: int = 1) -> list[float]:
        """Return what MLflow gives back for a number that is logged without the sink."""
        self.client.log_metric(self.id, tag, value, step=step)
        return [metric.value for metric in self.client.get_metric_history(self.id, tag)]


def new_run(folder: Path) -> Run:
    """Start a run in a database of its own."""
    client, run_id = run_in(folder)
    return Run(folder, client, run_id)


def emit(sink: Any, points: Iterable[Any]) -> None:
    """Emit every point."""
    for point in points:
        getattr(sink, CAPABILITY_METHODS[point.capability])(point)


def one_of_everything() -> list[Any]:
    """Return what MLflow carries, hard cases included."""
    points: list[Any] = [ScalarPoint("numbers", 100 + index, value) for index, value in enumerate(NUMBERS)]
    points += [TextPoint("texts/of all kinds", 100 + index, text) for index, text in enumerate(TEXTS)]
    points += [GRID, HistogramPoint("p/hist/bare", 211, (0,), (-0.0, 5e-324))]
    for step in LARGE_STEPS:
        points += [
            ScalarPoint("far", step, 1.0),
            TextPoint("far", step, "far"),
            HistogramPoint("far", step, (1,), (0, 1)),
        ]
    points += [ScalarPoint("falling", step, value) for step, value in ((9, 3.0), (4, 2.0), (9, 1.0), (9, 3.0))]
    return points


def refused(call: Callable[..., Any], *arguments: Any, **keywords: Any) -> Refusal:
    """Return the refusal that a call raises."""
    with pytest.raises(Refusal) as caught:
        call(*arguments, **keywords)
    return caught.value


def scalar(tag: str = "loss", step: int = 1, value: float = 0.5) -> ScalarPoint:
    """Return a point."""
    return ScalarPoint(tag, step, value)


def text(tag: str = "notes", step: int = 1, words: str = "words") -> TextPoint:
    """Return a point."""
    return TextPoint(tag, step, words)


def histogram(tag: str = "h", step: int = 1) -> HistogramPoint:
    """Return a point."""
    return HistogramPoint(tag, step, (1, 2), (0.0, 0.1, 0.3))
