"""The watch callback inside a real Lightning trainer."""

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
from reference_sinks.readers import read_jsonl, read_tensorboard  # noqa: E402
from torchlens_conformance.callbacks.lightning import LightningWatchCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

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

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log something."""
        self.log("val", self(batch[0]).sum())

    def configure_optimizers(self) -> Any:
        """Return SGD."""
        self.optimizer = Oracle(self.parameters(), lr=0.1, momentum=0.9)
        self.optimizer.watched = self.body.weight
        return self.optimizer


class Adversarial(pl.LightningModule):
    """Manual optimization: D steps in every batch, G in every second one."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.g, self.d = nn.Linear(4, 4), nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Step one optimizer, or both."""
        g, d = self.optimizers()
        for optimizer, due in ((d, True), (g, batch_idx % 2 == 0)):
            if due:
                optimizer.zero_grad()
                self.manual_backward(self.d(self.g(batch[0])).square().mean())
                optimizer.step()
        self.log("loss", 1.0)

    def configure_optimizers(self) -> Any:
        """Return two optimizers."""
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.g, self.d)]


def loader(batches: int = BATCHES) -> Any:
    """Return data of so many batches."""
    data = torch.randn(2 * batches, 4, generator=torch.Generator().manual_seed(0))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=2)


def fit(folder: Path, module: Any, callbacks: list[Any], *, checkpoint: Any = None, **arguments: Any) -> pl.Trainer:
    """Fit for two epochs on the CPU."""
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
    trainer.fit(module, loader(), loader(2), ckpt_path=checkpoint)
    return trainer


def fresh(kind: Any) -> Any:
    """Return a module with the same weights every time."""
    torch.manual_seed(0)
    return kind()


def quiet(sink: Any, **keywords: Any) -> LightningWatchCallback:
    """Return a callback that prints nothing."""
    return LightningWatchCallback(to=sink, print_fn=lambda line: None, **keywords)


def series(sink: trk.MemorySink, tag: str) -> dict[int, Any]:
    """Return one series by step."""
    return {point.step: point.value for point in sink.scalars if point.tag == tag}


def test_rows_lie_on_the_axis_of_the_loggers(tmp_path: Path) -> None:
    """Lightning's own TensorBoard log and ours have the same steps and the same number of them (CB-1)."""
    lines: list[str] = []
    callback = LightningWatchCallback(to=trk.TensorBoardSink(tmp_path / "ours"), print_fn=lines.append)
    logger = TensorBoardLogger(str(tmp_path), name="own", version="")
    fit(tmp_path, fresh(Automatic), [callback], logger=logger)
    logged = [p.step for p in read_tensorboard(tmp_path / "own") if isinstance(p, trk.ScalarPoint) and p.tag == "loss"]
    ours = [
        p.step
        for p in read_tensorboard(tmp_path / "ours")
        if isinstance(p, trk.ScalarPoint) and p.tag == "gradients/norm/head.bias"
    ]
    assert logged == ours == list(range(2 * BATCHES))
    assert "watch every = 1 [derived: log_every_n_steps=1]" in lines


def test_two_optimizers_do_not_double_the_axis(tmp_path: Path) -> None:
    """Report 32: manual optimization of two optimizers counts batches, and names the one that did not step (CB-1)."""
    sink = trk.MemorySink()
    callback = quiet(sink, every=1)
    logger = TensorBoardLogger(str(tmp_path), name="own", version="")
    trainer = fit(tmp_path, fresh(Adversarial), [callback], logger=logger)
    assert trainer.global_step == 3 * BATCHES
    logged = [p.step for p in read_tensorboard(tmp_path / "own") if isinstance(p, trk.ScalarPoint) and p.tag == "loss"]
    assert list(series(sink, "gradients/norm/d.weight")) == logged == list(range(2 * BATCHES))
    assert list(series(sink, "gradients/norm/g.weight")) == list(range(0, 2 * BATCHES, 2))
    assert callback.report is not None and callback.report.skip_counts == {"optimizer_not_stepped": BATCHES}


@pytest.mark.parametrize("every", [3, 5])
def test_an_odd_cadence_fires_under_two_optimizers(tmp_path: Path, every: int) -> None:
    """Report 32: with two steps a batch a cadence still fires about every n batches, never never (CB-1)."""
    sink = trk.MemorySink()
    fit(tmp_path, fresh(Adversarial), [quiet(sink, every=every)])
    steps = list(series(sink, "gradients/norm/d.weight"))
    assert [step for step in steps if step % every == 0] == list(range(0, 2 * BATCHES, every))


def test_accumulated_batches_count_once(tmp_path: Path) -> None:
    """With accumulation there is one row an optimizer step, the short last window included (CB-1)."""
    sink, module = trk.MemorySink(), fresh(Automatic)
    trainer = fit(tmp_path, module, [quiet(sink, every=1)], accumulate_grad_batches=4, gradient_clip_val=0.01)
    norms = series(sink, "gradients/norm/body.weight")
    assert len(norms) == trainer.global_step == 4
    assert list(norms) == [0, 1, 2, 3]
    total = [sum(series(sink, f"gradients/norm/{n}")[s] ** 2 for n, _ in module.named_parameters()) for s in norms]
    assert all(value**0.5 <= 0.01 + 1e-6 for value in total)


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
    """Raises in the fourth batch."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Raise."""
        if batch_idx == 3:
            raise ArithmeticError("mine")


def test_a_fit_that_raises_keeps_what_was_seen(tmp_path: Path) -> None:
    """When the loop raises, the session is closed with its report, and the exception goes on as it is (CB-1)."""
    sink = trk.MemorySink()
    callback = quiet(sink, every=1)
    with pytest.raises(ArithmeticError, match="mine"):
        fit(tmp_path, fresh(Automatic), [callback, Breaks()])
    assert callback.report is not None and callback.session is None
    assert list(series(sink, "gradients/norm/head.bias")) == [0, 1, 2, 3]
