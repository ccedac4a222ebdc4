"""Step scopes and ``step=`` on real training loops."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torchlens_conformance.trackers as trk  # noqa: E402

from .helpers import batch, by_tag, data_rows, histograms, loss_of, refused, small_model, train_step  # noqa: E402

ALL = ("gradients", "parameters", "updates", "activations", "activation_grads")


def start(**options: Any) -> tuple[Any, Any, trk.MemorySink, trk.WatchSession]:
    """Return a model, its optimizer, a sink, and a watch that samples every step."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    sink = trk.MemorySink()
    watch = trk.watch(model, sink, optimizer=optimizer, **{"every": 1, **options})
    return model, optimizer, sink, watch


def test_rows_carry_the_callers_step() -> None:
    """Steps far from 0 and with gaps come back as they were given (STEP-1)."""
    model, optimizer, sink, watch = start()
    steps = [1000, 1003, 2**40, 2**63 - 1]
    with watch:
        for n in steps:
            with watch.step(n):
                train_step(model, optimizer, n)
    assert sorted(by_tag(sink)["gradients/norm/0.weight"]) == steps
    assert {point.step for point in sink.points if hasattr(point, "step")} == set(steps)


def test_steps_of_numpy_and_tensors_are_taken() -> None:
    """A 0-d integer of numpy or torch is a step (STEP-3)."""
    numpy = pytest.importorskip("numpy")
    model, optimizer, sink, watch = start()
    with watch:
        for n in (numpy.int64(3), torch.tensor(4)):
            with watch.step(n):
                train_step(model, optimizer, int(n))
    assert sorted(by_tag(sink)["gradients/norm/0.weight"]) == [3, 4]


def test_an_optimizer_step_without_a_source_is_refused() -> None:
    """Outside every scope and without ``step=``, the optimizer's step refuses and names the three sources (STEP-1)."""
    model, optimizer, _, watch = start()
    before = [parameter.clone() for parameter in model.parameters()]
    refusal = refused(lambda: train_step(model, optimizer, 0))
    assert refusal.code == "watch_step_source_missing"
    assert all(word in refusal.remedy for word in ("watch.step", "step=", "callback"))
    assert all(torch.equal(was, now) for was, now in zip(before, model.parameters()))
    with watch, watch.step(0):
        train_step(model, optimizer, 0)


def test_a_refused_scope_leaves_the_session_usable() -> None:
    """Repeating, going back, nesting and nonsense refuse, and the next good step is ordinary (STEP-2, STEP-3)."""
    model, optimizer, sink, watch = start()

    def enter(n: object) -> None:
        with watch.step(n):
            pytest.fail("entered")

    with watch:
        with watch.step(5):
            assert refused(lambda: enter(6)).code == "watch_step_conflict"
            train_step(model, optimizer, 5)
        for n, code in ((5, "regression"), (4, "regression"), (-1, "invalid"), (True, "invalid"), (6.0, "invalid")):
            assert refused(lambda n=n: enter(n)).code == f"watch_step_{code}"
        assert refused(lambda: enter(torch.tensor([7]))).code == "watch_step_invalid"
        with watch.step(6):
            train_step(model, optimizer, 6)
        with watch.step(2, new_segment=True):
            train_step(model, optimizer, 2)
    assert list(by_tag(sink)["gradients/norm/0.weight"]) == [5, 6, 2]
    assert by_tag(sink)["torchlens/run/segment"] == {2: 1} and watch.close().segments == 1


def test_a_resumed_store_keeps_its_steps(tmp_path: Any) -> None:
    """What the store already holds counts as seen, unless a new segment is declared (STEP-2, STEP-8)."""
    path = tmp_path / "run.jsonl"
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def part(steps: range, **options: Any) -> None:
        sink = trk.JSONLSink(path, resume=path.exists())
        with trk.watch(model, sink, optimizer=optimizer, every=10) as watch:
            for index, n in enumerate(steps):
                with watch.step(n, **(options if index == 0 else {})):
                    train_step(model, optimizer, n)

    part(range(0, 121))
    assert refused(lambda: part(range(100, 121))).code == "watch_step_regression"
    part(range(100, 121), new_segment=True)
    from reference_sinks.readers import read_jsonl

    rows = [point for point in read_jsonl(path) if getattr(point, "tag", "") == "gradients/norm/0.weight"]
    assert [point.step for point in rows] == [*range(0, 121, 10), 100, 110, 120]
    attached = [point.step for point in read_jsonl(path) if getattr(point, "tag", "") == "torchlens/run/attached"]
    assert attached[0] == 0 and attached[-1] == 100


