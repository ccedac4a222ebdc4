"""Changes in place are seen, also of tensors whose changes torch does not count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from torchlens_conformance.watch.operations import OperationTrace, record_forward  # noqa: E402

CALLS: dict[str, Callable[[Any], Any]] = {
    "setitem": lambda t: t.__setitem__(0, 1.0),
    "method": lambda t: t.mul_(2),
    "operator": lambda t: t.__iadd__(1),
    "foreach": lambda t: torch._foreach_add_([t], 1),
    "init": lambda t: nn.init.zeros_(t),
    "out": lambda t: torch.add(t, t, out=torch.empty(2, 4)),
    "several out": lambda t: torch.max(t, 1, out=(torch.empty(2), torch.empty(2, dtype=torch.int64))),
    "out is an input": lambda t: torch.mul(t, 2, out=t),
    "inplace by keyword": lambda t: functional.relu(t, inplace=True),
    "inplace by place": lambda t: functional.dropout(t, 0.5, True, True),
    "module": lambda t: nn.ReLU(inplace=True)(t),
    "not inplace": lambda t: functional.relu(t),
    "into another": lambda t: torch.ones(2, 4).copy_(t),
    "shape": lambda t: t.transpose_(0, 1),
    "no write": lambda t: t.requires_grad_(False).detach_(),
    "same tensor": lambda t: t.contiguous().to(torch.float32),
}
"""Calls that write, and some that only look like it."""


class Calls(nn.Module):
    """Calls one function between two operations."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        """Give what is read after the call."""
        y = x + 1
        self.function(y)
        return y.sum()


def _recorded(function: Callable[[Any], Any], mode: Any) -> OperationTrace:
    with mode():
        return record_forward(Calls(function), torch.arange(8.0).reshape(2, 4))


@pytest.mark.parametrize("call", CALLS)
def test_inference_mode_hides_no_write(call: str) -> None:
    """Operations, labels, edges and writes are those without it, and how they were told is named (GRAPH-1, TIER-3)."""
    counted, uncounted = (_recorded(CALLS[call], mode) for mode in (torch.no_grad, torch.inference_mode))
    assert [(each.label, each.inputs, each.writes) for each in uncounted.operations] == [
        (each.label, each.inputs, each.writes) for each in counted.operations
    ]
    assert counted.unseen == () and [sentence.split(" of ")[0] for sentence in uncounted.unseen] == [
        "torch does not count changes"
    ]


def test_a_write_under_inference_mode_is_an_operation() -> None:
    """The edges go through it (GRAPH-1)."""
    trace = _recorded(CALLS["setitem"], torch.inference_mode)
    assert [(each.label, each.inputs, each.writes) for each in trace.operations] == [
        ("add_1_1", ("input.0",), False),
        ("setitem_1_2", ("add_1_1",), True),
        ("sum_1_3", ("setitem_1_2",), False),
    ]
