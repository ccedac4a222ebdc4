"""``step=`` in place of scopes, on real training loops."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torchlens_conformance.trackers as trk  # noqa: E402

from .helpers import batch, by_tag, data_rows, loss_of, refused, small_model, train_step  # noqa: E402
from .loops import ALL, start  # noqa: E402


def both_spellings(loop: Any, **options: Any) -> tuple[trk.MemorySink, trk.MemorySink]:
    """Run one loop under scopes and under ``step=``, with equal data."""
    sinks = []
    for spelling in ("scope", "callable"):
        model = small_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        sink = trk.MemorySink()
        now = {"step": 0}
        source = {"step": lambda now=now: now["step"]} if spelling == "callable" else {}
        with trk.watch(model, sink, optimizer=optimizer, **options, **source) as watch:
            for n in range(2, 13):
                now["step"] = n
                if spelling == "scope":
                    with watch.step(n):
                        loop(model, optimizer, n)
                else:
                    loop(model, optimizer, n)
        sinks.append(sink)
    return sinks[0], sinks[1]


def accumulating(model: Any, optimizer: Any, n: int) -> None:
    """Step after three forwards and backwards."""
    optimizer.zero_grad()
    for micro in range(3):
        loss_of(model, 3 * n + micro).backward()
    optimizer.step()


@pytest.mark.parametrize("loop", [train_step, accumulating])
def test_both_spellings_give_the_same_rows(loop: Any) -> None:
    """Scopes and ``step=`` give equal points in equal order, activations included (STEP-1, STEP-6)."""
    scope, source = both_spellings(
        loop,
        signals=ALL,
        every=3,
        hist_every=6,
        select=("0", "3"),
        inputs=batch(0),
        settings=trk.WatchSettings(run_id="x"),
    )
    assert data_rows(scope) == data_rows(source)
    assert [point for point in scope.scalars] == [point for point in source.scalars]
    calls = by_tag(scope)["activations/calls/0"]
    assert sorted(calls) == [2, 3, 6, 9, 12] and set(calls.values()) == {3 if loop is accumulating else 1}


def test_the_callable_is_asked_once_a_boundary() -> None:
    """Without activations the callable is called at boundaries only, once each, without arguments (STEP-6)."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    calls: list[int] = []

    def now(*arguments: object) -> int:
        assert not arguments
        calls.append(len(calls))
        return len(calls)

    before = len(model._forward_pre_hooks)
    with trk.watch(model, trk.MemorySink(), optimizer=optimizer, step=now, every=2):
        assert len(model._forward_pre_hooks) == before
        for n in range(5):
            train_step(model, optimizer, n)
    assert len(calls) == 5


def test_one_root_hook_is_installed_for_a_callable_with_activations() -> None:
    """Only ``step=`` with module signals puts a forward pre-hook on the root (STEP-6)."""
    model, _, _, watch = start(step=lambda: 0, signals=("activations",), select="0", inputs=batch(0))
    assert len(model._forward_pre_hooks) == 1
    watch.close()
    assert len(model._forward_pre_hooks) == 0
    model, _, _, watch = start(signals=("activations",), select="0", inputs=batch(0))
    assert len(model._forward_pre_hooks) == 0
    watch.close()


def test_a_step_that_changes_between_forward_and_boundary_is_refused() -> None:
    """The forward's step and the boundary's must agree (STEP-6)."""
    now = {"step": 3}
    model, optimizer, sink, watch = start(
        step=lambda: now["step"], signals=("activations",), select="0", inputs=batch(0)
    )
    loss_of(model, 3).backward()
    now["step"] = 4
    refusal = refused(optimizer.step)
    assert refusal.code == "watch_step_conflict"
    assert (refusal.fields["forward_step"], refusal.fields["boundary_step"]) == (3, 4)
    train_step(model, optimizer, 4)
    watch.close()
    assert sorted(by_tag(sink)["activations/norm/0"]) == [4]


def test_validation_between_steps_does_not_count() -> None:
    """Forwards under no_grad, or of a step that never came to its boundary, leave no trace in the rows (STEP-6)."""
    now = {"step": 0}
    model, optimizer, sink, watch = start(
        step=lambda: now["step"], signals=("activations",), select="0", inputs=batch(0)
    )
    with watch:
        for n in range(3):
            now["step"] = n
            train_step(model, optimizer, n)
            with torch.no_grad():
                model(batch(50))
            model(batch(60))
    assert by_tag(sink)["activations/calls/0"] == {0: 1, 1: 1, 2: 1}


@pytest.mark.parametrize("bad", [-1, "x", 1.5, None])
def test_a_callable_that_gives_no_step_is_refused_before_the_update(bad: object) -> None:
    """What the callable gives is checked at the boundary, before parameters change (STEP-1, STEP-3)."""
    model, optimizer, _, watch = start(step=lambda: bad)
    before = model[0].weight.detach().clone()
    assert refused(lambda: train_step(model, optimizer, 0)).code == "watch_step_invalid"
    assert torch.equal(before, model[0].weight)
    watch.close()


def test_a_callable_that_stands_still_is_a_regression() -> None:
    """One optimizer that steps twice at one step of the callable is refused (STEP-2)."""
    model, optimizer, sink, watch = start(step=lambda: 7)
    train_step(model, optimizer, 0)
    assert refused(lambda: train_step(model, optimizer, 1)).code == "watch_step_regression"
    watch.close()
    assert sorted(by_tag(sink)["gradients/norm/0.weight"]) == [7]


def test_an_error_of_the_callable_comes_through() -> None:
    """What the callable raises is the caller's own error (STEP-1)."""
    model, optimizer, _, watch = start(step=lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        train_step(model, optimizer, 0)
    watch.close()
