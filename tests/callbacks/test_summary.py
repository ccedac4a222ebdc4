"""The summary of awkward Lightning modules: the total is the number of parameters, whatever shares or hides them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lightning")

import lightning.pytorch as pl  # noqa: E402
from torch import nn  # noqa: E402

from tests.graph.awkward import MODELS  # noqa: E402
from torchlens_conformance.callbacks.extra_forward import CallbackWarning  # noqa: E402
from torchlens_conformance.callbacks.lightning import SummaryCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore:.*dataloader.*")


class Holds(pl.LightningModule):
    """Trains one of the awkward models on the mean square of its output."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.net = MODELS[name]()
        # Of its own, beside children.
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, x: Any) -> Any:
        """Run the model."""
        return self.net(x) + self.shift

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Return the loss."""
        return self(batch).square().mean()

    def configure_optimizers(self) -> Any:
        """Return SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(name: str, callbacks: list[Any], *, kind: Any = Holds) -> Any:
    """Fit a fresh module for three batches and return it."""
    torch.manual_seed(0)
    module = kind(name)
    data = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    options: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", devices=1, enable_model_summary=False, callbacks=callbacks, **options
    )
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=2))
    return module


def total_in(table: str) -> int:
    """Return the total that a table states."""
    (number,) = re.findall(r"^([\d,.]+)\s+Total params", table, re.MULTILINE)
    return int(number.replace(",", ""))


@pytest.mark.parametrize("depth", [1, -1])
@pytest.mark.parametrize("name", MODELS)
def test_the_total_is_the_number_of_parameters(name: str, depth: int) -> None:
    """Report 40: shared, tied, own, unused and lazy parameters count once each, at every depth (CB-4)."""
    printed: list[str] = []
    callback = SummaryCallback(depth=depth, print_fn=printed.append)
    module = fit(name, [callback])
    (table,) = printed
    assert total_in(table) == sum(parameter.numel() for parameter in module.parameters()) > 0
    assert callback.trace_mode == "executed" and "In sizes" in table
    assert table.splitlines()[-1] == "trace_mode executed: The forward ran on real values."


@pytest.mark.parametrize("name", MODELS)
def test_training_does_not_notice(name: str) -> None:
    """Report 40: lazy parameters and data-dependent forwards end with the bits of the plain run (CB-4)."""
    ends = []
    for callbacks in ([], [SummaryCallback(print_fn=lambda text: None)]):
        module = fit(name, callbacks)
        ends.append([*module.state_dict().values(), torch.get_rng_state()])
    assert all(torch.equal(one, other) for one, other in zip(*ends))


def test_a_forward_that_fails_falls_back_and_says_so() -> None:
    """Report 40: without sizes the table has the same total, and trace_mode is ``structure`` (CB-4)."""

    class Rejects(Holds):
        def forward(self, x: Any) -> Any:
            if not self.training:
                raise ValueError("only for training")
            return super().forward(x)

    printed: list[str] = []
    callback = SummaryCallback(print_fn=printed.append)
    with pytest.warns(CallbackWarning, match="lightning_summary_skipped.*only for training"):
        module = fit("owner", [callback], kind=Rejects)
    assert callback.trace_mode == "structure" and "In sizes" not in printed[0]
    assert total_in(printed[0]) == sum(parameter.numel() for parameter in module.parameters())
    assert printed[0].splitlines()[-1].startswith("trace_mode structure")


@pytest.mark.filterwarnings("ignore:.*UninitializedParameter.*", "ignore:The total number of parameters.*")
def test_a_lazy_layer_that_training_never_fills_stays_lazy() -> None:
    """Report 40: the summary fills no parameter that training leaves alone; it counts as nothing and is told (CB-4)."""

    class Never(Holds):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.never = nn.LazyLinear(3)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.net.parameters(), lr=0.1)

    printed: list[str] = []
    callback = SummaryCallback(print_fn=printed.append)
    with pytest.warns(CallbackWarning, match="lazy"):
        module = fit("owner", [callback], kind=Never)
    assert nn.parameter.is_lazy(module.never.weight) and callback.trace_mode == "structure"
    known = sum(parameter.numel() for parameter in module.parameters() if not nn.parameter.is_lazy(parameter))
    assert total_in(printed[0]) == known


BIG = """
import resource
import sys
from types import SimpleNamespace
import lightning.pytorch as pl
import torch
from torchlens_conformance.callbacks.lightning import SummaryCallback

class Net(pl.LightningModule):
    def __init__(self, width):
        super().__init__()
        self.body = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(8)])
        self.example_input_array = torch.empty(65536, width, device=self.body[0].weight.device)

    def forward(self, x):
        return self.body(x)

def summarize(width):
    with torch.device("meta"):
        module = Net(width)
    callback = SummaryCallback(print_fn=lambda text: None if width < 9 else print(text, file=sys.stderr))
    callback.on_fit_start(SimpleNamespace(is_global_zero=True), module)
    return callback.trace_mode, sum(p.numel() for p in module.parameters()), all(p.is_meta for p in module.parameters())

summarize(8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(*summarize(32768), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no peak of memory to read")
def test_a_meta_module_needs_no_memory() -> None:
    """Report 40: 34 GB of parameters on meta have their table, with sizes, in a few MB (CB-4)."""
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", BIG]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    mode, total, on_meta, growth = told.stdout.split()
    assert (mode, int(total), on_meta) == ("meta", 8 * (32768 * 32768 + 32768), "True")
    assert int(growth) < 64 and "[65536, 32768]" in told.stderr
    assert re.search(r"^8\.6 B\s+Total params", told.stderr, re.MULTILINE)
