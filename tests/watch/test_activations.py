"""Tier M: outputs of modules of every shape, their gradients, and what the discovery forward puts back."""

from __future__ import annotations

import copy
import io
import pickle
import random
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.statistics import compute  # noqa: E402

from .helpers import batch, by_tag, histograms, hook_census, refused, small_model, train_step  # noqa: E402


@dataclass
class Output:
    """An output as models of transformers have it."""

    hidden: Any
    extra: Any = None


class Pair(NamedTuple):
    """An output with names."""

    left: Any
    right: Any


class Layer(nn.Module):
    """A module that returns what it is told to."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.shape = shape

    def forward(self, x: Any) -> Any:
        """Return the output in the wanted shape."""
        y = self.linear(x)
        return {
            "dict": {"y": y, "n": 3},
            "dataclass": Output(y),
            "named": Pair(y, y * 2),
            "with none": (y, None),
            "nested": (7, [y, {"k": y + 1}]),
            "bool": (y, y > 0),
            "int": (y, torch.ones(2, dtype=torch.int64)),
            "empty": (y, ()),
            "complex": (y, torch.complex(y, y)),
        }[self.shape]


class Net(nn.Module):
    """Calls one layer, and reduces whatever it gives."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.layer = Layer(shape)

    def forward(self, x: Any) -> Any:
        """Return a loss."""
        out = self.layer(x)
        if isinstance(out, dict):
            return out["y"].square().mean()
        if isinstance(out, Output):
            return out.hidden.square().mean()
        return (
            (out[1][0] if out[0] == 7 else out[0]).square().mean()
            if isinstance(out[0], int)
            else out[0].square().mean()
        )


def watched(model: Any, step: Any, *, steps: int = 2, **options: Any) -> tuple[trk.MemorySink, trk.CloseReport]:
    """Run a loop with activations watched on every step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink = trk.MemorySink()
    keywords = {"signals": ("activations",), "every": 1, "inputs": batch(0), **options}
    with trk.watch(model, sink, optimizer=optimizer, **keywords) as watch:
        for n in range(steps):
            with watch.step(n):
                step(model, optimizer, n)
    return sink, watch.close()


def backward_of(model: Any, optimizer: Any, n: int) -> None:
    """Step on a model that returns its loss."""
    optimizer.zero_grad()
    model(batch(n)).backward()
    optimizer.step()


@pytest.mark.parametrize(
    ("shape", "leaves", "skipped"),
    [
        ("dict", {"layer/y"}, {"layer/n"}),
        ("dataclass", {"layer/hidden"}, set()),
        ("named", {"layer/left", "layer/right"}, set()),
        ("with none", {"layer/0"}, set()),
        ("nested", {"layer/1/0", "layer/1/1/k"}, {"layer/0"}),
        ("bool", {"layer/0"}, {"layer/1"}),
        ("int", {"layer/0"}, {"layer/1"}),
        ("empty", {"layer/0"}, set()),
        ("complex", {"layer/0"}, {"layer/1"}),
    ],
)
def test_every_floating_tensor_of_an_output_is_observed(shape: str, leaves: set[str], skipped: set[str]) -> None:
    """Stable labels for parts of an output, a named skip for what has no statistics (TIER-1)."""
    sink, report = watched(Net(shape), backward_of, select="layer")
    found = {tag.removeprefix("activations/norm/") for tag in by_tag(sink) if tag.startswith("activations/norm/")}
    assert found - {"layer.linear"} == leaves
    assert {site for skip in report.named_skips for site in skip.sites} == skipped
    assert set(report.skip_counts) <= {"activation_not_floating"}


def test_values_are_those_of_the_forward() -> None:
    """Statistics are the output's, histograms its counts, and rows carry the module's path (TIER-1, STAT-1)."""
    model = small_model()
    held: list[Any] = []
    model[0].register_forward_hook(lambda module, args, output: held.append(output.detach().clone()))
    sink, _ = watched(model, train_step, select="0", hist_every=1)
    expected = [compute(output, descriptor=trk.DEFAULT_DESCRIPTOR) for output in held[1:]]
    rows, bins = by_tag(sink), histograms(sink)["activations/hist/0"]
    for n, found in enumerate(expected):
        assert rows["activations/mean/0"][n] == found.mean and bins[n].counts == found.counts
        assert rows["activations/calls/0"][n] == 1


def test_calls_of_a_shared_module_are_merged() -> None:
    """A module that runs twice has one row, which says so (TIER-1)."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.shared(self.shared(x)).square().mean()

    sink, _ = watched(Twice(), backward_of, select=("shared", "_root"))
    rows = by_tag(sink)
    assert rows["activations/calls/shared"] == {0: 2, 1: 2} and rows["activations/count/shared"] == {0: 40, 1: 40}
    assert rows["activations/count/_root"] == {0: 1, 1: 1}


