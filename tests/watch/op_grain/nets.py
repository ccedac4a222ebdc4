"""A small attention net whose operations are known one by one, and how tests attach at op grain."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402

WIDTH, HEADS, LENGTH = 8, 2, 5

SOFTMAX = "softmax_1_12"
"""The label of the net's softmax: its only one, and its twelfth operation."""


class Attention(nn.Module):
    """One causal attention of two heads over (batch, 5, 8), behind it an in-place ReLU and a linear layer.

    Attributes:
        spoil: Whether the softmax is overwritten in place right after it was used.
    """

    def __init__(self, *, spoil: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, 3 * WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.spoil = spoil
        self._told = SimpleNamespace(calls=0, seen=None)  # An object of its own: no attach puts it back.

    @property
    def calls(self) -> int:
        """Return how often the forward ran, also at attach."""
        return int(self._told.calls)

    @property
    def seen(self) -> Any:
        """Return the softmax of the last forward, also of one at attach."""
        return self._told.seen

    def forward(self, x: Any) -> Any:
        """Return what has the shape of ``x``."""
        self._told.calls += 1
        batch = x.shape[0]
        q, k, v = self.mix(x).chunk(3, dim=-1)  # 1: linear, 2: chunk
        q = q.view(batch, LENGTH, HEADS, -1).transpose(1, 2)  # 3: view, 4: transpose
        k = k.view(batch, LENGTH, HEADS, -1).transpose(1, 2)  # 5, 6
        v = v.view(batch, LENGTH, HEADS, -1).transpose(1, 2)  # 7, 8
        weights = q @ k.transpose(2, 3)  # 9: transpose, 10: matmul
        weights = weights * (WIDTH // HEADS) ** -0.5  # 11: mul
        weights = torch.softmax(weights, dim=-1)  # 12
        self._told.seen = weights.detach().clone()
        y = (weights @ v).transpose(1, 2).reshape(batch, LENGTH, WIDTH)
        if self.spoil:
            with torch.no_grad():
                weights.detach().clone().mul_(-7)
                weights.data.mul_(-7)
        y = self.norm(y.transpose(1, 2)).transpose(1, 2)
        return self.out(torch.relu_(self.drop(y)))


def net(*, seed: int = 0, **options: Any) -> Attention:
    """Return the net with weights of a seed."""
    torch.manual_seed(seed)
    return Attention(**options)


def example(n: int = 0, *, size: int = 3) -> Any:
    """Return one batch; the same for the same number."""
    return torch.randn(size, LENGTH, WIDTH, generator=torch.Generator().manual_seed(500 + n))


OPTIONS: dict[str, Any] = {
    "signals": ("activations",),
    "grain": "op",
    "select": trk.func("softmax"),
    "allow_forward_wrap": True,
    "every": 1,
}


def attach(model: Any, sink: Any, **options: Any) -> Any:
    """Attach at op grain, and take the one warning."""
    given = {**OPTIONS, "inputs": example(), **options}
    with pytest.warns(trk.WatchOpGrainCostWarning, match="^watch_op_grain_cost_disclosed: ") as told:
        session = trk.watch(model, sink, **given)
    assert len(told) == 1
    return session


def train(model: Any, optimizer: Any, n: int) -> Any:
    """Run one step; return the loss."""
    optimizer.zero_grad()
    loss = model(example(n)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()
