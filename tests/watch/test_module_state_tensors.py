"""Tensors that modules hold have their values, shape and memory again after a forward beside the training."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from torchlens_conformance.watch.discovery import everything_restored  # noqa: E402


def _expanded() -> Any:
    return torch.ones(1).expand(4)


def _inference() -> Any:
    with torch.inference_mode():
        return torch.ones(4)


def _strided() -> Any:
    return torch.ones(8).as_strided((4,), (2,))


BUFFERS: dict[str, Callable[[], Any]] = {
    "expanded": _expanded,
    "of inference mode": _inference,
    "empty": lambda: torch.ones(0),
    "strided": _strided,
    "not finite": lambda: torch.tensor([float("nan"), -0.0, float("inf"), 1.0]),
    "overlapping": lambda: torch.ones(5).as_strided((4,), (1,)).unfold(0, 2, 1),
    "sparse": lambda: torch.eye(4).to_sparse(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(4), 0.5, 0, torch.qint8),
    "meta": lambda: torch.ones(4, device="meta"),
    "detached": lambda: torch.ones(4, requires_grad=True).detach(),
}
"""Buffers that a module may hold, and not all of which can be written."""

CHANGES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda buffer: None,
    "in place": lambda buffer: buffer.data.add_(1),
    "resized": lambda buffer: buffer.resize_(6).zero_(),
    "other memory": lambda buffer: setattr(buffer, "data", torch.zeros(2)),
}
"""What a forward may do with them."""


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", BUFFERS)
@pytest.mark.filterwarnings("ignore")
def test_every_legal_buffer_is_put_back(kind: str, change: str) -> None:
    """None of them stops the attach, or keeps the others from being put back (TIER-2)."""
    model: Any = nn.Module()
    buffers = {"first": torch.ones(3), "odd": BUFFERS[kind](), "last": torch.ones(3)}
    for name, buffer in buffers.items():
        model.register_buffer(name, buffer)
    before = repr(model._buffers)
    with everything_restored(model):
        buffers["first"].add_(1)
        buffers["last"].add_(1)
        with suppress(RuntimeError, NotImplementedError):  # Not every one can be changed so.
            CHANGES[change](buffers["odd"])
    assert repr(model._buffers) == before
    assert model.first is buffers["first"] and model.last is buffers["last"]
    assert change != "nothing" or model.odd is buffers["odd"]


def test_shared_memory_is_put_back_once() -> None:
    """A view of a buffer that stands elsewhere sees the old values again (TIER-2)."""
    model: Any = nn.Module()
    model.register_buffer("whole", torch.ones(4))
    model.part = model.whole[:2]
    whole, version = model.whole, model.whole._version
    with everything_restored(model):
        model.part.mul_(3)
    assert model.whole is whole and torch.equal(whole, torch.ones(4)) and torch.equal(model.part, torch.ones(2))
    assert whole._version == version


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_buffers_of_a_scripted_part_are_put_back() -> None:
    """They live behind Python's back, changed in place or exchanged (TIER-2)."""

    class Counts(nn.Module):
        """Counts its calls in two ways."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("one", torch.zeros(1))
            self.register_buffer("two", torch.zeros(1))

        def forward(self, x):  # type: ignore[no-untyped-def]
            """Count."""
            self.one.add_(1)  # type: ignore[operator]
            self.two = self.two + 1  # type: ignore[has-type]
            return x * self.one

    model = nn.Sequential(torch.jit.script(Counts()))
    with everything_restored(model):
        model(torch.ones(1))
    assert [buffer.tolist() for buffer in model.buffers()] == [[0.0], [0.0]]
