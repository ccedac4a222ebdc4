"""Small models, real sinks read back by tag, and a census of every hook that could be left behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.optim import optimizer as optimizer_module  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402


def small_model(*, seed: int = 0, dropout: float = 0.0) -> nn.Sequential:
    """Return two linear layers with a ReLU, and a dropout when asked for."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(dropout), nn.Linear(6, 3))


def batch(step: int, *, width: int = 4) -> torch.Tensor:
    """Return the same data for the same step, whatever the global random state is."""
    return torch.randn(5, width, generator=torch.Generator().manual_seed(1000 + step))


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    """Return a loss of the model on the data of a step."""
    result: torch.Tensor = model(batch(step)).square().mean()
    return result


def train_step(model: nn.Module, optimizer: Any, step: int, *, scaler: Any = None, scale: float = 1.0) -> None:
    """Run one ordinary step; with a scaler, one of automatic mixed precision."""
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of(model, step) * scale
    if scaler is None:
        loss.backward()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def by_tag(sink: trk.MemorySink) -> dict[str, dict[int, Any]]:
    """Return scalars by tag and step; a tag that came twice at one step is an error."""
    rows: dict[str, dict[int, Any]] = defaultdict(dict)
    for point in sink.scalars:
        assert point.step not in rows[point.tag], (point.tag, point.step)
        rows[point.tag][point.step] = point.value
    return dict(rows)


def histograms(sink: trk.MemorySink) -> dict[str, dict[int, trk.HistogramPoint]]:
    """Return histograms by tag and step."""
    rows: dict[str, dict[int, trk.HistogramPoint]] = defaultdict(dict)
    for point in sink.histograms:
        rows[point.tag][point.step] = point
    return dict(rows)


def texts(sink: trk.MemorySink) -> dict[str, dict[int, str]]:
    """Return texts by tag and step."""
    rows: dict[str, dict[int, str]] = defaultdict(dict)
    for point in sink.texts:
        rows[point.tag][point.step] = point.text
    return dict(rows)


def data_rows(sink: trk.MemorySink) -> list[Any]:
    """Return what was emitted except run, meta and check rows."""
    return [point for point in sink.points if not getattr(point, "tag", "").startswith("torchlens/")]


_MODULE_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks_with_kwargs",
)


def hook_census(model: nn.Module, optimizers: Iterable[Any] = ()) -> dict[str, int]:
    """Count every hook of modules, parameters and optimizers, and the global ones."""
    counts = {"global pre": len(optimizer_module._global_optimizer_pre_hooks)}
    counts["global post"] = len(optimizer_module._global_optimizer_post_hooks)
    for name, module in model.named_modules():
        counts[f"{name}.forward"] = "forward" in vars(module)
        for kind in _MODULE_HOOKS:
            counts[f"{name}.{kind}"] = len(getattr(module, kind))
    for name, parameter in model.named_parameters():
        counts[f"{name} grad"] = len(parameter._backward_hooks or ())
        counts[f"{name} post"] = len(getattr(parameter, "_post_accumulate_grad_hooks", None) or ())
    for index, optimizer in enumerate(optimizers):
        counts[f"optimizer {index} pre"] = len(optimizer._optimizer_step_pre_hooks)
        counts[f"optimizer {index} post"] = len(optimizer._optimizer_step_post_hooks)
    return counts


def refused(call: Callable[[], object]) -> trk.Refusal:
    """Return the refusal that ``call`` raises."""
    with pytest.raises(trk.Refusal) as caught:
        call()
    return caught.value


class FailingSink(trk.MemorySink):  # type: ignore[misc, unused-ignore]
    """A memory sink that raises at one emission, counted from 1 over all kinds."""

    def __init__(self, at: int, error: BaseException | None = None) -> None:
        super().__init__()
        self._at = at
        self._count = 0
        self._error = error or OSError("the store is gone")

    def _keep(self, point: Any, kept: list[Any]) -> None:
        self._count += 1
        if self._count == self._at:
            raise self._error
        super()._keep(point, kept)
