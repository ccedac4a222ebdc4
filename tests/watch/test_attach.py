"""Every refusal of attach, by its code; afterwards no hook, no registration and no row is left."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.watch import registry  # noqa: E402

from .helpers import batch, by_tag, hook_census, refused, small_model, train_step  # noqa: E402
from .judging_sinks import Capped, Judge, NoHistograms  # noqa: E402


class Raises(nn.Module):
    """A model whose forward fails."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        """Fail."""
        raise ArithmeticError(f"no forward of {type(x).__name__}")


class Holder(nn.Module):
    """A model of whatever modules and parameters it is given."""

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def unsafe_model() -> nn.Module:
    """Return a model with a module name that no tag may hold."""
    model = nn.Module()
    model.add_module("what?", nn.Linear(4, 3))
    return model


def sparse_model() -> nn.Module:
    """Return a model with a sparse embedding."""
    return Holder(words=nn.Embedding(5, 4, sparse=True), head=nn.Linear(4, 3))


def complex_model() -> nn.Module:
    """Return a model with a complex parameter."""
    return Holder(phase=nn.Parameter(torch.zeros(3, dtype=torch.complex64)), head=nn.Linear(4, 3))


def integer_model() -> nn.Module:
    """Return a model with an integer parameter."""
    return Holder(table=nn.Parameter(torch.zeros(3, dtype=torch.int8), requires_grad=False), head=nn.Linear(4, 3))


def watched_by_wandb() -> nn.Module:
    """Return a model that looks as wandb.watch leaves it."""
    model = small_model()
    model._wandb_hook_names = ["gradients/0.weight"]
    return model


M = {"signals": ("activations",), "select": "0", "inputs": batch(0)}
O = {**M, "grain": "op", "allow_forward_wrap": True, "select": trk.func("linear")}  # noqa: E741


REFUSALS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "no module": ("watch_model_invalid", lambda: "model", {}),
    "no signals": ("watch_signals_invalid", small_model, {"signals": ()}),
    "unknown signal": ("watch_signals_invalid", small_model, {"signals": ("gradients", "weights")}),
    "repeated signal": ("watch_signals_invalid", small_model, {"signals": ("gradients", "gradients")}),
    "signals of nothing": ("watch_signals_invalid", small_model, {"signals": 3}),
    "selector of a number": ("watch_selector_invalid", small_model, {"select": 3}),
    "empty selector": ("watch_selector_invalid", small_model, {"select": ("0", "")}),
    "typo": ("watch_selector_matched_no_sites", small_model, {"select": ("0", "encoder")}),
    "no selector": ("watch_selector_matched_no_sites", small_model, {"select": ()}),
    "half a component": ("watch_selector_matched_no_sites", small_model, {"select": "0.wei"}),
    "no parameter under it": (
        "watch_selector_matched_no_sites",
        small_model,
        {**M, "signals": ("activations", "gradients"), "select": "1"},
    ),
    "no parameters": ("watch_selector_matched_no_sites", nn.ReLU, {}),
    "every 0": ("watch_settings_invalid", small_model, {"every": 0}),
    "every True": ("watch_settings_invalid", small_model, {"every": True}),
    "hist_every text": ("watch_settings_invalid", small_model, {"hist_every": "5"}),
    "step no callable": ("watch_settings_invalid", small_model, {"step": 3}),
    "events no callable": ("watch_settings_invalid", small_model, {"event_stream": 3}),
    "settings a mapping": ("watch_settings_invalid", small_model, {"settings": {}}),
    "descriptor a number": ("watch_settings_invalid", small_model, {"descriptor": 64}),
    "two grids": (
        "watch_settings_invalid",
        small_model,
        {"descriptor": trk.WANDB_SAFE_DESCRIPTOR, "settings": trk.WatchSettings()},
    ),
    "grain a number": ("watch_settings_invalid", small_model, {"grain": 1}),
    "two examples": ("watch_settings_invalid", small_model, {**M, "example_input": batch(0)}),
    "op grain": ("watch_forward_wrap_consent_required", small_model, {"grain": "op"}),
    "gradients at op grain": ("watch_tier_unavailable", small_model, {"grain": "op", "allow_forward_wrap": True}),
    "op grain without a choice": ("watch_tier_inputs_missing", small_model, {**O, "select": None}),
    "op grain without inputs": ("watch_tier_inputs_missing", small_model, {**O, "inputs": None}),
    "no such function": ("watch_selector_matched_no_sites", small_model, {**O, "select": trk.func("softmax")}),
    "no such module": ("watch_selector_matched_no_sites", small_model, {**O, "select": "7"}),
    "facets that do not fit": (
        "watch_facet_shape_invalid",
        small_model,
        {**O, "facets": {trk.func("linear"): trk.split_heads(4)}},
    ),
    "facets a list": ("watch_settings_invalid", small_model, {**O, "facets": [1]}),
    "op grain, failing forward": ("watch_discovery_failed", Raises, {**O, "select": "inner"}),
    "op grain, budget": ("watch_budget_exceeded", small_model, {**O, "max_sites": 1}),
    "op grain under DataParallel": ("watch_tier_unavailable", lambda: nn.DataParallel(small_model()), O),
    "facets at module grain": ("watch_settings_invalid", small_model, {"facets": {}}),
    "functions at module grain": ("watch_selector_invalid", small_model, {**M, "select": trk.func("linear")}),
    "no inputs": ("watch_tier_inputs_missing", small_model, {"signals": "activations", "select": "0"}),
    "no select": ("watch_tier_inputs_missing", small_model, {"signals": "activation_grads", "inputs": batch(0)}),
    "failing forward": ("watch_discovery_failed", Raises, {**M, "select": "inner"}),
    "wrong inputs": ("watch_discovery_failed", small_model, {**M, "inputs": {"nothing": 1}}),
    "nothing runs": (
        "watch_discovery_failed",
        lambda: Holder(unused=nn.Linear(4, 3), forward=lambda x: x),
        {**M, "select": "unused"},
    ),
    "budget of sites": ("watch_budget_exceeded", small_model, {"max_sites": 3}),
    "budget of bytes": ("watch_budget_exceeded", small_model, {"max_bytes_per_step": 100, "hist_every": 1}),
    "budget of elements": ("watch_budget_exceeded", small_model, {"budgets": {"max_elements_per_step": 50}}),
    "budget 0": ("watch_budget_invalid", small_model, {"max_sites": 0}),
    "budget True": ("watch_budget_invalid", small_model, {"max_sites": True}),
    "unknown budget": ("watch_budget_invalid", small_model, {"budgets": {"max_time": 3}}),
    "budgets a number": ("watch_budget_invalid", small_model, {"budgets": 3}),
    "two budgets": ("watch_budget_invalid", small_model, {"max_sites": 30, "budgets": {"max_sites": 31}}),
    "optimizer a text": ("watch_optimizer_invalid", small_model, {"optimizer": "adam"}),
    "optimizers none": ("watch_optimizer_invalid", small_model, {"optimizer": []}),
    "another model's optimizer": (
        "watch_optimizer_invalid",
        small_model,
        {"optimizer": torch.optim.SGD(small_model().parameters(), lr=0.1)},
    ),
    "sparse": ("watch_sparse_grad_unsupported", sparse_model, {}),
    "complex": ("watch_dtype_unsupported", complex_model, {"signals": "parameters"}),
    "integers": ("watch_dtype_unsupported", integer_model, {"signals": "parameters"}),
    "wandb.watch": ("tracker_namespace_collision", watched_by_wandb, {}),
    "name of two": ("tracker_name_invalid", small_model, {"name": "a/b"}),
    "empty name": ("tracker_name_invalid", small_model, {"name": ""}),
    "name a number": ("tracker_name_invalid", small_model, {"name": 3}),
    "unsafe namespace": ("tracker_name_invalid", small_model, {"namespace": "a?"}),
    "unsafe leaf": ("tracker_tag_unsafe", unsafe_model, {}),
    "no sink": ("tracker_sink_invalid", small_model, {"to": [object()]}),
    "no histograms": ("tracker_sink_capability_missing", small_model, {"to": [NoHistograms()], "hist_every": 1}),
    "grid judged": ("tracker_relay_histogram_unsupported", small_model, {"to": [Judge(grids=True)], "hist_every": 1}),
    "tags judged": ("tracker_tag_unsafe", small_model, {"to": [Judge(tags=True)]}),
    "grid over the cap": (
        "tracker_histogram_bucket_cap",
        small_model,
        {"to": [Capped()], "hist_every": 1, "settings": trk.WatchSettings()},
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refused_attach_leaves_nothing_behind(case: str) -> None:
    """Each has its code; no hook, registration or row is left, and a good attach works (ATTACH-5, ATTACH-6)."""
    code, make, options = REFUSALS[case]
    model = make()
    sink = trk.MemorySink()
    sinks = [sink, *options.get("to", [])]
    keywords = {key: value for key, value in options.items() if key != "to"}
    before = hook_census(model) if isinstance(model, nn.Module) else {}
    sessions = sum(len(keys) for keys in registry._sessions.values())
    assert refused(lambda: trk.watch(model, sinks, **keywords)).code == code
    assert (hook_census(model) if isinstance(model, nn.Module) else {}) == before
    assert sum(len(keys) for keys in registry._sessions.values()) == sessions and not registry.is_held(sink)
    assert sink.points == []
    other = small_model()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    with trk.watch(other, sink, optimizer=optimizer) as watch, watch.step(0):
        train_step(other, optimizer, 0)
    assert len(by_tag(sink)) > 20


def test_the_census_names_what_exists() -> None:
    """A selector without a match lists the sites that there are (ATTACH-5)."""
    refusal = refused(lambda: trk.watch(small_model(), trk.MemorySink(), select="encoder"))
    assert refusal.fields["selectors"] == ["encoder"] and refusal.fields["exist"] == 4
    assert refusal.fields["census"] == ["0.weight", "0.bias", "3.weight", "3.bias"]


def test_the_refusal_of_sparse_gradients_is_about_what_is_watched() -> None:
    """The dense part alone, and parameters alone, attach and run (ATTACH-3)."""
    model = sparse_model()
    assert refused(lambda: trk.watch(model, trk.MemorySink())).fields["modules"] == ["words"]
    optimizers = [
        torch.optim.SparseAdam([model.words.weight], lr=0.1),  # type: ignore[union-attr, list-item]
        torch.optim.Adam(model.head.parameters(), lr=0.1),  # type: ignore[union-attr]
    ]
    for name, options in (("a", {"select": "head"}), ("b", {"signals": ("parameters", "updates")})):
        sink = trk.MemorySink()
        watched = optimizers[1:] if name == "a" else optimizers
        with trk.watch(model, sink, optimizer=watched, name=name, **options) as watch, watch.step(0):
            model.head(model.words(torch.tensor([1, 2]))).square().mean().backward()  # type: ignore[union-attr, operator]
            for optimizer in optimizers:
                optimizer.step()
        leaves = {tag.split("/", 3)[-1] for tag in by_tag(sink) if not tag.startswith("torchlens")}
        assert leaves == ({"head.weight", "head.bias"} | ({"words.weight"} if name == "b" else set()))


def test_a_gradient_that_becomes_sparse_is_a_named_skip() -> None:
    """A module that is switched to sparse gradients later has a skip, and training goes on (ATTACH-3, STEP-7)."""
    model = Holder(words=nn.Embedding(5, 4), head=nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink = trk.MemorySink()
    with trk.watch(model, sink, optimizer=optimizer) as watch, watch.step(0):
        model.words.sparse = True  # type: ignore[union-attr]
        model.head(model.words(torch.tensor([1, 2]))).square().mean().backward()  # type: ignore[union-attr, operator]
        optimizer.step()
    report = watch.close()
    assert report.skip_counts == {"statistics_refused": 1} and report.named_skips[0].sites == ("words.weight",)
    assert "gradients/norm/head.weight" in by_tag(sink) and "gradients/norm/words.weight" not in by_tag(sink)


def test_sharded_parameters_are_refused() -> None:
    """Flat parameters and DTensors are refused by name, unless they are left out (ATTACH-8)."""
    model = Holder(flat=nn.Linear(4, 3), head=nn.Linear(3, 3))
    model.flat.weight._is_flat_param = True  # type: ignore[union-attr, assignment]
    refusal = refused(lambda: trk.watch(model, trk.MemorySink()))
    assert (refusal.code, refusal.fields["sites"]) == ("watch_sharded_unsupported", ["flat.weight"])
    trk.watch(model, trk.MemorySink(), select="head").close()


def test_gradients_that_live_elsewhere_are_named() -> None:
    """When every gradient is None at the boundary there is a skip a step, never a zero (ATTACH-8, CLOSE-2)."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink = trk.MemorySink()
    with trk.watch(model, sink, optimizer=optimizer, every=1) as watch:
        for n in range(3):
            with watch.step(n):
                optimizer.step()
    report = watch.close()
    assert report.skip_counts == {"gradient_none": 3} and report.named_skips[0].site_count == 4
    assert not any(tag.startswith("gradients") for tag in by_tag(sink))
