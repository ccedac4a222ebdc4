"""What a recorded forward sees of awkward code, and what it names because it cannot see it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from torchlens_conformance.graph import GraphIR, build_graph_ir  # noqa: E402
from torchlens_conformance.watch.operations import OperationTrace, record_forward  # noqa: E402

from .nets import CASES, LARGE, Batch, Block, BranchNet, DictNet, recorded, resnet  # noqa: E402

ROOT = Path(__file__).parents[2]

OUTSIDE = "made before the forward or out of sight (by numpy or in another thread, say): outside_1"


class Does(nn.Module):
    """Runs a function, beside modules that it may use."""

    def __init__(self, function: Any, **modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *args: Any) -> Any:
        """Run it."""
        return self.function(*args)


def edges(trace: OperationTrace) -> dict[str, tuple[str, ...]]:
    """Return the inputs of every operation by its label."""
    return {operation.label: operation.inputs for operation in trace.operations}


class Nested(nn.Module):
    """Models inside a model: one takes a dict, one branches on data, one is in a dataclass's way."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = DictNet(), nn.ModuleDict({"deep": BranchNet()})
        self.between = nn.Linear(3, 4)

    def forward(self, batch: Batch) -> dict[str, Any]:
        """Hand a dict to one model and what it gave to the next."""
        given = self.first({"x": batch.x, "name": batch.name}, flag=False)
        return {"out": (self.second["deep"](self.between(given["logits"])),)}


def test_models_inside_models() -> None:
    """Nested models keep their paths and the edges between them, through dicts and dataclasses (GRAPH-1)."""
    torch.manual_seed(0)
    trace = record_forward(Nested(), Batch(torch.ones(2, 4)))
    assert [operation.module for operation in trace.operations if operation.function == "linear"] == [
        "first.body",
        "between",
        "second.deep.shared",
        "second.deep.shared",
    ]
    assert edges(trace)["linear_1_1"] == ("input.0.x", "first.body.weight", "first.body.bias")
    assert edges(trace)["linear_2_2"][0] == "linear_1_1" and edges(trace)["linear_3_3"][0] == "linear_2_2"
    assert trace.outputs == (trace.operations[-1].label,)
    names = [node.name for node in build_graph_ir(trace).nodes]
    assert "second/deep/shared/linear_3_3" in names and "second/deep/shared/weight" in names


def test_several_devices_are_told_apart() -> None:
    """A model on two devices has the device of every tensor; the crossing is an operation (GRAPH-1)."""
    model = nn.ModuleDict({"near": nn.Linear(4, 4), "far": nn.Linear(4, 2, device="meta")})
    trace = record_forward(Does(lambda x: model["far"](model["near"](x).to("meta")), both=model), torch.ones(2, 4))
    devices = {
        operation.function: operation.outputs[0].device for operation in trace.operations if operation.number > 1
    }
    assert trace.operations[0].outputs[0].device == "cpu" and devices == {"to": "meta", "linear": "meta"}
    nodes = {
        node.name: node.attributes["device"] for node in build_graph_ir(trace).nodes if "device" in node.attributes
    }
    assert (nodes["both/near/weight"], nodes["both/far/weight"]) == ("cpu", "meta")
    assert trace.trace_mode == "executed"


