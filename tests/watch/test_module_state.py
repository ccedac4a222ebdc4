"""A forward beside the training leaves everything in the modules as it was, whatever the forward did."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.callbacks.extra_forward import beside_training  # noqa: E402
from torchlens_conformance.graph import record_shapes, summarize_model  # noqa: E402

from .helpers import refused  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:watch_op_grain_cost_disclosed")

EXAMPLE = torch.full((2, 4), 7.0)


def _tier_m(model: Any) -> None:
    trk.watch(model, trk.MemorySink(), signals=("activations",), select="body", inputs=EXAMPLE).close()


def _tier_o(model: Any) -> None:
    options = {"signals": ("activations",), "grain": "op", "select": trk.func("softmax"), "inputs": EXAMPLE}
    trk.watch(model, trk.MemorySink(), allow_forward_wrap=True, **options).close()


def _extra(model: Any) -> None:
    with beside_training(model):
        model(EXAMPLE)


def _summary(model: Any) -> None:
    assert summarize_model(model, EXAMPLE).total == 20


def _shapes(model: Any) -> None:
    assert record_shapes(model, EXAMPLE).trace_mode == "fake"


BESIDE: dict[str, Callable[[Any], None]] = {
    "tier M": _tier_m,
    "tier O": _tier_o,
    "callback": _extra,
    "summary": _summary,
    "shapes": _shapes,
}
"""What runs a forward beside the training."""


@dataclass
class Cache:
    """What a model may keep between its forwards."""

    k: Any = None
    parts: list[Any] = field(default_factory=list)


class Keeping(nn.Module):
    """Keeps something in every place that a module has."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(4, 4)
        self.hidden = [nn.BatchNorm1d(4)]  # No path leads to it.
        self.first: Any
        self.register_buffer("first", None)
        self.second: Any
        self.register_buffer("second", torch.ones(4))
        self.total = torch.zeros(())
        self.cache: Any = None
        self.calls = 0
        self.seen: list[Any] = []
        self.deep: dict[str, Any] = {"k": [], "v": ({"n": 0},)}
        self.counts = Counter(a=1)
        self.ordered = OrderedDict(a=1, b=2)
        self.last: deque[Any] = deque([1, 2], maxlen=2)
        self.names = {"a"}
        self.kept = Cache()
        self.deep["itself"] = self.deep

    def forward(self, x: Any) -> Any:
        """Change all of it."""
        if self.first is None:
            self.first = x.detach().mean(0)
            self.register_buffer("third", x.sum(0))
            self.register_forward_hook(lambda module, given, made: made * 1)
            self.grown = nn.Identity()
        self.total += 1
        self.cache, self.calls = x * 2, self.calls + 1
        self.seen.append(x)
        self.deep["k"].append(x)
        self.deep["v"][0]["n"] += 1
        self.deep["more"] = x
        self.counts.update(a=1, b=1)
        self.ordered.move_to_end("a")
        self.last.append(x)
        self.names.add("b")
        self.kept.k = x
        self.kept.parts.append(x)
        self.second = self.second * 2
        return torch.softmax(self.hidden[0](self.body(x)) - self.first, -1)


def _held(model: Keeping) -> dict[str, Any]:
    """Return all that the model keeps, as text, in its order."""
    deep = {name: part for name, part in model.deep.items() if name != "itself"}
    norm = model.hidden[0].state_dict()
    kept = (model.total, model.cache, model.calls, model.seen, deep, model.counts, model.ordered, model.last)
    return {
        "names": [list(vars(model)), list(model._buffers), list(model._modules), len(model._forward_hooks)],
        "buffers": repr(model._buffers),
        "kept": repr((*kept, model.names, model.kept, norm)),
    }


@pytest.mark.parametrize("beside", BESIDE)
def test_what_modules_keep_is_as_it_was(beside: str) -> None:
    """Attributes, containers, buffers that were None, new names and plain tensors are put back (TIER-2, GRAPH-1)."""
    model = Keeping()
    before, second = _held(model), model.second
    BESIDE[beside](model)
    assert _held(model) == before and model.second is second


