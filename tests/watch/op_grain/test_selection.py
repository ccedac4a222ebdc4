"""What chooses operations, and how outputs are split."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.watch.op_grain.selection import require_facets, without_functions  # noqa: E402

from ..helpers import refused  # noqa: E402


@pytest.mark.parametrize("name", ["", "soft max", "torch.softmax", 3, None, torch.softmax])
def test_a_function_has_a_name(name: Any) -> None:
    """Anything but one name is refused (TIER-3)."""
    assert refused(lambda: trk.func(name)).code == "watch_selector_invalid"


@pytest.mark.parametrize(
    ("heads", "dim"), [(0, 1), (-2, 1), (True, 1), (2.0, 1), ("2", 1), (2, None), (2, 1.0), (2, True)]
)
def test_a_split_has_heads_and_an_axis(heads: Any, dim: Any) -> None:
    """A number of heads below one, or no integers, are refused (TIER-3)."""
    assert refused(lambda: trk.split_heads(heads, dim=dim)).code == "watch_facet_shape_invalid"


@pytest.mark.parametrize(
    ("heads", "dim", "shape", "fits"),
    [
        (12, 1, (2, 12, 5, 5), True),
        (12, 2, (2, 5, 768), True),
        (12, -1, (2, 5, 768), True),
        (12, 1, (2, 11, 5, 5), False),
        (12, 4, (2, 12, 5, 5), False),
        (12, -5, (2, 12, 5, 5), False),
        (12, 0, (), False),
        (2, 0, (0, 3), False),
    ],
)
def test_a_split_fits_or_not(heads: int, dim: int, shape: tuple[int, ...], fits: bool) -> None:
    """The axis must exist and its size be a multiple of the heads (TIER-3)."""
    assert trk.split_heads(heads, dim=dim).fits(shape) is fits


def test_the_parts_are_views_in_order() -> None:
    """Head i is the i-th part of the axis, and nothing is copied (TIER-3)."""
    tensor = torch.arange(24.0).reshape(2, 6, 2)
    parts = dict(trk.split_heads(3, dim=1).parts(tensor))
    assert list(parts) == ["head_0", "head_1", "head_2"]
    for index, part in enumerate(parts.values()):
        assert torch.equal(part, tensor[:, 2 * index : 2 * index + 2])
        assert part.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()


def test_functions_are_told_from_prefixes() -> None:
    """One or several functions may stand beside prefixes, in any order, each once (TIER-3)."""
    softmax, add = trk.func("softmax"), trk.func("add")
    assert without_functions(None) == (None, ())
    assert without_functions("h.0") == ("h.0", ())
    assert without_functions(softmax) == (None, (softmax,))
    assert without_functions((softmax, "h.0", add, softmax)) == (["h.0"], (softmax, add))
    assert without_functions([softmax]) == (None, (softmax,))
    assert without_functions(7) == (7, ())


@pytest.mark.parametrize("facets", [7, {"a": 3}, {3: trk.split_heads(2)}, [("a", trk.split_heads(2))]])
def test_facets_are_a_mapping_to_splits(facets: Any) -> None:
    """Anything else is refused (TIER-3)."""
    assert refused(lambda: require_facets(facets)).code == "watch_settings_invalid"
