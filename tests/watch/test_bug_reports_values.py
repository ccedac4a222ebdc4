"""The public reports about values, outputs and resumed runs, each with its right value.

The number in a docstring is the report's. Inputs are of our own making; everything here is real: torch, its scaler,
its compiler front end, a sink and its reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from reference_sinks.readers import read_jsonl, read_tensorboard  # noqa: E402

from .helpers import batch, by_tag, histograms, hook_census, refused, small_model, train_step  # noqa: E402
from .reports import Holder, adamw, norm, sgd  # noqa: E402
from .test_guest_law import differences  # noqa: E402


@pytest.mark.parametrize("make", [sgd, adamw])
def test_nonfinite_gradients_never_stop_training(make: Any) -> None:
    """Report 11: exact counts, moments of finite values, nothing invented, training untouched (STAT-2, STAT-3)."""

    def train(*, watched: bool) -> tuple[Any, trk.MemorySink]:
        torch.manual_seed(2)
        model = Holder(lin=nn.Linear(3, 4))
        model.register_parameter("empty", nn.Parameter(torch.empty(3, 0)))
        optimizer, sink = make(model.parameters()), trk.MemorySink()
        signals = ("gradients", "updates")
        session = trk.watch(model, sink, optimizer=optimizer, signals=signals, every=1, hist_every=1)
        if not watched:
            session.close()
        for n in range(3):
            optimizer.zero_grad()
            (model(batch(n, width=3)).square().mean() + model.empty.sum()).backward()
            gradient = model.lin.weight.grad.view(-1)
            if n == 0:
                gradient[0], gradient[1] = torch.nan, torch.inf
            else:
                gradient.fill_(torch.nan if n == 1 else 0.0)
            with session.step(n) if watched else nullcontext():
                optimizer.step()
        session.close()
        return model.state_dict(), sink

    bare, _ = train(watched=False)
    watched, sink = train(watched=True)
    assert differences(bare, watched) == []
    rows, counted = by_tag(sink), histograms(sink)
    leaf = "lin.weight"
    assert {kind: rows[f"nonfinite/gradients_{kind}/{leaf}"] for kind in ("nan", "posinf", "neginf")} == {
        "nan": {0: 1, 1: 12},
        "posinf": {0: 1, 1: 0},
        "neginf": {0: 0, 1: 0},
    }
    assert rows[f"gradients/count/{leaf}"] == {0: 10, 1: 0, 2: 12}
    assert sorted(rows[f"gradients/mean/{leaf}"]) == [0, 2] and rows[f"gradients/norm/{leaf}"][2] == 0.0
    assert rows[f"gradients/zero_fraction/{leaf}"][2] == 1.0
    assert rows[f"nonfinite/updates_nan/{leaf}"][0] > 0 and rows["gradients/count/empty"] == {0: 0, 1: 0, 2: 0}
    assert "gradients/mean/empty" not in rows
    for n, special in enumerate((2, 12, 0)):
        assert sum(counted[f"gradients/hist/{leaf}"][n].counts) + special == 12


def test_accumulated_gradients_have_one_row() -> None:
    """Report 12: 7 micro-batches by 3, 3, 1 give three rows of what the optimizer got, short window too (STEP-9)."""
    model, sink = small_model(), trk.MemorySink()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    held = {}
    signals = ("gradients", "activations")
    with trk.watch(
        model, sink, optimizer=optimizer, signals=signals, select=("0", "3"), inputs=batch(0), every=1
    ) as watch:
        for n, window in enumerate(((0, 1, 2), (3, 4, 5), (6,))):
            with watch.step(n):
                optimizer.zero_grad()
                for micro in window:
                    model(batch(micro)).square().mean().backward()
                held[n] = norm(model[0].weight.grad)
                optimizer.step()
    rows = by_tag(sink)
    assert rows["gradients/norm/0.weight"] == pytest.approx(held, rel=1e-12) and len(held) == 3
    assert rows["activations/calls/3"] == {0: 3, 1: 3, 2: 1}
    assert rows["activations/count/3"] == {0: 45, 1: 45, 2: 15}


class Gives(nn.Module):
    """Returns what a function makes of its input."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Any) -> Any:
        """Return it."""
        return self.make(x)


