"""What leaves a device on one step: one packed vector, of the size that the plan states (XFER-1).

Tensors on the CPU are sent through the form for accelerators; what it fetches is counted where it is fetched.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.statistics import plain_device  # noqa: E402

from ..statistics.dispatch import Watcher  # noqa: E402
from .helpers import data_rows  # noqa: E402

ALL = ("gradients", "parameters", "updates", "activations", "activation_grads")


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Send everything through the form for accelerators; give the bytes of every transfer."""
    transfers: list[int] = []
    to_host = plain_device._to_host

    def counting(packed: list[Any]) -> list[Any]:
        transfers.append(sum(vector.numel() * vector.element_size() for vector in packed))
        return to_host(packed)

    monkeypatch.setattr(
        sys.modules["torchlens_conformance.statistics.compute"], "_reducer", lambda backend, device: None
    )
    monkeypatch.setattr(plain_device, "_to_host", counting)
    return transfers


def model_of(width: int, *, dtype: Any = torch.float32) -> nn.Sequential:
    """Return two layers, the first of them with a width of choice."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3)).to(dtype)


def run(model: nn.Module, steps: int, *, dtype: Any = torch.float32, **options: Any) -> tuple[Any, trk.MemorySink]:
    """Train some steps; return the plan and the rows."""
    inputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(1)).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink = trk.MemorySink()
    if {"activations", "activation_grads"}.intersection(options["signals"]):
        options = {"select": ("0", "2"), "inputs": inputs, **options}
    with trk.watch(model, sink, optimizer=optimizer, every=1, **options) as watch:
        for n in range(steps):
            with watch.step(n):
                optimizer.zero_grad()
                model(inputs).square().mean().backward()
                optimizer.step()
    return watch.plan_report(), sink


@pytest.mark.parametrize("signals", [("gradients",), ("updates",), ALL], ids="+".join)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_one_transfer_a_step_of_the_planned_size(signals: tuple[str, ...], dtype: Any, fetched: list[int]) -> None:
    """Everything that a step asks for, before and after it, travels at once, and is what the plan says (XFER-1)."""
    plan, _ = run(model_of(6, dtype=dtype), 4, dtype=dtype, signals=signals, hist_every=2)
    extra = 80 * 4 if dtype is torch.float64 and signals == ALL else 0  # Outputs are planned as float32.
    with_histograms, without = plan.bytes_per_histogram_step + extra, plan.bytes_per_step + extra
    assert fetched == [with_histograms, without, with_histograms, without]


def test_bytes_do_not_grow_with_elements(fetched: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer of many chunks sends what a layer of one sends (XFER-1)."""
    monkeypatch.setattr(plain_device, "CHUNK", 512)
    for width in (2, 64, 900):
        run(model_of(width), 1, signals=ALL, hist_every=1)
    assert len(fetched) == 3 and len(set(fetched)) == 1


def test_unsampled_steps_fetch_nothing(fetched: list[int]) -> None:
    """Only sampled steps, and the last one at close, fetch anything (XFER-1, STEP-4)."""
    model = model_of(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trk.watch(model, trk.MemorySink(), optimizer=optimizer, every=10) as watch:
        for n in range(25):
            with watch.step(n):
                model(torch.ones(1, 4)).sum().backward()
                optimizer.step()
    assert len(fetched) == 4  # Steps 0, 10 and 20, and step 24 at close.


@pytest.mark.usefixtures("in_sight")
def test_no_operation_waits_for_a_value(fetched: list[int]) -> None:
    """A watched step asks the device for no single value, not even for the loss scale of nothing (XFER-1)."""
    waits, operations = [], []
    for signals in (None, ALL):
        model = model_of(5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        options: dict[str, Any] = {"select": ("0",), "inputs": torch.ones(1, 4), "hist_every": 1}
        watch = trk.watch(model, trk.MemorySink(), optimizer=optimizer, signals=signals, **options) if signals else None
        with Watcher() as seen:
            scope: Callable[[int], Any] = watch.step if watch is not None else lambda n: Watcher()
            with scope(0):
                model(torch.ones(1, 4)).sum().backward()
                optimizer.step()
        if watch is not None:
            watch.close()
        waits.append(seen.waits)
        operations.append(seen.operations)
    assert waits[0] == waits[1] and len(fetched) == 1
    assert operations[1] > operations[0] > 0, "ours were not seen"


def test_rows_are_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The same run, on the CPU and by the form for accelerators: equal tags, steps, counts, close sums (STAT-1)."""
    _, near = run(model_of(7), 3, signals=ALL, hist_every=2)
    request.getfixturevalue("fetched")
    _, far = run(model_of(7), 3, signals=ALL, hist_every=2)
    pairs = list(zip(data_rows(near), data_rows(far), strict=True))
    assert len(pairs) > 100
    for one, other in pairs:
        assert (type(one), one.tag, one.step) == (type(other), other.tag, other.step)
        if isinstance(one, trk.HistogramPoint):
            assert one.counts == other.counts and one.edges == other.edges
        else:
            assert one.value == pytest.approx(other.value, rel=1e-9, abs=1e-15)


@pytest.mark.usefixtures("in_sight")
def test_updates_hold_one_copy_as_the_plan_says() -> None:
    """While the optimizer steps, the copy of the watched parameters is all that is held for updates (STAT-4)."""
    held: list[int] = []

    class Looking(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            held.append(seen.alive)
            return super().step(closure)

    model = nn.Linear(100, 50)
    model(torch.ones(1, 100)).sum().backward()
    optimizer = Looking(model.parameters(), lr=0.1)
    with trk.watch(model, trk.MemorySink(), optimizer=optimizer, signals=("updates",), hist_every=1) as watch:
        plan = watch.plan_report()
        with Watcher() as seen, watch.step(0):
            optimizer.step()
    assert held == [plan.peak_bytes] == [4 * (100 * 50 + 50)]
    assert seen.peak <= plan.peak_bytes + 4096
