"""The graph in event files: each row of times names a node, and TensorBoard's own server lists and serves it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tensorboard")

from reference_sinks.readers import read_tensorboard  # noqa: E402
from torchlens_conformance.graph import build_graph_ir, graph_ir_to_tensorboard, record_shapes  # noqa: E402
from torchlens_conformance.graph.tensorboard import run_metadata  # noqa: E402
from torchlens_conformance.protocol import GraphPoint  # noqa: E402

from .nets import CASES, LARGE, graph_of  # noqa: E402


@pytest.mark.parametrize("case", CASES)
def test_every_row_of_times_names_a_node(case: str, tmp_path: Path) -> None:
    """Report 28: the file holds the graph as it was built, and each row of times names one of its nodes (GRAPH-1)."""
    ir = graph_of(case)
    (point,) = [
        point for point in read_tensorboard(graph_ir_to_tensorboard(ir, tmp_path)) if isinstance(point, GraphPoint)
    ]
    assert [(node["name"], node["op"], tuple(node["inputs"])) for node in point.graph["nodes"]] == [
        (node.name, node.op, node.inputs) for node in ir.nodes
    ]
    (device,) = run_metadata(ir).step_stats.dev_stats
    rows = {row.node_name: row for row in device.node_stats}
    assert len(rows) == len(device.node_stats) > 0
    assert set(rows) == set(ir.seconds())
    for name, seconds in ir.seconds().items():
        assert seconds <= rows[name].all_end_rel_micros / 1e6 < seconds + 2e-6
        assert not rows[name].memory


@pytest.mark.parametrize("case", [*CASES, *LARGE])
def test_tensorboards_own_reader_loads_it(case: str, tmp_path: Path) -> None:
    """Report 28: TensorBoard's own reader gives the graph and its times, each row bound to a node (GRAPH-1)."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    ir = graph_of(case)
    graph_ir_to_tensorboard(ir, tmp_path)
    reader = accumulators.EventAccumulator(str(tmp_path))
    reader.Reload()
    nodes = {node.name: node for node in reader.Graph().node}
    assert list(nodes) == [node.name for node in ir.nodes]
    assert all(source in nodes for node in nodes.values() for source in node.input)
    (tag,) = reader.Tags()["run_metadata"]
    bound = [row.node_name for device in reader.RunMetadata(tag).step_stats.dev_stats for row in device.node_stats]
    assert len(bound) == len(ir.seconds()) > 0 and set(bound) <= set(nodes)
    if case == "resnet18":
        assert [node.op for node in nodes.values()].count("conv2d") == 20 and len(bound) >= 60


def test_a_graph_without_times_has_no_row_of_times(tmp_path: Path) -> None:
    """A forward that was not executed has no times, and none are written (GRAPH-1)."""
    make, args, kwargs = CASES["dict"]
    ir = build_graph_ir(record_shapes(make(), *args, **kwargs))
    assert not run_metadata(ir).step_stats.dev_stats
    (point,) = read_tensorboard(graph_ir_to_tensorboard(ir, tmp_path)).points
    assert isinstance(point, GraphPoint)
    for node in point.graph["nodes"]:
        assert not [name for name in node["attributes"] if "seconds" in name]
    assert point.graph["nodes"][-1]["attributes"] == {"trace_mode": "fake"}


@contextmanager
def serving(logdir: Path) -> Iterator[str]:
    """Run TensorBoard's server on a free port of this machine and give its address."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", "0", "--load_fast", "false"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(logdir)}
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"http://[^\s/]+:(\d+)/", line):
                yield f"http://127.0.0.1:{found[1]}"
                break
        else:
            pytest.fail("TensorBoard did not start")
    finally:
        process.terminate()
        process.communicate(timeout=30)


def get(address: str) -> str:
    """Return what a URL of this machine gives; proxies have no say in it."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=30) as answer:
        text: str = answer.read().decode("utf-8")
    return text


@pytest.mark.timeout(600)
def test_the_server_of_tensorboard_lists_the_graph(tmp_path: Path) -> None:
    """Report 28: TensorBoard's own server lists each graph and its times, and serves every node (GRAPH-1)."""
    graphs = {case: graph_of(case) for case in ("resnet", "gpt2", "dict", "branch")}
    for case, ir in graphs.items():
        graph_ir_to_tensorboard(ir, tmp_path / case)
    with serving(tmp_path) as address:
        plugin = f"{address}/data/plugin/graphs"
        info = json.loads(get(f"{plugin}/info"))
        # The server answers while it still loads.
        while set(info) != set(graphs):
            info = json.loads(get(f"{plugin}/info"))
        for case, ir in graphs.items():
            assert info[case]["run_graph"] is True
            (tag,) = info[case]["tags"].values()
            assert tag["profile"] is True
            served = get(f"{plugin}/graph?run={case}&limit_attr_size=1024&large_attrs_key=_too_large")
            times = get(f"{plugin}/run_metadata?run={case}&tag={tag['tag']}")
            assert re.findall(r'^  name: "(.*)"$', served, re.MULTILINE) == [node.name for node in ir.nodes]
            assert sorted(re.findall(r'node_name: "(.*)"', times)) == sorted(ir.seconds())
