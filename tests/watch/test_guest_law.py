"""A watched and an unwatched run are bit-identical, while rows arrive; and watchers that are no guests fail the law."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402

from .helpers import batch, by_tag, hook_census  # noqa: E402

STEPS = 50


class Net(nn.Module):
    """Everything that a guest could disturb: dropout, batch statistics, an in-place activation, a tied weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.2)
        self.second = nn.Linear(6, 6)
        self.tied = nn.Linear(6, 6)
        self.tied.weight = self.second.weight
        self.frozen = nn.Linear(6, 3)
        self.frozen.weight.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        """Run everything once, and add a random number of Python's."""
        y = self.drop(self.act(self.norm(self.first(x))))
        y = y + self.tied(self.second(y))
        return self.frozen(y) + random.random()


def sgd(parameters: Any) -> Any:
    """Return SGD with momentum and weight decay."""
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True)


def adamw(parameters: Any) -> Any:
    """Return AdamW."""
    return torch.optim.AdamW(parameters, lr=0.01)


def fused(parameters: Any) -> Any:
    """Return fused AdamW."""
    return torch.optim.AdamW(parameters, lr=0.01, fused=True)


def lbfgs(parameters: Any) -> Any:
    """Return LBFGS with a few evaluations a step."""
    return torch.optim.LBFGS(parameters, lr=0.1, max_iter=3)


P = ("gradients", "parameters", "updates")
M = (*P, "activations", "activation_grads")

Attach = Callable[[Any, Any], Any]


def one_step(model: Any, optimizer: Any, scaler: Any, n: int) -> float:
    """Run one step and return its loss."""

    def evaluate() -> Any:
        optimizer.zero_grad()
        loss = model(batch(n)).square().mean() * (1e38 if scaler is not None and n in (3, 20) else 1.0)
        (loss if scaler is None else scaler.scale(loss)).backward()
        return loss

    if isinstance(optimizer, torch.optim.LBFGS):
        loss = optimizer.step(evaluate)
    else:
        loss = evaluate()
        optimizer.step() if scaler is None else scaler.step(optimizer)
        if scaler is not None:
            scaler.update()
    return float(loss.detach())


def run(make: Any, *, amp: bool, attach: Attach | None) -> dict[str, Any]:
    """Return everything that a run leaves, with the bits of floats kept."""
    torch.manual_seed(3)
    random.seed(3)
    model = Net()
    optimizer = make([parameter for parameter in model.parameters() if parameter.requires_grad])
    scaler = torch.amp.GradScaler("cpu") if amp else None
    hooks = hook_census(model, [optimizer])
    watch = None if attach is None else attach(model, optimizer)
    losses = []
    for n in range(STEPS):
        if watch is None:
            losses.append(one_step(model, optimizer, scaler, n))
        else:
            with watch.step(n, scaler=scaler):
                losses.append(one_step(model, optimizer, scaler, n))
    if watch is not None:
        watch.close()
    return {
        "losses": torch.tensor(losses),
        "state": model.state_dict(),
        "gradients": [parameter.grad for parameter in model.parameters()],
        "optimizer": optimizer.state_dict(),
        "scaler": None if scaler is None else scaler.state_dict(),
        "modes": [module.training for module in model.modules()],
        "torch random": torch.get_rng_state(),
        "python random": random.getstate(),
        "hooks": (hooks, hook_census(model, [optimizer])),
        "requires_grad": [parameter.requires_grad for parameter in model.parameters()],
    }


def differences(first: Any, second: Any, path: str = "") -> list[str]:
    """Return the places where two results differ in a bit."""
    if isinstance(first, torch.Tensor):
        same = isinstance(second, torch.Tensor) and first.dtype == second.dtype and first.shape == second.shape
        same = same and first.detach().numpy().tobytes() == second.detach().numpy().tobytes()
        return [] if same else [path]
    if isinstance(first, dict):
        found = [] if isinstance(second, dict) and first.keys() == second.keys() else [f"{path} keys"]
        return found + [each for key in first for each in differences(first[key], second.get(key), f"{path}/{key}")]
    if isinstance(first, (list, tuple)):
        found = [] if len(first) == len(second) else [f"{path} length"]
        pairs = enumerate(zip(first, second))
        return found + [each for index, pair in pairs for each in differences(*pair, f"{path}/{index}")]
    return [] if first == second else [path]


def broken_rules(make: Any, *, amp: bool, attach: Attach) -> list[str]:
    """Return what a watcher changes in a run."""
    watched, unwatched = run(make, amp=amp, attach=attach), run(make, amp=amp, attach=None)
    before, after = watched["hooks"]
    return differences(unwatched, watched) + ([] if before == after else ["hooks"])


