"""A Trainer that begins anew by itself, and a callback that serves several runs: rows go on, in segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import torchlens_conformance.trackers as trk
from reference_sinks.readers import read_jsonl
from tests.callbacks.huggingface_runs import Trainer, quiet, series, torch, train
from torchlens_conformance.kit.engine.scenarios.case import hook_census

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

FITS, BEGINS = 6, 8
"""Rows of a batch that fit into memory, and how many the Trainer begins with; it takes a tenth off each time."""


class OutOfMemory(Trainer):  # type: ignore[misc]
    """Has no memory for large batches once so many steps are done."""

    after = 0

    def training_step(self, *arguments: Any, **keywords: Any) -> Any:
        """Raise as an accelerator does."""
        if self._train_batch_size > FITS and self.state.global_step >= self.after:
            raise RuntimeError("CUDA out of memory. (planted)")
        return super().training_step(*arguments, **keywords)


class OutOfMemoryLater(OutOfMemory):
    """The same after two steps."""

    after = 2


def restarting(folder: Path, callbacks: list[Any], kind: type[Trainer]) -> Any:
    """Train until the batches fit."""
    settings: dict[str, Any] = {"per_device_train_batch_size": BEGINS, "gradient_accumulation_steps": 1, "max_steps": 4}
    return train(folder, callbacks, kind=kind, auto_find_batch_size=True, **settings)


@pytest.mark.parametrize(("kind", "before"), [(OutOfMemory, []), (OutOfMemoryLater, [1, 2])])
def test_a_trainer_that_begins_anew_is_watched_on(tmp_path: Path, kind: type[Trainer], before: list[int]) -> None:
    """When the Trainer finds a batch size each attempt is a segment of one store, and nothing raises (CB-1, STEP-2)."""
    path = tmp_path / "run.jsonl"
    callback = quiet(trk.JSONLSink(path), every=1)
    trainer, optimizer = restarting(tmp_path, [callback], kind)
    assert trainer.state.global_step == 4 and trainer._train_batch_size == FITS
    result = read_jsonl(path)
    points = [point for point in result if isinstance(point, trk.ScalarPoint)]
    steps = [point.step for point in points if point.tag == "gradients/norm/head.bias"]
    assert steps == [*before, *before, 1, 2, 3, 4] and result.closed
    # The first attempt began with the run, and each one after it tells its number.
    segments = [(point.step, point.value) for point in points if point.tag == "torchlens/run/segment"]
    assert segments == [(1, 1), (1, 2)]
    report = callback.report
    assert report is not None and callback.session is None and report.segments == 2 and report.steps_seen == 4
    told = [seen["head.bias"].double().norm().item() for seen in optimizer.seen]
    norms = [point.value for point in points if point.tag == "gradients/norm/head.bias"]
    assert norms == pytest.approx(told, rel=1e-12)


def test_a_trainer_that_begins_anew_does_not_notice(tmp_path: Path) -> None:
    """With and without the callback a run that begins anew ends with the same bits and the same hooks (CB-1)."""
    asked: dict[str, Any] = {"signals": ("gradients", "updates"), "every": 1, "allow_missing_phases": False}
    ended = []
    for callbacks in ([], [quiet(trk.MemorySink(), **asked)]):
        _, optimizer = restarting(tmp_path, callbacks, OutOfMemoryLater)
        state = [*optimizer.model.parameters(), torch.get_rng_state()]
        ended.append((state, hook_census(optimizer.model, [optimizer])))
    (plain, hooks), (watched, left) = ended
    assert all(torch.equal(one, other) for one, other in zip(plain, watched)) and hooks == left


def test_one_callback_for_two_runs(tmp_path: Path) -> None:
    """With ``close_sinks=False`` a second train() of one callback is a segment of the same store (CB-1, STEP-2)."""
    sink = trk.MemorySink()
    callback = quiet(sink, every=1, close_sinks=False)
    for _ in range(2):
        train(tmp_path, [callback], max_steps=2)
    points = [point for point in sink.scalars if point.tag in ("gradients/norm/head.bias", "torchlens/run/segment")]
    assert [(point.tag.rpartition("/")[2], point.step) for point in points] == [
        ("head.bias", 1),
        ("head.bias", 2),
        ("segment", 1),
        ("head.bias", 1),
        ("head.bias", 2),
    ]
    assert series(sink, "torchlens/run/segment") == {1: 1}


def test_a_run_after_one_that_raised_without_a_with(tmp_path: Path) -> None:
    """A session that an error left over ends when the callback's next run begins, and its sinks go on (CB-1)."""

    class Raises(Trainer):  # type: ignore[misc]
        def training_step(self, *arguments: Any, **keywords: Any) -> Any:
            if self.state.global_step == 1:
                raise ArithmeticError("mine")
            return super().training_step(*arguments, **keywords)

    sink = trk.MemorySink()
    callback = quiet(sink, every=1)
    with pytest.raises(ArithmeticError):
        train(tmp_path, [callback], kind=Raises)
    train(tmp_path, [callback], max_steps=2)
    steps = [point.step for point in sink.scalars if point.tag == "gradients/norm/head.bias"]
    assert steps == [1, 1, 2] and series(sink, "torchlens/run/segment") == {1: 1}
