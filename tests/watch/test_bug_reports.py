"""The public reports about what can be watched, and how many models at once, each with its right value.

The number in a docstring is the report's. Inputs are of our own making; everything here is real: torch, its scaler,
its compiler front end, a sink and its reader.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from reference_sinks.readers import read_wandb  # noqa: E402

from .helpers import batch, by_tag, hook_census, refused, small_model, train_step  # noqa: E402
from .reports import Holder, adamw, families, norm, skips, values  # noqa: E402


def test_updates_and_activations_can_be_watched() -> None:
    """Report 1: updates are what the optimizer did, not lr times gradient; outputs carry the path (STAT-4, TIER-1)."""
    model: Any = small_model()
    sink = trk.MemorySink()
    optimizer = adamw(model.parameters())
    expected: list[float] = []
    guessed: list[float] = []
    signals = ("updates", "activations")
    with trk.watch(
        model, sink, optimizer=optimizer, signals=signals, select=("0", "3"), inputs=batch(0), every=1
    ) as watch:
        for n in range(20):
            with watch.step(n):
                optimizer.zero_grad()
                model(batch(n)).square().mean().backward()
                before = values(model.parameters())
                optimizer.step()
                expected.append(norm(model[0].weight.detach() - before[0]))
                guessed.append(0.01 * norm(model[0].weight.grad))
    rows = by_tag(sink)
    found = rows["updates/norm/0.weight"]
    assert [found[n] for n in range(20)] == pytest.approx(expected, rel=1e-12)
    assert all(abs(one - other) > 0.2 * one for one, other in zip(expected, guessed))
    assert families(sink) == {"updates", "activations"}
    assert rows["activations/count/0"] == {n: 5 * 6 for n in range(20)}
    assert rows["activations/count/3"] == {n: 5 * 3 for n in range(20)}


def test_exactly_what_was_selected_is_watched() -> None:
    """Report 2: whole components select; a typo names what exists; a budget refuses early (ATTACH-5, TAG-6)."""
    blocks = [Holder(attn=nn.Linear(2, 2), mlp=nn.Linear(2, 2)) for _ in range(12)]
    model = Holder(h=nn.Sequential(*blocks))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink, census = trk.MemorySink(), hook_census(model, [optimizer])
    typo = refused(lambda: trk.watch(model, sink, optimizer=optimizer, select=("h.0", "h.12")))
    assert typo.code == "watch_selector_matched_no_sites" and typo.fields["selectors"] == ["h.12"]
    assert "h.0.attn.weight" in str(typo.fields["census"]) and typo.fields["exist"] == 48
    chosen = ("h.1", "h.11.mlp")
    budget = refused(lambda: trk.watch(model, sink, optimizer=optimizer, select=chosen, max_sites=3))
    assert (budget.code, budget.fields["needed"], budget.fields["limit"]) == ("watch_budget_exceeded", 6, 3)
    assert hook_census(model, [optimizer]) == census and sink.points == []
    with trk.watch(model, sink, optimizer=optimizer, select=chosen, max_sites=6) as watch, watch.step(0):
        model(batch(0, width=2)).mean().backward()
        optimizer.step()
    leaves = {tag.rsplit("/", 1)[1] for tag in by_tag(sink) if tag.startswith("gradients/")}
    inside = {f"{path}.{kind}" for path in ("h.1.attn", "h.1.mlp", "h.11.mlp") for kind in ("weight", "bias")}
    assert leaves == inside


@pytest.mark.parametrize("allowed", [True, False])
def test_two_adversaries_are_both_whole(allowed: bool) -> None:
    """Report 3: each network has its own series; a turn it does not take is named (STEP-7, TAG-2)."""
    generator, critic = small_model(), Holder(only=nn.Linear(3, 1))
    sink = trk.MemorySink()
    optimizers = [torch.optim.Adam(net.parameters(), lr=0.01) for net in (generator, critic)]
    held: dict[int, float] = {}
    first = trk.watch(generator, sink, optimizer=optimizers[0], name="gen", every=1, allow_missing_phases=allowed)
    second = trk.watch(critic, sink, optimizer=optimizers[1], name="disc", every=1)
    refusals = []
    for n in range(6):
        try:
            with first.step(n), second.step(n):
                for optimizer in optimizers:
                    optimizer.zero_grad()
                if n % 2 == 0:
                    critic(generator(batch(n))).mean().backward()
                    held[n] = norm(generator[0].weight.grad)
                    optimizers[0].step()
                    optimizers[1].zero_grad()
                # Without detach the critic's backward leaves gradients in the generator; they are no step of it.
                critic(generator(batch(n))).square().mean().backward()
                optimizers[1].step()
        except trk.Refusal as refusal:
            refusals.append((refusal.code, refusal.fields["step"]))
    rows = by_tag(sink)
    assert rows["gradients/gen/norm/0.weight"] == pytest.approx(held, rel=1e-12) and sorted(held) == [0, 2, 4]
    assert sorted(rows["gradients/disc/norm/only.weight"]) == list(range(6))
    assert refusals == ([] if allowed else [("watch_phase_missing", n) for n in (1, 3, 5)])
    named = skips(first)
    assert named == ([("phase_missing", n) for n in (1, 3, 5)] if allowed else [])
    assert first.close().missing_phases == tuple((n, "optimizer boundary") for n in (1, 3, 5))
    assert skips(second) == []


def test_many_tensors_with_histograms_cost_the_same_every_step(tmp_path: Any) -> None:
    """Report 4: 300 tensors, every step whole and of one size; what cannot be carried is named (XFER-1)."""
    wandb = pytest.importorskip("wandb")
    from fidelity.routes.wandb import finish_run

    model = Holder(**{f"layer{n}": nn.Linear(2, 2) for n in range(150)})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    small = trk.GridDescriptor(bins_per_octave=1, lo_exp=-12, hi_exp=4)
    run = wandb.init(mode="offline", dir=tmp_path, settings=wandb.Settings(silent=True, console="off"))
    try:
        census = hook_census(model, [optimizer])
        wide = refused(
            lambda: trk.watch(
                model, trk.WandbSink(run), optimizer=optimizer, hist_every=1, descriptor=trk.DEFAULT_DESCRIPTOR
            )
        )
        assert wide.code == "tracker_histogram_bucket_cap" and hook_census(model, [optimizer]) == census
        sizes = []
        path = tmp_path / "rows.jsonl"
        options: dict[str, Any] = {"optimizer": optimizer, "every": 1, "hist_every": 1, "descriptor": small}
        for sink, steps in ((trk.JSONLSink(path), 6), (trk.WandbSink(run), 2)):
            with trk.watch(model, sink, **options) as watch:
                for n in range(steps):
                    with watch.step(n):
                        optimizer.zero_grad()
                        model(batch(0, width=2)).square().mean().backward()
                        optimizer.step()
                    sizes.append(path.stat().st_size)
            (row,) = watch.close().sinks
            assert (row.failed, row.histograms, row.data_points) == (None, steps * 300, steps * 300 * 8)
        plan = watch.plan_report()
        assert plan.matched_sites == 300
        assert plan.bytes_per_histogram_step == 300 * (80 + 8 * (small.bucket_count + 2))
    finally:
        finish_run(run, tmp_path)
    growth = [after - before for before, after in pairwise(sizes[1:6])]
    assert max(growth) - min(growth) < 0.01 * min(growth)
    stored = [getattr(point, "step", -1) for point in read_wandb(next((tmp_path / "wandb").glob("offline-run-*")))]
    assert all(stored.count(n) >= 300 * 8 for n in range(2))


def test_several_models_are_told_apart() -> None:
    """Report 6: names keep models apart; no name collides, bad ones refuse (TAG-2, ATTACH-2, ATTACH-7)."""
    first, second, sink = small_model(), small_model(seed=1), trk.MemorySink()
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (first, second)]
    sessions = [
        trk.watch(net, sink, optimizer=optimizer, name=name, every=1)
        for net, optimizer, name in zip((first, second), optimizers, ("gen", "disc"))
    ]
    for net, optimizer, session in zip((first, second), optimizers, sessions):
        with session.step(7):
            train_step(net, optimizer, 7)
    plain = trk.watch(first, trk.MemorySink())
    assert refused(lambda: trk.watch(first, trk.MemorySink())).code == "tracker_namespace_collision"
    for bad in ("a/b", "", ".", "a b\n"):
        refusal = refused(partial(trk.watch, second, trk.MemorySink(), name=bad))
        assert refusal.code in ("tracker_name_invalid", "tracker_tag_unsafe")
    plain.close()
    sessions[0].close()
    sink.flush()
    sessions[1].close()
    assert refused(sink.flush).code == "tracker_sink_closed"
    tags = [str(getattr(point, "tag", "")) for point in sink.points]
    assert len(tags) == len(set(tags)) and len([tag for tag in tags if "/gen/" in tag]) == len(tags) / 2


def test_attaching_again_is_as_good_as_the_first_time() -> None:
    """Report 7: after close, a refused attach or Ctrl-C, every hook dictionary is as before (CLOSE-3, ATTACH-6)."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    census = hook_census(model, [optimizer])
    options: dict[str, Any] = {"optimizer": optimizer, "every": 1, "select": ("0", "3"), "inputs": batch(0)}
    for n in range(20):
        sink = trk.MemorySink()
        watch = trk.watch(model, sink, signals=("gradients", "updates", "activations"), **options)
        assert hook_census(model, [optimizer]) != census
        if n % 3 == 1:
            with pytest.raises(KeyboardInterrupt), watch.step(n):
                optimizer.register_step_pre_hook(interrupt_once())
                train_step(model, optimizer, n)
            optimizer._optimizer_step_pre_hooks.popitem()
        else:
            with watch.step(n):
                train_step(model, optimizer, n)
        assert watch.close() is watch.close()
        assert hook_census(model, [optimizer]) == census
        bad = refused(lambda: trk.watch(model, [trk.MemorySink(), object()], **options))
        assert bad.code == "tracker_sink_invalid" and hook_census(model, [optimizer]) == census
        assert len(families(sink)) == (0 if n % 3 == 1 else 3)


def interrupt_once() -> Callable[..., None]:
    """Return a hook that stands for Ctrl-C in the middle of a step."""

    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    return interrupt