class Centred(nn.Module):
    """Takes the mean of the first input that it meets away from all."""

    def __init__(self, *, reads: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(4, 4)
        self.reads = reads
        self.mean: Any
        self.register_buffer("mean", None, persistent=False)

    def forward(self, x: Any) -> Any:
        """Fill the mean, and use it."""
        if self.mean is None:
            self.mean = x.detach().mean(0)
        if self.reads and bool((x - self.mean).sum() > 1e9):
            x = x * 2
        return torch.softmax(self.body(x) - self.mean, -1)


def _trained(model: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(2, 4, generator=torch.Generator().manual_seed(step)))[:, 0].sum()
        loss.backward()
        assert type(loss) is torch.Tensor and type(model.body.weight.grad) is torch.Tensor
        optimizer.step()
    return model.body.weight.detach()


@pytest.mark.parametrize("beside", BESIDE)
def test_training_ends_with_the_same_bits(beside: str) -> None:
    """A buffer that was None is filled by the first batch, and by no example of ours (TIER-2, CB-3, CB-4, GRAPH-1)."""
    model = Centred()
    BESIDE[beside](model)
    assert model.mean is None
    assert torch.equal(_trained(model), _trained(Centred()))


def test_what_falls_back_meets_no_fake_tensor() -> None:
    """A forward that needs a value runs for real on a model that is as it was (GRAPH-1)."""
    model = Centred(reads=True)
    assert record_shapes(model, EXAMPLE).trace_mode == "executed" and model.mean is None
    assert torch.equal(_trained(model), _trained(Centred()))


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("training", [False, True])
def test_a_live_graph_stays_usable(beside: str, training: bool) -> None:
    """A backward works whose forward ran before, also over buffers that were changed and put back (TIER-2)."""

    class Net(nn.Module):
        """Normalizes, and scales by an average that it moves."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False)
            self.average: Any
            self.register_buffer("average", torch.ones(4))

        def forward(self, x: Any) -> Any:
            """Move the average, and use it."""
            if self.training:
                with torch.no_grad():
                    self.average.lerp_(x.mean(0), 0.5)
            return torch.softmax(self.norm(self.body(x)) * self.average, -1)

    gradients = []
    for attached in (False, True):
        model = Net().train(training)
        loss = model(torch.ones(2, 4)).square().sum()
        if attached:
            BESIDE[beside](model)
        loss.backward()
        gradients.append(model.body.weight.grad)
    assert torch.equal(*gradients)


def test_a_weight_that_a_forward_changes_stays_without_values() -> None:
    """A pass without values leaves parameters alone, also where an operation takes nothing else (GRAPH-1)."""

    class Doubles(nn.Module):
        """Doubles its weight, and runs a recurrent net, whose weights stand in a list as well."""

        def __init__(self) -> None:
            super().__init__()
            self.body, self.net = nn.Linear(4, 4), nn.LSTM(4, 4)
            self.tied = nn.Linear(4, 4, bias=False)
            self.tied.weight = self.body.weight

        def forward(self, x: Any) -> Any:
            """Change the weight in place."""
            with torch.no_grad():
                self.body.weight.mul_(2)
            return self.net(self.tied(self.body(x)))[0]

    model = Doubles()
    held, flat = dict(model.named_parameters()), list(model.net._flat_weights)
    before = {name: parameter.detach().clone() for name, parameter in held.items()}
    trace = record_shapes(model, torch.ones(2, 4))
    assert trace.trace_mode == "fake" and "body.weight" in [source.label for source in trace.sources]
    after = dict(model.named_parameters())
    assert all(after[name] is held[name] and torch.equal(held[name], before[name]) for name in held)
    assert all(one is other for one, other in zip(flat, model.net._flat_weights))
    assert model.tied.weight is model.body.weight


def test_tensors_without_values_that_stay_are_told() -> None:
    """What a forward keeps in an object of its own is not put back, and is named (GRAPH-1)."""

    class Elsewhere(nn.Module):
        """Keeps in an object that is no module."""

        def __init__(self) -> None:
            super().__init__()
            self.kept = SimpleNamespace(y=None)

        def forward(self, x: Any) -> Any:
            """Keep one, and give another."""
            self.kept.y = x * 2
            return self.kept.y.exp()

    (told,) = record_shapes(Elsewhere(), EXAMPLE).unseen
    assert told == "tensors without values stay in objects that are no modules: what mul_1_1 made"
    assert record_shapes(nn.Linear(4, 4), EXAMPLE).unseen == ()


def test_a_forward_that_raises_leaves_nothing_either() -> None:
    """What it had changed until then is put back (TIER-2)."""

    class Fails(Keeping):
        """Raises when all is changed."""

        def forward(self, x: Any) -> Any:
            """Change, and raise."""
            super().forward(x)
            raise ArithmeticError("now")

    model = Fails()
    before = _held(model)
    assert refused(lambda: _tier_m(model)).code == "watch_discovery_failed"
    assert _held(model) == before


class Grades(nn.Module):
    """Asks for a gradient in its forward, as a penalty or an energy model does."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        """Return the gradient of the energy."""
        x = x.requires_grad_()
        return torch.autograd.grad(torch.softmax(self.body(x), -1).square().sum(), x)[0]


@pytest.mark.parametrize("attach", [_tier_m, _tier_o], ids=["tier M", "tier O"])
def test_a_gradient_in_the_forward_is_told_the_way_out(attach: Callable[[Any], None]) -> None:
    """The extra forward runs under no_grad, and the refusal of a model that needs more says so (TIER-1, TIER-2)."""
    refusal = refused(lambda: attach(Grades()))
    assert refusal.code == "watch_discovery_failed"
    assert "torch.enable_grad()" in refusal.remedy
