"""The public reports about loss scales, each with its right value, on torch's own scaler.

The number in a docstring is the report's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torchlens_conformance.trackers as trk  # noqa: E402

from .helpers import batch, by_tag, data_rows, refused, small_model, train_step  # noqa: E402

Loop = Callable[[Any, Any, Any, int], None]

CLIP = 1e-2


def backward(model: Any, optimizer: Any, scaler: Any, n: int, *, factor: float = 1.0) -> None:
    """Give the model the gradients of one step, scaled when there is a scaler."""
    optimizer.zero_grad()
    loss = model(batch(n)).square().mean() * factor
    (loss if scaler is None else scaler.scale(loss)).backward()


def by_scaler(model: Any, optimizer: Any, scaler: Any, n: int) -> None:
    """Step by the scaler, or plainly without one."""
    backward(model, optimizer, scaler, n)
    finish(optimizer, scaler)


def clipped(model: Any, optimizer: Any, scaler: Any, n: int) -> None:
    """Unscale, clip, step."""
    backward(model, optimizer, scaler, n)
    if scaler is not None:
        scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    finish(optimizer, scaler)


def bare(model: Any, optimizer: Any, scaler: Any, n: int) -> None:
    """Scale the loss, and step as though it were not scaled."""
    backward(model, optimizer, scaler, n)
    optimizer.step()


def finish(optimizer: Any, scaler: Any) -> None:
    """Step and update."""
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()


def watched(loop: Loop, scaler: Any, *, steps: int = 3, **options: Any) -> tuple[dict[str, dict[int, Any]], Any]:
    """Run a loop with AdamW; return the rows by tag and step, and the report."""
    model, sink = small_model(), trk.MemorySink()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **options)
    with trk.watch(model, sink, optimizer=optimizer, signals=("gradients", "updates"), every=1) as watch:
        for n in range(steps):
            with watch.step(n, scaler=scaler):
                loop(model, optimizer, scaler, n)
    return by_tag(sink), watch.close()


def gradients(rows: dict[str, dict[int, Any]]) -> dict[str, dict[int, Any]]:
    """Return the rows of gradients."""
    found = {tag: row for tag, row in rows.items() if tag.startswith("gradients/")}
    assert len(found) > 20
    return found


def scaler_of(scale: float = 65536.0) -> Any:
    """Return a real scaler."""
    return torch.amp.GradScaler("cpu", init_scale=scale)


def test_logged_gradients_carry_no_loss_scale() -> None:
    """Report 13: three ways to step, each with the gradients of the loop without a scaler (AMP-2, AMP-3)."""
    plain, _ = watched(by_scaler, None)
    scaled, _ = watched(by_scaler, scaler_of())
    assert gradients(scaled) == gradients(plain)
    clipped_plain, _ = watched(clipped, None)
    clipped_scaled, _ = watched(clipped, scaler_of())
    assert gradients(clipped_scaled) == gradients(clipped_plain) != gradients(plain)
    still, report = watched(bare, scaler_of())
    assert {tag: row[0] for tag, row in gradients(still).items()} == {
        tag: row[0] for tag, row in gradients(plain).items()
    }
    assert still["torchlens/run/amp_unscale_derived"] == {0: 1, 1: 1, 2: 1} and report.unscaled == {"no": 3}
    assert "torchlens/run/amp_unscale_derived" not in scaled

    model, sink = small_model(), trk.MemorySink()
    optimizer = torch.optim.AdamW(model.parameters())
    with trk.watch(model, sink, optimizer=optimizer, every=1) as watch:
        refusal = refused(lambda: watch.step(0, scaler=scaler_of(3.0)).__enter__())
        assert (refusal.code, refusal.fields["scale"]) == ("tracker_scale_invalid", 3.0)
        with watch.step(0):
            train_step(model, optimizer, 0)


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_the_scaler_left_out_is_named(fused: bool) -> None:
    """Report 14: an overflow has no update row, a name, and the scale that was used (AMP-6, AMP-7, AMP-8)."""

    def overflow(model: Any, optimizer: Any, scaler: Any, n: int) -> None:
        backward(model, optimizer, scaler, n, factor=1e38 if n == 0 else 1.0)
        finish(optimizer, scaler)

    rows, report = watched(overflow, scaler_of(), steps=6, fused=fused)
    assert [(skip.name, skip.step) for skip in report.named_skips] == [("amp_skipped", 0)]
    assert rows["torchlens/run/amp_scale"] == {0: 65536.0, **{n: 32768.0 for n in range(1, 6)}}
    assert sorted(rows["updates/norm/0.weight"]) == [1, 2, 3, 4, 5]
    assert report.sampled_steps == 5


def test_a_scaler_that_is_never_updated_raises_what_it_always_raises() -> None:
    """Report 14, 16: without update() the second step raises torch's own error, unchanged (AMP-1)."""

    def forgets(model: Any, optimizer: Any, scaler: Any, n: int) -> None:
        backward(model, optimizer, scaler, n)
        scaler.step(optimizer)

    messages = []
    for run in (lambda: watched(forgets, scaler_of()), lambda: unwatched(forgets, scaler_of())):
        with pytest.raises(RuntimeError, match="since the last update") as caught:
            run()
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def unwatched(loop: Loop, scaler: Any, *, steps: int = 3) -> None:
    """Run a loop without a watch."""
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for n in range(steps):
        loop(model, optimizer, scaler, n)


