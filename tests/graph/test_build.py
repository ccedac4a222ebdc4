"""The graph of what ran, from a recorded forward and from a torchlens trace by its public attributes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import reference_sinks as sinks  # noqa: E402
import torchlens_conformance.trackers as trk  # noqa: E402
from reference_sinks import JSONLSink, MemorySink  # noqa: E402
from reference_sinks.readers import read_jsonl, read_tensorboard  # noqa: E402
from torchlens_conformance.graph import build_graph_ir, nodes_of_rows  # noqa: E402
from torchlens_conformance.protocol import Refusal  # noqa: E402
from torchlens_conformance.watch.operations import HOST_TIME, OperationRecorder, record_forward  # noqa: E402

from .nets import CASES, graph_of, recorded  # noqa: E402


@pytest.mark.parametrize("case", CASES)
def test_nodes_are_unique_and_stand_behind_their_inputs(case: str) -> None:
    """Report 28: dict, list, text and None inputs, branches and loops give a closed acyclic graph (GRAPH-1)."""
    ir = graph_of(case)
    seen: set[str] = set()
    for node in ir.nodes:
        assert node.name not in seen
        assert set(node.inputs) <= seen
        seen.add(node.name)
    assert ir.nodes[-1].op == "Output" and ir.nodes[-1].inputs


@pytest.mark.parametrize("case", CASES)
def test_a_fact_that_is_missing_is_left_out(case: str) -> None:
    """Report 28: only calls have times; nothing unknown is written as zero or as an empty text (GRAPH-1)."""
    ir = graph_of(case)
    assert ir.evidence == HOST_TIME
    for node in ir.nodes:
        assert (node.seconds is None) == (node.op in {"Input", "Parameter", "Buffer", "Outside", "Output"})
        assert all(node.attributes.values())
    assert set(ir.seconds()) <= {node.name for node in ir.nodes} and all(ir.seconds().values())


def test_nodes_are_grouped_by_module() -> None:
    """A node's name is the path of its module with slashes, then its label (GRAPH-1)."""
    by_op: dict[str, list[str]] = {}
    for node in graph_of("resnet").nodes:
        by_op.setdefault(node.op, []).append(node.name.rsplit("/", 1)[0])
    assert by_op["conv2d"] == ["0/0", "1/conv1", "1/conv2", "2/conv1", "2/conv2"]
    assert by_op["Input"] == ["input"] and by_op["linear"] == ["5"]
    assert by_op["add_"].count("1") == by_op["add_"].count("2") == 1


@pytest.mark.parametrize("case", ["dict", "gpt2"])
def test_sinks_keep_the_graph(case: str, tmp_path: Any) -> None:
    """A sink with ``emit_graph`` keeps it, and a reader gives the same back (GRAPH-1, JSONL-1)."""
    point = graph_of(case).as_point()
    memory, sink = MemorySink(), JSONLSink(tmp_path / "run.jsonl")
    for each in (memory, sink):
        each.emit_graph(point)
        each.close()
    assert memory.points == [point] or tuple(memory.points) == (point,)
    assert tuple(read_jsonl(tmp_path / "run.jsonl")) == (point,)


def test_names_hold_nothing_that_viewers_read_otherwise() -> None:
    """A colon or a caret in the name of a module or input would be read as an output or an edge (GRAPH-1)."""
    model = nn.ModuleDict({"^a:b": nn.Linear(4, 4), "_a_b": nn.Linear(4, 4)})

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, batch: Any) -> Any:
            return self.parts["_a_b"](self.parts["^a:b"](batch["k:1"]))

    ir = build_graph_ir(record_forward(Net(), {"k:1": torch.ones(2, 4)}))
    names = [node.name for node in ir.nodes]
    assert not any(character in name for name in names for character in ":^") and len(set(names)) == len(names)
    linear = {node.name: node.inputs for node in ir.nodes if node.op == "linear"}
    assert linear["parts/_a_b/linear_1_1"] == ("input/0/k_1", "parts/_a_b/weight", "parts/_a_b/bias")
    assert linear["parts/_a_b/linear_2_2"][0] == "parts/_a_b/linear_1_1"
    assert nodes_of_rows(ir, ["activations/mean/parts.^a:b"])["activations/mean/parts.^a:b"] in linear


def test_a_trace_without_inputs_claims_no_parameters() -> None:
    """A recording that does not follow inputs knows no parameters, and states no number of them (GRAPH-1)."""
    model = nn.Linear(4, 4)
    recorder = OperationRecorder(model, origins=False)
    with recorder.recording():
        returned = model(torch.ones(2, 4))
    assert build_graph_ir(recorder.trace(returned)).parameters is None


def test_the_sinks_that_take_a_graph() -> None:
    """Three sinks have ``emit_graph``; what they advertise is what they have (PROT-2, GRAPH-1)."""
    having = {name for name in sinks.__all__ if hasattr(getattr(sinks, name), "emit_graph")}
    assert having == {"JSONLSink", "MemorySink", "TensorBoardSink"}
    assert "graph" in MemorySink().capabilities()


