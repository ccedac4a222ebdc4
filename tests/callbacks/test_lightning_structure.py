"""The summary and the profile of a real Lightning module: right totals, and a training that does not notice."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lightning")

import lightning.pytorch as pl  # noqa: E402
import numpy as np  # noqa: E402
from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.callbacks.extra_forward import CallbackWarning, forward_inputs  # noqa: E402
from torchlens_conformance.callbacks.lightning import (  # noqa: E402
    LayerProfilerCallback,
    LightningWatchCallback,
    SummaryCallback,
)
from torchlens_conformance.kit.engine.scenarios.case import hook_census  # noqa: E402
from torchlens_conformance.protocol import Refusal  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore:.*dataloader.*")


class Net(pl.LightningModule):
    """Dropout, batch statistics, a shared layer, and draws random numbers in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.norm, self.drop, self.head = (
            nn.Linear(4, 4),
            nn.BatchNorm1d(4),
            nn.Dropout(0.5),
            nn.Linear(4, 2),
        )
        self.alias = self.shared

    def forward(self, x: Any) -> Any:
        """Run the shared layer twice."""
        hidden = self.shared(self.drop(self.norm(self.shared(x))))
        return self.head(hidden + 0.01 * torch.randn_like(hidden))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Return the loss."""
        x = batch["x"] if isinstance(batch, dict) else batch[0]
        return self(x).square().mean()

    def configure_optimizers(self) -> Any:
        """Return SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def fit(callbacks: list[Any], *, kind: Any = Net, batch: Any = None, epochs: int = 2) -> Any:
    """Fit a fresh net and return it."""
    pl.seed_everything(0, verbose=False)
    module = kind()
    data = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    collate = batch or (lambda rows: (torch.stack(rows), torch.zeros(len(rows))))
    loader = torch.utils.data.DataLoader(list(data), batch_size=2, collate_fn=collate)
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
    )
    trainer.fit(module, loader)
    return module


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a profile."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


OPERATIONS: dict[str, Any] = {"grain": "op", "allow_forward_wrap": True, "select": trk.func("linear")}
WATCHES: dict[str, dict[str, Any]] = {
    "boundary": {"signals": ("gradients", "parameters", "updates")},
    "discovery": {"signals": ("gradients", "activations"), "select": ("shared", "norm"), "inputs": torch.zeros(2, 4)},
    "calibration": {"signals": ("activations",), "inputs": torch.zeros(2, 4), **OPERATIONS},
}
"""What a watch beside the structure callbacks is asked: the second and the third run forwards when they attach."""


@pytest.mark.filterwarnings("ignore:watch_op_grain_cost_disclosed")
@pytest.mark.parametrize("watch", ["none", *WATCHES])
def test_training_does_not_notice(tmp_path: Path, watch: str) -> None:
    """A seeded run with summary, profile and a watch ends bit-identical to the plain one (CB-1, CB-3, CB-4, TIER-1)."""
    path, ends = tmp_path / "rows.jsonl", []
    sink = trk.MemorySink()
    structure = [SummaryCallback(print_fn=lambda text: None), LayerProfilerCallback(path)]
    if watch in WATCHES:
        structure.append(LightningWatchCallback(to=sink, print_fn=str, every=1, hist_every=2, **WATCHES[watch]))
    for callbacks in ([], structure):
        module = fit(callbacks)
        (optimizer,) = module.trainer.optimizers
        momenta = [state["momentum_buffer"] for state in optimizer.state.values()]
        states = [torch.get_rng_state(), torch.tensor(hash(random.getstate()) % 2**31), torch.tensor(np.random.rand())]
        ends.append([*module.state_dict().values(), *momenta, *states])
        assert module.example_input_array is None and all(part.training for part in module.modules())
    assert all(torch.equal(one, other) for one, other in zip(*ends))
    assert rows_of(path) and bool(sink.scalars) == (watch in WATCHES)
    calibrated = "torchlens/run/op_grain_overhead_median_x" in {point.tag for point in sink.scalars}
    assert calibrated == (watch == "calibration")


def test_the_summary_is_printed_once_with_sizes() -> None:
    """Report 40: one table a fit, with sizes from the first batch, and shared weights counted once (CB-4)."""
    printed: list[str] = []
    module = fit([SummaryCallback(depth=-1, print_fn=printed.append)])
    (table,) = printed
    assert "shared" in table and "[2, 4]" in table and "In sizes" in table
    total = sum(parameter.numel() for parameter in module.parameters())
    assert f"{total} " in table.split("Total params")[0].splitlines()[-1]


def test_an_example_of_the_module_is_taken_at_the_start() -> None:
    """A module with an example input is summarised with it, before any batch (CB-4)."""

    class WithExample(Net):
        def __init__(self) -> None:
            super().__init__()
            self.example_input_array = torch.zeros(7, 4)

    printed: list[str] = []
    module = fit([SummaryCallback(print_fn=printed.append)], kind=WithExample)
    assert "[7, 4]" in printed[0] and len(printed) == 1
    assert module.example_input_array.shape == (7, 4)


@pytest.mark.parametrize(
    ("batch", "getter", "arguments", "keywords"),
    [
        ((1, 2), None, (1,), {}),
        ([1, 2], None, (1,), {}),
        ({"x": 1}, None, (1,), {}),
        ({"x": 1, "y": 2}, None, (), {"x": 1, "y": 2}),
        (1, None, (1,), {}),
        ({"deep": (1, 2)}, lambda batch: batch["deep"], (1, 2), {}),
        ((1, 2), lambda batch: {"x": batch[1]}, (), {"x": 2}),
        ((1, 2), lambda batch: batch[1], (2,), {}),
    ],
)
def test_forms_of_a_batch(batch: Any, getter: Any, arguments: Any, keywords: Any) -> None:
    """The usual forms of a batch find their way into the forward, and a getter for every other (CB-4)."""
    assert forward_inputs(batch, getter) == (arguments, keywords)


