"""The table of a model, and shapes without computing: right totals, honest about where they come from, no memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from torchlens_conformance.graph import build_graph_ir, record_shapes, summarize_model  # noqa: E402
from torchlens_conformance.protocol import Refusal  # noqa: E402
from torchlens_conformance.watch.operations import TRACE_MODES, record_forward  # noqa: E402

from .awkward import FORWARD, MODELS, ReadsNumber, Stack  # noqa: E402
from .nets import CASES, Batch, DictNet  # noqa: E402


def make(name: str) -> nn.Module:
    """Return a model with the same weights every time."""
    torch.manual_seed(0)
    model: nn.Module = MODELS[name]()
    return model


def elements(model: nn.Module) -> int:
    """Return what the totals have to be."""
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_the_total_is_the_number_of_parameters(name: str) -> None:
    """Report 40: shared, tied, own and unused parameters count once, in the table and in the graph (GRAPH-1)."""
    model = make(name)
    summary = summarize_model(model, torch.ones(2, 4))
    assert summary.total == elements(model) == sum(row.own for row in summary.rows)
    assert summary.lazy == () and summary.trainable == summary.total
    for record in (record_forward, record_shapes):
        ir = build_graph_ir(record(model, torch.ones(2, 4)))
        assert ir.parameters == elements(model)
        held = [node for node in ir.nodes if node.op == "Parameter"]
        assert {node.name.replace("/", ".") for node in held} == {path for path, _ in model.named_parameters()}
        sizes = [torch.Size(map(int, node.attributes["shape"].split("x"))).numel() for node in held]
        assert sum(sizes) == elements(model)


@pytest.mark.parametrize("depth", [0, 1, 2, -1])
@pytest.mark.parametrize("name", MODELS)
def test_folding_and_depth_change_no_total(name: str, depth: int) -> None:
    """Report 40: ``xN`` rows hold what their N modules hold; totals are those of the open table (GRAPH-1)."""
    model = make(name)
    folded, flat = (summarize_model(model, torch.ones(2, 4), fold=fold, depth=depth) for fold in (True, False))
    for summary in (folded, flat):
        assert sum(row.own for row in summary.rows) == summary.total == elements(model)
    assert all(row.times == 1 for row in flat.rows) and len(folded.rows) <= len(flat.rows)


def test_modules_that_are_built_alike_fold() -> None:
    """Report 40: six like blocks are one row, a part that two share counts once (GRAPH-1)."""
    summary = summarize_model(Stack(), torch.ones(2, 4))
    assert [(row.path, row.kind, row.times, row.own) for row in summary.rows] == [
        ("", "Stack", 1, 0),
        ("blocks", "Sequential", 1, 0),
        ("blocks.0", "Sequential", 6, 0),
        ("blocks.0.0", "Linear", 5, 5 * 20 - 16),
        ("blocks.0.1", "Tanh", 6, 0),
        ("blocks.6", "Linear", 1, 20),
    ]
    table = summary.format()
    assert "    0 x6 " in table and f"total {summary.total}, trainable {summary.total}" in table


def test_another_setting_is_no_like_module() -> None:
    """Neighbours of one class that differ in a setting, a width or in what trains stay apart (GRAPH-1)."""
    model = nn.Sequential(nn.Dropout(0.1), nn.Dropout(0.2), nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 3))
    model[3].weight.requires_grad_(False)
    summary = summarize_model(model)
    assert [row.times for row in summary.rows] == [1] * 6
    assert (summary.total, summary.trainable) == (21, 17)


@pytest.mark.parametrize("name", MODELS)
def test_a_forward_that_needs_values_falls_back(name: str) -> None:
    """Report 40: without values where that goes, for real where it does not, and trace_mode says so (GRAPH-1)."""
    trace = record_shapes(make(name), torch.ones(2, 4))
    summary = summarize_model(make(name), torch.ones(2, 4))
    assert trace.trace_mode == summary.trace_mode == FORWARD[name]
    assert f"trace_mode {FORWARD[name]}: {TRACE_MODES[FORWARD[name]]}" in summary.format()
    fell_back = [note for note in trace.unseen if note.startswith("the forward ran for real, since ")]
    assert len(fell_back) == (FORWARD[name] == "executed") and set(fell_back) <= set(summary.notes)
    ir = build_graph_ir(trace)
    assert ir.trace_mode == trace.trace_mode == ir.nodes[-1].attributes["trace_mode"]
    assert bool(ir.seconds()) == bool(ir.evidence) == (FORWARD[name] == "executed")


@pytest.mark.parametrize("case", CASES)
def test_shapes_without_values_are_the_real_ones(case: str) -> None:
    """The fake pass has the operations, edges, shapes and types of the real one (GRAPH-1)."""
    build, args, kwargs = CASES[case]
    torch.manual_seed(0)
    model = build()
    real, fake = record_forward(model, *args, **kwargs), record_shapes(model, *args, **kwargs)
    assert [(o.label, o.module, o.inputs, o.outputs) for o in real.operations] == [
        (o.label, o.module, o.inputs, o.outputs) for o in fake.operations
    ]
    assert real.sources == fake.sources and real.outputs == fake.outputs


class Keeps(nn.Module):
    """Keeps tensors in attributes, counts calls in a buffer, and draws a random number."""

    def __init__(self, *, reads: bool) -> None:
        super().__init__()
        self.reads = reads
        self.body, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.calls: Any
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.kept: Any = None

    def forward(self, x: Any) -> Any:
        """Run, and keep."""
        self.calls += 1 if not self.reads or x.sum() > 0 else 2
        self.kept = self.drop(self.norm(self.body(x)))
        self.fresh = self.kept + torch.randn(())
        return self.fresh


@pytest.mark.parametrize("reads", [False, True])
def test_a_pass_leaves_nothing_behind(reads: bool) -> None:
    """Parameters, buffers and random states are as before, with values and without; no fake tensor stays (GRAPH-1)."""
    model = Keeps(reads=reads)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    assert record_shapes(model, torch.ones(2, 4)).trace_mode == ("executed" if reads else "fake")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(random, torch.get_rng_state()) and all(p.grad is None for p in model.parameters())
    assert model.kept is None and not hasattr(model, "fresh")
    assert all(type(value) is torch.Tensor for value in model.buffers())
    assert not torch.overrides._get_current_function_mode_stack()


BIG = """
import resource
import torch
from torchlens_conformance.graph import build_graph_ir, record_shapes, summarize_model

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

