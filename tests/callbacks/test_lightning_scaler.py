"""A precision plugin's scaler in a real Lightning trainer on a CPU, with one optimizer and with two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import torchlens_conformance.trackers as trk
from tests.callbacks.lightning_runs import BATCHES, Adversarial, Automatic, fit, fresh, quiet, series, torch

from lightning.pytorch.plugins.precision import MixedPrecision  # isort: skip

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

HIGH = 2.0**16


def plugin(growth_interval: int = 3) -> Any:
    """Return the plugin with a scaler of the CPU; at its highest scale gradients of these modules overflow in fp16."""
    scaler = torch.amp.GradScaler("cpu", init_scale=HIGH, growth_interval=growth_interval)
    return MixedPrecision("16-mixed", "cpu", scaler=scaler)


def test_the_scaler_of_the_plugin_is_seen(tmp_path: Path) -> None:
    """Scale, skipped steps and unscaled, clipped gradients are told at each step (CB-1, AMP-1, AMP-2, AMP-8)."""
    sink, module = trk.MemorySink(), fresh(Automatic)
    callback = quiet(sink, every=1, signals=("gradients", "updates"))
    trainer = fit(tmp_path, module, [callback], plugins=[plugin()], gradient_clip_val=0.05)
    scales = series(sink, "torchlens/run/amp_scale")
    assert list(scales) == list(range(2 * BATCHES)) and set(scales.values()) == {HIGH, HIGH / 2}
    report = callback.report
    assert report is not None and trainer.precision_plugin.scaler is not None
    skipped = [skip.step for skip in report.named_skips]
    # Each time the scale is at its highest the step is skipped, and the next one has half of it.
    assert skipped == [step for step, scale in scales.items() if scale == HIGH] == [0, 4, 8]
    assert report.skip_counts == {"amp_skipped": 3} and report.unscaled == {"yes": 2 * BATCHES - 3}
    norms = series(sink, "gradients/norm/body.weight")
    assert list(norms) == list(series(sink, "updates/norm/body.weight"))
    # The oracle is not called in a step that the scaler leaves out.
    told = [gradient.double().norm().item() for gradient in module.optimizer.seen]
    assert list(norms.values()) == pytest.approx(told, rel=1e-12)
    total = [sum(series(sink, f"gradients/norm/{n}")[s] ** 2 for n, _ in module.named_parameters()) for s in norms]
    assert max(total) ** 0.5 <= 0.05 + 1e-5


def test_two_optimizers_under_one_scaler(tmp_path: Path) -> None:
    """Under manual optimization each optimizer's own skip is told, and the one that stepped has rows (CB-1, AMP-6)."""
    sink = trk.MemorySink()
    callback = quiet(sink, every=1)
    fit(tmp_path, fresh(Adversarial), [callback], plugins=[plugin()])
    report = callback.report
    assert report is not None and report.unscaled.keys() == {"yes"}
    batches = set(range(2 * BATCHES))
    for label, part, due in (("SGD#2", "d", batches), ("SGD", "g", {n for n in batches if n % BATCHES % 2 == 0})):
        skipped = {s.step for s in report.named_skips if s.name == "amp_skipped" and s.detail in (label, "")}
        resting = {s.step for s in report.named_skips if s.name == "optimizer_not_stepped" and s.detail == label}
        assert skipped and set(series(sink, f"gradients/norm/{part}.weight")) == due - skipped
        assert resting == batches - due - skipped


@pytest.mark.parametrize("kind", [Automatic, Adversarial])
def test_training_with_a_scaler_is_bit_identical(tmp_path: Path, kind: Any) -> None:
    """A watched and an unwatched fit with a scaler end with the same bits and the same scale (CB-1, AMP-8)."""
    ended = []
    for watched in (False, True):
        module, precision = fresh(kind), plugin()
        callbacks = [quiet(trk.MemorySink(), signals=("gradients", "parameters", "updates"))] if watched else []
        fit(tmp_path, module, callbacks, plugins=[precision])
        assert precision.scaler is not None
        ended.append([*module.state_dict().values(), torch.tensor(precision.scaler.get_scale()), torch.get_rng_state()])
    assert all(torch.equal(one, other) for one, other in zip(*ended))
