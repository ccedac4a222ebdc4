"""Small runs of real frameworks, which say themselves what they logged and with which gradients they stepped."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ..observation import PackageMissing
from .case import gradients_of
from .digests import digest_of, random_state, seed_everything

if TYPE_CHECKING:
    import torch

BATCHES = 5
"""In an epoch; an odd number, so that windows of two leave a short one."""

CLIP = 0.05
"""Small enough that every step is clipped."""


class PlannedError(ArithmeticError):
    """What a loop of the kit raises."""


class FrameworkRun:
    """One training run: its model, its optimizers, what they did, and what the framework logged.

    Args:
        window: How many batches make a step.
        epochs: How many epochs.
        logging: The framework's cadence of logging.
        evaluate: Whether it evaluates in the middle.
        raises_at: The forward of training that raises, from 1; 0 for none.

    Attributes:
        logged: The steps under which the framework logged a loss, in order.
        gradients: What each optimizer step stepped with, in order, by leaf.
        error: What the forward raises.
    """

    def __init__(
        self, *, window: int = 1, epochs: int = 2, logging: int = 1, evaluate: bool = False, raises_at: int = 0
    ) -> None:
        seed_everything()
        self.window, self.epochs, self.logging, self.evaluate = window, epochs, logging, evaluate
        self.error, self._raises_at, self._forwards = PlannedError("planted"), raises_at, 0
        self.model = self.make_model()
        self.optimizers = self.make_optimizers()
        self.logged: list[int] = []
        self.gradients: list[dict[str, list[float]]] = []
        for optimizer in self.optimizers:
            optimizer.register_step_post_hook(self._stepped)

    def make_model(self) -> Any:
        """Return the model."""
        return network()

    def make_optimizers(self) -> list[Any]:
        """Return one optimizer."""
        import torch

        return [torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)]

    def forward_begins(self) -> None:
        """Count a forward of training, and raise when that is planned."""
        self._forwards += 1
        if self._forwards == self._raises_at:
            raise self.error

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.gradients.append(gradients_of(self.model))

    def left(self) -> dict[str, str]:
        """Return a digest of each part of what the run leaves."""
        return {
            "parameters": digest_of(dict(self.model.named_parameters())),
            "gradients with which it stepped": digest_of(self.gradients),
            "optimizer state": digest_of([optimizer.state_dict() for optimizer in self.optimizers]),
            "random state": random_state(),
            "modes": digest_of([module.training for module in self.model.modules()]),
            "steps that it logged": digest_of(self.logged),
        }

    def train(self, hooks: Sequence[Any], folder: Path, *, resume: Path | None = None) -> None:
        """Train with these callbacks."""
        raise NotImplementedError

    def checkpoint(self, folder: Path) -> Path:
        """Train for the first epoch without any callback, and return its checkpoint."""
        raise NotImplementedError


def network() -> torch.nn.Module:
    """Return a small network that draws random numbers."""
    import torch

    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Dropout(0.25), torch.nn.Linear(6, 2))


def inputs(batches: int) -> Any:
    """Return the rows of so many batches of two."""
    import torch

    return torch.randn(2 * batches, 4, generator=torch.Generator().manual_seed(7))


def require(package: str, extra: str) -> None:
    """Raise :class:`PackageMissing` unless a package can be found."""
    if find_spec(package) is None:
        raise PackageMissing(package, extra)


@contextmanager
def folder() -> Iterator[Path]:
    """Give a folder that is removed again."""
    with TemporaryDirectory(prefix="conformance-") as path:
        yield Path(path)


class HuggingFaceRun(FrameworkRun):
    """A run of ``transformers.Trainer``."""

    def make_model(self) -> Any:
        """Return a network that gives its loss, as the Trainer wants it."""
        import torch

        run = self

        class Model(torch.nn.Sequential):
            def forward(self, x: Any, labels: Any = None) -> Any:
                if self.training:
                    run.forward_begins()
                logits: Any = super().forward(x)  # type: ignore[no-untyped-call]
                return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

        return Model(*network().children())

    def train(self, hooks: Sequence[Any], folder: Path, *, resume: Path | None = None, **arguments: Any) -> None:
        """Train with these callbacks."""
        import torch
        from transformers import Trainer, TrainerCallback, TrainingArguments

        run = self

        class Listens(TrainerCallback):  # type: ignore[misc]
            def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:
                if "loss" in (logs or {}):
                    run.logged.append(state.global_step)

        data = [{"x": row, "labels": n % 2} for n, row in enumerate(inputs(BATCHES))]
        settings: dict[str, Any] = {
            "output_dir": str(folder),
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": self.window,
            "num_train_epochs": self.epochs,
            "max_grad_norm": CLIP,
            "logging_steps": self.logging,
            "eval_strategy": "steps" if self.evaluate else "no",
            "eval_steps": 2 if self.evaluate else None,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "use_cpu": True,
            **arguments,
        }
        (optimizer,) = self.optimizers
        trainer = Trainer(
            model=self.model,
            args=TrainingArguments(**settings),
            train_dataset=data,
            eval_dataset=data[:4],
            optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)),
            callbacks=[*hooks, Listens()],
        )
        # accelerate collects garbage when training begins; what was imported need not be looked through each time.
        gc.freeze()
        trainer.train(resume_from_checkpoint=None if resume is None else str(resume))

    def checkpoint(self, folder: Path) -> Path:
        """Train for the first epoch without any callback, and return its checkpoint."""
        steps = BATCHES
        self.train([], folder, save_strategy="steps", save_steps=steps, max_steps=steps)
        return folder / f"checkpoint-{steps}"


class LightningRun(FrameworkRun):
    """A run of ``lightning.pytorch.Trainer``."""

    def make_model(self) -> Any:
        """Return a module with automatic optimization."""
        import lightning.pytorch as pl

        run = self

        class Module(pl.LightningModule):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.net = network()

            def training_step(self, batch: Any, batch_idx: int) -> Any:
                run.forward_begins()
                loss = self.net(batch).square().mean()
                self.log("loss", loss)
                return loss

            def validation_step(self, batch: Any, batch_idx: int) -> None:
                self.log("validation", self.net(batch).sum())

            def configure_optimizers(self) -> Any:
                return run.optimizers

        return Module()

    def settings(self) -> dict[str, Any]:
        """Return what only this kind of run gives to the trainer."""
        return {"accumulate_grad_batches": self.window, "gradient_clip_val": CLIP}

    def train(self, hooks: Sequence[Any], folder: Path, *, resume: Path | None = None) -> None:
        """Train with these callbacks."""
        self._fit(hooks, folder, resume)

    def checkpoint(self, folder: Path) -> Path:
        """Train for the first epoch without any callback, and return its checkpoint."""
        self.epochs = 1
        self._fit([], folder, None).save_checkpoint(folder / "one.ckpt")
        return folder / "one.ckpt"

    def _fit(self, hooks: Sequence[Any], folder: Path, resume: Path | None) -> Any:
        import lightning.pytorch as pl
        import torch

        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        trainer = pl.Trainer(
            callbacks=list(hooks),
            logger=_listener(self.logged),
            max_epochs=self.epochs,
            log_every_n_steps=self.logging,
            val_check_interval=2 if self.evaluate else None,
            limit_val_batches=1 if self.evaluate else 0,
            accelerator="cpu",
            devices=1,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=str(folder),
            **self.settings(),
        )
        rows: Any = [list(inputs(batches)) for batches in (BATCHES, 1)]
        loaders = [torch.utils.data.DataLoader(of, batch_size=2) for of in rows]
        trainer.fit(self.model, *loaders, ckpt_path=None if resume is None else str(resume))
        return trainer


class TwoOptimizersRun(LightningRun):
    """Manual optimization: one optimizer steps in every batch, the other one in every second."""

    def make_model(self) -> Any:
        """Return a module with manual optimization."""
        import lightning.pytorch as pl
        import torch

        run = self

        class Module(pl.LightningModule):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.automatic_optimization = False
                self.often, self.seldom = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)

            def training_step(self, batch: Any, batch_idx: int) -> None:
                often, seldom = self.optimizers()
                for optimizer, due in ((often, True), (seldom, batch_idx % 2 == 0)):
                    if due:
                        optimizer.zero_grad()
                        self.manual_backward(self.seldom(self.often(batch)).square().mean())
                        optimizer.step()
                self.log("loss", 1.0)

            def configure_optimizers(self) -> Any:
                return run.optimizers

        return Module()

    def make_optimizers(self) -> list[Any]:
        """Return two optimizers."""
        import torch

        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.model.often, self.model.seldom)]

    def settings(self) -> dict[str, Any]:
        """Return nothing: manual optimization neither accumulates nor clips by itself."""
        return {}


def _listener(logged: list[int]) -> Any:
    """Return a logger of Lightning's that notes the steps under which a loss is logged."""
    from lightning.pytorch.loggers.logger import Logger

    class Listens(Logger):  # type: ignore[misc]
        @property
        def name(self) -> str:
            return "listens"

        @property
        def version(self) -> str:
            return ""

        def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
            """Note nothing."""

        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            if "loss" in metrics and step is not None:
                logged.append(step)

    return Listens()
