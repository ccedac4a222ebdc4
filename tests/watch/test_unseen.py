"""What we compute beside the caller's code is not seen by its modes, and so changes nothing of the training."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils import _python_dispatch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import (  # noqa: E402
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.statistics import compute  # noqa: E402
from torchlens_conformance.watch.unseen import unseen  # noqa: E402

from .helpers import by_tag  # noqa: E402

SAVED = (torch.ops.aten.clone.default, torch.ops.aten.addmm.default)


def policy(ctx: Any, operation: Any, *args: Any, **kwargs: Any) -> Any:
    """Keep copies and linear layers, compute the rest again."""
    return CheckpointPolicy.MUST_SAVE if operation in SAVED else CheckpointPolicy.PREFER_RECOMPUTE


class Parts(nn.Module):
    """Three outputs that lie in one tensor, none of which is dense: reading one takes a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(6, 18)

    def forward(self, x: Any) -> Any:
        """Return them."""
        return self.mix(x).chunk(3, -1)


class Attention(nn.Module):
    """One attention under activation checkpointing, with a copy of its own behind the softmax."""

    def __init__(self, *, selective: bool = True) -> None:
        super().__init__()
        self.parts, self.out = Parts(), nn.Linear(6, 6)
        self.how: dict[str, Any] = {"use_reentrant": False}
        if selective:
            self.how["context_fn"] = functools.partial(create_selective_checkpoint_contexts, policy)

    def block(self, x: Any) -> Any:
        """Compute what is computed again in the backward."""
        q, k, v = self.parts(x)
        weights = torch.softmax(q @ k.transpose(1, 2), -1)
        y = (weights @ v).transpose(1, 2).contiguous().transpose(1, 2)
        return self.out(y.reshape(-1, 6)).sin()

    def forward(self, x: Any) -> Any:
        """Return it."""
        return checkpoint(self.block, x, **self.how)


HEADS = {trk.func("softmax"): trk.split_heads(5, dim=2)}

WAYS: dict[str, dict[str, Any]] = {
    "modules": {"signals": ("activations", "activation_grads"), "select": ("parts", "out")},
    "operations": {"grain": "op", "select": (trk.func("chunk"), trk.func("softmax")), "facets": HEADS},
    "everything": {"signals": ("gradients", "parameters", "updates", "activations"), "select": ("parts", "out")},
}


def attach(model: Any, optimizer: Any, sink: Any, way: str, x: Any) -> Any:
    """Attach in one of the ways, every step with histograms."""
    options: dict[str, Any] = {"signals": ("activations",), "every": 1, "hist_every": 1, "inputs": x, **WAYS[way]}
    if way != "operations":
        return trk.watch(model, sink, optimizer=optimizer, **options)
    with pytest.warns(trk.WatchOpGrainCostWarning):
        return trk.watch(model, sink, allow_forward_wrap=True, **options)


def trained(way: str | None, *, selective: bool = True, mode: Any = nullcontext) -> tuple[list[Any], Any, Any]:
    """Train three steps under a mode; return the parameters, what the session found, and the mode."""
    torch.manual_seed(0)
    model, sink = Attention(selective=selective), trk.MemorySink()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 5, 6)
    watch = None if way is None else attach(model, optimizer, sink, way, x)
    with mode() as entered:
        for n in range(3):
            with nullcontext() if watch is None else watch.step(n):
                optimizer.zero_grad()
                model(x).square().sum().backward()
                optimizer.step()
        report = None if watch is None else watch.close()
    assert report is None or (report.skip_counts == {} and report.sampled_steps == 3)
    return [parameter.detach().clone() for parameter in model.parameters()], by_tag(sink), entered


@pytest.mark.parametrize("selective", [True, False])
@pytest.mark.parametrize("way", list(WAYS))
def test_checkpointing_trains_the_same(way: str, selective: bool) -> None:
    """The cache of selective checkpointing counts operations: none of ours may be among them (ATTACH-6, TIER-1)."""
    plain, (watched, rows, _) = trained(None, selective=selective)[0], trained(way, selective=selective)
    assert all(torch.equal(before, after) for before, after in zip(plain, watched))
    calls = {tag: steps for tag, steps in rows.items() if tag.startswith("activations/calls/")}
    # The recomputation in the backward is no second forward.
    assert calls and all(steps == {0: 1, 1: 1, 2: 1} for steps in calls.values())


class Dispatched(TorchDispatchMode):
    """Notes every operation that is dispatched."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note it."""
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Called(TorchFunctionMode):
    """Notes every function of torch that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note it."""
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


def _without(names: list[str], *left_out: str) -> list[str]:
    return [name for name in names if name not in left_out]


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("mode", [Dispatched, Called])
def test_modes_of_the_callers_see_the_plain_run(way: str, mode: Any) -> None:
    """Over whole steps, at forwards, backwards, boundaries and close (ATTACH-6)."""
    plain, watched = (trained(each, selective=False, mode=mode)[2].seen for each in (None, way))
    # A hook that waits for a gradient is put on a tensor; it computes nothing.
    assert _without(watched, "register_hook") == _without(plain, "register_hook") and plain


@pytest.fixture(params=["torch's own", "none"])
def way_out(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take away what torch has, or leave it."""
    if request.param == "none":
        monkeypatch.delattr(_python_dispatch, "_disable_current_modes")
    yield


def test_values_are_the_same_in_it(way_out: None) -> None:
    """Modes are off inside, and on again after it however it ends; also on a torch without its private way."""
    tensor = torch.arange(6.0).reshape(2, 3).t()
    with Dispatched() as inner, Called() as outer:
        with pytest.raises(KeyError), unseen():
            found = compute(tensor, descriptor=trk.DEFAULT_DESCRIPTOR)
            raise KeyError
        assert inner.seen == [] and outer.seen == []
        torch.ones(1)
    assert found == compute(tensor, descriptor=trk.DEFAULT_DESCRIPTOR)
    assert len(inner.seen) == len(outer.seen) == 1
    assert isinstance(unseen(), nullcontext)


def test_a_tensor_keeps_the_dispatch_of_its_own() -> None:
    """Under a fake mode, and in a function transform, it is what it is outside (ATTACH-6)."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(2, 3)
        with unseen():
            assert type(fake + 1) is type(fake) and type(torch.ones(1)) is torch.Tensor
    seen = []

    def per_sample(row: Any) -> Any:
        with unseen():
            seen.append(row * 2)
        return seen[-1].sum()

    with Dispatched():
        doubled = torch.vmap(per_sample)(torch.arange(6.0).reshape(2, 3))
    assert torch.equal(doubled, torch.tensor([6.0, 24.0]))
