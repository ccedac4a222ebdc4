"""Rows a second that JSONLSink writes, beside what the system allows and what plain json.dumps gives (JSONL-2).

All ways have the same durability: one unbuffered write a row. They take turns in short bursts and the best burst of
each counts, so that other work on the machine disturbs them alike.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from reference_sinks import JSONLSink
from torchlens_conformance.protocol import DEFAULT_DESCRIPTOR, HistogramPoint, ScalarPoint, point_to_row

Emit = Callable[[Any], object]
Points = Sequence[ScalarPoint] | Sequence[HistogramPoint]

LIMIT, OURS, BASELINE, TORCHLENS = "os.write alone", "JSONLSink", "json.dumps + os.write", "torchlens JSONLSink"


def make_scalars(count: int) -> list[ScalarPoint]:
    """Return scalars as a watcher emits them: 76 tags, values of 17 digits."""
    tags = [f"gradients/mean/transformer.h.{index % 6}.attn.c_attn.weight_{index}" for index in range(76)]
    return [ScalarPoint(tags[index % 76], index // 76, 1.0 / (index + 3)) for index in range(count)]


def make_histograms(count: int) -> list[HistogramPoint]:
    """Return histograms of 513 buckets over one grid, counts mostly small: a bell over the middle octaves."""
    counts = [0] * DEFAULT_DESCRIPTOR.bucket_count
    for distance in range(100):
        counts[60 + distance] = counts[-61 - distance] = int(2000 * 0.93 ** abs(distance - 60))
    total = sum(counts)
    summary = {"min": -0.731, "max": 0.652, "num": total, "sum": 1.0 / 7, "sum_squares": 1.0 / 3}
    tags = [f"gradients/hist/transformer.h.{index}.attn.c_attn.weight" for index in range(6)]
    return [
        HistogramPoint(tags[index % 6], index, tuple(counts), DEFAULT_DESCRIPTOR.edges, summary)
        for index in range(count)
    ]


@contextmanager
def open_ways(directory: Path, method: str) -> Iterator[dict[str, Emit]]:
    """Yield the ways to write one point, by name; their files are removed at the end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory)))
        descriptors = [
            os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in ("limit.jsonl", "baseline.jsonl")
        ]
        for descriptor in descriptors:
            stack.callback(os.close, descriptor)
        limit, baseline = descriptors
        ours = JSONLSink(folder / "ours.jsonl")
        stack.callback(ours.close)
        ways: dict[str, Emit] = {
            LIMIT: lambda line: os.write(limit, line),
            OURS: getattr(ours, method),
            BASELINE: lambda row: os.write(baseline, json.dumps(row).encode() + b"\n"),
        }
        trackers = _torchlens()
        if trackers is not None:
            theirs = trackers.JSONLSink(folder / "torchlens.jsonl")
            stack.callback(theirs.close)
            ways[TORCHLENS] = getattr(theirs, method)
        yield ways


def inputs_of(points: Points) -> dict[str, list[Any]]:
    """Return what each way takes: ready bytes, points, ready dictionaries, torchlens's own points."""
    rows = [point_to_row(point) for point in points]
    inputs: dict[str, list[Any]] = {
        LIMIT: [json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows],
        OURS: list(points),
        BASELINE: rows,
    }
    trackers = _torchlens()
    if trackers is not None:
        inputs[TORCHLENS] = [_torchlens_point(trackers, point) for point in points]
    return inputs


def _torchlens() -> Any:
    """Return torchlens's public trackers module, or None where it is not installed."""
    try:
        return import_module("torchlens.trackers")
    except ImportError:
        return None


def _torchlens_point(trackers: Any, point: ScalarPoint | HistogramPoint) -> object:
    if isinstance(point, ScalarPoint):
        return trackers.ScalarPoint(tag=point.tag, step=point.step, value=point.value)
    return trackers.HistogramPoint(
        tag=point.tag, step=point.step, counts=point.counts, edges=point.edges, summary=dict(point.summary)
    )


def measure(directory: Path, method: str, points: Points, *, rounds: int) -> dict[str, float]:
    """Return the best seconds a row of each way, over ``rounds`` bursts of all points."""
    best: dict[str, float] = {}
    inputs = inputs_of(points)
    for _ in range(rounds):
        with open_ways(directory, method) as ways:
            for name, emit in ways.items():
                started = time.perf_counter()
                for item in inputs[name]:
                    emit(item)
                seconds = (time.perf_counter() - started) / len(points)
                best[name] = min(seconds, best.get(name, seconds))
    return best


def measure_flush(directory: Path, *, rounds: int) -> float:
    """Return the median seconds of one flush with a new row to bring to the disk."""
    (point,) = make_scalars(1)
    taken = []
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        sink = JSONLSink(Path(folder) / "flush.jsonl")
        for _ in range(rounds):
            sink.emit_scalar(point)
            started = time.perf_counter()
            sink.flush()
            taken.append(time.perf_counter() - started)
        sink.close()
    return sorted(taken)[len(taken) // 2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table or JSON, return the exit code 0."""
    parser = argparse.ArgumentParser(description=str(__doc__), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=_default_directory(), help="where to write (%(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="bursts of each way (%(default)s)")
    parser.add_argument("--scalars", type=int, default=3000, help="scalars a burst (%(default)s)")
    parser.add_argument("--histograms", type=int, default=60, help="histograms a burst (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON: rows a second and ratios to json.dumps")
    options = parser.parse_args(arguments)
    seconds = {
        "scalars": measure(options.directory, "emit_scalar", make_scalars(options.scalars), rounds=options.rounds),
        "histograms": measure(
            options.directory, "emit_histogram", make_histograms(options.histograms), rounds=options.rounds
        ),
    }
    results = {
        kind: {
            name: {"rows_per_second": 1 / each, "times_json_dumps": ways[BASELINE] / each}
            for name, each in ways.items()
        }
        for kind, ways in seconds.items()
    }
    flush = measure_flush(options.directory, rounds=options.rounds)
    if options.json:
        report = {"directory": str(options.directory), "rows": results, "flush_seconds": flush}
        json.dump(report, sys.stdout, indent=2)
        print()
        return 0
    for kind, ways in results.items():
        print(f"{kind:24}{'rows/s':>12}{'x json.dumps':>14}")
        for name, numbers in ways.items():
            print(f"  {name:22}{numbers['rows_per_second']:12,.0f}{numbers['times_json_dumps']:14.2f}")
    print(f"flush() after one row: {flush * 1e3:.3f} ms in {options.directory}")
    return 0


def _default_directory() -> Path:
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else Path(tempfile.gettempdir())


if __name__ == "__main__":
    sys.exit(main())