def test_autocast_in_part_of_a_forward() -> None:
    """Under autocast in one part, and off again in another, the types are those of each call (GRAPH-1)."""
    body = nn.Linear(4, 4)

    def forward(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = body(x)
            with torch.autocast("cpu", enabled=False):
                z = body(y.float())
        return y + z

    trace = record_forward(Does(forward, body=body), torch.ones(2, 4))
    types = [(operation.function, operation.outputs[0].dtype) for operation in trace.operations]
    assert types == [("linear", "bfloat16"), ("float", "float32"), ("linear", "float32"), ("add", "float32")]


def test_views_slices_and_writes() -> None:
    """What is written through a view, by an index, by ``out=`` or by a function in place has its edge (GRAPH-1)."""

    def forward(x: Any) -> Any:
        y = x * 2
        y[:, 0] = x[:, 1]
        y.view(-1)[3:].add_(1)
        kept = torch.empty(2, 4)
        torch.add(y, x, out=kept)
        return torch.nn.functional.relu(kept, inplace=True), y.transpose(0, 1)

    trace = record_forward(Does(forward), torch.ones(2, 4))
    inputs = edges(trace)
    assert inputs["setitem_1_3"] == ("mul_1_1", "getitem_1_2")
    assert "setitem_1_3" in inputs["view_1_4"] and inputs["add__1_6"] == ("getitem_2_5",)
    assert set(inputs["add_1_8"]) >= {"add__1_6", "input.0"} and inputs["relu_1_9"] == ("add_1_8",)
    assert "add__1_6" in inputs["transpose_1_10"]
    wrote = {operation.label for operation in trace.operations if operation.writes}
    assert wrote == {"setitem_1_3", "add__1_6", "add_1_8", "relu_1_9"}


def test_memory_that_is_used_again_makes_no_edge() -> None:
    """A tensor from elsewhere at the address of one that is gone does not come from it (GRAPH-1)."""

    def forward(x: Any) -> Any:
        gone = x * 2
        gone.add_(1)
        del gone
        return torch.from_numpy(numpy.ones((2, 4), dtype=numpy.float32)).exp()

    for _ in range(20):
        assert edges(record_forward(Does(forward), torch.ones(2, 4)))["exp_1_3"] == ("outside_1",)


def test_one_tensor_in_two_places() -> None:
    """An argument that is given twice, or is a parameter, has one name; no name is given to two (GRAPH-1)."""
    x, body = torch.ones(2, 4), nn.Linear(4, 4)
    assert edges(record_forward(Does(lambda a, b: a + b), x, x))["add_1_1"] == ("input.0",)
    given = record_forward(Does(lambda a, w: a @ w, body=body), x, body.weight)
    assert edges(given)["matmul_1_1"] == ("input.0", "body.weight")
    own = nn.Module()
    own.input = nn.ParameterList([nn.Parameter(torch.ones(4))])
    trace = record_forward(Does(lambda a: a * own.input[0], **dict(own.named_children())), x)
    assert edges(trace)["mul_1_1"] == ("argument.0", "input.0")
    assert {source.label: source.kind for source in trace.sources} == {"argument.0": "input", "input.0": "parameter"}


def _hidden(x: Any) -> Any:
    with torch._C.DisableTorchFunction():
        y = x.sin()
    return y.exp()


WEIGHTS = [torch.ones(4)]

HIDDEN = {
    "numpy": lambda x: torch.from_numpy(x.numpy() + 1).exp(),
    "switched off": _hidden,
    "a list of its own": lambda x: (x * WEIGHTS[0]).exp(),
}
"""What a recording has no sight of."""


@pytest.mark.parametrize("case", HIDDEN)
def test_what_comes_out_of_sight_is_named(case: str) -> None:
    """A tensor that something unseen made is a node of its own, and a note names it (GRAPH-1)."""
    ir: GraphIR = build_graph_ir(record_forward(Does(HIDDEN[case]), torch.ones(2, 4)))
    assert [node.op for node in ir.nodes].count("Outside") == 1
    assert OUTSIDE in ir.notes


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_function_is_out_of_sight() -> None:
    """What a scripted function gives comes from out of sight (GRAPH-1)."""
    scripted = torch.jit.CompilationUnit("def scripted(x):\n    return x.sin() + 1\n").scripted
    ir = build_graph_ir(record_forward(Does(lambda x: scripted(x).exp()), torch.ones(2, 4)))
    assert ir.notes == (OUTSIDE,)


def test_a_custom_function_is_looked_into() -> None:
    """What the forward of a custom autograd function calls is recorded, and what it gave is followed (GRAPH-1)."""

    class Square(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return 2 * gradient * ctx.saved_tensors[0]

    x = torch.ones(2, 4, requires_grad=True)
    trace = record_forward(Does(lambda x: Square.apply(x).exp()), x)
    assert edges(trace) == {"mul_1_1": ("input.0",), "exp_1_2": ("mul_1_1",)}


def test_compiled_parts_are_recorded_as_plain_torch() -> None:
    """Recording compiles nothing, not even itself, breaks no graph, and says how it saw the part (GRAPH-1)."""
    compiled = []

    def backend(graph: Any, example: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    inner, in_place = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), Does(torch.cos)
    in_place.compile(backend=backend)
    model = nn.Sequential(torch.compile(inner.requires_grad_(False), backend=backend), in_place)
    x = torch.ones(2, 4)
    model(x)
    count = len(compiled)
    trace = record_forward(model, x)
    with torch._dynamo.config.patch(error_on_recompile=True):
        model(x)
    assert count == len(compiled) == 2 and not torch._dynamo.utils.counters["graph_break"]
    assert [(operation.label, operation.module) for operation in trace.operations] == [
        ("linear_1_1", "0.0"),
        ("tanh_1_2", "0.1"),
        ("cos_1_3", "1"),
    ]
    assert trace.unseen == tuple(
        f"{path} is compiled: it was recorded as the plain torch that it was made from" for path in ("0", "1")
    )
    torch._dynamo.reset()


def described(ir: GraphIR) -> list[list[str]]:
    """Return everything of a graph but its times, as JSON gives it back."""
    return [[node.name, node.op, *node.inputs, *map(str, sorted(node.attributes.items()))] for node in ir.nodes]


def graphs_of_a_process() -> str:
    """Return the graphs of two nets as JSON; called in this process and in others."""
    torch.manual_seed(0)
    nets = [
        (resnet(), (torch.ones(2, 3, 8, 8),)),
        (Nested(), (Batch(torch.ones(2, 4)),)),
        (Block(2), (torch.ones(1, 2, 3, 3),)),
    ]
    return json.dumps([described(build_graph_ir(record_forward(model, *args))) for model, args in nets])


def test_labels_are_the_same_in_another_process() -> None:
    """Labels, names, edges and facts are the same in another process, whatever it hashes by (GRAPH-1)."""
    code = "from tests.graph.test_seen import graphs_of_a_process; print(graphs_of_a_process())"
    environment = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "4711", "PATH": "", "OMP_NUM_THREADS": "1"}
    told = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True, cwd=ROOT
    )
    assert json.loads(told.stdout) == json.loads(graphs_of_a_process())


