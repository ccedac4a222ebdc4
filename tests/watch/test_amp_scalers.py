"""Scalers of every kind: several optimizers, unreadable, disabled, absent, with other scales."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torchlens_conformance.trackers as trk  # noqa: E402

from .amp_loops import adam, assert_same_first_gradients, fused, plain, run, scaled, scaler  # noqa: E402
from .helpers import batch, by_tag, refused, small_model, texts, train_step  # noqa: E402


def test_several_optimizers_have_a_stage_each() -> None:
    """One unscaled, one not, under one scaler: each is corrected by what it needs (AMP-6, STEP-11)."""
    model = small_model()
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.AdamW(model[3].parameters(), fused=True)
    amp, sink, oracle = scaler(), trk.MemorySink(), trk.MemorySink()
    with trk.watch(model, sink, optimizer=[first, second], every=1) as watch:
        for n in range(3):
            with watch.step(n, scaler=amp):
                amp.scale(model(batch(n)).square().mean() * (1e38 if n == 1 else 1.0)).backward()
                amp.step(first)
                amp.step(second)
                amp.update()
                first.zero_grad()
                second.zero_grad()
    twin = small_model()
    optimizers = [torch.optim.SGD(twin[0].parameters(), lr=0.1), torch.optim.AdamW(twin[3].parameters(), fused=True)]
    with trk.watch(twin, oracle, optimizer=optimizers, every=1) as other, other.step(0):
        twin(batch(0)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
    assert_same_first_gradients(sink, oracle)
    told = texts(sink)["torchlens/meta/amp_unscaled"]
    assert json.loads(told[0]) == {"SGD": "yes", "AdamW": "no"}
    skips = [(skip.step, skip.detail) for skip in watch.close().named_skips if skip.name == "amp_skipped"]
    assert sorted({step for step, _ in skips}) == [1] and sorted(by_tag(sink)["gradients/norm/0.weight"]) == [0, 2]


def test_two_updates_in_one_scope_are_not_guessed_about() -> None:
    """When a second update took the record along, the step is named undetermined, not refused (AMP-8)."""
    model, other = small_model(), small_model(seed=1)
    optimizer, foreign = adam(model.parameters()), adam(other.parameters())
    amp = scaler()
    with trk.watch(model, trk.MemorySink(), optimizer=optimizer, every=1) as watch, watch.step(0, scaler=amp):
        train_step(other, foreign, 0, scaler=amp)
        train_step(model, optimizer, 0, scaler=amp, scale=1e38)
    assert watch.close().skip_counts == {"amp_skip_undetermined": 1}


class DuckScaler:
    """A scaler of somebody's own: a scale, and no record of stages."""

    def __init__(self, scale: float) -> None:
        self._value = scale

    def get_scale(self) -> float:
        """Return the scale."""
        return self._value

    def is_enabled(self) -> bool:
        """Return True."""
        return True


def test_a_stage_that_cannot_be_read_is_unknown() -> None:
    """A duck-typed scaler gives "unknown" and the numbers as measured, whatever its scale is (AMP-4)."""

    def times_three(model: Any, optimizer: Any, amp: Any, n: int) -> None:
        train_step(model, optimizer, n, scale=3.0)

    oracle, _, _ = run(times_three, make=adam, amp=None)
    sink, report, _ = run(times_three, make=adam, amp=DuckScaler(3.0))
    assert_same_first_gradients(sink, oracle)
    assert texts(sink)["torchlens/meta/amp_unscaled"] == {0: "unknown"} and report.unscaled == {"unknown": 1}
    assert by_tag(sink)["torchlens/run/amp_scale"] == {0: 3.0}
    assert "torchlens/run/amp_unscale_derived" not in by_tag(sink)


def test_a_scaler_that_tells_nothing_does_no_harm() -> None:
    """An object without a scale is unknown, and no scale is invented (AMP-4)."""
    sink, _, _ = run(plain, make=adam, amp=object())
    assert texts(sink)["torchlens/meta/amp_unscaled"] == {0: "unknown"}
    assert "torchlens/run/amp_scale" not in by_tag(sink)


def test_a_disabled_scaler_is_a_factor_of_one() -> None:
    """Switched off, the scaler is an observed factor of 1.0 (AMP-5)."""
    oracle, _, _ = run(plain, make=adam, amp=None)
    sink, _, _ = run(scaled, make=adam, amp=scaler(enabled=False))
    assert_same_first_gradients(sink, oracle)
    assert by_tag(sink)["torchlens/run/amp_scale"] == {0: 1.0}
    assert texts(sink)["torchlens/meta/amp_unscaled"] == {0: "yes"}


def test_without_a_scaler_nothing_is_claimed() -> None:
    """No scaler, no row about scaling (AMP-5)."""
    sink, report, _ = run(plain, make=adam, amp=None)
    assert not any("amp" in point.tag for point in sink.points) and report.unscaled == {}


@pytest.mark.parametrize("scale", [3.0, 65535.0, math.inf, math.nan, -2.0, 0.0])
def test_other_scales_are_refused_when_the_scope_opens(scale: float) -> None:
    """A scale that is no power of two refuses at entry, not inside the step, and the session goes on (AMP-3)."""
    model = small_model()
    optimizer = adam(model.parameters())
    sink = trk.MemorySink()
    entered = []
    with trk.watch(model, sink, optimizer=optimizer, every=1) as watch:

        def enter() -> None:
            with watch.step(0, scaler=scaler(scale)):
                entered.append(True)

        assert refused(enter).code == "tracker_scale_invalid" and not entered
        with watch.step(0, scaler=scaler()):
            train_step(model, optimizer, 0)
    assert watch.close().steps_seen == 1


def test_a_factor_that_is_no_power_of_two_at_the_boundary_is_told() -> None:
    """Met only at the boundary, such a factor leaves the numbers as measured, by name (AMP-3, AMP-4)."""

    def third(model: Any, optimizer: Any, amp: Any, n: int) -> None:
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(3.0), torch.tensor(0.0)
        train_step(model, optimizer, n, scale=3.0)
        del optimizer.grad_scale, optimizer.found_inf

    def unknowing(model: Any, optimizer: Any, amp: Any, n: int) -> None:
        train_step(model, optimizer, n, scale=3.0)

    oracle, _, _ = run(unknowing, make=fused, amp=None)
    sink, report, _ = run(third, make=fused, amp=None)
    assert_same_first_gradients(sink, oracle)
    assert report.skip_counts == {"amp_scale_not_power_of_two": 1} and report.unscaled == {"unknown": 1}


def test_under_a_callable_only_a_fused_optimizer_shows_a_skip() -> None:
    """With ``step=`` an unfused skip is no boundary and so no step; a fused one is named (AMP-8, STEP-1)."""
    expected = {"unfused": (2, 0), "fused": (3, 1)}
    for kind, make in (("unfused", adam), ("fused", fused)):
        model = small_model()
        optimizer, amp, sink = make(model.parameters()), scaler(), trk.MemorySink()
        now = {"step": 0}
        with trk.watch(model, sink, optimizer=optimizer, every=1, step=lambda now=now: now["step"]) as watch:
            for n in range(3):
                now["step"] = n
                train_step(model, optimizer, n, scaler=amp, scale=1e38 if n == 1 else 1.0)
        report = watch.close()
        assert (report.steps_seen, report.skip_counts.get("amp_skipped", 0)) == expected[kind]
        assert sorted(by_tag(sink)["gradients/norm/0.weight"]) == [0, 2]
