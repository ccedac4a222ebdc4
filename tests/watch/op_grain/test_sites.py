"""Which operations are taken, and what a choice that takes nothing says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.watch.op_grain.discovery import discover_operations  # noqa: E402
from torchlens_conformance.watch.op_grain.selection import OperationChoice  # noqa: E402
from torchlens_conformance.watch.op_grain.sites import operation_sites  # noqa: E402

from ..helpers import refused  # noqa: E402
from .nets import HEADS, LENGTH, SOFTMAX, WIDTH, example, net  # noqa: E402


def sites(*functions: str, prefixes: Any = None, facets: Any = None) -> list[Any]:
    """Choose from the small net."""
    choice = OperationChoice(tuple(map(trk.func, functions)), facets or {})
    return operation_sites(discover_operations(net(), example()).trace, prefixes, choice)


def test_a_function_takes_all_its_calls() -> None:
    """Every call of it under its label, with module and shape (TIER-3)."""
    (site,) = sites("softmax")
    assert (site.label, site.function, site.module, site.leaves) == (SOFTMAX, "softmax", "", (SOFTMAX,))
    assert site.outputs[0][1].shape == (3, HEADS, LENGTH, LENGTH) and site.elements == 3 * HEADS * LENGTH * LENGTH
    assert [each.label for each in sites("linear")] == ["linear_1_1", "linear_2_24"]
    assert [each.module for each in sites("linear")] == ["mix", "out"]


def test_a_prefix_takes_the_operations_of_a_module() -> None:
    """By whole components of the module's path, the root as ``_root``; functions add to it (TIER-3)."""
    assert [each.label for each in sites(prefixes=("norm",))] == ["batch_norm_1_20"]
    assert [each.label for each in sites("softmax", prefixes=("norm",))] == [SOFTMAX, "batch_norm_1_20"]
    assert {each.module for each in sites(prefixes=("_root",))} == {""}


def test_every_output_of_floating_point_numbers_is_a_series() -> None:
    """Several outputs are numbered behind the label, integers among them left out (TIER-3)."""
    (chunk,) = sites("chunk")
    assert chunk.leaves == ("chunk_1_2/0", "chunk_1_2/1", "chunk_1_2/2")

    class Largest(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.max(x, dim=-1)

    choice = OperationChoice((trk.func("max"),), {})
    (site,) = operation_sites(discover_operations(Largest(), torch.ones(2, 3)).trace, None, choice)
    assert site.leaves == ("max_1_1/0",)
    values, indices = torch.max(torch.ones(2, 3), dim=-1)
    assert [(leaf, each is values) for leaf, each in site.tensors([values, indices])] == [("max_1_1/0", True)]


def test_facets_by_label_or_function() -> None:
    """A facet series stands under its operation; the label wins over the function (TIER-3)."""
    by_label = sites("softmax", facets={SOFTMAX: trk.split_heads(HEADS, dim=1)})
    by_function = sites("softmax", facets={trk.func("softmax"): trk.split_heads(HEADS, dim=1)})
    assert by_label == by_function and by_label[0].leaves == (SOFTMAX, f"{SOFTMAX}/head_0", f"{SOFTMAX}/head_1")
    both = {trk.func("softmax"): trk.split_heads(2), SOFTMAX: trk.split_heads(5, dim=2)}
    assert len(sites("softmax", facets=both)[0].leaves) == 6
    assert by_label[0].elements == 2 * 3 * HEADS * LENGTH * LENGTH


def test_a_choice_that_takes_nothing_has_the_census() -> None:
    """Functions that were seen, with how often, and where they ran (TIER-3, ATTACH-5)."""
    refusal = refused(lambda: sites("sigmoid"))
    assert refusal.code == "watch_selector_matched_no_sites" and refusal.fields["selectors"] == ['func("sigmoid")']
    assert refusal.fields["census"]["softmax"] == 1 and refusal.fields["census"]["linear"] == 2
    assert refusal.fields["modules"] == ["_root", "drop", "mix", "norm", "out"]
    assert refused(lambda: sites("softmax", prefixes=("nor",))).fields["selectors"] == ["nor"]
    assert refused(lambda: sites(prefixes=("drop.x",))).code == "watch_selector_matched_no_sites"


@pytest.mark.parametrize("select", [[], ()])
def test_an_empty_choice_is_refused_at_either_grain(select: Any) -> None:
    """It takes nothing, which has the census, and nothing is left behind (ATTACH-5, TIER-3)."""
    model, options = net(), {"signals": ("activations",), "select": select, "inputs": example()}
    at_operations = {**options, "grain": "op", "allow_forward_wrap": True}
    refusal, module = (
        refused(lambda each=each: trk.watch(model, trk.MemorySink(), **each))  # type: ignore[misc]
        for each in (at_operations, options)
    )
    assert refusal.code == module.code == "watch_selector_matched_no_sites"
    assert refusal.fields["selectors"] == module.fields["selectors"] == []
    assert refusal.fields["census"]["softmax"] == 1 and "An empty select=" in str(refusal)
    trk.watch(model, trk.MemorySink(), signals=("gradients",)).close()


def test_a_choice_that_takes_nothing_names_what_was_not_seen() -> None:
    """An empty census of a forward in another thread says why it is empty (TIER-2, TIER-3)."""

    class Threaded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Softmax(-1)

        def forward(self, x: Any) -> Any:
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(self.inner, x).result()

    choice = OperationChoice((trk.func("softmax"),), {})
    trace = discover_operations(Threaded(), torch.ones(2, 3)).trace
    refusal = refused(lambda: operation_sites(trace, None, choice))
    assert refusal.fields["census"] == {} and "unseen=" in refusal.remedy
    assert "inner ran in another thread: its operations are not recorded" in refusal.fields["unseen"]
    assert "unseen" not in refused(lambda: sites("sigmoid")).fields


def test_fused_attention_says_how_to_see_a_softmax() -> None:
    """Where attention is one function the remedy names the way out (TIER-3)."""

    class Fused(nn.Module):
        def forward(self, x: Any) -> Any:
            return nn.functional.scaled_dot_product_attention(x, x, x)

    choice = OperationChoice((trk.func("softmax"),), {})
    trace = discover_operations(Fused(), torch.ones(1, 2, 3, 4)).trace
    assert "eager" in refused(lambda: operation_sites(trace, None, choice)).remedy


@pytest.mark.parametrize(
    "split", [trk.split_heads(3, dim=1), trk.split_heads(2, dim=4), trk.split_heads(WIDTH, dim=-1)]
)
def test_a_split_that_does_not_fit_is_refused(split: Any) -> None:
    """By the shape that discovery saw (TIER-3)."""
    refusal = refused(lambda: sites("softmax", facets={SOFTMAX: split}))
    assert refusal.code == "watch_facet_shape_invalid" and refusal.fields["operation"] == SOFTMAX
    assert refusal.fields["shape"] == [3, HEADS, LENGTH, LENGTH]


@pytest.mark.parametrize("key", ["softmax_3_12", "linear_1_1", trk.func("linear")])
def test_a_facet_of_what_is_not_watched_is_refused(key: Any) -> None:
    """A label that does not exist, or is not selected, and what is watched (TIER-3)."""
    refusal = refused(lambda: sites("softmax", facets={key: trk.split_heads(2)}))
    assert refusal.code == "watch_selector_matched_no_sites" and refusal.fields["watched"] == [SOFTMAX]
