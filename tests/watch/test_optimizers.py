"""Boundaries of every sort of optimizer: measured updates, closures, several optimizers, optimizers met later."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.statistics import compute  # noqa: E402

from .helpers import batch, by_tag, histograms, hook_census, loss_of, refused, small_model, train_step  # noqa: E402


def copies(model: Any) -> dict[str, Any]:
    """Return copies of all parameters by name."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "capturable": lambda p: torch.optim.Adamax(p, lr=0.01),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_updates_are_after_minus_before(kind: str) -> None:
    """Updates and their ratio are measured deltas, and no multiple of the gradient (STAT-4, STAT-5)."""
    model = small_model()
    optimizer = OPTIMIZERS[kind](model.parameters())
    sink = trk.MemorySink()
    held: list[tuple[Any, Any, Any]] = []
    signals = ("updates", "gradients", "parameters")
    with trk.watch(model, sink, optimizer=optimizer, every=1, hist_every=1, signals=signals) as watch:
        for n in range(5):
            before = copies(model)
            with watch.step(n):
                optimizer.zero_grad()
                loss_of(model, n).backward()
                gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
                optimizer.step()
            held.append((before, gradients, copies(model)))
    rows, bins = by_tag(sink), histograms(sink)
    for n, (before, gradients, after) in enumerate(held):
        for name in before:
            delta = compute(after[name] - before[name], descriptor=trk.DEFAULT_DESCRIPTOR)
            assert rows[f"updates/norm/{name}"][n] == delta.norm and rows[f"updates/max/{name}"][n] == delta.maximum
            assert bins[f"updates/hist/{name}"][n].counts == delta.counts
            assert rows[f"updates/ratio/{name}"][n] == delta.norm / compute(before[name]).norm
            assert rows[f"gradients/norm/{name}"][n] == compute(gradients[name]).norm
            assert rows[f"parameters/mean/{name}"][n] == compute(after[name]).mean
    if kind != "rprop":
        last = held[-1]
        moved = last[2]["0.weight"] - last[0]["0.weight"]
        assert not torch.allclose(moved / moved.norm(), -last[1]["0.weight"] / last[1]["0.weight"].norm(), atol=1e-3)


