"""A call is matched with its own of discovery, whatever else runs before it, and never with another one."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.statistics import compute  # noqa: E402

from ..helpers import by_tag  # noqa: E402
from .nets import attach  # noqa: E402


class Does(nn.Module):
    """Runs a function of itself and the input; ``seen`` keeps copies of what the function gives it."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.near, self.far = nn.Softmax(-1), nn.Softmax(-1)
        self.body = body

    def keep(self, y: Any) -> Any:
        """Keep a copy."""
        SEEN.append(y.detach().clone())
        return y

    def forward(self, x: Any) -> Any:
        """Run it."""
        return self.body(self, x)


SEEN: list[Any] = []


def ran(model: Any, inputs: Any, batches: Any, **options: Any) -> tuple[dict[str, Any], list[list[float]], Any]:
    """Run a step a batch; return the norms by leaf and step, what the model kept at each step, and the report."""
    sink, kept = trk.MemorySink(), []
    with attach(model, sink, inputs=inputs, **options) as watch:
        for n, x in enumerate(batches):
            SEEN.clear()
            with watch.step(n):
                model(x)
            kept.append([compute(y).norm for y in SEEN])
    rows = {tag.split("/", 2)[2]: steps for tag, steps in by_tag(sink).items() if tag.startswith("activations/norm/")}
    return rows, kept, watch.close()


UP, DOWN, FAR_DOWN = torch.tensor([[1.0, 2.0]]), torch.tensor([[-1.0, -2.0]]), torch.tensor([[-9.0, -99.0]])


def earlier(model: Any, x: Any) -> Any:
    """One operation more or less before the same call, or no call."""
    if x.sum() < -50:
        return x * 2
    if x.sum() < 0:
        x = x.abs()
    return model.keep(torch.softmax(x.exp(), dim=-1))


def test_operations_in_front_move_no_series() -> None:
    """The same call keeps its label of discovery; a step without it has no row and names it (TIER-3)."""
    rows, kept, report = ran(Does(earlier), UP, (UP, DOWN, FAR_DOWN))
    (leaf,) = rows
    assert rows[leaf] == {0: kept[0][0], 1: kept[1][0]} and leaf.startswith("softmax_1_")
    assert report.skip_counts == {"operation_missing": 1}


def two_places(model: Any, x: Any) -> Any:
    """Another call on each branch, in one line."""
    return model.keep(torch.softmax(x, -1)) if x.sum() > 0 else model.keep(torch.softmax(x * 3, -1))


def two_modules(model: Any, x: Any) -> Any:
    """Another module on each branch, whose code is the same."""
    return model.keep((model.near if x.sum() > 0 else model.far)(x))


def more_calls(model: Any, x: Any) -> Any:
    """One call more in front, at the same place."""
    for scale in (3.0, 1.0) if x.sum() < 0 else (1.0,):
        y = model.keep(torch.softmax(x * scale, -1))
    return y


@pytest.mark.parametrize(("body", "unknown"), [(two_places, 1), (two_modules, 1), (more_calls, 2)])
def test_another_call_is_not_put_under_a_label(body: Any, unknown: int) -> None:
    """Another place, module or number of calls: no row, and two skips that say why (TIER-3)."""
    rows, kept, report = ran(Does(body), UP, (UP, DOWN, UP))
    (leaf,) = rows
    assert rows[leaf] == {0: kept[0][0], 2: kept[2][0]}
    assert report.skip_counts == {"operation_missing": 1, "operation_unknown_label": 1}
    told = next(skip for skip in report.named_skips if skip.name == "operation_unknown_label")
    assert told.step == 1 and len(told.sites) == unknown


