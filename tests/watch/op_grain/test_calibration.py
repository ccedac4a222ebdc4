"""What observing costs is measured at attach, disclosed in four places, and nothing of the measuring stays."""

from __future__ import annotations

import json
import random
import warnings
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.watch.op_grain.calibration import FEWEST_PAIRS, PAIRS, Calibration  # noqa: E402

from ..helpers import by_tag, hook_census, refused, texts  # noqa: E402
from ..test_guest_law import differences  # noqa: E402
from .nets import OPTIONS, Attention, attach, example, net, train  # noqa: E402


def test_the_ratio_is_the_median_over_pairs() -> None:
    """Pair by pair, so that a machine that slows down meanwhile does not count (TIER-2)."""
    assert Calibration((1.0, 2.0, 4.0), (2.0, 3.0, 4.0)).ratio == 1.5
    assert "1.50 times" in Calibration((1.0, 2.0, 4.0), (2.0, 3.0, 4.0)).sentence()


def test_it_is_disclosed_in_four_places() -> None:
    """One warning where the caller attached, the plan, a text row and a scalar row on the first step (TIER-2)."""
    model, sink = net(), trk.MemorySink()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        watch = trk.watch(model, sink, **OPTIONS, inputs=example())
    (warned,) = told
    assert warned.filename == __file__ and str(warned.message).startswith("watch_op_grain_cost_disclosed: ")
    with watch:
        for n in (40, 41):
            with watch.step(n):
                model(example())
    plan = watch.plan_report()
    ratio = plan.op_grain_overhead_median_x
    assert by_tag(sink)["torchlens/run/op_grain_overhead_median_x"] == {40: ratio}
    ((step, text),) = texts(sink)["torchlens/meta/op_grain_calibration"].items()
    row = json.loads(text)
    assert step == 40 and row["overhead_median_x"] == ratio == plan.as_dict()["op_grain_overhead_median_x"]
    assert FEWEST_PAIRS <= len(row["plain_seconds"]) == len(row["observed_seconds"]) <= PAIRS
    assert ratio == Calibration(tuple(row["plain_seconds"]), tuple(row["observed_seconds"])).ratio
    assert all(seconds > 0 for seconds in row["plain_seconds"] + row["observed_seconds"])
    for place in (str(warned.message), plan.format(), row["meaning"]):
        assert f"{ratio:.2f} times the plain one" in place and "no published number" in place
    assert "every= is the lever" in plan.format() and "own hooks fire once" in plan.format()
    (family,) = plan.families
    assert (family.signal, family.tier, family.sites) == ("activations", "O", 1)
    assert family.elements == plan.elements_per_step == model.seen.numel()


def test_module_grain_tells_nothing_of_it() -> None:
    """No ratio, no row, no warning (TIER-2)."""
    model, sink = net(), trk.MemorySink()
    options = {"signals": ("activations",), "select": "out", "inputs": example(), "every": 1}
    with trk.watch(model, sink, **options) as watch, watch.step(0):
        model(example())
    assert watch.plan_report().op_grain_overhead_median_x is None
    assert not [tag for tag in by_tag(sink) if "op_grain" in tag] and list(texts(sink)) == ["torchlens/meta/manifest"]


class Moody(Attention):
    """Draws from every random state, and raises at its n-th forward.

    Attributes:
        fails_at: Number of the call that raises; 0 for none.
    """

    fails_at = 0
    ran = 0

    def forward(self, x: Any) -> Any:
        """Return the forward plus three random numbers; count it where a forward at attach is not put back."""
        numpy = pytest.importorskip("numpy")
        y = super().forward(x) + torch.rand(1) + random.random() + numpy.random.rand()
        Moody.ran += 1
        if Moody.ran == self.fails_at:
            raise ArithmeticError("now")
        return y


def state(model: Any) -> dict[str, Any]:
    """Return everything that a forward at attach could leave behind."""
    numpy = pytest.importorskip("numpy")
    kept = numpy.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": (kept[1].tolist(), *kept[2:]),
        "model": {name: value.clone() for name, value in model.state_dict().items()},
        "buffers": [id(buffer) for buffer in model.buffers()],
        "gradients": [parameter.grad for parameter in model.parameters()],
        "modes": [module.training for module in model.modules()],
        "hooks": hook_census(model),
        "forward": "forward" in vars(model),
        "grad mode": torch.is_grad_enabled(),
    }


@pytest.mark.parametrize("fails_at", [0, *range(1, 2 + 1 + 2 * PAIRS)])
def test_nothing_of_it_stays(fails_at: int) -> None:
    """Random states, buffers, modes and hooks are those from before, also when any of the forwards raises (TIER-2)."""
    torch.manual_seed(2)
    model = Moody(dropout=0.2)
    model.fails_at, Moody.ran = fails_at, 0
    before = state(model)
    if fails_at:
        refusal = refused(lambda: trk.watch(model, trk.MemorySink(), **OPTIONS, inputs=example()))
        assert refusal.code == "watch_discovery_failed" and "ArithmeticError" in str(refusal)
    else:
        watch = attach(model, trk.MemorySink())
        assert Moody.ran == 2 + 2 * PAIRS
        model.fails_at = 0
        assert differences(before, state(model)) == []
        watch.close()
    assert differences(before, state(model)) == []


def test_without_consent_nothing_was_touched() -> None:
    """The model is not even called (TIER-2)."""
    model, sink = net(), trk.MemorySink()
    before = state(model)
    options = {key: value for key, value in OPTIONS.items() if key != "allow_forward_wrap"}
    for consent in ({}, {"allow_forward_wrap": False}, {"allow_forward_wrap": "yes"}):
        refusal = refused(partial(trk.watch, model, sink, inputs=example(), **options, **consent))
        assert refusal.code == "watch_forward_wrap_consent_required"
    assert model.calls == 0 and sink.points == [] and differences(before, state(model)) == []


def test_a_disabled_session_runs_no_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither discovery nor calibration nor a warning; training goes on (ENV-1, TIER-2)."""
    monkeypatch.setenv("TORCHLENS_WATCH_DISABLE", "1")
    model, sink = net(), trk.MemorySink()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trk.watch(model, sink, **OPTIONS, inputs=example()) as watch, watch.step(0):
        assert model.calls == 0
        train(model, optimizer, 0)
    assert watch.close().disabled_by and list(by_tag(sink)) == ["torchlens/run/disabled"]


def test_a_warning_that_is_an_error_leaves_nothing() -> None:
    """Under ``-W error`` the attach fails as a whole (ATTACH-6, TIER-2)."""
    model, sink = net(), trk.MemorySink()
    before = state(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(trk.WatchOpGrainCostWarning):
            trk.watch(model, sink, **OPTIONS, inputs=example())
    assert differences(before, state(model)) == [] and sink.points == []
    attach(model, sink).close()


def test_a_budget_is_judged_before_anything_is_measured() -> None:
    """One discovery forward, and no calibration, when the budget is too small (ATTACH-5, TIER-2)."""
    model = Moody()
    Moody.ran = 0
    refusal = refused(lambda: trk.watch(model, trk.MemorySink(), **OPTIONS, inputs=example(), max_elements_per_step=10))
    assert Moody.ran == 1
    model(example())
    assert refusal.code == "watch_budget_exceeded" and refusal.fields["needed"] == model.seen.numel()