def test_a_batch_that_the_forward_rejects_is_skipped(tmp_path: Path) -> None:
    """Training goes on, with one warning a callback that names it; modes are as they were (CB-3, CB-4)."""

    def batch(rows: list[Any]) -> dict[str, Any]:
        return {"x": torch.stack(rows), "labels": torch.zeros(len(rows))}

    printed: list[str] = []
    callbacks = [SummaryCallback(print_fn=printed.append), LayerProfilerCallback(tmp_path / "rows.jsonl")]
    with pytest.warns(CallbackWarning) as warned:
        module = fit(callbacks, batch=batch, epochs=1)
    assert [w.message.code for w in warned if isinstance(w.message, CallbackWarning)] == [
        "lightning_summary_skipped",
        "lightning_profile_skipped",
    ]
    assert len(printed) == 1 and "shared" in printed[0] and "In sizes" not in printed[0]
    assert rows_of(tmp_path / "rows.jsonl") == [] and all(part.training for part in module.modules())
    assert hook_census(module) == {}


def test_a_getter_makes_another_batch_fit(tmp_path: Path) -> None:
    """With ``input_getter=`` the same batch is profiled (CB-3)."""
    profiler = LayerProfilerCallback(tmp_path / "rows.jsonl", input_getter=lambda batch: batch["x"])
    fit([profiler], batch=lambda rows: {"x": torch.stack(rows), "labels": None}, epochs=1)
    assert {row["layer"] for row in rows_of(tmp_path / "rows.jsonl")} >= {"shared", "norm", "head"}


def test_rows_of_every_epoch_carry_run_and_disclosure(tmp_path: Path) -> None:
    """Each row has the run, the epoch, and says from what it comes; the id is fresh at every setup, or fixed (CB-3)."""
    path = tmp_path / "rows.jsonl"
    profiler = LayerProfilerCallback(path, every_n_epochs=2)
    fit([profiler], epochs=3)
    first = rows_of(path)
    assert [row["epoch"] for row in first if row["layer"] == "head"] == [0, 2]
    assert all("eval mode under no_grad" in row["disclosure"] and row["host_seconds"] > 0 for row in first)
    shared = next(row for row in first if row["layer"] == "shared")
    assert (len(shared["operations"]), shared["class"], shared["own_parameters"]) == (2, "Linear", 20)
    fit([profiler], epochs=1)
    fit([LayerProfilerCallback(path, run_id="mine")], epochs=1)
    ids = list(dict.fromkeys(row["run_id"] for row in rows_of(path)))
    assert len(ids) == 3 and ids[-1] == "mine"


def test_a_place_that_cannot_be_written_is_refused_at_setup(tmp_path: Path) -> None:
    """A file that cannot be written refuses before the first batch (CB-3)."""
    (tmp_path / "file").write_text("")
    with pytest.raises(Refusal) as caught:
        fit([LayerProfilerCallback(tmp_path / "file" / "rows.jsonl")])
    assert caught.value.code == "tracker_sink_write_failed"


def test_a_place_that_is_lost_later_ends_no_training(tmp_path: Path) -> None:
    """A profile that cannot be written any more is skipped with a warning, and training goes on (CB-3)."""

    class Loses(pl.Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            (tmp_path / "rows.jsonl").unlink()
            (tmp_path / "rows.jsonl").mkdir()

    with pytest.warns(CallbackWarning, match="lightning_profile_skipped") as warned:
        module = fit([LayerProfilerCallback(tmp_path / "rows.jsonl"), Loses()], epochs=2)
    assert len([w for w in warned if isinstance(w.message, CallbackWarning)]) == 2
    assert module.trainer.global_step == 8


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *[("every_n_epochs", value) for value in (0, -1, "a", 1.5, True, None)],
        *[("path", value) for value in (None, 3, b"rows.jsonl", "", "a\0b")],
        *[("run_id", value) for value in (5, "")],
        ("input_getter", "x"),
    ],
)
def test_a_bad_setting_of_the_profile_is_refused_at_once(tmp_path: Path, setting: str, value: Any) -> None:
    """A setting that a profile could not follow refuses when the callback is made, not inside a fit (CB-3)."""
    arguments = {"path": tmp_path / "rows.jsonl", setting: value}
    with pytest.raises(Refusal) as caught:
        LayerProfilerCallback(arguments.pop("path"), **arguments)
    assert (caught.value.code, caught.value.fields["setting"]) == ("watch_settings_invalid", setting)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [*[("depth", value) for value in (-2, "x", 1.0, True, None)], ("print_fn", None), ("input_getter", 1)],
)
def test_a_bad_setting_of_the_summary_is_refused_at_once(setting: str, value: Any) -> None:
    """A setting that a summary could not follow refuses when the callback is made, not inside a fit (CB-4)."""
    with pytest.raises(Refusal) as caught:
        SummaryCallback(**{setting: value})
    assert (caught.value.code, caught.value.fields["setting"]) == ("watch_settings_invalid", setting)


@pytest.mark.parametrize("depth", [-1, 0, 3])
def test_every_depth_that_is_taken_gives_a_table(depth: int) -> None:
    """Each depth that the constructor takes has its table (CB-4)."""
    printed: list[str] = []
    fit([SummaryCallback(depth=depth, print_fn=printed.append)], epochs=1)
    assert len(printed) == 1 and "Total params" in printed[0] and ("shared" in printed[0]) == (depth != 0)
