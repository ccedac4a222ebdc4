"""Records a small residual net, writes its graph for TensorBoard, and takes a picture of TensorBoard's own graph page.

``python docs/examples/graph_page.py FOLDER [PICTURE]`` leaves the event file in FOLDER. With PICTURE it starts
TensorBoard's server on a free port and lets a headless Chromium draw the page into that file.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

import torchlens_conformance.trackers as trk


class Block(nn.Module):
    """Two convolutions with a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norm1, self.norm2 = (nn.BatchNorm2d(width) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the shortcut."""
        return (self.norm2(self.conv2(self.norm1(self.conv1(x)).relu())) + x).relu()


class Net(nn.Module):
    """A stem, two blocks, a head; takes a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.ModuleList(Block(8) for _ in range(2))
        self.head = nn.Linear(8, 10)

    def forward(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return logits."""
        x = self.stem(batch["image"])
        for block in self.blocks:
            x = block(x)
        return {"logits": self.head(x.mean(dim=(2, 3)))}


def write_graph(folder: Path) -> Path:
    """Record one forward and write its graph; return the event file."""
    trace = trk.record_forward(Net(), {"image": torch.ones(2, 3, 16, 16)})
    return trk.graph_ir_to_tensorboard(trk.build_graph_ir(trace), folder)


def draw_page(folder: Path, picture: Path) -> None:
    """Let a headless Chromium draw the graph page of TensorBoard's server."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        port = next(found[1] for line in server.stderr or () if (found := re.search(r":(\d+)/ \(", line)))
        size, page = "--window-size=1400,900", f"http://127.0.0.1:{port}/#graphs"
        browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", size, "--virtual-time-budget=60000"]
        subprocess.run([*browser, f"--screenshot={picture}", page], check=True, timeout=120)
    finally:
        server.terminate()


if __name__ == "__main__":
    print(write_graph(Path(sys.argv[1])))
    if len(sys.argv) > 2:
        draw_page(Path(sys.argv[1]), Path(sys.argv[2]).resolve())
