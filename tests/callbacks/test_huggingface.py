"""The watch callback inside a real transformers.Trainer."""

from __future__ import annotations

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
from torchlens_conformance.protocol import Refusal  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

BATCHES, WINDOW, EPOCHS = 7, 2, 2
STEPS = EPOCHS * 4


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


def train(folder: Path, callbacks: list[Any], *, resume: Any = None, **arguments: Any) -> tuple[Trainer, Oracle]:
    """Train with a window of two batches, seven batches an epoch, two epochs."""
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
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(**settings),
        train_dataset=rows(2 * BATCHES),
        eval_dataset=rows(4),
        optimizers=(optimizer, scheduler),
        callbacks=callbacks,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer, optimizer


def series(sink: trk.MemorySink, tag: str) -> dict[int, Any]:
    """Return one series by step."""
    return {point.step: point.value for point in sink.scalars if point.tag == tag}


def test_rows_are_those_of_each_optimizer_step(tmp_path: Path) -> None:
    """Report 33: one row an optimizer step, short windows included, post-clip, at global_step + 1 (CB-1, STEP-9)."""
    sink = trk.MemorySink()
    callback = HFTrainerWatchCallback(to=sink, every=1, print_fn=lambda line: None)
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


def test_rows_lie_on_the_log_axis(tmp_path: Path) -> None:
    """The Trainer's own TensorBoard log and ours have the same steps when the cadence is derived (CB-1, STEP-9)."""
    lines: list[str] = []
    own, ours = tmp_path / "own", tmp_path / "ours"
    callback = HFTrainerWatchCallback(to=trk.TensorBoardSink(ours), print_fn=lines.append)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSORBOARD_LOGGING_DIR", str(own))
        train(tmp_path, [callback], report_to="tensorboard")
    logged = [p.step for p in read_tensorboard(own) if isinstance(p, trk.ScalarPoint) and p.tag == "train/loss"]
    rows_of = [
        p.step for p in read_tensorboard(ours) if isinstance(p, trk.ScalarPoint) and p.tag == "gradients/norm/head.bias"
    ]
    assert logged == [2, 4, 6, 8]
    # The first step is always sampled.
    assert rows_of == [1, *logged]
    assert "watch every = 2 [derived: logging_steps=2]" in lines


@pytest.mark.parametrize(
    ("arguments", "every", "source"),
    [
        ({"logging_steps": 0.25}, 2, "[derived: logging_steps=2]"),
        ({"logging_strategy": "no"}, 1, "[derived: about 100 points of 8 steps]"),
        ({"max_steps": 4, "logging_steps": 3}, 3, "[derived: logging_steps=3]"),
    ],
    ids=["ratio", "no-logging", "max-steps"],
)
def test_the_cadence_is_derived(tmp_path: Path, arguments: dict[str, Any], every: int, source: str) -> None:
    """A ratio of logging_steps is resolved; without logging the length of the run decides (CB-1)."""
    callback = HFTrainerWatchCallback(to=trk.MemorySink(), print_fn=lambda line: None)
    train(tmp_path, [callback], **arguments)
    assert callback.settings is not None
    assert (callback.settings.every, callback.settings.sources["every"]) == (every, source)


@pytest.mark.parametrize("bf16", [False, True])
def test_training_is_bit_identical(tmp_path: Path, bf16: bool) -> None:
    """A watched and an unwatched run end with the same bits, evaluations in the middle included (CB-1)."""
    arguments: dict[str, Any] = {"bf16": bf16, "eval_strategy": "steps", "eval_steps": 3}
    _, plain = train(tmp_path / "plain", [], **arguments)
    sink = trk.MemorySink()
    signals = ("gradients", "parameters", "updates")
    watching = HFTrainerWatchCallback(to=sink, signals=signals, every=1, hist_every=1, print_fn=lambda line: None)
    _, watched = train(tmp_path / "watched", [watching], **arguments)
    for one, other in zip(plain.model.parameters(), watched.model.parameters()):
        assert torch.equal(one, other)
    assert all(torch.equal(a[name], b[name]) for a, b in zip(plain.seen, watched.seen) for name in a)
    assert len(series(sink, "updates/norm/body.weight")) == STEPS


def test_a_resumed_run_begins_a_new_segment(tmp_path: Path) -> None:
    """Report 33: training resumed from a checkpoint goes on along the axis, in a segment of its own (CB-1, STEP-8)."""
    path = tmp_path / "run.jsonl"
    quiet = {"every": 1, "print_fn": lambda line: None}
    first = HFTrainerWatchCallback(to=trk.JSONLSink(path), **quiet)
    train(tmp_path, [first], save_strategy="steps", save_steps=3, max_steps=6)
    second = HFTrainerWatchCallback(to=trk.JSONLSink(path, resume=True), **quiet)
    train(tmp_path, [second], resume=str(tmp_path / "checkpoint-3"), max_steps=8)
    from reference_sinks.readers import read_jsonl

    points = [point for point in read_jsonl(path) if isinstance(point, trk.ScalarPoint)]
    steps = [point.step for point in points if point.tag == "gradients/norm/head.bias"]
    assert steps == [1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8]
    assert [point.step for point in points if point.tag == "torchlens/run/segment"] == [4]


class Breaks(TrainerCallback):  # type: ignore[misc]
    """Raises at a step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Raise."""
        if state.global_step == 3:
            raise ArithmeticError("mine")


def test_a_run_that_raises_keeps_what_was_seen(tmp_path: Path) -> None:
    """Around train() the callback closes its session, and the exception goes on as it is (CB-1, CLOSE-1)."""
    sink = trk.MemorySink()
    callback = HFTrainerWatchCallback(to=sink, every=1, print_fn=lambda line: None)
    with pytest.raises(ArithmeticError, match="mine"), callback:
        train(tmp_path, [callback, Breaks()])
    assert callback.report is not None and callback.session is None
    assert list(series(sink, "gradients/norm/head.bias")) == [1, 2, 3]


def test_a_malformed_variable_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A malformed variable refuses when the callback is made, before anything is set up (CB-2)."""
    monkeypatch.setenv("TORCHLENS_WATCH_EVERY", "often")
    with pytest.raises(Refusal) as caught:
        HFTrainerWatchCallback(to=trk.MemorySink())
    assert caught.value.fields["variable"] == "TORCHLENS_WATCH_EVERY"


def test_no_variable_turns_watching_off_but_the_kill_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With TORCHLENS_WATCH_DISABLE=1 nothing is collected, and a row says so (ENV-1)."""
    monkeypatch.setenv("TORCHLENS_WATCH_DISABLE", "1")
    sink = trk.MemorySink()
    train(tmp_path, [HFTrainerWatchCallback(to=sink, every=1, print_fn=lambda line: None)])
    assert {point.tag for point in sink.scalars} == {"torchlens/run/disabled"}