def test_outputs_of_every_kind_are_observed_or_named() -> None:
    """Report 18: mappings, records, tuples, None, integers: a stable leaf or a named skip, and no error (TIER-1)."""
    transformers = pytest.importorskip("transformers")
    output = transformers.modeling_outputs.BaseModelOutput
    kinds: dict[str, Callable[[Any], Any]] = {
        "mapping": lambda x: {"a": x, "b": 2 * x},
        "record": lambda x: output(last_hidden_state=x),
        "fields": lambda x: Fields(x, None, "text"),
        "pair": lambda x: (x, None),
        "nested": lambda x: (3, [x, {"k": x + 1}]),
        "truth": lambda x: x > 0,
        "integer": lambda x: x.long(),
        "nothing": lambda x: (),
        "none": lambda x: None,
        "strange": lambda x: object(),
        "shared": lambda x: x * 2,
    }
    modules = nn.ModuleDict({name: Gives(make) for name, make in kinds.items()})

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin, self.parts = nn.Linear(4, 3), modules

        def forward(self, x: Any) -> Any:
            y = self.lin(x)
            given = [part(y) for part in self.parts.values()]
            return self.parts["shared"](y) + sum(part for _, part in floats(given))

    model, sink = Net(), trk.MemorySink()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    signals = ("activations", "activation_grads")
    norms: dict[str, dict[int, float]] = {}
    with trk.watch(
        model, sink, optimizer=optimizer, signals=signals, select="parts", inputs=batch(0), every=1
    ) as watch:
        for n in range(2):
            with watch.step(n):
                y = model.lin(batch(n)).detach()
                for leaf, part in floats({name: make(y) for name, make in kinds.items()}):
                    norms.setdefault(leaf, {})[n] = norm(part) * (2**0.5 if leaf == "shared" else 1.0)
                train_step(model, optimizer, n)
    rows = by_tag(sink)
    found = {tag: row for tag, row in rows.items() if tag.startswith("activations/norm/")}
    assert found == {
        f"activations/norm/parts.{leaf}": pytest.approx(expected, rel=1e-6) for leaf, expected in norms.items()
    }
    assert set(norms) == {
        "mapping/a",
        "mapping/b",
        "record/last_hidden_state",
        "fields/first",
        "pair/0",
        "nested/1/0",
        "nested/1/1/k",
        "shared",
    }
    assert {tag.replace("activation_grads", "activations") for tag in rows if "activation_grads/norm" in tag} == set(
        found
    )
    assert rows["activations/calls/parts.shared"] == rows["activation_grads/calls/parts.shared"] == {0: 2, 1: 2}
    assert rows["activations/count/parts.shared"] == {0: 30, 1: 30}
    named = {(site, skip.detail) for skip in watch.close().named_skips for site in skip.sites}
    assert named == {
        ("parts.truth", "torch.bool"),
        ("parts.integer", "torch.int64"),
        ("parts.nested/0", "int"),
        ("parts.fields/third", "str"),
        ("parts.nothing", "tuple without a tensor"),
        ("parts.none", "NoneType without a tensor"),
        ("parts.strange", "object"),
    }
    assert set(watch.close().skip_counts) == {"activation_not_floating"}


@dataclass
class Fields:
    """An output of the user's own making."""

    first: Any
    second: Any
    third: Any