@pytest.mark.parametrize("signals", [P, M], ids=["P", "M"])
@pytest.mark.parametrize(
    ("make", "amp"),
    # torch's scaler takes no closure, so LBFGS runs without one.
    [(make, amp) for make in (sgd, adamw, fused, lbfgs) for amp in (False, True) if not (amp and make is lbfgs)],
)
def test_watching_changes_no_bit(make: Any, amp: bool, signals: tuple[str, ...]) -> None:
    """Fifty steps leave the same bits everywhere, and rows came on every accepted step (TIER-1, CLOSE-3, AMP-1)."""
    sink = trk.MemorySink()

    def attach(model: Any, optimizer: Any) -> trk.WatchSession:
        return trk.watch(
            model,
            sink,
            optimizer=optimizer,
            every=1,
            hist_every=10,
            signals=signals,
            select=("first", "norm", "act", "second", "tied", "frozen", "drop") if signals is M else None,
            inputs=batch(0) if signals is M else None,
        )

    assert broken_rules(make, amp=amp, attach=attach) == []
    expected = STEPS - (2 if amp else 0)
    rows = by_tag(sink)
    for family in signals:
        found = [tag for tag in rows if tag.startswith(f"{family}/norm/")]
        assert found and all(len(rows[tag]) == expected for tag in found), family
    assert len(sink.histograms) >= STEPS // 10 * len(signals)


@pytest.mark.parametrize(
    ("make", "amp"),
    [(make, amp) for make in (sgd, fused, lbfgs) for amp in (False, True) if not (amp and make is lbfgs)],
)
def test_watching_operations_changes_no_bit(make: Any, amp: bool) -> None:
    """Discovery, calibration and fifty steps leave the same bits; every second step has rows (TIER-2, TIER-3)."""
    sink = trk.MemorySink()

    def attach(model: Any, optimizer: Any) -> trk.WatchSession:
        with pytest.warns(trk.WatchOpGrainCostWarning):
            return trk.watch(
                model,
                sink,
                optimizer=optimizer,
                every=2,
                hist_every=10,
                signals=("activations",),
                grain="op",
                select=("first", "norm", "act", "drop", "tied", trk.func("add")),
                facets={trk.func("linear"): trk.split_heads(3, dim=1)},
                inputs=batch(0),
                allow_forward_wrap=True,
            )

    assert broken_rules(make, amp=amp, attach=attach) == []
    rows = by_tag(sink)
    found = [tag for tag in rows if tag.startswith("activations/norm/")]
    assert len(found) == 7 + 6 and all(sorted(rows[tag]) == list(range(0, STEPS, 2)) for tag in found), found


class Rude:
    """A watcher that is no guest, in one way."""

    def __init__(self, model: Any, optimizer: Any, way: str) -> None:
        self._parameter = model.second.weight
        self._optimizer = optimizer
        self._way = way
        self._handles = [optimizer.register_step_pre_hook(self._before)]

    def _before(self, *arguments: Any) -> None:
        if self._way == "ulp":
            gradient = self._parameter.grad.view(-1)
            gradient[0] = torch.nextafter(gradient[0], torch.tensor(torch.inf))
        elif self._way == "random":
            torch.rand(1)
        elif self._way == "mode":
            self._optimizer.param_groups[0]["lr"] *= 1.0 + 1e-16

    def step(self, n: int, *, scaler: Any = None) -> Rude:
        """Return a scope."""
        del n, scaler
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *arguments: Any) -> None:
        pass

    def close(self) -> None:
        """Remove the hook, unless forgetting it is the rudeness."""
        if self._way != "leak":
            self._handles[0].remove()


@pytest.mark.parametrize(
    ("way", "seen"), [("ulp", "/state/second.weight"), ("random", "/torch random"), ("leak", "hooks")]
)
def test_watchers_that_are_no_guests_fail_the_law(way: str, seen: str) -> None:
    """One ulp in one gradient, one random number drawn, one hook left: each is found (TIER-1, CLOSE-3)."""
    found = broken_rules(sgd, amp=False, attach=lambda model, optimizer: Rude(model, optimizer, way))
    assert any(place.startswith(seen) for place in found), found


def test_a_guest_without_manners_in_nothing_passes_the_law() -> None:
    """A watcher that does nothing is a guest: the law finds nothing where there is nothing (CLOSE-3)."""
    assert broken_rules(sgd, amp=False, attach=lambda model, optimizer: Rude(model, optimizer, "none")) == []
