"""Rows of a watch and nodes of a graph speak of the same things: every row of statistics names a node."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.graph import GraphIR, build_graph_ir, nodes_of_rows  # noqa: E402
from torchlens_conformance.watch.operations import record_forward  # noqa: E402

from .awkward import MODELS  # noqa: E402
from .nets import CASES, LARGE  # noqa: E402

SIGNALS = ("parameters", "gradients", "updates", "activations", "activation_grads")


def watched_and_graphed(kind: str, **options: Any) -> tuple[GraphIR, list[str]]:
    """Watch one step of a model at module grain with every signal; return its graph and the tags of its rows."""
    torch.manual_seed(0)
    make, args, kwargs = {**CASES, **LARGE}.get(kind) or (MODELS[kind], (torch.ones(2, 4),), {})
    model = make()
    if kind == "lazy":
        model(*args)
    sink = trk.MemorySink()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"signals": SIGNALS, "every": 1, "hist_every": 1, **options}
    example = {**kwargs} if not args else args if not kwargs else (*args, *kwargs.values())
    select = ["_root", *(path for path, _ in model.named_modules() if path)]
    with (
        trk.watch(model, sink, optimizer=optimizer, select=select, inputs=example, **options) as watch,
        watch.step(0),
    ):
        out = model(*args, **kwargs)
        out = out["logits"] if hasattr(out, "keys") else out
        out.square().mean().backward()
        optimizer.step()
    tags = [*(point.tag for point in sink.scalars), *(point.tag for point in sink.histograms)]
    return build_graph_ir(record_forward(model, *args, **kwargs)), tags


@pytest.mark.parametrize("name", ["resnet", "gpt2", "dict", "branch", "dataclass", *MODELS])
def test_every_row_of_statistics_names_a_node(name: str) -> None:
    """Report 28: rows of parameters, outputs and gradients, unused parameters too, each name a node (GRAPH-1)."""
    ir, tags = watched_and_graphed(name)
    found = nodes_of_rows(ir, tags)
    data = [tag for tag in tags if not tag.startswith("torchlens/")]
    assert set(found) == set(data) and len(data) > 20
    assert [tag for tag, node in found.items() if node is None] == []
    assert set(found.values()) <= {node.name for node in ir.nodes}
    families = {tag.split("/")[0] for tag in data}
    assert families >= {"parameters", "gradients", "updates", "activations", "activation_grads"}


def test_the_rows_of_a_net_of_real_size() -> None:
    """Every row of a ResNet-18 names a node, and every parameter has one (GRAPH-1)."""
    ir, tags = watched_and_graphed("resnet18", signals=("gradients", "activations"), hist_every=None)
    found = nodes_of_rows(ir, tags)
    assert all(found.values()) and len(found) > 1000
    held = {node.name for node in ir.nodes if node.op == "Parameter"}
    assert len(held) == 62 and held <= set(found.values()) and ir.parameters == 11_177_538


def test_a_row_names_its_own_node() -> None:
    """A parameter's row names the parameter, a module's the last operation in it, the root's the output (GRAPH-1)."""
    ir, tags = watched_and_graphed("owner", name="mine", namespace="team")
    found = nodes_of_rows(ir, tags, name="mine", namespace="team")
    assert all(found.values())
    operations = {node.op: node.name for node in ir.nodes}
    assert found["team/gradients/mine/norm/body.weight"] == "body/weight"
    assert found["team/parameters/mine/hist/unused.bias"] == "unused/bias"
    assert found["team/activations/mine/mean/body"] == operations["linear"] == "body/linear_1_1"
    assert found["team/activations/mine/mean/name"] == "name/Identity"
    assert found["team/activations/mine/mean/_root"] == "output"


def test_rows_of_operations_and_of_nonfinite_values() -> None:
    """Labels of operations, outputs and facets behind them, and nonfinite rows find their node as well (GRAPH-1)."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Softmax(dim=1))
    ir = build_graph_ir(record_forward(model, torch.ones(2, 4)))
    tags = {
        "activations/mean/softmax_1_2": "1/softmax_1_2",
        "activations/mean/softmax_1_2/head_0": "1/softmax_1_2",
        "nonfinite/gradients_posinf/0.weight": "0/weight",
        "nonfinite/activation_grads_nan/1": "1/softmax_1_2",
        "activations/overflow/0": "0/linear_1_1",
    }
    assert nodes_of_rows(ir, [*tags, "torchlens/run/attached"]) == tags


def test_a_row_that_names_nothing_is_told() -> None:
    """A row of another model has no node: the check can fail (GRAPH-1)."""
    ir = build_graph_ir(record_forward(nn.Linear(4, 4), torch.ones(2, 4)))
    tags = ["gradients/norm/0.weight", "activations/mean/head", "activations/mean/softmax_1_2", "gradients/norm/weight"]
    assert nodes_of_rows(ir, tags) == {**dict.fromkeys(tags[:3]), "gradients/norm/weight": "weight"}


@pytest.mark.parametrize("name", [None, "weight"])
def test_a_tag_that_is_no_row_names_nothing(name: str | None) -> None:
    """A family alone, a kind that does not exist, and a tag without parts have no node; other tags stay out (TAG-1)."""
    ir = build_graph_ir(record_forward(nn.Linear(4, 4), torch.ones(2, 4)))
    tags = [
        "gradients",
        "gradients/norm",
        "gradients/",
        "nonfinite",
        "nonfinite/foo/weight",
        "nonfinite/loss_nan/weight",
    ]
    assert nodes_of_rows(ir, [*tags, "", "/", "loss", "loss/weight"], name=name) == dict.fromkeys(tags)
    assert nodes_of_rows(GraphIR((), "", ()), ["activations/mean/_root"]) == {"activations/mean/_root": None}


def test_rows_of_op_grain_name_their_operation() -> None:
    """Series of single operations, and of their facets, name the operation in a graph of the same forward (GRAPH-1)."""
    make, args, kwargs = LARGE["gpt2"]
    model, sink = make(), trk.MemorySink()
    graph = build_graph_ir(record_forward(model, *args, **kwargs))
    first, second = [node.name for node in graph.nodes if node.op == "softmax"]
    label = first.rsplit("/", 1)[1]
    options: dict[str, Any] = {"signals": ("activations",), "grain": "op", "allow_forward_wrap": True, "every": 1}
    options |= {"select": trk.func("softmax"), "facets": {label: trk.split_heads(2, dim=1)}, "inputs": kwargs}
    with pytest.warns(UserWarning, match="watch_op_grain_cost_disclosed"):
        watch = trk.watch(model, sink, **options)
    with watch, watch.step(0):
        model(**kwargs)
    found = nodes_of_rows(graph, [point.tag for point in sink.scalars])
    assert set(found.values()) == {first, second} and f"activations/mean/{label}" in found
    facets = {tag for tag in found if tag.startswith(f"activations/mean/{label}/")}
    assert len(facets) == 2 and {found[tag] for tag in facets} == {first}
