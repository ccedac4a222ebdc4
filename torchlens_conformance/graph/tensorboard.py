"""The graph in TensorBoard's form: a GraphDef, and a row of host time for each node that has one (GRAPH-1)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from reference_sinks.graph_def import graph_to_proto
from reference_sinks.packages import require_package

from .ir import GraphIR

_HOST = "/device:CPU:0"


def graph_ir_to_tensorboard(ir: GraphIR, logdir: str | Path) -> Path:
    """Write a graph with its host times into an event file, through torch's own writer. Experimental.

    Args:
        ir: What :func:`~torchlens_conformance.graph.build_graph_ir` gave.
        logdir: A folder that TensorBoard is pointed at; made when it is missing.

    Returns:
        The event file.

    Every row of times names a node of the graph, in whole microseconds, rounded up. There are no device times and no
    memory: nobody measured them.
    Raises ``tracker_sink_unavailable`` without tensorboard. Clause: GRAPH-1.
    """
    require_package("tensorboard", extra="tensorboard")
    module = require_package("torch.utils.tensorboard", extra="tensorboard")
    graph, metadata = graph_to_proto(ir.as_point().graph), run_metadata(ir)
    Path(logdir).mkdir(parents=True, exist_ok=True)
    before = set(Path(logdir).glob("*.tfevents.*"))
    writer = module.FileWriter(str(logdir))
    try:
        writer.add_graph((graph, metadata))
    finally:
        writer.close()
    (file,) = set(Path(logdir).glob("*.tfevents.*")) - before
    return file


def run_metadata(ir: GraphIR) -> Any:
    """Return the host times as TensorBoard's RunMetadata, in the order of the run. Clause: GRAPH-1."""
    config = require_package("tensorboard.compat.proto.config_pb2", extra="tensorboard")
    metadata = config.RunMetadata()
    if not ir.seconds():
        return metadata
    rows = metadata.step_stats.dev_stats.add(device=_HOST)
    begin = 0.0
    for node in ir.nodes:
        if node.seconds is None:
            continue
        micros = math.ceil(1e6 * node.seconds)
        rows.node_stats.add(
            node_name=node.name,
            all_start_micros=round(1e6 * begin),
            op_start_rel_micros=0,
            op_end_rel_micros=micros,
            all_end_rel_micros=micros,
        )
        begin += node.seconds
    return metadata
