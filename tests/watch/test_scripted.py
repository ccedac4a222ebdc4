"""Scripted modules inside a watched model: their parameters are ordinary parameters."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402

from .helpers import by_tag, train_step  # noqa: E402


def test_a_scripted_part_is_watched_by_its_names() -> None:
    """Parameters of a scripted module have their own names and rows (TAG-6, TIER-1)."""
    torch.manual_seed(0)
    with pytest.warns(DeprecationWarning):
        scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 6), nn.ReLU()))
    model = nn.Sequential(scripted, nn.Linear(6, 3))
    optimizer, sink = torch.optim.SGD(model.parameters(), lr=0.1), trk.MemorySink()
    with trk.watch(model, sink, optimizer=optimizer, every=1) as watch, watch.step(0):
        train_step(model, optimizer, 0)
    rows = by_tag(sink)
    assert {tag.split("/")[-1] for tag in rows if tag.startswith("gradients/norm/")} == {
        *("0.0.weight", "0.0.bias", "1.weight", "1.bias")
    }
