"""Step scopes on real training loops: which steps open, what is due, what is missing."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torchlens_conformance.trackers as trk  # noqa: E402

from .helpers import batch, by_tag, data_rows, histograms, loss_of, refused, small_model, train_step  # noqa: E402
from .loops import start  # noqa: E402


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
