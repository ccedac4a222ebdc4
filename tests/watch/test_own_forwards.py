"""A forward that we run beside the training is none of the training, for any session on the model."""

from __future__ import annotations

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.statistics import compute  # noqa: E402
from torchlens_conformance.watch.discovery import everything_restored  # noqa: E402
from torchlens_conformance.watch.own_forwards import _running, is_own_forward, own_forward  # noqa: E402

from .helpers import batch, by_tag, small_model  # noqa: E402

WAYS: dict[str, dict[str, Any]] = {
    "modules": {"select": "3"},
    "operations": {"grain": "op", "allow_forward_wrap": True, "select": "3"},
}
LEAVES = {"modules": "3", "operations": "linear_2_4"}


def attach(model: Any, sink: Any, way: str, **options: Any) -> Any:
    """Attach in one of the ways."""
    given: dict[str, Any] = {"signals": ("activations",), "inputs": batch(9), "every": 1, **WAYS[way], **options}
    return trk.watch(model, sink, **given)


def assert_first_forward(sink: Any, way: str, output: Any, step: int = 0) -> None:
    """The rows are those of one forward, which gave ``output``."""
    rows, leaf = by_tag(sink), LEAVES[way]
    assert rows[f"activations/calls/{leaf}"] == {step: 1}
    assert rows[f"activations/count/{leaf}"] == {step: output.numel()}
    assert rows[f"activations/norm/{leaf}"] == {step: compute(output).norm}


@pytest.mark.filterwarnings("ignore::torchlens_conformance.trackers.WatchOpGrainCostWarning")
@pytest.mark.parametrize("second", list(WAYS))
@pytest.mark.parametrize("scoped", [True, False])
@pytest.mark.parametrize("way", list(WAYS))
def test_an_attach_in_an_open_step_is_no_forward_of_it(way: str, scoped: bool, second: str) -> None:
    """Discovery and calibration of a second session, before and after the first one's forward (TIER-1, TIER-2)."""
    for before in (True, False):
        model, sink = small_model(), trk.MemorySink()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        first = attach(model, sink, way) if scoped else attach(model, sink, way, step=lambda: 0, optimizer=optimizer)
        scope = first.step(0) if scoped else None
        if scope is not None:
            scope.__enter__()
        if before:
            other = attach(model, trk.MemorySink(), second, name="second")
        output = model(batch(0))
        if not before:
            other = attach(model, trk.MemorySink(), second, name="second")
        output.sum().backward()
        optimizer.step()
        if scope is not None:
            scope.__exit__(None, None, None)
        assert first.close().skip_counts == {}
        assert_first_forward(sink, way, output.detach())
        with other.step(0):
            model(batch(0))
        other.close()


@pytest.mark.filterwarnings("ignore::torchlens_conformance.trackers.WatchOpGrainCostWarning")
@pytest.mark.parametrize("way", list(WAYS))
def test_a_session_on_a_part_holds_off_too(way: str) -> None:
    """While a forward of ours runs on the whole, or calls it from outside of its modules (TIER-1)."""
    part = small_model()

    class Hides(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = [part]

        def forward(self, x: Any) -> Any:
            return self.hidden[0](x)

    for whole in (nn.Sequential(part), Hides()):
        sink = trk.MemorySink()
        first = attach(part, sink, way)
        with first.step(0):
            with everything_restored(whole), torch.no_grad():
                whole(batch(1))
            output = whole(batch(0))
        assert_first_forward(sink, way, output.detach())
        first.close()


def test_a_mark_is_of_the_model_and_of_the_thread() -> None:
    """Nested marks end one by one, also when the forward raises; other models in other threads train on."""
    model, other = small_model(), small_model()
    seen: dict[str, bool] = {}

    def look() -> None:
        seen.update(model=is_own_forward(model[0]), other=is_own_forward(other))

    with own_forward(model):
        with pytest.raises(KeyError), own_forward(model):
            raise KeyError
        assert is_own_forward(model) and is_own_forward(model[0]) and is_own_forward(other)
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert seen == {"model": True, "other": False}
    assert not is_own_forward(model) and not _running


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("watch_first", [True, False])
def test_callbacks_with_forwards_of_their_own_count_for_nothing(way: str, watch_first: bool, tmp_path: Any) -> None:
    """Lightning, in both orders of the callbacks: the rows are those of the training's one forward (CB-3, CB-4)."""
    pl = pytest.importorskip("lightning.pytorch")
    given: list[Any] = []

    class Net(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body = small_model(dropout=0.5)

        def forward(self, x: Any) -> Any:
            return self.body(x)

        def training_step(self, batch: Any, number: int) -> Any:
            given.append(self(batch[0]))
            return given[-1].square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    sink = trk.MemorySink()
    leaf = {"modules": "body", "operations": "dropout_1_3"}[way]
    options = {**WAYS[way], "select": "body" if way == "modules" else trk.func("dropout")}
    watch = trk.LightningWatchCallback(
        to=sink, print_fn=lambda line: None, every=1, signals=("activations",), inputs=batch(9), **options
    )
    structure = pytest.importorskip("torchlens_conformance.callbacks.lightning")
    summary = structure.SummaryCallback(print_fn=lambda table: None)
    others = [summary, structure.LayerProfilerCallback(tmp_path / "layers.jsonl")]
    callbacks = [watch, *others] if watch_first else [*others, watch]
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.cat([batch(0), batch(1)])), batch_size=5)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", devices=1, callbacks=callbacks, **quiet)
    trainer.fit(Net(), data)
    rows = by_tag(sink)
    assert watch.report.skip_counts == {} and watch.report.sampled_steps == 2 and len(given) == 2
    assert rows[f"activations/calls/{leaf}"] == {0: 1, 1: 1}
    if way == "modules":
        norms = {n: compute(output.detach()).norm for n, output in enumerate(given)}
        assert rows[f"activations/norm/{leaf}"] == norms
    else:
        assert all(share > 0.25 for share in rows[f"activations/zero_fraction/{leaf}"].values())
