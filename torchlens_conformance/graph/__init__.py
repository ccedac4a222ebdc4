"""The graph of a forward as it ran, and its TensorBoard form (GRAPH-1)."""

from .build import build_graph_ir
from .ir import GraphIR, GraphNode
from .tensorboard import graph_ir_to_tensorboard

__all__ = ["GraphIR", "GraphNode", "build_graph_ir", "graph_ir_to_tensorboard"]