def test_a_parameter_of_zeros_has_no_ratio() -> None:
    """A ratio over nothing is left out (STAT-5, STAT-3)."""
    model = small_model()
    nn.init.zeros_(model[0].bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink = trk.MemorySink()
    with trk.watch(model, sink, optimizer=optimizer, signals="updates") as watch, watch.step(0):
        train_step(model, optimizer, 0)
    assert "updates/ratio/0.bias" not in by_tag(sink) and "updates/ratio/0.weight" in by_tag(sink)


@pytest.mark.parametrize("by_keyword", [False, True])
def test_a_closure_optimizer_shows_its_first_evaluation(by_keyword: bool) -> None:
    """LBFGS: the gradient of the first evaluation, their number, and nothing of the step before (STEP-10)."""
    model = small_model()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    sink = trk.MemorySink()
    first: dict[int, float] = {}
    counts: dict[int, int] = {}

    def closure(n: int) -> Any:
        def evaluate() -> Any:
            optimizer.zero_grad()
            loss = loss_of(model, n)
            loss.backward()
            counts[n] = counts.get(n, 0) + 1
            first.setdefault(n, compute(model[0].weight.grad).norm or 0.0)
            return loss

        return evaluate

    with trk.watch(model, sink, optimizer=optimizer, every=2, signals=("gradients", "updates")) as watch:
        for n in range(5):
            before = copies(model)
            with watch.step(n):
                _ = optimizer.step(closure=closure(n)) if by_keyword else optimizer.step(closure(n))
            if n == 4:
                delta = compute(model[0].weight.detach() - before["0.weight"]).norm
    rows = by_tag(sink)
    assert rows["gradients/norm/0.weight"] == {n: first[n] for n in (0, 2, 4)}
    assert rows["torchlens/run/closure_evaluations"] == {n: counts[n] for n in (0, 2, 4)}
    assert max(counts.values()) > 1 and rows["updates/norm/0.weight"][4] == delta


def test_a_closure_that_is_never_called_gives_no_gradient() -> None:
    """Without an evaluation, what lies in the gradients is stale, and is not reported (STEP-10)."""

    class Lazy(torch.optim.SGD):  # type: ignore[misc, unused-ignore]
        def step(self, closure: Any = None) -> Any:
            return None

    model = small_model()
    optimizer = Lazy(model.parameters(), lr=0.1)
    sink = trk.MemorySink()
    loss_of(model, 0).backward()
    with trk.watch(model, sink, optimizer=optimizer) as watch, watch.step(0):
        optimizer.step(lambda: 1.0)
    report = watch.close()
    assert report.skip_counts == {"closure_not_called": 1} and "gradients/norm/0.weight" not in by_tag(sink)
    assert by_tag(sink)["torchlens/run/closure_evaluations"] == {0: 0}


def test_an_error_in_a_closure_comes_through() -> None:
    """What a closure raises is the caller's own (STEP-10, TAG-4)."""
    model = small_model()
    optimizer = torch.optim.LBFGS(model.parameters())

    def evaluate() -> Any:
        raise ArithmeticError("mine")

    watch = trk.watch(model, trk.MemorySink(), optimizer=optimizer)
    with pytest.raises(ArithmeticError, match="mine"), watch, watch.step(0):
        optimizer.step(evaluate)


def two_optimizers() -> tuple[Any, list[Any]]:
    """Return a model whose halves have an optimizer each."""
    model = small_model()
    return model, [torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.AdamW(model[3].parameters(), lr=0.01)]


@pytest.mark.parametrize("given", [True, False])
def test_parameters_follow_their_own_optimizer(given: bool) -> None:
    """A scope in which one of two steps emits its part, and names the other (STEP-11)."""
    model, optimizers = two_optimizers()
    sink = trk.MemorySink()
    with trk.watch(model, sink, optimizer=optimizers if given else None, every=1) as watch:
        for n in range(4):
            with watch.step(n):
                for optimizer in optimizers:
                    optimizer.zero_grad()
                loss_of(model, n).backward()
                optimizers[0].step()
                if n % 2 == 0:
                    optimizers[1].step()
    rows = by_tag(sink)
    assert sorted(rows["gradients/norm/0.weight"]) == [0, 1, 2, 3]
    assert sorted(rows["gradients/norm/3.weight"]) == [0, 2]
    skips = [(skip.name, skip.step, skip.detail) for skip in watch.close().named_skips]
    assert skips == [("optimizer_not_stepped", n, "AdamW") for n in (1, 3)]


def test_two_optimizers_under_a_callable_are_one_step() -> None:
    """Boundaries at one value of the callable are one step, also when one of them is rare (STEP-11, STEP-2)."""
    for given in (True, False):
        model, optimizers = two_optimizers()
        sink, now = trk.MemorySink(), {"step": 0}
        source = {"step": lambda now=now: now["step"]}
        with trk.watch(model, sink, optimizer=optimizers if given else None, every=1, **source) as watch:
            for n in range(4):
                now["step"] = n
                for optimizer in optimizers:
                    optimizer.zero_grad()
                loss_of(model, n).backward()
                optimizers[0].step()
                if n % 2 == 0:
                    optimizers[1].step()
        rows = by_tag(sink)
        assert sorted(rows["gradients/norm/0.weight"]) == [0, 1, 2, 3]
        assert sorted(rows["gradients/norm/3.weight"]) == [0, 2]
        assert watch.close().steps_seen == 4


def test_adversarial_training_is_two_complete_series() -> None:
    """Gradients that the discriminator leaves in the generator are no step of it (STEP-7, STEP-11, TAG-2)."""
    generator, discriminator = small_model(), nn.Linear(3, 1)
    optimizers = [torch.optim.Adam(generator.parameters()), torch.optim.Adam(discriminator.parameters())]
    sink = trk.MemorySink()
    g = trk.watch(generator, sink, optimizer=optimizers[0], every=1, name="gen", allow_missing_phases=True)
    d = trk.watch(discriminator, sink, optimizer=optimizers[1], every=1, name="disc")
    with g, d:
        for n in range(4):
            with g.step(n), d.step(n):
                for optimizer in optimizers:
                    optimizer.zero_grad()
                discriminator(generator(batch(n))).mean().backward()
                optimizers[1].step()
                if n % 2:
                    optimizers[0].step()
    rows = by_tag(sink)
    assert sorted(rows["gradients/gen/norm/0.weight"]) == [1, 3]
    assert sorted(rows["gradients/disc/norm/weight"]) == [0, 1, 2, 3]
    assert [(skip.name, skip.step) for skip in g.close().named_skips] == [("phase_missing", 0), ("phase_missing", 2)]
    strict = trk.watch(generator, trk.MemorySink(), optimizer=optimizers[0])

    def forgetful() -> None:
        with strict.step(0):
            discriminator(generator(batch(0))).mean().backward()
            optimizers[1].step()

    assert refused(forgetful).code == "watch_phase_missing"
    assert refused(strict.close).code == "watch_close_empty"


@pytest.mark.parametrize("given", [True, False])
def test_forwards_between_two_boundaries_belong_to_the_step(given: bool) -> None:
    """Under ``step=``, a forward between the optimizers of one step is one more call of it (STEP-6, STEP-11)."""
    model, optimizers = two_optimizers()
    sink, now = trk.MemorySink(), {"step": 0}
    watch = trk.watch(
        model,
        sink,
        optimizer=optimizers if given else None,
        signals=("gradients", "activations"),
        select=("0", "3"),
        inputs=batch(0),
        every=2,
        hist_every=4,
        step=lambda: now["step"],
    )
    with watch:
        for n in range(5):
            now["step"] = n
            for optimizer in optimizers:
                loss_of(model, n).backward()
                optimizer.step()
    assert by_tag(sink)["activations/calls/0"] == {0: 2, 2: 2, 4: 2}
    assert sorted(histograms(sink)["activations/hist/0"]) == [0, 4]
    assert watch.close().skip_counts == {}


def test_without_optimizer_every_one_of_the_model_is_found() -> None:
    """Left out, ``optimizer=`` finds those that update watched parameters, and no others (STEP-11, CLOSE-3)."""
    model, other = small_model(), small_model(seed=2)
    optimizer, foreign = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, other))
    before = hook_census(model, [optimizer, foreign])
    sink = trk.MemorySink()
    with trk.watch(model, sink, every=1) as watch:
        train_step(other, foreign, 0)
        with watch.step(0):
            train_step(other, foreign, 0)
            train_step(model, optimizer, 0)
    assert sorted(by_tag(sink)["gradients/norm/0.weight"]) == [0] and watch.close().skip_counts == {}
    assert hook_census(model, [optimizer, foreign]) == before