def floats(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the floating tensors in a value, by keys and numbers that this test finds on its own."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield "", value
        return
    items = list(value.items()) if hasattr(value, "items") else []
    items = list(vars(value).items()) if isinstance(value, Fields) else items
    items = list(enumerate(value)) if isinstance(value, (tuple, list)) else items
    for key, part in items:
        for rest, tensor in floats(part):
            yield f"{key}/{rest}".rstrip("/"), tensor


class Residual(nn.Module):
    """A convolution, a ReLU, a convolution and a shortcut; in place, or with the same numbers out of place."""

    def __init__(self, *, in_place: bool = True) -> None:
        super().__init__()
        self.conv, self.act, self.last = nn.Conv2d(2, 2, 1), nn.ReLU(inplace=in_place), nn.Conv2d(2, 2, 1)
        self.in_place = in_place

    def forward(self, x: Any) -> Any:
        """Add the shortcut."""
        y = self.last(self.act(self.conv(x)))
        if not self.in_place:
            return y + x
        y += x
        return y


def fit_residual(
    signals: tuple[str, ...], *, in_place: bool = True, prepare: Callable[[Any], object] | None = None
) -> tuple[Any, dict[str, dict[int, Any]]]:
    """Train three steps; return the state and the rows."""
    torch.manual_seed(0)
    model, sink = Residual(in_place=in_place), trk.MemorySink()
    if prepare is not None:
        prepare(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(1, 2, 3, 3, generator=torch.Generator().manual_seed(1))
    options = {"optimizer": optimizer, "select": ("_root", "conv", "act", "last"), "inputs": x, "every": 1}
    watch = trk.watch(model, sink, signals=signals, **options) if signals else None
    for n in range(3):
        with watch.step(n) if watch is not None else nullcontext():
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    if watch is not None:
        assert watch.close().skip_counts == {}
    return model.state_dict(), {tag: row for tag, row in by_tag(sink).items() if not tag.startswith("torchlens/")}


@pytest.mark.parametrize("signals", [("activation_grads",), ("activations", "activation_grads")])
def test_in_place_operations_keep_working(signals: tuple[str, ...]) -> None:
    """Report 19: outputs and their gradients are those of the net without in-place steps, training too (TIER-4)."""
    state, rows = fit_residual(signals)
    assert differences(fit_residual(())[0], state) == []
    oracle = fit_residual(signals, in_place=False)[1]
    leaves = {tag.split("/")[2] for tag in rows if tag.startswith("activation_grads/count")}
    assert leaves == {"_root", "conv", "act", "last"} and rows.keys() == oracle.keys()
    assert all(rows[tag] == pytest.approx(oracle[tag], rel=1e-6) for tag in rows)
    assert rows["activation_grads/count/conv"] == {n: 18 for n in range(3)}


def test_a_backward_hook_on_the_module_would_have_raised() -> None:
    """Report 19: what torch's own full backward hook does in this net, which is why there is none of ours (TIER-4)."""

    def stock(model: Any) -> None:
        model.conv.register_full_backward_hook(lambda module, given, gave: None)

    with pytest.raises(RuntimeError, match="modified inplace"):
        fit_residual((), prepare=stock)
    census: list[dict[str, int]] = []
    fit_residual((), prepare=lambda model: census.append(hook_census(model)))
    with trk.watch(
        model := Residual(),
        trk.MemorySink(),
        signals=("activation_grads",),
        select="conv",
        inputs=torch.ones(1, 2, 3, 3),
    ):
        now = hook_census(model)
    assert {key for key in now if now[key] != census[0][key]} == {"conv._forward_hooks"}


def test_tensors_of_one_element_and_values_on_edges() -> None:
    """Report 20: no deviation of one value, no degenerate edge, half-open bins (STAT-1, POINT-2, GRID-2)."""
    model = Holder(lin=nn.Linear(1, 1))
    model.temperature = nn.Parameter(torch.tensor(2.0))
    special = [2.0**-3, -(2.0**-3), 2.0**-3 * (1 - 2**-24), -(2.0**-3) * (1 - 2**-24), 1e-45, -0.0, 0.0]
    model.edges, model.constant = nn.Parameter(torch.tensor(special)), nn.Parameter(torch.full((5,), 0.25))
    sink, optimizer = trk.MemorySink(), torch.optim.SGD(model.parameters(), lr=0.0)
    with (
        trk.watch(model, sink, optimizer=optimizer, signals=("parameters",), every=1, hist_every=1) as watch,
        watch.step(0),
    ):
        optimizer.step()
    rows, counted = by_tag(sink), histograms(sink)
    assert "parameters/std/temperature" not in rows and rows["parameters/mean/temperature"] == {0: 2.0}
    assert rows["parameters/std/constant"] == {0: 0.0} and rows["parameters/zero_fraction/edges"] == {0: 2 / 7}
    point = counted["parameters/hist/edges"][0]
    at = {edge: index for index, edge in enumerate(point.edges)}
    up, down = at[2.0**-3], at[-(2.0**-3)]
    assert [point.counts[index] for index in (up - 1, up, down - 1, down)] == [1, 1, 1, 1]
    assert point.counts[len(point.counts) // 2] == 3 and sum(point.counts) == 7
    assert counted["parameters/hist/temperature"][0].edges == point.edges


@pytest.mark.parametrize("store", ["jsonl", "tensorboard"])
def test_a_resumed_run_says_where_it_begins(store: str, tmp_path: Any) -> None:
    """Report 21: resumed without a word a run refuses; with one, both segments are whole (STEP-2, STEP-8)."""
    if store == "tensorboard":
        pytest.importorskip("tensorboard")

    def open_sink(resume: bool) -> Any:
        if store == "jsonl":
            return trk.JSONLSink(tmp_path / "run.jsonl", resume=resume)
        return trk.TensorBoardSink(tmp_path / "run")

    def session(resume: bool) -> tuple[trk.WatchSession, Any, Any]:
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return trk.watch(model, open_sink(resume), optimizer=optimizer, every=10), model, optimizer

    watch, model, optimizer = session(False)
    with watch:
        for n in range(0, 121, 10):
            with watch.step(n):
                train_step(model, optimizer, n)
    if store == "jsonl":
        assert refused(lambda: trk.JSONLSink(tmp_path / "run.jsonl")).code == "tracker_sink_path_exists"
    watch, model, optimizer = session(True)
    with watch:
        refusal = refused(lambda: watch.step(100).__enter__())
        assert (refusal.code, refusal.fields["last_step"]) == ("watch_step_regression", 120)
        for n in range(100, 131, 10):
            with watch.step(n, new_segment=n == 100):
                train_step(model, optimizer, n)
    read = read_jsonl(tmp_path / "run.jsonl") if store == "jsonl" else read_tensorboard(tmp_path / "run")
    series: dict[str, list[int]] = {}
    for point in read:
        assert not isinstance(point, trk.GraphPoint)
        series.setdefault(point.tag, []).append(point.step)
    assert series["gradients/norm/0.weight"] == [*range(0, 121, 10), *range(100, 131, 10)]
    assert series["torchlens/run/attached"] == [0, 100] == series["torchlens/meta/manifest"]
    assert series["torchlens/run/segment"] == [100]