with torch.device("meta"):
    layers = [torch.nn.Linear(32768, 32768) for _ in range(8)]
    model = torch.nn.Sequential(*layers)
record_shapes(torch.nn.Linear(2, 2), torch.ones(1, 2))
before = peak()
batch = torch.empty(65536, 32768, device="meta")
summary = summarize_model(model, batch)
ir = build_graph_ir(record_shapes(model, batch))
print(summary.total, ir.parameters, summary.trace_mode, ir.nodes[-2].attributes["shape"], peak() - before)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no peak of memory to read")
def test_a_meta_model_needs_no_memory() -> None:
    """Report 40: 34 GB of parameters and 8 GB an activation on meta give table and graph in a few MB (GRAPH-1)."""
    assert resource.RUSAGE_SELF == 0
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "", "OMP_NUM_THREADS": "1"}
    told = subprocess.run(
        [sys.executable, "-c", BIG], env=environment, capture_output=True, text=True, timeout=120, check=True
    ).stdout.split()
    total = 8 * (32768 * 32768 + 32768)
    assert told[:4] == [str(total), str(total), "meta", "65536x32768"]
    assert 4 * total > 34e9 and int(told[4]) < 64


def test_a_meta_model_that_needs_values_has_a_table_without_shapes() -> None:
    """Report 40: with nothing to fall back on the table has no shapes, and the graph refuses (GRAPH-1)."""
    with torch.device("meta"):
        model = ReadsNumber()
    summary = summarize_model(model, torch.ones(2, 4))
    assert (summary.trace_mode, summary.total) == ("structure", 20)
    assert all(row.shape is None and row.used is None for row in summary.rows)
    assert "meta" in summary.notes[0] and summary.notes[0] in summary.format()
    with pytest.raises(Refusal) as caught:
        record_shapes(model, torch.ones(2, 4))
    assert caught.value.code == "graph_values_needed" and all(tensor.is_meta for tensor in model.parameters())


class TakesRecord(nn.Module):
    """Takes a dataclass inside a list."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, batches: list[Batch]) -> Any:
        """Run the first."""
        return self.body(batches[0].x)


def test_inputs_of_every_form_go_to_meta() -> None:
    """Tensors in dicts and dataclasses follow a model to meta; the caller's stay where they are (GRAPH-1)."""
    batch = Batch(torch.ones(2, 4), "mine")
    for kind, given in ((DictNet, {"x": batch.x, "name": "mine"}), (TakesRecord, [batch])):
        with torch.device("meta"):
            model = kind()
        trace = record_shapes(model, given)
        assert trace.trace_mode == "meta" and trace.operations[0].outputs[0].shape == (2, 3)
        assert trace.operations[0].inputs[0] in ("input.0.x", "input.0.0.x")
    assert batch.x.device.type == "cpu" and batch.name == "mine"


def test_lazy_parameters_are_named_until_they_have_values() -> None:
    """Report 40: a table without a forward counts a lazy parameter as nothing and names it (GRAPH-1)."""
    model = make("lazy")
    before = summarize_model(model)
    assert (before.total, before.lazy) == (12, ("0.weight", "0.bias")) and "0.weight, 0.bias" in before.format()
    after = summarize_model(model, torch.ones(2, 4))
    assert (after.total, after.lazy, after.trace_mode) == (37, (), "executed")


def test_what_never_ran_is_told() -> None:
    """Report 40: a module that the forward leaves alone is in the table, and in the graph, as not used (GRAPH-1)."""
    model = make("owner")
    rows = {row.path: row for row in summarize_model(model, torch.ones(2, 4)).rows}
    assert rows["unused"].used is False and rows["unused"].own == 45 and rows["body"].used is True
    assert rows[""].own == 4 and rows["body"].shape == (2, 4)
    nodes = {node.name: node for node in build_graph_ir(record_forward(model, torch.ones(2, 4))).nodes}
    assert nodes["unused/weight"].attributes["used"] == "no" and "used" not in nodes["body/weight"].attributes
    assert nodes["name/Identity"].op == "Module"


def test_what_the_real_forward_raises_is_raised() -> None:
    """A model that fails on the batch fails as it always does (GRAPH-1)."""
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        summarize_model(nn.Linear(3, 3), torch.ones(2, 4))
