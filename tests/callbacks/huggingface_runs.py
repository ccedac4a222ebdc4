"""A small real transformers.Trainer, an optimizer that keeps what it stepped with, and the Trainer's own log."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytest.importorskip("tensorboard")

from torch import nn  # noqa: E402
from transformers import Trainer, TrainerCallback, TrainingArguments  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from reference_sinks.readers import read_tensorboard  # noqa: E402
from torchlens_conformance.callbacks import HFTrainerWatchCallback  # noqa: E402

__all__ = ["LEAVES", "STEPS", "Trainer", "TrainerCallback", "logged", "quiet", "series", "torch", "total_norm", "train"]

BATCHES, WINDOW, EPOCHS = 7, 2, 2
STEPS = EPOCHS * 4
LEAVES = ("body.weight", "body.bias", "head.weight", "head.bias")


class Net(nn.Module):
    """Gives a loss, as the Trainer wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 2)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        """Return the loss and the logits."""
        logits = self.head(self.drop(self.body(x).relu()))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def rows(count: int) -> list[dict[str, Any]]:
    """Return a data set."""
    source = torch.Generator().manual_seed(0)
    return [{"x": torch.randn(4, generator=source), "labels": i % 2} for i in range(count)]


class Oracle(torch.optim.SGD):
    """An optimizer that keeps the gradients with which it stepped."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), lr=0.1, momentum=0.9)
        self.model, self.seen = model, []

    def step(self, closure: Any = None) -> Any:
        """Keep the gradients, and step."""
        self.seen.append({name: p.grad.clone() for name, p in self.model.named_parameters()})
        return super().step(closure)


def train(
    folder: Path,
    callbacks: list[Any],
    *,
    resume: Any = None,
    scaler: Any = None,
    kind: type[Trainer] = Trainer,
    **arguments: Any,
) -> tuple[Trainer, Oracle]:
    """Train with a window of two batches, seven batches an epoch, two epochs.

    With ``scaler`` accelerate uses it, and autocasts as it would on an accelerator: on a CPU it makes no scaler itself.
    """
    torch.manual_seed(0)
    model = Net()
    optimizer = Oracle(model)
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": WINDOW,
        "num_train_epochs": EPOCHS,
        "max_grad_norm": 0.5,
        "use_cpu": True,
        "logging_steps": 2,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "seed": 1,
        **arguments,
    }
    trainer = kind(
        model=model,
        args=TrainingArguments(**settings),
        train_dataset=rows(2 * BATCHES),
        eval_dataset=rows(4),
        optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)),
        callbacks=callbacks,
    )
    if scaler is not None:
        trainer.accelerator.scaler, trainer.accelerator.native_amp = scaler, True
    # accelerate collects garbage when training begins, which takes longest among all that a test process has imported.
    gc.freeze()
    try:
        trainer.train(resume_from_checkpoint=resume)
    finally:
        gc.unfreeze()
    return trainer, optimizer


def quiet(sink: Any, **keywords: Any) -> HFTrainerWatchCallback:
    """Return a callback that prints nothing."""
    return HFTrainerWatchCallback(to=sink, print_fn=lambda line: None, **keywords)


def series(sink: trk.MemorySink, tag: str) -> dict[int, Any]:
    """Return one series by step."""
    return {point.step: point.value for point in sink.scalars if point.tag == tag}


def logged(folder: Path, tag: str) -> dict[int, float]:
    """Return one series of the event files in a folder by step; a step that is there twice is an error."""
    points = [p for p in read_tensorboard(folder) if isinstance(p, trk.ScalarPoint) and p.tag == tag]
    steps = [point.step for point in points]
    assert len(set(steps)) == len(steps), (tag, steps)
    return {point.step: float(point.value) for point in points}


def total_norm(folder: Path, step: int, leaves: tuple[str, ...] = LEAVES) -> float:
    """Return the norm of all gradients at one step, from our own event files."""
    return float(sum(logged(folder, f"gradients/norm/{leaf}")[step] ** 2 for leaf in leaves) ** 0.5)
