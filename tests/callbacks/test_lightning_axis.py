"""Lightning's own TensorBoard log and ours, read side by side: the same axis, and the same norms on it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import torchlens_conformance.trackers as trk
from tests.callbacks.lightning_runs import (
    BATCHES,
    Adversarial,
    Automatic,
    Critic,
    Sparing,
    events,
    fit,
    fresh,
    own_log,
    quiet,
    series,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

LEAVES = ("body.weight", "body.bias", "head.weight", "head.bias")


def total_norm(folder: Path, step: int) -> float:
    """Return the norm of all gradients at one step, from our own event files."""
    return float(sum(events(folder, f"gradients/norm/{leaf}")[step] ** 2 for leaf in LEAVES) ** 0.5)


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ({}, range(12)),
        ({"log_every_n_steps": 3}, range(2, 12, 3)),
        ({"accumulate_grad_batches": 4}, range(4)),
        ({"val_check_interval": 2}, range(12)),
        ({"max_steps": 7, "max_epochs": None}, range(7)),
        ({"precision": "bf16-mixed"}, range(12)),
    ],
    ids=["plain", "every-third", "accumulation", "validation", "max-steps", "bf16"],
)
def test_rows_lie_on_the_axis_of_the_loggers(tmp_path: Path, arguments: dict[str, Any], steps: range) -> None:
    """At each step that Lightning logged we have rows, and they give the norm that was logged there (CB-1)."""
    callback = quiet(trk.TensorBoardSink(tmp_path / "ours"), every=1)
    fit(tmp_path, fresh(Automatic), [callback], logger=own_log(tmp_path), **arguments)
    own = events(tmp_path / "own", "grad_norm")
    assert list(own) == list(events(tmp_path / "own", "loss")) == list(steps)
    ours = events(tmp_path / "ours", "gradients/norm/head.bias")
    assert list(ours) == list(range(steps[-1] + 1))
    assert [total_norm(tmp_path / "ours", step) for step in own] == pytest.approx(list(own.values()), rel=1e-5)


def test_a_resumed_fit_lies_on_the_axis_of_the_loggers(tmp_path: Path) -> None:
    """After a resume both logs go on at the same steps with the same norms (CB-1, STEP-8)."""
    trainer = fit(tmp_path, fresh(Automatic), [], max_epochs=1)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    callback = quiet(trk.TensorBoardSink(tmp_path / "ours"), every=1)
    fit(tmp_path, fresh(Automatic), [callback], logger=own_log(tmp_path), checkpoint=tmp_path / "one.ckpt")
    own = events(tmp_path / "own", "grad_norm")
    ours = events(tmp_path / "ours", "gradients/norm/head.bias")
    assert list(own) == list(ours) == list(range(BATCHES, 2 * BATCHES))
    assert [total_norm(tmp_path / "ours", step) for step in own] == pytest.approx(list(own.values()), rel=1e-5)


def test_two_optimizers_do_not_double_the_axis(tmp_path: Path) -> None:
    """Report 32: manual optimization of two optimizers counts batches, and names the one that did not step (CB-1)."""
    sink = trk.MemorySink()
    callback = quiet(sink, every=1)
    trainer = fit(tmp_path, fresh(Adversarial), [callback], logger=own_log(tmp_path))
    assert trainer.global_step == 3 * BATCHES
    logged = list(events(tmp_path / "own", "loss"))
    assert list(series(sink, "gradients/norm/d.weight")) == logged == list(range(2 * BATCHES))
    assert list(series(sink, "gradients/norm/g.weight")) == list(range(0, 2 * BATCHES, 2))
    assert callback.report is not None and callback.report.skip_counts == {"optimizer_not_stepped": BATCHES}


@pytest.mark.parametrize("every", [3, 5])
def test_an_odd_cadence_fires_under_two_optimizers(tmp_path: Path, every: int) -> None:
    """Report 32: with two steps a batch a derived cadence still fires about every n batches, never never (CB-1)."""
    sink = trk.MemorySink()
    callback = quiet(sink)
    fit(tmp_path, fresh(Adversarial), [callback], logger=own_log(tmp_path), log_every_n_steps=every)
    assert callback.settings is not None
    assert callback.settings.sources["every"] == f"[derived: log_every_n_steps={every}]"
    own = list(events(tmp_path / "own", "loss"))
    assert own == list(range(every - 1, 2 * BATCHES, every))
    for leaf in ("d.weight", "g.weight"):
        steps = list(series(sink, f"gradients/norm/{leaf}"))
        assert fires_about_every(every, steps), (leaf, steps)


def fires_about_every(every: int, steps: list[int]) -> bool:
    """Say whether steps lie no further apart than a cadence and one batch, from the first to the last batch."""
    borders = [-1, *steps, 2 * BATCHES]
    return all(later - earlier <= every + 1 for earlier, later in pairwise(borders))


@pytest.mark.parametrize("odd", [True, False])
@pytest.mark.parametrize("every", [1, 2, 3, 4, 5])
def test_an_optimizer_that_steps_every_second_batch(tmp_path: Path, every: int, odd: bool) -> None:
    """Report 32: whatever the cadence and the batches in which it steps, rows come about every n batches (CB-1)."""
    sink = trk.MemorySink()
    callback = quiet(sink)
    fit(tmp_path, fresh(Sparing, odd=odd), [callback], logger=own_log(tmp_path), log_every_n_steps=every)
    steps = list(series(sink, "gradients/norm/body.weight"))
    assert all(step % 2 == odd for step in steps) and fires_about_every(max(every, 2), steps), steps
    assert callback.report is not None and callback.report.steps_seen == 2 * BATCHES


@pytest.mark.parametrize("every", [2, 4])
def test_an_optimizer_that_misses_each_due_batch_is_sampled(tmp_path: Path, every: int) -> None:
    """Report 32: of two optimizers the one that never steps in a due batch is sampled in the next one (CB-1)."""
    sink = trk.MemorySink()
    callback = quiet(sink, every=every)
    fit(tmp_path, fresh(Adversarial, odd=True), [callback])
    seldom, often = (list(series(sink, f"gradients/norm/{part}.weight")) for part in "gd")
    due = list(range(0, 2 * BATCHES, every))
    assert seldom == [step + 1 for step in due] and often == sorted([*due, *seldom])


@pytest.mark.parametrize(("period", "every"), [(5, 5), (8, 4), (20, 5), (7, 5)])
def test_the_generator_of_a_wgan_is_sampled(tmp_path: Path, period: int, every: int) -> None:
    """Report 32: G steps beside a D that steps in every batch, always before a due one, and has its rows (CB-1)."""
    sink, length = trk.MemorySink(), 100
    callback = quiet(sink, every=every, hist_every=2 * every)
    fit(tmp_path, fresh(Critic, period=period), [callback], batches=length, max_epochs=1, limit_val_batches=0)
    seldom, often = (list(series(sink, f"gradients/norm/{part}.weight")) for part in "gd")
    assert seldom[0] < 3 * period and all((step + 1) % period == 0 for step in seldom)
    borders = [seldom[0], *seldom, length]
    assert all(later - earlier < every + period for earlier, later in pairwise(borders))
    assert set(range(0, length, every)) <= set(often)
    assert len(often) <= length // every + 2 * len(seldom) + period
    histograms = [point.step for point in sink.histograms if point.tag == "gradients/hist/g.weight"]
    assert histograms and set(histograms) <= set(seldom)


def test_histograms_of_an_optimizer_that_misses_each_due_batch(tmp_path: Path) -> None:
    """Report 32: with every batch sampled histograms have a cadence of their own, which G misses as well (CB-1)."""
    sink, length = trk.MemorySink(), 60
    callback = quiet(sink, every=1, hist_every=5)
    fit(tmp_path, fresh(Critic, period=5), [callback], batches=length, max_epochs=1, limit_val_batches=0)
    assert list(series(sink, "gradients/norm/g.weight")) == list(range(4, length, 5))
    steps = [point.step for point in sink.histograms if point.tag == "gradients/hist/g.weight"]
    assert all(later - earlier < 10 for earlier, later in pairwise([4, *steps, length]))
