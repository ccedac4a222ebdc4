"""The routes of ClearML, of tensorboardX and of trailer over the small stimulus, each in a process of its own."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from fidelity.routes import EXTRA_ROUTES, ROUTE_IDS, get_route
from torchlens_conformance.protocol import Refusal

from ..reference_sinks.conftest import run_program

PROGRAM = """
import json, os, sys
from dataclasses import replace
from pathlib import Path
from fidelity.measure import measure
from fidelity.routes import get_route
from fidelity.verdicts import judge
from tests.fidelity.small_stimulus import small_stimulus
route, place = get_route(sys.argv[1]), Path.cwd() / "store"
place.mkdir()
os.environ.update(route.environment(place))
points = small_stimulus()
refused = route.send(points, place)
received = replace(route.read(place), refused=tuple(refused))
cells = measure(points, received, capabilities=route.capabilities, stored_tag=route.stored_tag)
words = {f"{cell.row} {cell.grid or ''}".strip(): judge(cell.row, cell.numbers) for cell in cells}
print(json.dumps({"words": words, "refused": [[item.tag, item.reason, item.itself] for item in refused]}), flush=True)
os._exit(0)
"""

BUG_REPORT_25 = """
import json, os, sys
from pathlib import Path
import numpy
from fidelity.routes import get_route
from torchlens_conformance.protocol import WANDB_SAFE_DESCRIPTOR, HistogramPoint
from torchlens_conformance.protocol.compare import compare_histograms
route, place = get_route(sys.argv[1]), Path.cwd() / "store"
place.mkdir()
os.environ.update(route.environment(place))
values = numpy.random.default_rng(25).standard_normal(100_000)
# TensorBoard's default buckets, each a tenth wider than the one before, as far as values reach.
sides = 1e-12 * 1.1 ** numpy.arange(307)
grids = {"default": (*(-sides[::-1]).tolist(), 0.0, *sides.tolist()), "grid": WANDB_SAFE_DESCRIPTOR.edges}
points = [
    HistogramPoint(f"g/hist/{name}", step, numpy.histogram(values, edges)[0].tolist(), edges,
                   {"min": values.min(), "max": values.max(), "num": 100_000, "sum": values.sum(),
                    "sum_squares": (values ** 2).sum()})
    for step in (100, 102, 104) for name, edges in grids.items()]
assert route.send(points, place) == []
told = {name: [] for name in grids}
for item in route.read(place).histograms:
    name = "default" if item.tag.endswith("default") else "grid"
    sent = next(point for point in points if point.tag.endswith(name))
    found = compare_histograms(sent.counts, sent.edges, item.counts, item.edges)
    told[name].append({"step": item.step, "label": item.step_label, "buckets": len(item.counts),
                       "l1": repr(found.counts_l1), "mass": found.mass_kept, "counts": list(item.counts)[:64]})
print(json.dumps(told), flush=True)
os._exit(0)
"""

RISING = """
import json, os
from pathlib import Path
import numpy
from trailer import Tracker
from fidelity.routes import get_route
from torchlens_conformance.protocol import HistogramPoint
route, place = get_route("trailer"), Path.cwd() / "store"
place.mkdir()
summary = {"min": 0.0, "max": 3.0, "num": 6, "sum": 1.0, "sum_squares": 1.0}
sent = [(1, 2, 3), (1, 1, 1), (3, 2, 1)]
edges = (0.0, 1.0, 2.0, 3.0)
route.send([HistogramPoint("h/x", step, counts, edges, summary) for step, counts in enumerate(sent)], place)
own = Path.cwd() / "own"
own.mkdir()
tracker = Tracker(db_path=str(own / "trailer.db"), auto_collect=False)
# One value in the first of its three buckets, two in the second, three in the last; its record has no left edge.
tracker.log_histogram(numpy.array([0.1, 0.6, 0.6, 1.1, 1.2, 1.3]), name="h/own", step=0, bins=3)
tracker.finish()
print(json.dumps([item.counts for at in (place, own) for item in route.read(at).histograms]), flush=True)
os._exit(0)
"""

_PACKAGES = {
    "clearml": ("clearml",),
    "clearml-relay": ("clearml", "torch", "tensorboard"),
    "tensorboardx": ("tensorboardX", "tensorboard"),
    "tensorboardx-wandb": ("tensorboardX", "wandb", "tensorboard"),
    "tensorboardx-clearml": ("tensorboardX", "clearml", "tensorboard"),
    "trailer": ("trailer",),
}


def run(program: str, route: str, home: Any) -> Any:
    """Run a program for one route and return what it printed; skip where a package is missing."""
    # Not importorskip: importing clearml reads settings of the user, and some versions dial their server.
    for package in _PACKAGES[route]:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    return run_program(program, route, home=home).printed


def test_clearml_itself_keeps_everything_but_what_is_no_number(tmp_path: Any) -> None:
    """Every row is lossless but non-finite numbers, which are refused, and ClearML's own word stands beside (FID-1)."""
    told = run(PROGRAM, "clearml", tmp_path)
    losses = {row: word for row, word in told["words"].items() if word not in ("exact", "preserved")}
    assert losses == {"nonfinite": "refused", "graph": "not applicable"}
    assert [tag for tag, *_ in told["refused"]] == [f"probe/nonfinite/{name}" for name in ("nan", "posinf", "neginf")]
    for _, reason, itself in told["refused"]:
        assert itself == "stores 0.0"
        assert reason.startswith("ClearML itself stores 0.0; ours: Refusal: [tracker_value_unsupported]")