def test_fused_optimizers_have_the_same_rows() -> None:
    """Report 15: fused and unfused gradients are equal bit for bit, whoever unscales, disclosed (AMP-7)."""
    plain, _ = watched(by_scaler, None, steps=1)
    unfused, _ = watched(by_scaler, scaler_of(), steps=1)
    fused, report = watched(by_scaler, scaler_of(), steps=1, fused=True)
    assert gradients(fused) == gradients(unfused) == gradients(plain)
    assert report.unscaled == {"no": 1} and fused["torchlens/run/amp_unscale_derived"] == {0: 1}
    by_hand, report = watched(clipped, scaler_of(), steps=1, fused=True)
    assert gradients(by_hand) == gradients(watched(clipped, None, steps=1)[0]) and report.unscaled == {"yes": 1}

    def own_scale(model: Any, optimizer: Any, scaler: Any, n: int) -> None:
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(8.0), torch.tensor(0.0)
        backward(model, optimizer, scaler, n, factor=8.0)
        optimizer.step()

    own, report = watched(own_scale, None, steps=1, fused=True)
    assert gradients(own) == gradients(plain) and report.unscaled == {"no": 1}


def test_the_watch_never_unscales() -> None:
    """Report 16: unscale_, clip, step work as ever; a step that is left out is a missing phase (AMP-1, STEP-7)."""
    rows, report = watched(clipped, scaler_of(), steps=4)
    assert report.skip_counts == {} and sorted(rows["gradients/norm/0.weight"]) == [0, 1, 2, 3]
    model, sink, scaler = small_model(), trk.MemorySink(), scaler_of()
    optimizer = torch.optim.AdamW(model.parameters())
    watch = trk.watch(model, sink, optimizer=optimizer, every=1)

    def too_large(n: int) -> None:
        with watch.step(n, scaler=scaler):
            backward(model, optimizer, scaler, n)
            scaler.unscale_(optimizer)
            scaler.update()

    assert refused(lambda: too_large(0)).code == "watch_phase_missing"
    with pytest.raises(RuntimeError, match="already been called"), watch.step(1, scaler=scaler):
        backward(model, optimizer, scaler, 1)
        scaler.unscale_(optimizer)
        scaler.unscale_(optimizer)
    scaler.update()
    with watch.step(2, scaler=scaler):
        by_scaler(model, optimizer, scaler, 2)
    assert watch.close().skip_counts == {"exception": 1} and {point.step for point in data_rows(sink)} == {2}


class Stages:
    """A loop's notes on the scaler: the stage of its optimizer at every point, and what it was asked for."""

    def __init__(self, model: Any, optimizer: Any, scaler: Any) -> None:
        self.model, self.optimizer, self.scaler = model, optimizer, scaler
        self.notes: list[tuple[str, str, float]] = []
        optimizer.register_step_pre_hook(lambda *arguments: self.note("boundary"))

    def note(self, point: str) -> None:
        """Note where the loop is, in which stage the scaler has the optimizer, and the scale."""
        state = self.scaler._per_optimizer_states[id(self.optimizer)]
        self.notes.append((point, state["stage"].name, self.scaler.get_scale()))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a method of the scaler between two notes."""
        self.note(f"before {name}")
        getattr(self.scaler, name)(*arguments)
        self.note(f"after {name}")

    def run(self, kind: str, n: int) -> None:
        """Run one step of a loop as people write it."""
        overflow = kind == "forgets after an overflow" and n == 1
        backward(self.model, self.optimizer, self.scaler, n, factor=1e38 if overflow else 1.0)
        if kind != "no clip":
            self.call("unscale_", self.optimizer)
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        if kind == "unscales twice" and n == 1:
            self.call("unscale_", self.optimizer)
        if kind != "leaves large steps out" or n != 1:
            self.call("step", self.optimizer)
        else:
            assert norm > CLIP
        if not (kind.startswith("forgets") and n == 1):
            self.call("update")


KINDS = ("no clip", "clip", "leaves large steps out", "forgets", "forgets after an overflow", "unscales twice")


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_scaler_and_its_errors_are_as_without_a_watch(kind: str, fused: bool) -> None:
    """Report 16: at every point of every loop the stage, the scale and the error are the unwatched ones (AMP-1)."""
    ends = []
    for watched_too in (False, True):
        model, sink = small_model(), trk.MemorySink()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused)
        stages, raised = Stages(model, optimizer, scaler_of()), None
        watch = None
        if watched_too:
            options: dict[str, Any] = {"signals": ("gradients", "updates"), "every": 1, "allow_missing_phases": True}
            watch = trk.watch(model, sink, optimizer=optimizer, **options)
        for n in range(3):
            scope = nullcontext() if watch is None else watch.step(n, scaler=stages.scaler)
            try:
                with scope:
                    stages.run(kind, n)
            except RuntimeError as error:
                raised = error
                break
        report = watch.close() if watch is not None else None
        state = [parameter.detach() for parameter in model.parameters()]
        ends.append((stages.notes, type(raised), getattr(raised, "args", None), state))
    assert ends[0][:3] == ends[1][:3] and all(map(torch.equal, ends[0][3], ends[1][3]))
    assert report is not None
    named = [(skip.name, skip.step) for skip in report.named_skips]
    rows = sorted(by_tag(sink)["gradients/norm/0.weight"])
    if kind in ("no clip", "clip"):
        assert (raised, named, rows) == (None, [], [0, 1, 2])
    elif kind == "leaves large steps out":
        assert (raised, named, rows) == (None, [("phase_missing", 1)], [0, 2])
    else:
        # Each forgetful loop fails where torch finds out: at its next call of unscale_.
        at, told = (1, "has already been called") if kind == "unscales twice" else (2, "is being called after step()")
        assert str(raised).startswith(f"unscale_() {told}")
        skipped = [("amp_skipped", 1)] if kind == "forgets after an overflow" else []
        assert named == [*skipped, ("exception", at)]
        assert rows == [n for n in range(at) if ("amp_skipped", n) not in skipped]