def test_gradients_of_outputs_work_with_in_place_operations() -> None:
    """In-place ReLU and an in-place sum behind a watched module train as ever (TIER-4)."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act, self.last = nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = self.conv(x)
            y += x
            return self.last(self.act(y)).square().mean()

    held: list[Any] = []

    def step(model: Any, optimizer: Any, n: int) -> None:
        optimizer.zero_grad()

        def keep(module: Any, args: Any, output: Any) -> None:
            output.register_hook(lambda gradient: held.append(gradient.clone()))

        handle = model.last.register_forward_hook(keep)
        model(batch(n)).backward()
        handle.remove()
        optimizer.step()

    sink, report = watched(Residual(), step, signals=("activation_grads",), select=("conv", "act", "last"))
    rows = by_tag(sink)
    assert rows["activation_grads/norm/last"] == {n: compute(grad).norm for n, grad in enumerate(held)}
    assert {"activation_grads/norm/conv", "activation_grads/norm/act"} <= set(rows) and report.skip_counts == {}


def test_gradients_of_outputs_are_true_under_a_scale() -> None:
    """What flows backward carries the loss scale, and the rows do not (TIER-4, AMP-3)."""
    oracle, _ = watched(small_model(), train_step, signals=("activation_grads",), select="0", steps=1, hist_every=1)
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink, amp = trk.MemorySink(), torch.amp.GradScaler("cpu")
    options = {"signals": ("activation_grads",), "select": "0", "inputs": batch(0), "hist_every": 1}
    with trk.watch(model, sink, optimizer=optimizer, **options) as watch, watch.step(0, scaler=amp):
        train_step(model, optimizer, 0, scaler=amp)
    for tag, values in by_tag(oracle).items():
        if tag.startswith("activation_grads"):
            assert by_tag(sink)[tag] == values
    assert histograms(sink) == histograms(oracle) and by_tag(sink)["torchlens/run/amp_unscale_derived"] == {0: 1}


def test_recomputed_forwards_do_not_count() -> None:
    """Activation checkpointing calls modules again inside the backward; the row has one call (TIER-1)."""

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            # The recomputation stops as soon as it has what it needs, so the watched module is not the last one.
            self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

        def forward(self, x: Any) -> Any:
            return checkpoint(self.inner, x, use_reentrant=False).square().mean()

    sink, _ = watched(Checkpointed(), backward_of, select="inner.0")
    assert by_tag(sink)["activations/calls/inner.0"] == {0: 1, 1: 1}


def test_a_forward_that_did_not_come_is_missing() -> None:
    """A sampled step without any watched forward refuses; without one of several it is a named skip (STEP-7)."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = trk.watch(
        model, trk.MemorySink(), optimizer=optimizer, signals="activations", select=("0", "3"), inputs=batch(0)
    )

    def silent() -> None:
        with watch.step(0):
            pass

    assert refused(silent).fields["phases"] == ["forward"]
    with watch, watch.step(1):
        model[3](torch.ones(2, 6))
    report = watch.close()
    assert [(skip.name, skip.sites) for skip in report.named_skips] == [("activation_missing", ("0",))]
    strict = trk.watch(model, trk.MemorySink(), signals="activation_grads", select="0", inputs=batch(0))

    def no_backward() -> None:
        with strict.step(0):
            model(batch(0))

    assert refused(no_backward).fields["phases"] == ["backward"]
    assert refused(strict.close).code == "watch_close_empty"


