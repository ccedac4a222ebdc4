"""What the tests of the public reports share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402

from .helpers import by_tag  # noqa: E402


class Holder(nn.Module):
    """Modules by name, and a forward that runs them one after another."""

    def __init__(self, **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)

    def forward(self, x: Any) -> Any:
        """Run the modules in order."""
        for module in self.children():
            x = module(x)
        return x


def adamw(parameters: Any, **options: Any) -> Any:
    """Return AdamW with weight decay, so that an update is not lr times gradient."""
    return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1, **options)


def sgd(parameters: Any) -> Any:
    """Return SGD."""
    return torch.optim.SGD(parameters, lr=0.1)


def values(parameters: Iterable[Any]) -> list[Any]:
    """Return copies of the parameters."""
    return [parameter.detach().clone() for parameter in parameters]


def norm(tensor: Any) -> float:
    """Return the norm, reduced in float64."""
    return float(tensor.double().norm())


def families(sink: trk.MemorySink) -> set[str]:
    """Return the families that have rows."""
    return {tag.split("/")[0] for tag in by_tag(sink)} - {"torchlens"}


def skips(session: trk.WatchSession) -> list[tuple[str, int | None]]:
    """Return name and step of the named skips."""
    return [(skip.name, skip.step) for skip in session.close().named_skips]
