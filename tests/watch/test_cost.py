"""What the watch costs on steps that are not sampled, and that nothing grows."""

from __future__ import annotations

import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402

LIMIT = 50e-6
"""Seconds of ours, of processor time, on a step that is not sampled."""


def unsampled_seconds(layers: int, *, scaler: Any = None, blocks: int = 25, steps: int = 30) -> list[float]:
    """Return, block by block, the processor time of an unsampled step without the optimizer's own work."""
    model = nn.ModuleList([nn.Linear(2, 2) for _ in range(layers)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    times = []
    with trk.watch(model, trk.MemorySink(), optimizer=optimizer, every=10**9, hist_every=10**9) as watch:
        with watch.step(1, scaler=scaler):
            optimizer.step()
        hooks = (*optimizer._optimizer_step_pre_hooks.values(), *optimizer._optimizer_step_post_hooks.values())
        assert len(hooks) == 2
        arguments = (optimizer, (optimizer,), {})
        n = 1
        for _ in range(blocks):
            start = time.thread_time()
            for _ in range(steps):
                n += 1
                with watch.step(n, scaler=scaler):
                    for hook in hooks:
                        hook(*arguments)
            times.append((time.thread_time() - start) / steps)
    return times


@pytest.mark.parametrize("layers", [1, 38, 500])
def test_an_unsampled_step_costs_microseconds(layers: int) -> None:
    """Below 50 microseconds, for 2, 76 and 1000 parameters alike, with a scaler and without (TIER-1, AMP-8)."""
    assert min(unsampled_seconds(layers)) < LIMIT
    assert min(unsampled_seconds(layers, scaler=torch.amp.GradScaler("cpu"))) < LIMIT


def test_no_work_for_each_parameter() -> None:
    """A thousand parameters cost what a hundred cost, within the noise of a clock (TIER-1)."""
    assert min(unsampled_seconds(500)) < 2.5 * min(unsampled_seconds(50)) + 5e-6
