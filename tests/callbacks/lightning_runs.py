"""Small real Lightning modules and a trainer on the CPU, with automatic and manual optimization."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lightning")
pytest.importorskip("tensorboard")

import lightning.pytorch as pl  # noqa: E402
from lightning.pytorch.loggers import TensorBoardLogger  # noqa: E402
from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from reference_sinks.readers import read_tensorboard  # noqa: E402
from torchlens_conformance.callbacks.lightning import LightningWatchCallback  # noqa: E402

__all__ = [
    "BATCHES",
    "Adversarial",
    "Automatic",
    "Critic",
    "Sparing",
    "events",
    "fit",
    "fresh",
    "own_log",
    "pl",
    "quiet",
    "series",
    "torch",
]

BATCHES = 6


class Oracle(torch.optim.SGD):
    """Keeps one gradient of every step; the closure inside the step computes it."""

    watched: Any

    def step(self, closure: Any = None) -> Any:
        """Step, and keep."""
        result = super().step(closure)
        self.__dict__.setdefault("seen", []).append(self.watched.grad.clone())
        return result


class Automatic(pl.LightningModule):
    """Automatic optimization with one optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.drop, self.head = nn.Linear(4, 6), nn.Dropout(0.1), nn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        """Return logits."""
        return self.head(self.drop(self.body(x).relu()))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Return the loss, logged."""
        loss = self(batch[0]).square().mean()
        self.log("loss", loss)
        return loss

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """Log the norm of all gradients with which the optimizer is about to step; clipping comes later."""
        squares = [p.grad.double().square().sum() for p in self.parameters() if p.grad is not None]
        self.log("grad_norm", torch.stack(squares).sum().sqrt())

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log something."""
        self.log("val", self(batch[0]).sum())

    def configure_optimizers(self) -> Any:
        """Return SGD."""
        self.optimizer = Oracle(self.parameters(), lr=0.1, momentum=0.9)
        self.optimizer.watched = self.body.weight
        return self.optimizer


class Adversarial(pl.LightningModule):
    """Manual optimization: D steps in every batch, G in every second one, from the first or the second on."""

    def __init__(self, *, odd: bool = False) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.odd = odd
        self.g, self.d = nn.Linear(4, 4), nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Step one optimizer, or both."""
        g, d = self.optimizers()
        for optimizer, due in ((d, True), (g, batch_idx % 2 == self.odd)):
            if due:
                optimizer.zero_grad()
                self.manual_backward(self.d(self.g(batch[0])).square().mean())
                optimizer.step()
        self.log("loss", 1.0)

    def configure_optimizers(self) -> Any:
        """Return two optimizers."""
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.g, self.d)]


class Critic(Adversarial):
    """The classic loop of a WGAN: D steps in every batch, and G when ``(batch_idx + 1) % period == 0``."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self.period = period

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Step D, and G in its turn."""
        g, d = self.optimizers()
        for optimizer, due in ((d, True), (g, (batch_idx + 1) % self.period == 0)):
            if due:
                optimizer.zero_grad()
                self.manual_backward(self.d(self.g(batch[0])).square().mean())
                optimizer.step()


class Sparing(pl.LightningModule):
    """Manual optimization with one optimizer, which steps in every second batch, the odd ones or the even ones."""

    def __init__(self, *, odd: bool = True) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.odd, self.body = odd, nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Accumulate by hand."""
        optimizer = self.optimizers()
        self.manual_backward(self.body(batch[0]).square().mean())
        if batch_idx % 2 == self.odd:
            optimizer.step()
            optimizer.zero_grad()
        self.log("loss", 1.0)

    def configure_optimizers(self) -> Any:
        """Return SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader(batches: int = BATCHES) -> Any:
    """Return data of so many batches."""
    data = torch.randn(2 * batches, 4, generator=torch.Generator().manual_seed(0))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=2)


def fit(
    folder: Path, module: Any, callbacks: list[Any], *, checkpoint: Any = None, batches: int = BATCHES, **arguments: Any
) -> pl.Trainer:
    """Fit for two epochs of so many batches on the CPU."""
    settings: dict[str, Any] = {
        "max_epochs": 2,
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "log_every_n_steps": 1,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": str(folder),
        **arguments,
    }
    trainer = pl.Trainer(callbacks=callbacks, **settings)
    trainer.fit(module, loader(batches), loader(2), ckpt_path=checkpoint)
    return trainer


def fresh(kind: Any, **settings: Any) -> Any:
    """Return a module with the same weights every time."""
    torch.manual_seed(0)
    return kind(**settings)


def own_log(folder: Path) -> TensorBoardLogger:
    """Return a logger of Lightning's own, whose event files lie in ``folder / "own"``."""
    return TensorBoardLogger(str(folder), name="own", version="")


def quiet(sink: Any, **keywords: Any) -> LightningWatchCallback:
    """Return a callback that prints nothing."""
    return LightningWatchCallback(to=sink, print_fn=lambda line: None, **keywords)


def events(folder: Path, tag: str) -> dict[int, float]:
    """Return one series of the event files in a folder by step; a step that is there twice is an error."""
    points = [p for p in read_tensorboard(folder) if isinstance(p, trk.ScalarPoint) and p.tag == tag]
    steps = [point.step for point in points]
    assert len(set(steps)) == len(steps), (tag, steps)
    return {point.step: float(point.value) for point in points}


def series(sink: trk.MemorySink, tag: str) -> dict[int, Any]:
    """Return one series by step."""
    return {point.step: point.value for point in sink.scalars if point.tag == tag}
