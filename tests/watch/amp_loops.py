"""Scalers, optimizers and loops of mixed precision that the tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torchlens_conformance.trackers as trk  # noqa: E402

from .helpers import batch, by_tag, histograms, small_model, train_step  # noqa: E402

GRADIENTS = ("gradients/norm/0.weight", "gradients/mean/0.weight", "gradients/max/3.bias", "gradients/std/3.weight")


def scaler(scale: float = 65536.0, **options: Any) -> Any:
    """Return a real scaler on the CPU."""
    return torch.amp.GradScaler("cpu", init_scale=scale, **options)


def run(
    step: Callable[[Any, Any, Any, int], None],
    *,
    make: Callable[[Any], Any],
    amp: Any,
    steps: int = 1,
    signals: tuple[str, ...] = ("gradients",),
) -> tuple[trk.MemorySink, trk.CloseReport, Any]:
    """Run a loop under a watch that samples every step."""
    model = small_model()
    optimizer = make(model.parameters())
    sink = trk.MemorySink()
    with trk.watch(model, sink, optimizer=optimizer, every=1, hist_every=1, signals=signals) as watch:
        for n in range(steps):
            with watch.step(n, scaler=amp):
                step(model, optimizer, amp, n)
    return sink, watch.close(), model


def adam(parameters: Any) -> Any:
    """Return an unfused AdamW."""
    return torch.optim.AdamW(parameters, lr=0.01)


def fused(parameters: Any) -> Any:
    """Return a fused AdamW."""
    return torch.optim.AdamW(parameters, lr=0.01, fused=True)


def plain(model: Any, optimizer: Any, amp: Any, n: int) -> None:
    """Step without a scaler."""
    del amp
    train_step(model, optimizer, n)


def scaled(model: Any, optimizer: Any, amp: Any, n: int) -> None:
    """Step as the documentation of the scaler says."""
    train_step(model, optimizer, n, scaler=amp)


def unscaled_first(model: Any, optimizer: Any, amp: Any, n: int) -> None:
    """Unscale before stepping, as for clipping."""
    optimizer.zero_grad()
    amp.scale(model(batch(n)).square().mean()).backward()
    amp.unscale_(optimizer)
    amp.step(optimizer)
    amp.update()


def bare(model: Any, optimizer: Any, amp: Any, n: int) -> None:
    """Scale the loss and step without the scaler."""
    optimizer.zero_grad()
    amp.scale(model(batch(n)).square().mean()).backward()
    optimizer.step()


def assert_same_first_gradients(sink: trk.MemorySink, oracle: trk.MemorySink) -> None:
    """The first step has the gradients of the run without a scaler, bit for bit."""
    found, expected = by_tag(sink), by_tag(oracle)
    tags = [tag for tag in expected if tag.startswith("gradients/")]
    assert len(tags) > 20 and set(GRADIENTS) <= set(tags)
    for tag in tags:
        assert found[tag][0] == expected[tag][0], tag
    for tag, points in histograms(oracle).items():
        assert histograms(sink)[tag][0] == points[0]