def test_sampling_lies_on_the_callers_axis() -> None:
    """The first step, multiples of the cadence, and the last one at close are sampled (STEP-4, STEP-5)."""
    model, optimizer, sink, watch = start(every=4, hist_every=8, signals=("parameters", "gradients", "updates"))
    with watch:
        for n in range(3, 19):
            with watch.step(n):
                train_step(model, optimizer, n)
    rows = by_tag(sink)
    assert sorted(rows["parameters/norm/0.weight"]) == [3, 4, 8, 12, 16, 18]
    assert sorted(rows["gradients/norm/0.weight"]) == [3, 4, 8, 12, 16, 18]
    assert sorted(rows["updates/norm/0.weight"]) == [3, 4, 8, 12, 16]
    assert sorted(histograms(sink)["gradients/hist/0.weight"]) == [3, 8, 16]
    report = watch.close()
    assert report.forced_final and report.sampled_steps == 6 and (report.first_step, report.last_step) == (3, 18)
    assert rows["parameters/norm/3.bias"][18] == pytest.approx(float(model[3].bias.detach().double().norm()))
    assert rows["gradients/norm/3.bias"][18] == pytest.approx(float(model[3].bias.grad.double().norm()))


def test_a_step_with_histograms_has_scalars() -> None:
    """Where only histograms are due, the scalars ride along (STEP-5)."""
    model, optimizer, sink, watch = start(every=1000, hist_every=3)
    with watch:
        for n in range(1, 7):
            with watch.step(n):
                train_step(model, optimizer, n)
    assert sorted(histograms(sink)["gradients/hist/0.weight"]) == [1, 3, 6]
    assert sorted(by_tag(sink)["gradients/norm/0.weight"]) == [1, 3, 6]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda model, optimizer: optimizer.zero_grad(set_to_none=False),
        lambda model, optimizer: optimizer.zero_grad(),
        lambda model, optimizer: loss_of(model, 77).backward(),
        lambda model, optimizer: [setattr(each, "grad", torch.ones_like(each)) for each in model.parameters()],
        lambda model, optimizer: (optimizer.zero_grad(), loss_of(model, 77).backward()),
    ],
)
def test_final_gradients_of_unknown_basis_are_left_out(spoil: Any) -> None:
    """Zeroed, replaced or accumulated after the last step, gradients are not sampled at close (STEP-4)."""
    model, optimizer, sink, watch = start(every=100, signals=("gradients", "parameters"))
    with watch:
        for n in range(1, 4):
            with watch.step(n):
                train_step(model, optimizer, n)
        spoil(model, optimizer)
    assert sorted(by_tag(sink)["gradients/norm/0.weight"]) == [1]
    assert sorted(by_tag(sink)["parameters/norm/0.weight"]) == [1, 3]
    assert watch.close().skip_counts == {"final_gradients_unknown": 1}


def test_heartbeat_and_manifest_ride_the_first_seen_step() -> None:
    """They come before the data of that step, once; and last_step rides every block (STEP-8)."""
    model, optimizer, sink, watch = start(every=5)
    with watch:
        for n in range(7, 16):
            with watch.step(n):
                train_step(model, optimizer, n)
    first = [point.tag for point in sink.points[:3]]
    assert first == ["torchlens/run/attached", "torchlens/meta/manifest", "torchlens/run/last_step"]
    rows = by_tag(sink)
    assert rows["torchlens/run/attached"] == {7: 1}
    assert rows["torchlens/run/last_step"] == {7: 7, 10: 10, 15: 15}


def test_a_run_without_steps_writes_them_at_close() -> None:
    """Without any step, heartbeat and manifest are written at 0 (STEP-8)."""
    _, _, sink, watch = start()
    watch.close()
    assert [(point.tag, point.step) for point in sink.points] == [
        ("torchlens/run/attached", 0),
        ("torchlens/meta/manifest", 0),
    ]


def test_a_scope_without_its_boundary_is_refused() -> None:
    """The refusal names the step, later steps are ordinary, and the report lists the phase (STEP-7, CLOSE-1)."""
    model, optimizer, sink, watch = start(every=10)

    def forgetful() -> None:
        with watch.step(1):
            loss_of(model, 1).backward()

    refusal = refused(forgetful)
    assert refusal.code == "watch_phase_missing" and refusal.fields["step"] == 1
    with watch, watch.step(2):
        train_step(model, optimizer, 2)
    assert watch.close().missing_phases == ((1, "optimizer boundary"),)
    assert min(point.step for point in data_rows(sink)) == 2


def test_missing_phases_can_be_named_skips() -> None:
    """With allow_missing_phases the scope closes quietly and the report says so (STEP-7)."""
    model, optimizer, _, watch = start(allow_missing_phases=True)
    with watch:
        with watch.step(0):
            loss_of(model, 0).backward()
        with watch.step(1):
            train_step(model, optimizer, 1)
    report = watch.close()
    assert [(skip.name, skip.step, skip.detail) for skip in report.named_skips] == [
        ("phase_missing", 0, "optimizer boundary")
    ]


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