def test_the_same_number_of_calls_are_told_apart_by_it() -> None:
    """Several calls at one place have a label each, in their order (TIER-3)."""

    def body(model: Any, x: Any) -> Any:
        if len(x) > 1:
            x = x.expand(len(x), 2)
        return [model.keep(torch.softmax(x * scale, -1)) for scale in (1.0, 2.0, 3.0)]

    rows, kept, report = ran(Does(body), UP, (UP, torch.cat([UP, DOWN])))
    assert list(rows) == ["softmax_1_2", "softmax_2_6", "softmax_3_10"]
    assert [list(steps.values()) for steps in rows.values()] == [list(pair) for pair in zip(*kept)]
    assert report.skip_counts == {}


def test_modules_that_are_replaced_keep_their_place() -> None:
    """A path is a place, whichever module stands there (TIER-3)."""
    model, sink = nn.Sequential(nn.Softmax(-1), nn.Softmax(-1)), trk.MemorySink()
    with attach(model, sink, inputs=UP) as watch, watch.step(0):
        model[0], model[1] = nn.Softmax(0), model[0]
        model(UP)
    rows = by_tag(sink)
    assert rows["activations/mean/softmax_1_1"] == {0: 1.0} and rows["activations/mean/softmax_2_2"] == {0: 0.5}
    assert watch.close().skip_counts == {}


class Halving(nn.Module):
    """A forward that calls itself on both halves of a batch of more than two, by one of two names."""

    def __init__(self, again: str) -> None:
        super().__init__()
        self.again = again

    def forward(self, x: Any) -> Any:
        """Return the softmax of each."""
        if len(x) > 2:
            return torch.cat([getattr(self, self.again)(half) for half in x.chunk(2)])
        return torch.softmax(x, dim=-1)


@pytest.mark.parametrize("again", ["forward", "__call__"])
def test_a_forward_that_calls_itself_is_one_forward(again: str) -> None:
    """Discovery lists all of it, and a step has a row for every call, and no skip (TIER-2, TIER-3)."""
    model = Halving(again)
    x = torch.arange(8.0).reshape(4, 2)
    sink = trk.MemorySink()
    with attach(model, sink, inputs=x) as watch, watch.step(0):
        model(x)
    recorded = [operation.label for operation in trk.record_forward(model, x).operations]
    assert [operation.label for operation in watch.operations.operations] == recorded
    rows = by_tag(sink)
    assert rows["activations/norm/softmax_1_2"] == {0: compute(torch.softmax(x[:2], -1)).norm}
    assert rows["activations/norm/softmax_2_3"] == {0: compute(torch.softmax(x[2:], -1)).norm}
    assert watch.close().skip_counts == {}


@pytest.mark.parametrize(("attached", "trained"), [(1, 2), (2, 1), (1, 1), (2, 3)])
def test_a_gpt2_is_watched_at_other_batches_than_the_example(attached: int, trained: int) -> None:
    """A batch over one adds an operation to its mask, and moves no softmax to another label (TIER-3)."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    settings = {"n_layer": 2, "n_head": 2, "n_embd": 8, "vocab_size": 16, "n_positions": 8}
    config = transformers.GPT2Config(**settings, bos_token_id=0, eos_token_id=0, attn_implementation="eager")
    model, sink = transformers.GPT2LMHeadModel(config).eval(), trk.MemorySink()
    batches = {size: {"input_ids": torch.arange(4 * size).reshape(size, 4) % 16} for size in (attached, trained)}
    facets = {trk.func("softmax"): trk.split_heads(2, dim=1)}
    with attach(model, sink, inputs=batches[attached], facets=facets) as watch:
        for n, size in enumerate((trained, attached)):
            with watch.step(n):
                model(**batches[size])
    assert watch.close().skip_counts == {}
    labels = [each.label for each in watch.operations.operations if each.function == "softmax"]
    for n, size in enumerate((trained, attached)):
        given = model(**batches[size], output_attentions=True).attentions
        for label, weights in zip(labels, given):
            rows = {leaf: by_tag(sink)[f"activations/norm/{label}{leaf}"][n] for leaf in ("", "/head_0", "/head_1")}
            wanted = {"": weights, "/head_0": weights[:, :1], "/head_1": weights[:, 1:]}
            assert rows == {leaf: compute(part).norm for leaf, part in wanted.items()}
