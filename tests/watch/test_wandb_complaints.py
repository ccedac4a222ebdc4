"""What users of wandb.watch complain about, each with what happens here, over a real offline run where that matters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
wandb = pytest.importorskip("wandb")

from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from fidelity.routes.wandb import finish_run  # noqa: E402
from reference_sinks.readers import ReadResult, read_wandb  # noqa: E402

from .helpers import batch, by_tag, hook_census, refused, small_model, train_step  # noqa: E402

Stored = Callable[[], ReadResult]


@pytest.fixture
def offline(tmp_path: Path) -> Iterator[tuple[Any, Stored]]:
    """Give an offline run, and what finishes it and reads it back."""
    run = wandb.init(mode="offline", dir=tmp_path, settings=wandb.Settings(silent=True, console="off"))

    def stored() -> ReadResult:
        finish_run(run, tmp_path)
        return read_wandb(next((tmp_path / "wandb").glob("offline-run-*")))

    yield run, stored
    run.finish()


def sgd(model: nn.Module) -> Any:
    """Return SGD over a model."""
    return torch.optim.SGD(model.parameters(), lr=0.1)


def series(result: ReadResult) -> dict[str, list[int]]:
    """Return the steps of every tag, in stored order."""
    found: dict[str, list[int]] = {}
    for point in result:
        assert not isinstance(point, trk.GraphPoint)
        found.setdefault(point.tag, []).append(point.step)
    return found


def test_activations_and_updates_reach_the_run(offline: tuple[Any, Stored]) -> None:
    """5218: outputs of chosen modules, and measured updates, with the caller's steps (TIER-1, STAT-4)."""
    run, stored = offline
    model: Any = small_model()
    optimizer = sgd(model)
    deltas = {}
    signals = ("activations", "updates")
    with trk.watch(
        model,
        trk.WandbSink(run),
        optimizer=optimizer,
        signals=signals,
        select=("0", "3"),
        inputs=batch(0),
        every=2,
        hist_every=4,
    ) as watch:
        for n in range(100, 105):
            before = model[3].bias.detach().clone()
            with watch.step(n):
                train_step(model, optimizer, n)
            deltas[n] = float((model[3].bias.detach() - before).abs().max())
    result = stored()
    found = series(result)
    assert found["activations/norm/0"] == found["updates/norm/3.bias"] == [100, 102, 104]
    assert found["activations/hist/3"] == [100, 104] and not any("gradients" in tag for tag in found)
    extremes: dict[int, float] = {}
    for point in result:
        if isinstance(point, trk.ScalarPoint) and point.tag in ("updates/min/3.bias", "updates/max/3.bias"):
            extremes[point.step] = max(extremes.get(point.step, 0.0), abs(point.value))
    assert extremes == {n: deltas[n] for n in (100, 102, 104)}


def test_selection_is_exact_and_bounded() -> None:
    """6945: prefixes by whole components, and budgets that refuse before a hook is set (ATTACH-5, TAG-6)."""
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(12)))
    census = hook_census(model)
    session = trk.watch(model, trk.MemorySink(), select="1")
    assert session.plan_report().matched_sites == 2
    session.close()
    for budget, needed in (("max_sites", 2), ("max_elements_per_step", 6), ("max_bytes_per_step", 160)):
        refusal = refused(partial(trk.watch, model, trk.MemorySink(), select="1", budgets={budget: 1}))
        assert (refusal.code, refusal.fields["needed"]) == ("watch_budget_exceeded", needed)
        trk.watch(model, trk.MemorySink(), select="1", budgets={budget: needed}).close()
    assert hook_census(model) == census