def test_parameters_of_no_optimizer() -> None:
    """Without an optimizer a parameter has parameter rows; its gradient is at nobody's boundary, by name (STEP-11)."""
    model = small_model()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    sink = trk.MemorySink()
    signals = ("gradients", "parameters", "updates")
    with trk.watch(model, sink, optimizer=optimizer, signals=signals) as watch, watch.step(0):
        train_step(model, optimizer, 0)
    leaves = {
        family: {tag.split("/")[-1] for tag in by_tag(sink) if tag.startswith(f"{family}/norm/")} for family in signals
    }
    first, everything = {"0.weight", "0.bias"}, {"0.weight", "0.bias", "3.weight", "3.bias"}
    assert leaves == {"gradients": first, "parameters": everything, "updates": first}
    assert [(skip.name, skip.sites) for skip in watch.close().named_skips] == [
        ("gradient_without_optimizer", ("3.weight", "3.bias"))
    ]


def test_a_parameter_group_that_is_added_later_is_seen() -> None:
    """Parameters that join the optimizer have rows from then on (STEP-11)."""
    model = small_model()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    sink = trk.MemorySink()
    with trk.watch(model, sink, optimizer=optimizer, every=1) as watch:
        for n in range(2):
            with watch.step(n):
                train_step(model, optimizer, n)
                model.zero_grad()
            if n == 0:
                optimizer.add_param_group({"params": list(model[3].parameters())})
    assert sorted(by_tag(sink)["gradients/norm/3.weight"]) == [1]


def test_an_optimizer_inside_a_wrapper_is_found() -> None:
    """An object that holds the real optimizer as ``optimizer`` stands for it (STEP-11)."""

    class Wrapper:
        def __init__(self, optimizer: Any) -> None:
            self.optimizer = optimizer

    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink = trk.MemorySink()
    with trk.watch(model, sink, optimizer=Wrapper(optimizer)) as watch, watch.step(0):  # type: ignore[arg-type]
        train_step(model, optimizer, 0)
    assert "gradients/norm/0.weight" in by_tag(sink)


class Shrinking(torch.optim.SGD):  # type: ignore[misc, unused-ignore, name-defined]
    """Halves the parameters and gradients, then calls the step of its base class, as home-made optimizers do."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Step."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(0.5)
                parameter.grad.mul_(0.5)
        return super().step(closure)


@pytest.mark.parametrize("spelling", ["scope", "callable"])
def test_a_step_inside_a_step_is_one_boundary(spelling: str) -> None:
    """An optimizer that calls its base class's step is measured once, around all of its own step (STAT-4, STEP-6)."""
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # From now on torch wraps the step of SGD, too.
    model = nn.Linear(3, 2)
    optimizer = Shrinking(model.parameters(), lr=0.1)
    asked: list[int] = []
    sink = trk.MemorySink()
    options = {"step": lambda: asked.append(4) or 4} if spelling == "callable" else {}
    signals = ("gradients", "parameters", "updates")
    before, gradients = {}, {}
    with trk.watch(model, sink, optimizer=optimizer, signals=signals, every=1, **options) as watch:
        model(batch(0, width=3)).square().sum().backward()
        before = copies(model)
        gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
        if spelling == "callable":
            optimizer.step()
        else:
            with watch.step(4):
                optimizer.step()
    rows = by_tag(sink)
    for name, parameter in model.named_parameters():
        delta = compute(parameter.detach() - before[name])
        assert rows[f"updates/norm/{name}"] == {4: pytest.approx(delta.norm)}
        assert rows[f"gradients/norm/{name}"] == {4: pytest.approx(compute(gradients[name]).norm)}
    assert asked == ([4] if spelling == "callable" else [])
    assert not watch.close().named_skips
