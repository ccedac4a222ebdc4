"""What a loss scaler did, on a real scaler: read at the boundary, per optimizer, and never guessed."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torchlens_conformance.trackers as trk  # noqa: E402

from .amp_loops import adam, assert_same_first_gradients, bare, fused, plain, run, scaled, scaler, unscaled_first  # noqa: E402
from .helpers import batch, by_tag, data_rows, refused, small_model, texts, train_step  # noqa: E402


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
