"""The watch callback inside a real transformers.Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import torchlens_conformance.trackers as trk
from reference_sinks.readers import read_jsonl
from tests.callbacks.huggingface_runs import STEPS, TrainerCallback, quiet, series, torch, train
from torchlens_conformance.kit.engine.scenarios.case import hook_census

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def test_rows_are_those_of_each_optimizer_step(tmp_path: Path) -> None:
    """Report 33: one row an optimizer step, short windows included, post-clip, at global_step + 1 (CB-1, STEP-9)."""
    sink = trk.MemorySink()
    callback = quiet(sink, every=1)
    trainer, optimizer = train(tmp_path, [callback])
    assert trainer.state.global_step == STEPS == len(optimizer.seen)
    for name in ("body.weight", "head.bias"):
        norms = series(sink, f"gradients/norm/{name}")
        assert list(norms) == list(range(1, STEPS + 1))
        for step, seen in enumerate(optimizer.seen, start=1):
            assert norms[step] == pytest.approx(seen[name].double().norm().item(), rel=1e-12)
    total = [sum(g.double().square().sum().item() for g in seen.values()) ** 0.5 for seen in optimizer.seen]
    assert max(total) <= 0.5 + 1e-6
    assert callback.report is not None and callback.session is None and callback.report.steps_seen == STEPS


INPUTS = {"x": torch.zeros(2, 4), "labels": torch.zeros(2, dtype=torch.long)}
WATCHES: dict[str, dict[str, Any]] = {
    "boundary": {"signals": ("gradients", "parameters", "updates")},
    "discovery": {"signals": ("gradients", "activations"), "select": ("body", "drop"), "inputs": INPUTS},
    "calibration": {
        "signals": ("activations",),
        "inputs": INPUTS,
        "grain": "op",
        "allow_forward_wrap": True,
        "select": trk.func("linear"),
    },
}
"""What a watch is asked; the second and the third run forwards when they attach."""


@pytest.mark.filterwarnings("ignore:watch_op_grain_cost_disclosed")
@pytest.mark.parametrize(
    ("watch", "bf16"), [("boundary", False), ("boundary", True), ("discovery", False), ("calibration", True)]
)
def test_training_is_bit_identical(tmp_path: Path, watch: str, bf16: bool) -> None:
    """A watched and an unwatched run end with the same bits, evaluations in the middle included (CB-1, TIER-1)."""
    arguments: dict[str, Any] = {"bf16": bf16, "eval_strategy": "steps", "eval_steps": 3}
    sink, ended = trk.MemorySink(), []
    watching = quiet(sink, every=1, hist_every=1, **WATCHES[watch])
    for callbacks in ([], [watching]):
        _, optimizer = train(tmp_path, callbacks, **arguments)
        momenta = [state["momentum_buffer"] for state in optimizer.state.values()]
        seen = [gradient for step in optimizer.seen for gradient in step.values()]
        ended.append([*optimizer.model.parameters(), *momenta, *seen, torch.get_rng_state()])
    assert all(torch.equal(one, other) for one, other in zip(*ended))
    # Each step has rows; those of a calibrated forward are of its first batch.
    families = {
        "boundary": "updates/norm/body.",
        "discovery": "activations/norm/drop",
        "calibration": "activations/norm/",
    }
    steps = {point.step for point in sink.scalars if point.tag.startswith(families[watch])}
    assert steps == set(range(1, STEPS + 1))


def test_a_resumed_run_begins_a_new_segment(tmp_path: Path) -> None:
    """Report 33: training resumed from a checkpoint goes on along the axis, in a segment of its own (CB-1, STEP-8)."""
    path = tmp_path / "run.jsonl"
    first = quiet(trk.JSONLSink(path), every=1)
    train(tmp_path, [first], save_strategy="steps", save_steps=3, max_steps=6)
    second = quiet(trk.JSONLSink(path, resume=True), every=1)
    trainer, optimizer = train(tmp_path, [second], resume=str(tmp_path / "checkpoint-3"), max_steps=8)
    points = [point for point in read_jsonl(path) if isinstance(point, trk.ScalarPoint)]
    norms = [(point.step, point.value) for point in points if point.tag == "gradients/norm/head.bias"]
    assert [step for step, _ in norms] == [1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8] and trainer.state.global_step == 8
    told = [seen["head.bias"].double().norm().item() for seen in optimizer.seen]
    assert [value for _, value in norms[6:]] == pytest.approx(told, rel=1e-12)
    assert [point.step for point in points if point.tag == "torchlens/run/segment"] == [4]


class Repeats(TrainerCallback):  # type: ignore[misc]
    """Says once more that a step begins, as transformers 4.44 does when a window spans two epochs."""

    def __init__(self, watching: TrainerCallback) -> None:
        self.watching = watching

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Say it."""
        self.watching.on_step_begin(args, state, control, **kwargs)


