"""trailer-sdk's local store, only measured: the package is under the Elastic Licence 2.0 and no dependency of ours.

An extra route, not in the default run. Its own call for histograms takes values and counts them itself, into equal
buckets; what is sent here is the record that this call makes, with our counts and edges in it.

Measured with 0.1.22, beyond what the table's rows show: counts that never fall from one bucket to the next are taken
for running totals and stored as differences, so that 1, 2, 3 becomes 1, 1, 1, also through its own call; -0.0 becomes
0.0.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import HistogramPoint, Point, ScalarPoint, TextPoint

from ..received import Received, ReceivedHistogram, ReceivedScalar, ReceivedText, Refused
from .base import Route, emit_each
from .resuming import Resume, Way, begun_run_id, continue_run, keep_run_id

WORDS = frozenset({"scalar", "raw_histogram", "text_manifest"})
"""What trailer's tracker takes of the stimulus."""

_FILE = "trailer.db"
_WAY = "Tracker(resume_from=run_id)"


class _Emitter:
    """Hands points to a tracker of trailer."""

    def __init__(self, tracker: Any) -> None:
        self.tracker = tracker

    def emit_scalar(self, point: ScalarPoint) -> None:
        self.tracker.log({point.tag: point.value}, step=point.step)

    def emit_text(self, point: TextPoint) -> None:
        self.tracker.log_text(point.text, name=point.tag, step=point.step)

    def emit_histogram(self, point: HistogramPoint) -> None:
        """Put the record of a histogram into the buffer that ``log_histogram`` puts its own into."""
        from reference_sinks.tensorboard_wire import limits_and_counts

        # As on TensorBoard's wire there are right limits only, so an empty bucket in front carries the left edge.
        limits, counts = limits_and_counts(point, "leading-edge")
        self.tracker._buffer.put(
            {
                "kind": "histogram",
                "run_id": self.tracker.run_id,
                "step": point.step,
                "wall_time": time.time(),
                "context": "",
                "payload": {
                    point.tag: point.tag,
                    **point.summary,
                    "bucket_limits": limits,
                    "bucket_counts": counts,
                },
            }
        )


def send(points: Sequence[Point], place: Path) -> list[Refused]:
    """Log the points into a local SQLite store."""
    return _log(points, _tracker(place), place)


def send_resumed(points: Sequence[Point], place: Path) -> list[Refused]:
    """Log the points into the run that was ended there."""
    run_id = begun_run_id(place)
    return _log(points, continue_run(lambda: _tracker(place, resume_from=run_id)), place)


def _tracker(place: Path, **continuing: str) -> Any:
    from trailer import Tracker

    return Tracker(project="fidelity", db_path=str(place / _FILE), auto_collect=False, **continuing)


def _log(points: Sequence[Point], tracker: Any, place: Path) -> list[Refused]:
    keep_run_id(place, tracker.run_id)
    refused = emit_each(_Emitter(tracker), points, WORDS)
    tracker.finish()
    return refused


def read(place: Path) -> Received:
    """Read every row of the store, in stored order."""
    with closing(sqlite3.connect(place / _FILE)) as store:
        return Received(
            scalars=tuple(
                ReceivedScalar(_tag(context, key), step, value)
                for context, key, step, value in store.execute("SELECT context, key, step, value FROM metrics")
            ),
            histograms=tuple(_histogram(row) for row in store.execute(_HISTOGRAMS)),
            texts=tuple(ReceivedText(*row) for row in store.execute("SELECT name, step, body FROM texts")),
        )


_HISTOGRAMS = "SELECT context, key, step, bucket_limits, bucket_counts, min, max, num, sum, sum_squares FROM histograms"


def _histogram(row: tuple[Any, ...]) -> ReceivedHistogram:
    context, key, step, limits, counts, *summary = row
    edges, numbers = json.loads(limits), json.loads(counts)
    return ReceivedHistogram(
        _tag(context, key),
        step,
        tuple(numbers[1:]),
        tuple(edges),
        dict(zip(("min", "max", "num", "sum", "sum_squares"), summary)),
    )


def _tag(context: str, key: str) -> str:
    """Join what trailer cut at the last slash."""
    return f"{context}/{key}" if context else key


_RESUME = Resume(send, (Way(_WAY, send_resumed),), read)

ROUTE = Route("trailer", "trailer", "trailer-sdk", send, read, WORDS, resume=_RESUME)
