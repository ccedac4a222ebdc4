"""Models whose parameters are shared, tied, hidden, unused, lazy, or whose forward needs values."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402


class Siamese(nn.Module):
    """One twin, called twice and held under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.twin = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.again = self.twin

    def forward(self, x: Any) -> Any:
        """Compare."""
        return self.twin(x) - self.again(x.flip(0))


class Tied(nn.Module):
    """An embedding whose weight is the head's as well."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Any) -> Any:
        """Embed and read out."""
        return self.head(self.embed(x.long().abs() % 6))


class Owner(nn.Module):
    """A parameter of its own, and children; one of them is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.body, self.unused = nn.Parameter(torch.ones(4)), nn.Linear(4, 4), nn.Linear(4, 9)
        self.name = nn.Identity()

    def forward(self, x: Any) -> Any:
        """Scale the body's output."""
        return self.name(self.body(x) * self.scale)


class Stack(nn.Module):
    """Like blocks, of which two share a part, and one that is built another way."""

    def __init__(self) -> None:
        super().__init__()
        blocks: list[Any] = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(6)]
        blocks[2][0] = blocks[1][0]
        blocks[4][0].weight = blocks[3][0].weight
        self.blocks = nn.Sequential(*blocks, nn.Linear(4, 4))

    def forward(self, x: Any) -> Any:
        """Run the blocks."""
        return self.blocks(x)


class ReadsNumber(nn.Module):
    """Takes a number out of its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        """Scale by a number."""
        y = self.body(x)
        return y * y.max().item()


class PicksRows(ReadsNumber):
    """Goes on with the rows that are not zero."""

    def forward(self, x: Any) -> Any:
        """Pick rows."""
        y = self.body(x)
        return y[y.abs().sum(1).nonzero().flatten()]


def lazy() -> nn.Module:
    """Return a layer that takes its width from the first batch, and a dropout that draws in every step."""
    return nn.Sequential(nn.LazyLinear(5), nn.Dropout(0.5), nn.Linear(5, 2))


MODELS: dict[str, Any] = {
    "siamese": Siamese,
    "tied": Tied,
    "owner": Owner,
    "stack": Stack,
    "item": ReadsNumber,
    "nonzero": PicksRows,
    "lazy": lazy,
}
"""What makes each model; all take one tensor of two rows of four."""

FORWARD = {name: "fake" for name in MODELS} | {name: "executed" for name in ("item", "nonzero", "lazy")}
"""The trace mode that each of them has."""
