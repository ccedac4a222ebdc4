"""What a loss scaler did, on a real scaler: read at the boundary, per optimizer, and never guessed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torchlens_conformance.trackers as trk  # noqa: E402

from .helpers import batch, by_tag, data_rows, histograms, refused, small_model, texts, train_step  # noqa: E402

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


@pytest.mark.parametrize(
    ("step", "make", "word"),
    [
        (scaled, adam, "yes"),
        (unscaled_first, adam, "yes"),
        (bare, adam, "no"),
        (scaled, fused, "no"),
        (unscaled_first, fused, "yes"),
        (bare, fused, "no"),
    ],
)
def test_gradients_are_those_of_the_run_without_a_scaler(step: Any, make: Any, word: str) -> None:
    """However the step was made, rows and histograms are the true gradients' (AMP-1, AMP-2, AMP-3, AMP-7)."""
    oracle, _, _ = run(plain, make=make, amp=None)
    sink, report, _ = run(step, make=make, amp=scaler())
    assert_same_first_gradients(sink, oracle)
    rows = by_tag(sink)
    assert rows["torchlens/run/amp_scale"] == {0: 65536.0}
    assert texts(sink)["torchlens/meta/amp_unscaled"] == {0: word}
    assert report.unscaled == {word: 1}
    assert ("torchlens/run/amp_unscale_derived" in rows) == (word == "no")


def test_clipping_is_seen() -> None:
    """After unscale_ and a clip, the rows are the clipped gradients (AMP-2)."""

    def clipped(model: Any, optimizer: Any, amp: Any, n: int) -> None:
        optimizer.zero_grad()
        loss = model(batch(n)).square().mean()
        (loss if amp is None else amp.scale(loss)).backward()
        if amp is not None:
            amp.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step() if amp is None else amp.step(optimizer)
        _ = None if amp is None else amp.update()

    oracle, _, _ = run(clipped, make=adam, amp=None)
    sink, _, _ = run(clipped, make=adam, amp=scaler())
    assert_same_first_gradients(sink, oracle)


def test_a_scale_that_the_caller_gave_the_optimizer_is_seen() -> None:
    """A fused optimizer divides by its own grad_scale; so do the rows, with a scaler and without one (AMP-7)."""
    oracle, _, _ = run(plain, make=fused, amp=None)

    def own_scale(model: Any, optimizer: Any, amp: Any, n: int) -> None:
        optimizer.grad_scale = torch.tensor(4.0)
        optimizer.found_inf = torch.tensor(0.0)
        optimizer.zero_grad()
        loss = model(batch(n)).square().mean() * 4.0
        if amp is None:
            loss.backward()
            optimizer.step()
            del optimizer.grad_scale, optimizer.found_inf
        else:
            amp.scale(loss).backward()
            amp.step(optimizer)
            amp.update()

    for amp in (None, scaler()):
        sink, report, _ = run(own_scale, make=fused, amp=amp)
        assert_same_first_gradients(sink, oracle)
        assert report.unscaled == {"no": 1}


@pytest.mark.parametrize("make", [adam, fused])
def test_an_overflow_is_a_named_skip(make: Any) -> None:
    """The overflowing step has no data, the scale it used, and a name; the next are ordinary (AMP-6, AMP-7)."""

    def overflowing(model: Any, optimizer: Any, amp: Any, n: int) -> None:
        train_step(model, optimizer, n, scaler=amp, scale=1e38 if n == 0 else 1.0)

    sink, report, model = run(overflowing, make=make, amp=scaler(), steps=6, signals=("gradients", "updates"))
    rows = by_tag(sink)
    assert rows["torchlens/run/amp_scale"] == {0: 65536.0} | {n: 32768.0 for n in range(1, 6)}
    assert [(skip.name, skip.step) for skip in report.named_skips] == [("amp_skipped", 0)]
    assert sorted(rows["updates/norm/0.weight"]) == sorted(rows["gradients/norm/0.weight"]) == [1, 2, 3, 4, 5]
    assert rows["torchlens/run/last_step"] == {n: n for n in range(6)}
    assert all(point.step > 0 for point in data_rows(sink))
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


@pytest.mark.parametrize("make", [adam, fused])
def test_an_overflow_is_seen_on_steps_that_are_not_sampled(make: Any) -> None:
    """A skip is named on every step, and the first eligible step waits for a step that is accepted (STEP-4, AMP-8)."""
    model = small_model()
    optimizer = make(model.parameters())
    sink, amp = trk.MemorySink(), scaler()
    with trk.watch(model, sink, optimizer=optimizer, every=1000) as watch:
        for n in range(1, 8):
            with watch.step(n, scaler=amp):
                train_step(model, optimizer, n, scaler=amp, scale=1e38 if n in (1, 2, 5) else 1.0)
    skips = [skip.step for skip in watch.close().named_skips if skip.name == "amp_skipped"]
    assert skips == [1, 2, 5]
    assert min(point.step for point in data_rows(sink)) == 3