@pytest.mark.trackers
@pytest.mark.parametrize(
    ("route", "losses"),
    [
        (
            "tensorboardx",
            {"scalars": "faithful (float32)", "graph": "not applicable", "precision": "rewritten", "tags": "rewritten"},
        ),
        ("trailer", {"graph": "not applicable", "nonfinite": "dropped silently", "precision": "rounded"}),
    ],
)
def test_an_extra_route_is_measured(tmp_path: Any, route: str, losses: dict[str, str]) -> None:
    """What tensorboardX and trailer lose of the small stimulus, and nothing else (FID-1, FID-8)."""
    words = run(PROGRAM, route, tmp_path)["words"]
    assert {row: word for row, word in words.items() if word not in ("exact", "preserved")} == losses


@pytest.mark.trackers
@pytest.mark.parametrize(
    ("route", "words"),
    [
        (
            "tensorboardx-wandb",
            {"scalar-steps": "rewritten", "histogram-counts uniform-64": "exact", "bucket-cap": "re-binned"},
        ),
        (
            "tensorboardx-clearml",
            {"scalar-steps": "preserved", "histogram-counts uniform-64": "interpolated", "nonfinite": "rewritten"},
        ),
    ],
)
def test_the_relays_take_the_writer_of_tensorboardx(tmp_path: Any, route: str, words: dict[str, str]) -> None:
    """Both relays capture tensorboardX's writer, and do to it what they do to torch's (FID-1)."""
    found = run(PROGRAM, route, tmp_path)["words"]
    assert {row: found[row] for row in words} == words


@pytest.mark.trackers
def test_trailer_takes_rising_counts_for_running_totals(tmp_path: Any) -> None:
    """Counts that never fall are stored as differences, also by trailer's own call; others stay (FID-1)."""
    stored = run(RISING, "trailer", tmp_path)
    assert stored == [[1, 1, 1], [1, 0, 0], [3, 2, 1], [1, 1]]


def test_extra_routes_are_measured_only_when_they_are_named() -> None:
    """A run that names no route leaves the extra ones out; each can be had by its name (FID-3)."""
    assert not set(EXTRA_ROUTES) & set(ROUTE_IDS)
    assert [get_route(route).id for route in EXTRA_ROUTES] == list(EXTRA_ROUTES)
    with pytest.raises(Refusal) as caught:
        get_route("nowhere")
    assert all(route in caught.value.remedy for route in (*ROUTE_IDS, *EXTRA_ROUTES))


def test_the_native_route_keeps_a_normal_distribution(tmp_path: Any) -> None:
    """Report 25: through the sink every count arrives at its own step (CLEARML-1, FID-1)."""
    for rows in run(BUG_REPORT_25, "clearml", tmp_path).values():
        assert [(row["step"], row["l1"], row["mass"]) for row in rows] == [(s, "0.0", 1.0) for s in (100, 102, 104)]


@pytest.mark.trackers
def test_the_relay_makes_humps_of_a_normal_distribution(tmp_path: Any) -> None:
    """Report 25: the relay's loss has numbers: two humps at iteration 0, the steps as labels only (FID-1)."""
    told = run(BUG_REPORT_25, "clearml-relay", tmp_path)
    for rows in told.values():
        assert [(row["step"], row["label"], row["buckets"]) for row in rows] == [
            (0, str(step), 48) for step in (100, 102, 104)
        ]
        assert all(float(row["l1"]) > 0.5 for row in rows)
    # Of the bell's own top, where buckets are narrow, nothing is left; of the whole mass less than half.
    counts = told["default"][0]["counts"]
    assert 10 * min(counts[22:27]) < min(max(counts[:22]), max(counts[27:]))
    assert 0.3 < told["default"][0]["mass"] < 0.5 and told["grid"][0]["mass"] < 0.01
