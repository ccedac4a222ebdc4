"""Reports 26 and 27: tensors that stop a stock histogram writer, or spoil the histograms beside them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tensorboard")

from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from reference_sinks.readers import read_tensorboard  # noqa: E402

from .helpers import refused  # noqa: E402


class Leaves(nn.Module):
    """Parameters by name, and nothing else."""

    def __init__(self, **tensors: Any) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_parameter(name, nn.Parameter(tensor))


def watch_into(logdir: Path, model: nn.Module, steps: range, change: Any = lambda step: None) -> None:
    """Watch the parameters of ``model`` into event files, with ``change`` called before each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    sink = trk.TensorBoardSink(logdir, scalar_form="float64")
    with trk.watch(
        model, sink, optimizer=optimizer, signals=("parameters",), every=1, hist_every=1, allow_missing_phases=True
    ) as watch:
        for step in steps:
            change(step)
            with watch.step(step):
                optimizer.step()


def read_back(logdir: Path) -> tuple[dict[str, dict[int, float]], dict[str, dict[int, Any]]]:
    """Return the scalars and histograms of event files by tag and step."""
    scalars: dict[str, dict[int, float]] = {}
    counted: dict[str, dict[int, Any]] = {}
    for point in read_tensorboard(logdir):
        if isinstance(point, trk.ScalarPoint):
            scalars.setdefault(point.tag, {})[point.step] = point.value
        elif isinstance(point, trk.HistogramPoint):
            counted.setdefault(point.tag, {})[point.step] = point
    return scalars, counted


def test_tensors_that_stop_a_stock_writer(tmp_path: Path) -> None:
    """Report 26: nothing stops training, and what no bucket holds rides its own scalar (STAT-3, TB-1)."""
    model = Leaves(
        nothing=torch.empty(0),
        nan=torch.full((3,), math.nan),
        inf=torch.tensor([math.inf, -math.inf]),
        huge=torch.tensor([1e28]),
        mixed=torch.tensor([1.0, 1e28]),
        binary16=torch.tensor([65504.0, 1.0], dtype=torch.float16),
        brain=torch.tensor([2.0, -3.0], dtype=torch.bfloat16),
    )
    watch_into(tmp_path, model, range(2))
    rows, counted = read_back(tmp_path)

    def at(tag: str) -> Any:
        return rows[tag][1]

    assert at("nonfinite/parameters_nan/nan") == 3
    assert at("nonfinite/parameters_posinf/inf") == at("nonfinite/parameters_neginf/inf") == 1
    for leaf, held in {"nan": 0, "inf": 0, "huge": 0, "mixed": 1, "binary16": 2, "brain": 2}.items():
        histogram = counted.get(f"parameters/hist/{leaf}", {}).get(1)
        assert sum(histogram.counts if histogram else ()) == held, leaf
    overflow = {tag.rsplit("/", 1)[1]: row[1] for tag, row in rows.items() if tag.startswith("parameters/overflow/")}
    assert {leaf: count for leaf, count in overflow.items() if count} == {"huge": 1, "mixed": 1}
    assert at("parameters/max/huge") == pytest.approx(1e28, rel=1e-7)
    assert at("parameters/max/binary16") == 65504.0
    assert "nothing" not in overflow


@pytest.mark.parametrize("dtype", ["complex64", "float8_e4m3fn", "int64", "bool"])
def test_tensors_of_other_types_are_refused_by_name(dtype: str, tmp_path: Path) -> None:
    """Report 26: a type that the statistics do not cover is refused at attach, or skipped with its name (STAT-3)."""
    model = Leaves(good=torch.ones(2))
    model.odd = nn.Parameter(torch.ones(2).to(getattr(torch, dtype)), requires_grad=False)
    optimizer = torch.optim.SGD([model.good], lr=0.0)
    sink = trk.TensorBoardSink(tmp_path)
    refusal = refused(lambda: trk.watch(model, sink, optimizer=optimizer, signals=("parameters",)))
    assert "odd" in str(refusal) and dtype in str(refusal)


def test_one_nan_spoils_no_neighbour(tmp_path: Path) -> None:
    """Report 27: one NaN in one step is told by its own scalar; every summary is of finite values (GRID-2, STAT-1)."""
    model = Leaves(w=torch.tensor([0.25, 0.5, -1.0]))

    def change(step: int) -> None:
        with torch.no_grad():
            model.w[1] = math.nan if step == 10 else 0.5

    watch_into(tmp_path, model, range(21), change)
    rows, counted = read_back(tmp_path)
    histograms = counted["parameters/hist/w"]
    assert sorted(histograms) == list(range(21))
    for step, point in histograms.items():
        finite = [0.25, -1.0] if step == 10 else [0.25, 0.5, -1.0]
        assert (point.summary["min"], point.summary["max"]) == (-1.0, max(finite))
        assert point.summary["num"] == sum(point.counts) == len(finite)
        assert point.summary["sum"] == sum(finite)
        assert rows["nonfinite/parameters_nan/w"].get(step, 0) == (step == 10)
