"""Each signal has its tier, and a tier touches what its row of the table says and nothing else (TIER-0)."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torchlens_conformance.trackers as trk  # noqa: E402

from .helpers import hook_census  # noqa: E402
from .op_grain.nets import OPTIONS, example, net  # noqa: E402

TIERS: dict[str, tuple[dict[str, Any], int]] = {
    "P": ({"signals": ("gradients", "parameters", "updates")}, 0),
    "M": ({"signals": ("activations", "activation_grads"), "select": ("mix", "out"), "inputs": example()}, 1),
    "O": ({**OPTIONS, "inputs": example()}, 1 + 1 + 2 * 5),
}
"""What attaches at a tier, and how many forwards that runs."""


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.filterwarnings("ignore:watch_op_grain_cost_disclosed")
def test_a_tier_does_what_its_row_says(tier: str) -> None:
    """P runs and wraps no forward, M hooks its modules after one discovery, O stands in the forward (TIER-0)."""
    options, forwards = TIERS[tier]
    model, sink = net(), trk.MemorySink()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = hook_census(model)
    watch = trk.watch(model, sink, optimizer=optimizer, **{**options, "every": 1})
    assert {family.tier for family in watch.plan_report().families} == {tier} and model.calls == forwards
    with watch.step(0):
        inside = {name for name, count in hook_census(model).items() if count != before[name]}
        model(example()).mean().backward()
        optimizer.step()
    watch.close()
    expected = {"P": set(), "M": {"mix._forward_hooks", "out._forward_hooks"}, "O": {".forward"}}
    assert inside == expected[tier] and hook_census(model) == before and model.calls == forwards + 1
