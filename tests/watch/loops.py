"""Training loops that the tests of steps share."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torchlens_conformance.trackers as trk  # noqa: E402

from .helpers import small_model  # noqa: E402

ALL = ("gradients", "parameters", "updates", "activations", "activation_grads")


def start(**options: Any) -> tuple[Any, Any, trk.MemorySink, trk.WatchSession]:
    """Return a model, its optimizer, a sink, and a watch that samples every step."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    sink = trk.MemorySink()
    watch = trk.watch(model, sink, optimizer=optimizer, **{"every": 1, **options})
    return model, optimizer, sink, watch