def test_a_step_that_begins_twice_is_one(tmp_path: Path) -> None:
    """A step whose beginning is told again stays open: one row, with all of its batches (CB-1, STEP-2)."""
    sink = trk.MemorySink()
    callback = quiet(sink, every=1)
    _, optimizer = train(tmp_path, [callback, Repeats(callback)])
    told = [seen["head.bias"].double().norm().item() for seen in optimizer.seen]
    norms = series(sink, "gradients/norm/head.bias")
    assert list(norms) == list(range(1, STEPS + 1)) and list(norms.values()) == pytest.approx(told, rel=1e-12)
    assert callback.report is not None and not callback.report.named_skips


class Breaks(TrainerCallback):  # type: ignore[misc]
    """Raises when a step has ended, or in the middle of one."""

    def __init__(self, when: str, error: BaseException) -> None:
        self.when, self.error = when, error

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Raise, if that is when."""
        if self.when == "after" and state.global_step == 3:
            raise self.error

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Raise between two batches of one window, if that is when."""
        if self.when == "within" and state.global_step == 2:
            raise self.error


@pytest.mark.parametrize("when", ["after", "within"])
@pytest.mark.parametrize("kind", [ArithmeticError, KeyboardInterrupt])
def test_a_run_that_raises_keeps_what_was_seen(tmp_path: Path, when: str, kind: type[BaseException]) -> None:
    """Around train() the callback closes its session, and the exception goes on as it is (CB-1, CLOSE-1, TAG-4)."""
    error = kind("mine")
    callback = quiet(trk.JSONLSink(tmp_path / "run.jsonl"), every=1)
    with pytest.raises(kind) as caught, callback:
        train(tmp_path, [callback, Breaks(when, error)])
    assert caught.value is error and error.__context__ is None
    report = callback.report
    assert report is not None and callback.session is None and report is callback.close()
    assert report.skip_counts == ({"exception": 1} if when == "within" else {})
    result = read_jsonl(tmp_path / "run.jsonl")
    steps = [p.step for p in result if isinstance(p, trk.ScalarPoint) and p.tag == "gradients/norm/head.bias"]
    assert steps == [1, 2, 3][: 2 if when == "within" else 3] and result.closed


def test_nothing_is_left_on_model_and_optimizer(tmp_path: Path) -> None:
    """After train() no hook of the watch is on the model or the optimizer (CB-1, CLOSE-3)."""
    sink = trk.MemorySink()
    callback = quiet(sink, every=1, signals=("gradients", "activations"), select=("body", "head"), inputs=INPUTS)
    watched, plain = (
        train(tmp_path, callbacks, eval_strategy="steps", eval_steps=3)[1] for callbacks in ([callback], [])
    )
    assert hook_census(watched.model, [watched]) == hook_census(plain.model, [plain])
    # Two batches of two rows, of six outputs each; the short window has one; evaluations between steps add nothing.
    assert list(series(sink, "activations/count/body").values()) == [24, 24, 24, 12] * 2
