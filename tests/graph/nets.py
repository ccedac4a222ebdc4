"""Nets that graph tools fall over: dict and list inputs, branches on data, loops, shared and hidden modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from torchlens_conformance.graph import GraphIR, build_graph_ir  # noqa: E402
from torchlens_conformance.watch.operations import OperationTrace, record_forward  # noqa: E402


@dataclass
class Batch:
    """A batch as a dataclass."""

    x: Any
    name: str = "train"


class DictNet(nn.Module):
    """Takes a dict with a text in it and gives a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, batch: dict[str, Any], flag: bool = True, z: Any = None) -> dict[str, Any]:
        """Use what is a tensor."""
        hidden = self.body(batch["x"])
        return {"logits": hidden.relu() if flag else hidden, "none": z, "name": batch["name"]}


class BranchNet(nn.Module):
    """Goes another way when the sum is positive, and calls one module twice."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        """Branch on data."""
        y = self.shared(x)
        y = y.tanh() if y.sum() > 0 else y.sigmoid()
        return self.shared(y)


class ListNet(nn.Module):
    """Loops over a list of dicts, with modules in a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = [nn.Linear(4, 4), nn.Linear(4, 2)]

    def forward(self, items: list[dict[str, Any]]) -> Any:
        """Sum over the items."""
        total = torch.zeros(2, 2)
        for item in items:
            x = item["x"]
            for module in self.hidden:
                x = module(x)
            total = total + x
        return total


class DataNet(nn.Module):
    """Takes a dataclass, writes in place through a view, and reads a value."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, batch: Batch) -> Any:
        """Change a view in place and use the base."""
        hidden = self.body(batch.x)
        view = hidden[:, :2]
        view.mul_(self.scale)
        return hidden.exp() * hidden.max().item()


class Block(nn.Module):
    """A residual block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norm1, self.norm2 = (nn.BatchNorm2d(width) for _ in range(2))
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        """Add the shortcut in place."""
        y = self.norm2(self.conv2(self.act(self.norm1(self.conv1(x)))))
        y += x
        return self.act(y)


def resnet() -> nn.Module:
    """Return a net like a ResNet with two blocks."""
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    return nn.Sequential(stem, Block(4), Block(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))


def gpt2() -> Any:
    """Return a GPT-2 of two layers with eager attention."""
    transformers = pytest.importorskip("transformers")
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 8, "vocab_size": 16, "n_positions": 8}
    config = transformers.GPT2Config(**shape, attn_implementation="eager", use_cache=False)
    return transformers.GPT2LMHeadModel(config)


def resnet18() -> Any:
    """Return a ResNet-18 in its real size."""
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512])
    return transformers.ResNetForImageClassification(config).eval()


CASES: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "dict": (DictNet, ({"x": torch.ones(2, 4), "name": "train"},), {"flag": True, "z": None}),
    "branch": (BranchNet, (torch.ones(2, 4),), {}),
    "list": (ListNet, ([{"x": torch.ones(2, 4)}, {"x": torch.zeros(2, 4)}],), {}),
    "dataclass": (DataNet, (Batch(torch.ones(2, 4)),), {}),
    "resnet": (resnet, (torch.ones(2, 3, 8, 8),), {}),
}
"""By name: what makes the net, and the arguments of its forward."""


LARGE: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "gpt2": (gpt2, (), {"input_ids": torch.arange(6).reshape(1, 6)}),
    "resnet18": (resnet18, (torch.ones(1, 3, 64, 64),), {}),
}
"""The same for nets that take a library."""


def recorded(case: str) -> OperationTrace:
    """Record one forward of one of the nets, with the same weights every time."""
    torch.manual_seed(0)
    make, args, kwargs = {**CASES, **LARGE}[case]
    return record_forward(make(), *args, **kwargs)


def graph_of(case: str) -> GraphIR:
    """Return the graph of one of the nets."""
    return build_graph_ir(recorded(case))
