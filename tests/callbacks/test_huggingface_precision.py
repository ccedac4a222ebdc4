"""Half precision in a real Trainer on a CPU: bf16, fp16 as accelerate has it, and a scaler given to accelerate."""

from __future__ import annotations

from pathlib import Path

import pytest

import torchlens_conformance.trackers as trk
from tests.callbacks.huggingface_runs import LEAVES, STEPS, quiet, series, torch, train

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.mark.parametrize("precision", [{"bf16": True}, {"fp16": True}], ids=["bf16", "fp16"])
def test_rows_of_half_precision_are_those_of_the_step(tmp_path: Path, precision: dict[str, bool]) -> None:
    """Gradients are those that the optimizer stepped with, and nothing is claimed about a scale (CB-1, AMP-5)."""
    sink = trk.MemorySink()
    try:
        _, optimizer = train(tmp_path, [quiet(sink, every=1)], **precision)
    except ValueError as error:
        # Versions of accelerate differ: fp16 on a CPU is refused, or it is no fp16 (see below).
        assert "fp16" in precision and "fp16" in str(error).lower()
        return
    for leaf in LEAVES:
        told = [seen[leaf].double().norm().item() for seen in optimizer.seen]
        assert list(series(sink, f"gradients/norm/{leaf}").values()) == pytest.approx(told, rel=1e-12)
    assert not series(sink, "torchlens/run/amp_scale") and len(optimizer.seen) == STEPS


def test_fp16_on_a_cpu_is_no_fp16(tmp_path: Path) -> None:
    """A finding: with fp16=True on a CPU accelerate neither scales nor autocasts; the bits are fp32's (AMP-5)."""
    _, plain = train(tmp_path, [])
    try:
        trainer, half = train(tmp_path, [], fp16=True)
    except ValueError as error:
        assert "fp16" in str(error).lower()
        return
    assert trainer.accelerator.scaler is None
    assert all(torch.equal(one, other) for one, other in zip(plain.model.parameters(), half.model.parameters()))


def test_a_scaler_is_seen_through_accelerate(tmp_path: Path) -> None:
    """With a scaler its scale, skipped steps and unscaled, clipped gradients are told at each step (AMP-1, AMP-2)."""
    sink = trk.MemorySink()
    callback = quiet(sink, every=1, signals=("gradients", "updates"))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=3)
    trainer, optimizer = train(tmp_path, [callback], scaler=scaler, fp16=True)
    assert trainer.state.global_step == STEPS and trainer.accelerator.scaler is scaler
    scales = series(sink, "torchlens/run/amp_scale")
    # After three steps the scale grows beyond what fp16 holds: that step is skipped, and the scale halves again.
    assert list(scales) == list(range(1, STEPS + 1))
    skipped = [step for step, scale in scales.items() if scale == 2.0**17]
    assert skipped == [4, 8] and set(scales.values()) == {2.0**16, 2.0**17}
    report = callback.report
    assert report is not None and report.skip_counts == {"amp_skipped": 2}
    assert [(skip.name, skip.step) for skip in report.named_skips] == [("amp_skipped", 4), ("amp_skipped", 8)]
    assert report.unscaled == {"yes": len(optimizer.seen)}
    stepped = [step for step in range(1, STEPS + 1) if step not in skipped]
    for leaf in LEAVES:
        norms = series(sink, f"gradients/norm/{leaf}")
        told = [seen[leaf].double().norm().item() for seen in optimizer.seen]
        assert list(norms) == list(series(sink, f"updates/norm/{leaf}")) == stepped
        assert list(norms.values()) == pytest.approx(told, rel=1e-12)
    totals = [sum(series(sink, f"gradients/norm/{leaf}")[step] ** 2 for leaf in LEAVES) ** 0.5 for step in stepped]
    assert max(totals) <= 0.5 + 1e-4 and min(totals) > 0


def test_training_with_a_scaler_is_bit_identical(tmp_path: Path) -> None:
    """A watched and an unwatched run with a scaler end with the same bits and the same scale (CB-1, AMP-8)."""
    ended = []
    for callbacks in ([], [quiet(trk.MemorySink(), every=1, signals=("gradients", "parameters", "updates"))]):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=3)
        _, optimizer = train(tmp_path, callbacks, scaler=scaler, fp16=True)
        ended.append([*optimizer.model.parameters(), torch.tensor(scaler.get_scale()), torch.get_rng_state()])
    assert all(torch.equal(one, other) for one, other in zip(*ended))


def test_a_due_step_that_the_scaler_leaves_out_is_made_up(tmp_path: Path) -> None:
    """When the scaler leaves out each step that is due, the one after it is sampled: never never (CB-1, AMP-8)."""
    sink = trk.MemorySink()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=3)
    train(tmp_path, [quiet(sink, every=4)], scaler=scaler, fp16=True)
    # 4 and 8 are due, and skipped.
    assert list(series(sink, "gradients/norm/body.weight")) == [1, 5]