def test_control_flow_of_torch_runs_as_it_does_unrecorded() -> None:
    """A forward with ``torch.cond``, which compiles itself, can be recorded, and is one operation (GRAPH-1)."""
    model = Does(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)).exp())
    trace = record_forward(model, torch.ones(2, 4))
    assert edges(trace)["cond_1_3"] == ("gt_1_2", "input.0") and edges(trace)["exp_1_4"] == ("cond_1_3",)


def test_modules_inside_a_function_of_torch_are_named() -> None:
    """A module that a function of torch calls runs out of sight, and is told by its path (GRAPH-1)."""
    distance, loss = nn.PairwiseDistance(), torch.nn.functional.triplet_margin_with_distance_loss
    model = Does(lambda x: loss(x, x + 1, x + 2, distance_function=distance), distance=distance)
    trace = record_forward(model, torch.ones(2, 4))
    assert trace.operations[-1].function == "triplet_margin_with_distance_loss"
    assert trace.unseen == ("distance ran inside a function of torch: its operations are not listed one by one",)


def test_a_module_in_another_thread_is_named() -> None:
    """A part of the model that runs in another thread is not recorded, and is told by its path (GRAPH-1)."""
    body = nn.Linear(4, 4)

    def forward(x: Any) -> Any:
        thread = threading.Thread(target=body, args=(x,))
        thread.start()
        thread.join()
        return x.exp()

    trace = record_forward(Does(forward, body=body), torch.ones(2, 4))
    assert trace.unseen == ("body ran in another thread: its operations are not recorded",)
    assert [operation.function for operation in trace.operations] == ["exp"]


def test_what_another_thread_made_is_named() -> None:
    """A function that another thread calls is no part of a module; what it made is told by its label (GRAPH-1)."""

    def forward(x: Any) -> Any:
        made: list[Any] = []
        thread = threading.Thread(target=lambda: made.append(torch.softmax(x, -1)))
        thread.start()
        thread.join()
        return made[0]

    trace = record_forward(Does(forward), torch.ones(2, 4))
    assert trace.unseen == (OUTSIDE,) and trace.outputs == ("outside_1",) and trace.operations == ()


def test_an_output_that_holds_no_known_tensor_is_named() -> None:
    """An object that is no tuple, list, mapping or dataclass is not looked into, and its class is told (GRAPH-1)."""
    ir = build_graph_ir(record_forward(Does(lambda x: SimpleNamespace(x=x * 2)), torch.ones(2, 4)))
    assert ir.notes == ("the forward returned SimpleNamespace: no tensor was found in it",)
    assert ir.nodes[-1].op == "Output" and ir.nodes[-1].inputs == ()


@pytest.mark.parametrize("case", [*CASES, *LARGE])
def test_nothing_is_told_of_what_was_seen(case: str) -> None:
    """A net of ordinary functions and modules has nothing out of sight (GRAPH-1)."""
    hidden = [source for source in recorded(case).sources if source.kind == "outside"]
    assert len(recorded(case).unseen) == bool(hidden) and bool(hidden) == (case == "list")


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_part_in_a_nested_model(reentrant: bool) -> None:
    """Checkpointing hides nothing of its part, under autocast and with shared modules too (GRAPH-1)."""
    model = BranchNet()

    def forward(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = checkpoint(model, x, use_reentrant=reentrant)
        return y.float()

    trace = record_forward(Does(forward, part=model), torch.ones(2, 4, requires_grad=True))
    calls = [operation for operation in trace.operations if operation.function == "linear"]
    assert [(call.module, call.outputs[0].dtype) for call in calls] == [("part.shared", "bfloat16")] * 2
    assert trace.operations[-1].function == "float" and trace.unseen == ()
    assert edges(trace)[trace.operations[-1].label] == (calls[-1].label,)