@pytest.mark.parametrize("store", ["jsonl", "tensorboard"])
def test_a_graph_stands_beside_the_rows_of_a_watch(store: str, tmp_path: Any) -> None:
    """A watch emits no graph by itself; one that the caller emits lies in the same store, once (GRAPH-1, JSONL-1)."""
    if store == "tensorboard":
        pytest.importorskip("tensorboard")
    sink = trk.JSONLSink(tmp_path / "run.jsonl") if store == "jsonl" else trk.TensorBoardSink(tmp_path / "run")
    model, point = CASES["branch"][0](), graph_of("branch").as_point()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trk.watch(model, sink, optimizer=optimizer, every=1) as watch:
        for n in range(2):
            with watch.step(n):
                model(torch.ones(2, 4)).square().mean().backward()
                optimizer.step()
            if n == 0:
                sink.emit_graph(point)
    read = read_jsonl(tmp_path / "run.jsonl") if store == "jsonl" else read_tensorboard(tmp_path / "run")
    assert [kept for kept in read.points if isinstance(kept, trk.GraphPoint)] == [point]
    assert {kept.step for kept in read.points if isinstance(kept, trk.ScalarPoint)} == {0, 1}
    assert read.unplaced == () and read.torn is None


def _traced(label: str, parents: tuple[str, ...], **facts: Any) -> Any:
    """Return an operation as torchlens 2.36.1 describes it: passes count from 1, ``output_device`` says ``same``."""
    layer, _, which = label.partition(":")
    passes = {"num_passes": 2 if which else 1, "label": f"{layer}:{which or 1}", "output_device": "same"}
    return SimpleNamespace(layer_label=layer, parents=parents, func_name=layer.split("_")[0], **passes, **facts)


class _TorchlensTrace:
    """A stand-in with the public attributes that are read; `tox -e torchlens` reads real traces."""

    layer_labels = ("input_1", "linear_1_1", "output_1")
    model_class_name = "Net"

    def __init__(self, *operations: Any) -> None:
        self.operations = operations

    def __iter__(self) -> Any:
        return iter(self.operations)


def test_a_torchlens_trace_is_read_by_its_public_attributes() -> None:
    """A layer that ran twice keeps both passes and their edges; a fact that is not there is left out (GRAPH-1)."""
    first = {"modules": ("body:1",), "shape": (2, 3), "func_duration": 0.25, "device_ref": "cpu"}
    ir = build_graph_ir(
        _TorchlensTrace(
            _traced("input_1", (), is_input=True, shape=(2, 4), dtype=torch.float32, func_duration=0.0),
            _traced("buffer_1", (), is_buffer=True, modules=("body:1",)),
            _traced("linear_1_1:1", ("input_1",), **first),
            _traced("linear_1_1:2", ("linear_1_1:1", "buffer_1"), modules=("body:2",), func_duration=0.5),
            _traced("output_1", ("linear_1_1:2",), is_output=True),
        )
    )
    assert [(node.name, node.op, node.inputs, node.seconds) for node in ir.nodes] == [
        ("input_1", "Input", (), None),
        ("body/buffer_1", "Buffer", (), None),
        ("body/linear_1_1_pass_1", "linear", ("input_1",), 0.25),
        ("body/linear_1_1_pass_2", "linear", ("body/linear_1_1_pass_1", "body/buffer_1"), 0.5),
        ("output_1", "Output", ("body/linear_1_1_pass_2",), None),
    ]
    assert ir.nodes[0].attributes == {"shape": "2x4", "dtype": "float32"}
    assert ir.nodes[2].attributes == {"shape": "2x3", "device": "cpu"}
    assert ir.nodes[4].attributes == {} and ir.notes == ()


def test_an_edge_that_cannot_be_drawn_is_told() -> None:
    """An operation that takes from one that the trace does not list has no edge to it, and a note (GRAPH-1)."""
    ir = build_graph_ir(_TorchlensTrace(_traced("tanh_1_1", ("input_1",), func_duration=0.1)))
    assert ir.nodes[0].inputs == ()
    assert ir.notes == ("tanh_1_1 takes from input_1, which the trace does not list before it",)


@pytest.mark.parametrize(
    "trace", [None, 3, {"nodes": []}, torch.nn.Linear(1, 1)], ids=["none", "int", "dict", "module"]
)
def test_what_is_no_trace_is_refused(trace: Any) -> None:
    """An object that is no recorded forward refuses by name, with the two ways to record one (GRAPH-1)."""
    with pytest.raises(Refusal) as caught:
        build_graph_ir(trace)
    assert caught.value.code == "graph_trace_invalid" and "record_forward" in caught.value.remedy


def test_an_empty_trace_is_refused() -> None:
    """A forward without an operation has no graph (GRAPH-1)."""
    with pytest.raises(Refusal) as caught:
        build_graph_ir(record_forward(torch.nn.Identity(), 1))
    assert caught.value.code == "graph_trace_invalid"


def test_a_transformer_with_eager_attention() -> None:
    """A GPT-2 with eager attention has one softmax a layer, in its attention, and its tied weight once (GRAPH-1)."""
    trace = recorded("gpt2")
    softmax = [operation for operation in trace.operations if operation.function == "softmax"]
    assert [operation.module for operation in softmax] == ["transformer.h.0.attn", "transformer.h.1.attn"]
    assert [operation.outputs[0].shape for operation in softmax] == [(1, 2, 6, 6)] * 2
    names = [node.name for node in build_graph_ir(trace).nodes]
    assert "input/input_ids" in names and "transformer/wte/weight" in names and "lm_head/weight" not in names
    assert len(set(names)) == len(names)
