"""Builds graphs from real torchlens traces and checks them: every edge is drawn, every row of times names a node.

``python docs/examples/torchlens_graph.py FOLDER`` leaves one event file a net in FOLDER.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torchlens
from torch import nn

import torchlens_conformance.trackers as trk


class Shared(nn.Module):
    """Calls one layer twice, with a branch on data in between."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Go one way or the other."""
        y = self.layer(x)
        return self.layer(y.tanh() if y.sum() > 0 else y.sigmoid())


def nets() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """Return nets with an input each."""
    block = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(256, 5)]
    return {"shared": (Shared(), torch.ones(2, 4)), "convolution": (nn.Sequential(*block), torch.ones(2, 3, 8, 8))}


def main(folder: Path) -> int:
    """Build every graph; return 1 when one has an edge that could not be drawn."""
    wrong = []
    for name, (model, x) in nets().items():
        graph = trk.build_graph_ir(torchlens.trace(model, x))
        timed = sum(node.seconds is not None for node in graph.nodes)
        trk.graph_ir_to_tensorboard(graph, folder / name)
        print(f"{name}: {len(graph.nodes)} nodes, {timed} with a time")
        wrong += [*graph.notes, *([] if timed else [f"{name}: no node has a time"])]
        wrong += [f"{node.name}: no inputs" for node in graph.nodes if node.op == "Output" and not node.inputs]
    print("\n".join(wrong) or "Every edge is drawn.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