def test_the_loops_exception_is_never_masked() -> None:
    """While the loop's exception unwinds, the missing boundary is a named skip (TAG-4, CLOSE-2)."""
    model, optimizer, _, watch = start()
    with pytest.raises(ZeroDivisionError), watch, watch.step(0):
        loss_of(model, 0).backward()
        _ = 1 // 0
    report = watch.close()
    assert [(skip.name, skip.detail) for skip in report.named_skips] == [("exception", "ZeroDivisionError")]
    assert len(optimizer._optimizer_step_pre_hooks) == 0


def test_what_was_complete_before_the_exception_is_emitted() -> None:
    """An exception behind the boundary takes no data away (TAG-4)."""
    model, optimizer, sink, watch = start()
    with pytest.raises(KeyboardInterrupt), watch, watch.step(0):
        train_step(model, optimizer, 0)
        raise KeyboardInterrupt
    assert by_tag(sink)["gradients/norm/0.weight"].keys() == {0}


def test_an_optimizer_that_raises_can_step_again() -> None:
    """A step that raised inside the optimizer, and was caught, is taken when it succeeds (STEP-7)."""

    class Unsteady(torch.optim.SGD):  # type: ignore[misc, unused-ignore]
        fail = True

        def step(self, closure: Any = None) -> Any:
            if self.fail:
                raise ArithmeticError("not now")
            return super().step(closure)

    model = small_model()
    optimizer = Unsteady(model.parameters(), lr=0.1)
    sink = trk.MemorySink()
    with trk.watch(model, sink, optimizer=optimizer, every=1, signals=("updates",)) as watch:
        with watch.step(0):
            with pytest.raises(ArithmeticError):
                train_step(model, optimizer, 0)
            optimizer.fail = False
            optimizer.step()
        optimizer.fail = True
        with watch.step(1), pytest.raises(ArithmeticError):
            train_step(model, optimizer, 1)
    assert sorted(by_tag(sink)["updates/norm/0.weight"]) == [0]
    assert watch.close().skip_counts == {"boundary_incomplete": 1}


def test_a_second_boundary_of_one_optimizer_is_named() -> None:
    """The row is that of the first boundary of the scope (STEP-7)."""
    model, optimizer, sink, watch = start()
    with watch, watch.step(0):
        train_step(model, optimizer, 0)
        first = float(model[0].weight.grad.double().norm())
        train_step(model, optimizer, 1)
    assert by_tag(sink)["gradients/norm/0.weight"][0] == pytest.approx(first, rel=1e-12)
    assert watch.close().skip_counts == {"boundary_repeated": 1}


def test_accumulated_gradients_are_one_row() -> None:
    """Windows of 3, 3 and 1 micro-batches give three rows, each the gradient at its boundary (STEP-7, TIER-1)."""
    model, optimizer, sink, watch = start(signals=("gradients", "activations"), select=("0", "3"), inputs=batch(0))
    held = []
    with watch:
        for n, window in enumerate(([0, 1, 2], [3, 4, 5], [6])):
            with watch.step(n):
                optimizer.zero_grad()
                for micro in window:
                    (loss_of(model, micro) / 3).backward()
                held.append(float(model[0].weight.grad.double().norm()))
                optimizer.step()
    found = by_tag(sink)["gradients/norm/0.weight"]
    assert [found[n] for n in range(3)] == pytest.approx(held, rel=1e-12)
    assert by_tag(sink)["activations/calls/0"] == {0: 3, 1: 3, 2: 1}


def test_many_final_gradients_are_vouched_for_by_witnesses() -> None:
    """With many parameters some are witnesses that nothing changed; the report says that it is so (STEP-4, CLOSE-1)."""
    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(20)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink = trk.MemorySink()
    with trk.watch(model, sink, optimizer=optimizer, every=100) as watch:
        for n in range(1, 4):
            with watch.step(n):
                train_step(model, optimizer, n)
    assert sorted(by_tag(sink)["gradients/norm/19.weight"]) == [1, 3]
    assert any("final gradients" in note for note in watch.close().notes)


@pytest.mark.parametrize(("unwinding", "name"), [(True, "drain_refused"), (False, "collection_failed")])
def test_a_refusal_in_the_drain_is_a_named_skip(unwinding: bool, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused while rows are made has a name, and the loop's own exception is what the caller sees (TAG-4)."""
    from torchlens_conformance.watch.writer import BlockWriter

    def refuse(*arguments: Any, **options: Any) -> int:
        raise trk.Refusal("tracker_tag_unsafe", "No.", remedy="Rename it.", tag="a?")

    model, optimizer, _, watch = start()
    monkeypatch.setattr(BlockWriter, "write", refuse)
    if unwinding:
        with pytest.raises(ZeroDivisionError), watch, watch.step(0):
            train_step(model, optimizer, 0)
            _ = 1 // 0
    else:
        with watch, watch.step(0):
            train_step(model, optimizer, 0)
    found = {skip.name: skip.detail for skip in watch.close().named_skips}
    assert "tracker_tag_unsafe" in found[name] and ("exception" in found) == unwinding