def test_nothing_is_empty_without_a_word(offline: tuple[Any, Stored]) -> None:
    """1639, 3701, 2625: a heartbeat, a refusal of a missing phase, one of an empty run (CLOSE-2, STEP-7, STEP-8)."""
    run, stored = offline
    model = small_model()
    optimizer = sgd(model)
    watch = trk.watch(model, trk.WandbSink(run), optimizer=optimizer, every=1)

    def without_optimizer(n: int) -> None:
        with watch.step(n):
            model(batch(n)).mean().backward()

    for n in (5, 6):
        assert refused(partial(without_optimizer, n)).code == "watch_phase_missing"
    error = refused(watch.close)
    assert error.code == "watch_close_empty" and error.report.missing_phases == (  # type: ignore[attr-defined]
        (5, "optimizer boundary"),
        (6, "optimizer boundary"),
    )
    found = series(stored())
    assert found["torchlens/run/attached"] == [5] and not any(tag.startswith("gradients") for tag in found)


def test_a_sharded_parameter_is_refused() -> None:
    """9866: at attach, by name, and nothing is left behind (ATTACH-8)."""
    model = small_model()
    setattr(model[3].weight, "_is_flat_param", True)  # noqa: B010
    census = hook_census(model)
    refusal = refused(lambda: trk.watch(model, trk.MemorySink()))
    assert (refusal.code, refusal.fields["sites"]) == ("watch_sharded_unsupported", ["3.weight"])
    assert hook_census(model) == census


def test_steps_are_the_callers(offline: tuple[Any, Stored]) -> None:
    """The relay rewrites steps; here they are stored as given (STEP-1, WANDB-1)."""
    run, stored = offline
    model = small_model()
    optimizer = sgd(model)
    steps = [100, 102, 104, 2**40]
    with trk.watch(model, trk.WandbSink(run), optimizer=optimizer, every=1, hist_every=1) as watch:
        for n in steps:
            with watch.step(n):
                train_step(model, optimizer, n)
    found = series(stored())
    assert found["gradients/norm/0.weight"] == found["gradients/hist/0.weight"] == steps


def test_models_are_told_apart(offline: tuple[Any, Stored]) -> None:
    """5135, 2284: one run, two networks, disjoint series; without names they collide (TAG-2, ATTACH-2, ATTACH-7)."""
    run, stored = offline
    models = {"gen": small_model(), "disc": small_model(seed=1)}
    optimizers = {name: sgd(model) for name, model in models.items()}
    sink = trk.WandbSink(run)
    sessions = {
        name: trk.watch(model, sink, optimizer=optimizers[name], name=name, every=1) for name, model in models.items()
    }
    nameless = trk.watch(models["gen"], trk.MemorySink())
    assert refused(lambda: trk.watch(models["gen"], trk.MemorySink())).code == "tracker_namespace_collision"
    nameless.close()
    with sessions["gen"].step(3), sessions["disc"].step(3):
        for name, model in models.items():
            train_step(model, optimizers[name], 3)
    for session in sessions.values():
        assert session.close().sinks[0].failed is None
    found = series(stored())
    for name in models:
        assert found[f"gradients/{name}/norm/0.weight"] == found[f"torchlens/run/{name}/attached"] == [3]


def test_the_cost_is_told_before_the_first_step() -> None:
    """Sites, elements and cadences stand in the plan; a step that is not sampled gives no point (XFER-1, STEP-4)."""
    model, sink = small_model(), trk.MemorySink()
    optimizer = sgd(model)
    with trk.watch(model, sink, optimizer=optimizer, every=50, hist_every=100) as watch:
        plan = watch.plan_report()
        assert (plan.matched_sites, plan.elements_per_step, plan.every, plan.hist_every) == (4, 51, 50, 100)
        assert "every= is the lever" in plan.format()
        counts = []
        for n in range(3):
            with watch.step(n):
                train_step(model, optimizer, n)
            counts.append(len(sink.points))
    assert counts[0] > 0 and counts[0] == counts[1] == counts[2]
    assert sorted(by_tag(sink)["gradients/norm/0.weight"]) == [0, 2]  # The last one is sampled at close.