def test_a_run_that_only_overflowed_is_not_empty() -> None:
    """When every step has the name of its skip, close does not refuse (CLOSE-2, STEP-7)."""
    _, report, _ = run(
        lambda model, optimizer, amp, n: train_step(model, optimizer, n, scaler=amp, scale=1e38),
        make=adam,
        amp=scaler(),
        steps=3,
    )
    assert report.skip_counts == {"amp_skipped": 3} and report.sampled_steps == 0


def test_the_scaler_is_never_touched() -> None:
    """The state and the records of the scaler are those of an unwatched loop, at every moment (AMP-1, AMP-8)."""
    seen: list[list[Any]] = []
    for watched in (False, True):
        model = small_model()
        optimizer, amp = adam(model.parameters()), scaler(growth_interval=2)
        states: list[Any] = []
        session = trk.watch(model, trk.MemorySink(), optimizer=optimizer, every=1) if watched else None
        for n in range(4):
            scope = None if session is None else session.step(n, scaler=amp)
            if scope is not None:
                scope.__enter__()
            states.append((amp.state_dict(), len(amp._per_optimizer_states), sorted(vars(amp))))
            train_step(model, optimizer, n, scaler=amp)
            states.append((amp.state_dict(), len(amp._per_optimizer_states)))
            if scope is not None:
                scope.__exit__(None, None, None)
        if session is not None:
            session.close()
        seen.append(states)
    assert seen[0] == seen[1]


def test_the_callers_own_errors_come_through() -> None:
    """A second unscale_, and a scaler that is never updated, raise what torch raises (AMP-1)."""
    model = small_model()
    optimizer, amp = adam(model.parameters()), scaler()
    with trk.watch(model, trk.MemorySink(), optimizer=optimizer, every=1) as watch:
        with pytest.raises(RuntimeError, match="already been called"), watch.step(0, scaler=amp):
            amp.scale(model(batch(0)).mean()).backward()
            amp.unscale_(optimizer)
            amp.unscale_(optimizer)
        amp.update()
        with watch.step(1, scaler=amp):
            amp.scale(model(batch(1)).mean()).backward()
            amp.step(optimizer)
        with pytest.raises(RuntimeError, match="since the last update"), watch.step(2, scaler=amp):
            amp.scale(model(batch(2)).mean()).backward()
            amp.step(optimizer)


def test_a_step_that_the_caller_left_out_is_a_missing_phase() -> None:
    """Not to step, but to update the scaler, is no skip of the scaler's (STEP-7, AMP-8)."""
    model = small_model()
    optimizer, amp = adam(model.parameters()), scaler()
    watch = trk.watch(model, trk.MemorySink(), optimizer=optimizer, every=1)

    def left_out() -> None:
        with watch.step(0, scaler=amp):
            amp.scale(model(batch(0)).mean()).backward()
            amp.unscale_(optimizer)
            amp.update()

    assert refused(left_out).code == "watch_phase_missing"
    with watch.step(1, scaler=amp):
        train_step(model, optimizer, 1, scaler=amp)
    watch.close()


def test_an_update_at_the_start_of_the_next_iteration_is_read_right() -> None:
    """The records that a scope finds are those of the step before; an overflow is told all the same (AMP-8)."""
    model = small_model()
    optimizer, amp = adam(model.parameters()), scaler()
    sink = trk.MemorySink()
    with trk.watch(model, sink, optimizer=optimizer, every=1) as watch:
        for n in range(4):
            with watch.step(n, scaler=amp):
                if n:
                    amp.update()
                optimizer.zero_grad()
                amp.scale(model(batch(n)).square().mean() * (1e38 if n == 2 else 1.0)).backward()
                amp.step(optimizer)
    report = watch.close()
    assert [(skip.name, skip.step) for skip in report.named_skips] == [("amp_skipped", 2)]
    assert sorted(by_tag(sink)["gradients/norm/0.weight"]) == [0, 1, 3]


def test_a_record_of_the_step_before_is_no_skip() -> None:
    """A scope that only updates the scaler finds the record of the last step, and has no skip of its own (AMP-8)."""
    model = small_model()
    optimizer, amp = adam(model.parameters()), scaler()
    watch = trk.watch(model, trk.MemorySink(), optimizer=optimizer, every=1, allow_missing_phases=True)
    with watch:
        with watch.step(0, scaler=amp):
            amp.scale(model(batch(0)).mean()).backward()
            amp.step(optimizer)
        with watch.step(1, scaler=amp):
            amp.update()
    assert watch.close().skip_counts == {"phase_missing": 1}


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