def test_discovery_puts_everything_back() -> None:
    """Random states, buffers and modes are as before, in training mode and in evaluation mode (TIER-1)."""
    numpy = pytest.importorskip("numpy")

    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(0.5)
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: Any) -> Any:
            self.count = self.count + 1
            return self.drop(self.norm(x)) * random.random() * numpy.random.rand()

    for mode in (True, False):
        model = Noisy().train(mode)
        state = copy.deepcopy(model.state_dict())
        buffers = [id(buffer) for buffer in model.buffers()]
        before = (torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist(), hook_census(model))
        trk.watch(model, trk.MemorySink(), signals="activations", select="norm", inputs=(batch(0),)).close()
        after = (torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist(), hook_census(model))
        assert torch.equal(before[0], after[0]) and before[1:] == after[1:]
        assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
        assert buffers == [id(buffer) for buffer in model.buffers()] and model.training == mode


@pytest.mark.parametrize("inputs", [batch(0), (batch(0),), [batch(0)], {"input": batch(0)}])
def test_inputs_take_the_usual_forms(inputs: Any) -> None:
    """A tensor, positional arguments, or keywords; ``example_input`` is the same (TIER-1)."""
    for name in ("inputs", "example_input"):
        watch = trk.watch(small_model(), trk.MemorySink(), signals="activations", select="0", **{name: inputs})
        assert watch.plan_report().matched_sites == 1
        watch.close()


def test_an_output_that_discovery_did_not_see_is_named() -> None:
    """A part that appears later has no checked tag, and so no row but a name (TAG-3, TIER-1)."""

    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.more = nn.Linear(4, 4), False

        def forward(self, x: Any) -> Any:
            y = self.linear(x)
            return {"y": y, **({"z": y} if self.more else {})}

    def step(model: Any, optimizer: Any, n: int) -> None:
        model.more = True
        optimizer.zero_grad()
        model(batch(n))["y"].square().mean().backward()
        optimizer.step()

    sink, report = watched(Growing(), step, select="_root")
    assert report.skip_counts == {"activation_unknown_leaf": 2} and report.named_skips[0].sites == ("_root/z",)
    assert "activations/norm/_root/y" in by_tag(sink)


def test_an_unsafe_output_label_is_refused_at_attach() -> None:
    """A key that no tag may hold is found by discovery (TAG-3)."""

    class Odd(nn.Module):
        def forward(self, x: Any) -> Any:
            return {"what?": x * 1.0}

    refusal = refused(
        lambda: trk.watch(Odd(), trk.MemorySink(), signals="activations", select="_root", inputs=batch(0))
    )
    assert (refusal.code, refusal.fields["site"]) == ("tracker_tag_unsafe", "_root/what?")


def test_copies_and_pickles_of_a_watched_model_are_plain() -> None:
    """A copy, a pickle and a checkpoint of a watched model run without us, and feed no rows (CLOSE-3)."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink = trk.MemorySink()
    options = {"signals": ("gradients", "activations"), "select": "0", "inputs": batch(0), "step": lambda: 0}
    with trk.watch(model, sink, optimizer=optimizer, **options):
        stored = pickle.dumps(model)
        assert b"torchlens" not in stored
        buffer = io.BytesIO()
        torch.save(model, buffer)
        buffer.seek(0)
        twins = [copy.deepcopy(model), pickle.loads(stored), torch.load(buffer, weights_only=False)]
        rest = [copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))]
        for twin in twins:
            other = torch.optim.SGD(twin.parameters(), lr=0.1)
            train_step(twin, other, 0)
        for each in rest:
            each.step()
        train_step(model, optimizer, 0)
    assert by_tag(sink)["activations/calls/0"] == {0: 1}
    assert len(by_tag(sink)["gradients/norm/0.weight"]) == 1


def test_compiled_modules_are_refused_for_outputs() -> None:
    """Hooks inside a compiled graph would break it: outputs refuse, the boundary signals do not (TIER-1)."""
    for model in (torch.compile(small_model(), backend="eager"), small_model()):
        if not hasattr(model, "_orig_mod"):
            model.compile(backend="eager")
        options = {"signals": "activations", "select": "0", "inputs": batch(0)}
        assert refused(partial(trk.watch, model, trk.MemorySink(), **options)).code == "watch_compiled_unsupported"
        trk.watch(model, trk.MemorySink()).close()
