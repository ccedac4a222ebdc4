"""The watch callback inside a real Lightning trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import torchlens_conformance.trackers as trk
from reference_sinks.readers import read_jsonl
from tests.callbacks.lightning_runs import BATCHES, Automatic, fit, fresh, pl, quiet, series, torch
from torchlens_conformance.kit.engine.scenarios.case import hook_census

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def test_accumulated_batches_count_once(tmp_path: Path) -> None:
    """With accumulation there is one row an optimizer step, the short last window included (CB-1)."""
    sink, module = trk.MemorySink(), fresh(Automatic)
    trainer = fit(tmp_path, module, [quiet(sink, every=1)], accumulate_grad_batches=4, gradient_clip_val=0.01)
    norms = series(sink, "gradients/norm/body.weight")
    assert len(norms) == trainer.global_step == 4
    assert list(norms) == [0, 1, 2, 3]
    total = [sum(series(sink, f"gradients/norm/{n}")[s] ** 2 for n, _ in module.named_parameters()) for s in norms]
    assert all(value**0.5 <= 0.01 + 1e-6 for value in total)
    # Unclipped they were larger: what is told is what the optimizer stepped with.
    assert max(value**0.5 for value in total) == pytest.approx(0.01, rel=1e-3)


def test_a_validation_within_a_window_is_no_part_of_it(tmp_path: Path) -> None:
    """Forwards of a validation between accumulated batches are left out of the step's activations (CB-1, TIER-1)."""
    sink = trk.MemorySink()
    asked: dict[str, Any] = {"signals": ("gradients", "activations"), "select": ("head",), "inputs": torch.zeros(2, 4)}
    fit(tmp_path, fresh(Automatic), [quiet(sink, every=1, **asked)], accumulate_grad_batches=4, val_check_interval=2)
    # Batches of two rows and two outputs: four in a window, and two in the short one.
    assert list(series(sink, "activations/count/head").values()) == [16, 8, 16, 8]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_training_is_bit_identical(tmp_path: Path, precision: Any) -> None:
    """A watched and an unwatched fit end with the same bits, validation in the middle included (CB-1)."""
    ended = []
    for watched in (False, True):
        sink = trk.MemorySink()
        callbacks = [quiet(sink, signals=("gradients", "parameters", "updates"), every=1)] if watched else []
        module = fresh(Automatic)
        fit(tmp_path, module, callbacks, precision=precision, val_check_interval=2)
        ended.append([*module.state_dict().values(), torch.get_rng_state()])
    assert all(torch.equal(one, other) for one, other in zip(*ended))
    assert list(series(sink, "updates/norm/head.bias")) == list(range(2 * BATCHES))


def test_gradients_are_those_of_the_step(tmp_path: Path) -> None:
    """Rows hold what the optimizer stepped with, though Lightning computes gradients inside the step (CB-1)."""
    sink, module = trk.MemorySink(), fresh(Automatic)
    fit(tmp_path, module, [quiet(sink, every=1)])
    norms = list(series(sink, "gradients/norm/body.weight").values())
    told = [gradient.double().norm().item() for gradient in module.optimizer.seen]
    assert len(told) == 2 * BATCHES and norms == pytest.approx(told, rel=1e-12)


def test_a_resumed_fit_goes_on(tmp_path: Path) -> None:
    """A fit resumed from a checkpoint goes on along the axis in a new segment (CB-1, STEP-8)."""
    path = tmp_path / "run.jsonl"
    trainer = fit(tmp_path, fresh(Automatic), [quiet(trk.JSONLSink(path), every=1)], max_epochs=1)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    resumed = quiet(trk.JSONLSink(path, resume=True), every=1)
    fit(tmp_path, fresh(Automatic), [resumed], checkpoint=tmp_path / "one.ckpt")
    points = [point for point in read_jsonl(path) if isinstance(point, trk.ScalarPoint)]
    steps = [point.step for point in points if point.tag == "gradients/norm/head.bias"]
    assert steps == list(range(2 * BATCHES))
    assert [point.step for point in points if point.tag == "torchlens/run/segment"] == [BATCHES]


class Breaks(pl.Callback):
    """Raises when the fourth batch ended, or before the optimizer's step in it."""

    def __init__(self, when: str, error: BaseException) -> None:
        self.when, self.error = when, error

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Raise, if that is when."""
        if self.when == "after" and batch_idx == 3:
            raise self.error

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """Raise inside the optimizer's step, whose closure this is, if that is when."""
        if self.when == "within" and trainer.global_step == 3:
            raise self.error


@pytest.mark.parametrize("when", ["after", "within"])
@pytest.mark.parametrize("kind", [ArithmeticError, KeyboardInterrupt])
def test_a_fit_that_raises_keeps_what_was_seen(tmp_path: Path, when: str, kind: type[BaseException]) -> None:
    """When the loop raises, the session is closed with its report, and the exception goes on as it is (CB-1, TAG-4)."""
    error, module = kind("mine"), fresh(Automatic)
    callback = quiet(trk.JSONLSink(tmp_path / "run.jsonl"), every=1)
    # Lightning ends the process after an interrupt.
    with pytest.raises(SystemExit if kind is KeyboardInterrupt else kind) as caught:
        fit(tmp_path, module, [callback, Breaks(when, error)])
    assert caught.value is error or caught.value.__context__ is error
    assert error.__context__ is None
    report = callback.report
    assert report is not None and callback.session is None
    result = read_jsonl(tmp_path / "run.jsonl")
    steps = [p.step for p in result if isinstance(p, trk.ScalarPoint) and p.tag == "gradients/norm/head.bias"]
    assert steps == [0, 1, 2, 3][: 3 if when == "within" else 4] and result.closed
    assert not any(kind_of for kind_of in hook_census(module) if "optimizer" in kind_of)


def test_nothing_is_left_on_module_and_optimizer(tmp_path: Path) -> None:
    """After a fit no hook of the watch is on the module or its optimizer (CB-1, CLOSE-3)."""
    counted = []
    for watched in (False, True):
        module = fresh(Automatic)
        signals = {"signals": ("gradients", "activations"), "select": ("head",), "inputs": torch.zeros(2, 4)}
        fit(tmp_path, module, [quiet(trk.MemorySink(), **signals)] if watched else [])
        counted.append(hook_census(module, [module.optimizer]))
    assert counted[0] == counted[1]
