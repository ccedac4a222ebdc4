"""The graph of a forward as it ran, its TensorBoard form, and the table of a model's modules (GRAPH-1)."""

from .build import build_graph_ir
from .ir import GraphIR, GraphNode
from .rows import nodes_of_rows
from .shapes import record_shapes
from .summary import ModelSummary, SummaryRow, summarize_model
from .tensorboard import graph_ir_to_tensorboard

__all__ = [
    "GraphIR",
    "GraphNode",
    "ModelSummary",
    "SummaryRow",
    "build_graph_ir",
    "graph_ir_to_tensorboard",
    "nodes_of_rows",
    "record_shapes",
    "summarize_model",
]
