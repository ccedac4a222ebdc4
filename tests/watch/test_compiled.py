"""Tier P under torch.compile: the same rows, no recompilation, no break of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402

from .helpers import batch, by_tag, data_rows, refused, small_model, train_step  # noqa: E402

SIGNALS = ("gradients", "updates")


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    """Begin and end with a compiler that has compiled nothing."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def run(backend: str, *, watched: bool, capture_scalars: bool = False) -> tuple[list[Any], dict[str, int], Any]:
    """Train a compiled model; return rows, dynamo's counters, and the parameters."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled: list[Any] = []

    def counting(module: Any, inputs: Any) -> Any:
        compiled.append(module)
        return torch._dynamo.lookup_backend(backend)(module, inputs)

    model = small_model()
    fast = torch.compile(model, backend=counting, fullgraph=True)
    optimizer = torch.optim.AdamW(model.parameters())
    sink = trk.MemorySink()
    signals = ("gradients", "parameters", "updates")
    with torch._dynamo.config.patch(capture_scalar_outputs=capture_scalars, error_on_recompile=True):
        if watched:
            with trk.watch(fast, sink, optimizer=optimizer, every=2, hist_every=4, signals=signals) as watch:
                for n in range(5):
                    with watch.step(n):
                        train_step(fast, optimizer, n)
        else:
            for n in range(5):
                train_step(fast, optimizer, n)
    counters = torch._dynamo.utils.counters
    counts = {"graphs": len(compiled), "breaks": sum(counters["graph_break"].values())}
    return data_rows(sink), counts, [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_watching_adds_no_graph_and_no_break(backend: str) -> None:
    """Report 8: compiled once, whole, and the same bits, watched or not (ATTACH-2, TAG-6, CLOSE-3)."""
    _, plain_counts, plain = run(backend, watched=False)
    rows, counts, parameters = run(backend, watched=True, capture_scalars=True)
    assert counts == plain_counts == {"graphs": 1, "breaks": 0}
    assert all(map(torch.equal, plain, parameters))
    assert {point.step for point in rows} == {0, 2, 4} and len({point.tag for point in rows}) >= 80


class ReadsScalar(nn.Module):
    """Takes a number out of its tensors, which only ``capture_scalar_outputs`` compiles, and breaks the graph once."""

    def __init__(self) -> None:
        super().__init__()
        self.body = small_model()

    def forward(self, x: Any) -> Any:
        """Scale by a number of the data, with one break on purpose."""
        y = self.body(x) * (1.0 + x.abs().max().item())
        torch._dynamo.graph_break()
        return y.tanh()


def train(model: Any, *, watched: Any = None, steps: int = 4) -> dict[str, dict[int, Any]]:
    """Train ``model`` and watch ``watched``; return the rows that are data."""
    optimizer, sink = torch.optim.SGD(model.parameters(), lr=0.1), trk.MemorySink()
    options: dict[str, Any] = {"optimizer": optimizer, "signals": SIGNALS, "every": 2}
    watch = None if watched is None else trk.watch(watched, sink, **options)
    for n in range(steps):
        with nullcontext() if watch is None else watch.step(n):
            train_step(model, optimizer, n)
    if watch is not None:
        watch.close()
    return {tag: row for tag, row in by_tag(sink).items() if not tag.startswith("torchlens/")}


# Dynamo looks at ``.grad`` of a tensor behind a break, and hides the warning by a filter that an error goes past.
BREAKS = pytest.mark.filterwarnings("ignore:The .grad attribute")


@pytest.fixture
def scalar_capture() -> Iterator[None]:
    """Let dynamo capture numbers; by its own patch, since what pytest sets on this module is hidden from then on."""
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        yield


@BREAKS
@pytest.mark.usefixtures("scalar_capture")
def test_scalar_capture_and_breaks_are_as_without_a_watch() -> None:
    """Report 8: breaks, graphs and guards of dynamo are those of the unwatched run, sampled step or not (TAG-6)."""
    counted = []
    for watch_it in (False, True):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch.manual_seed(0)
        model = ReadsScalar()
        compiled = torch.compile(model, backend="eager")
        rows = train(compiled, watched=compiled if watch_it else None)
        counters = torch._dynamo.utils.counters
        counted.append({kind: dict(counters[kind]) for kind in ("graph_break", "stats", "frames", "unimplemented")})
    torch._dynamo.reset()
    torch.manual_seed(0)
    plain = ReadsScalar()
    assert counted[0] == counted[1]
    assert sum(counted[0]["graph_break"].values()) == 1 and counted[0]["stats"]["unique_graphs"] == 2
    assert rows == train(plain, watched=plain) and "gradients/norm/body.0.weight" in rows


@BREAKS
@pytest.mark.usefixtures("scalar_capture")
def test_dynamo_explains_the_same_inside_a_sampled_step() -> None:
    """Report 8: what torch._dynamo.explain says about a model does not change while it is watched (TAG-6)."""
    model = ReadsScalar()

    def explained() -> tuple[int, int, int]:
        torch._dynamo.reset()
        told = torch._dynamo.explain(model)(batch(0))
        return told.graph_count, told.graph_break_count, told.op_count

    before = explained()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        trk.watch(model, trk.MemorySink(), optimizer=optimizer, signals=SIGNALS, every=1) as watch,
        watch.step(0),
    ):
        during = explained()
        train_step(model, optimizer, 0)
    assert before == during == explained() and before[:2] == (2, 1)


def test_coming_and_going_recompiles_nothing() -> None:
    """Report 8: a model that is compiled already is attached to and left again without a recompilation (CLOSE-3)."""
    model = small_model()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_step(compiled, optimizer, 0)
    stats = torch._dynamo.utils.counters["stats"]
    assert stats["unique_graphs"] == 1
    with torch._dynamo.config.patch(error_on_recompile=True):
        for n in range(3):
            with (
                trk.watch(compiled, trk.MemorySink(), optimizer=optimizer, signals=SIGNALS, every=1) as watch,
                watch.step(n),
            ):
                train_step(compiled, optimizer, n)
            train_step(compiled, optimizer, n)
    assert stats["unique_graphs"] == 1


def _compiled_inside(model: Any) -> Any:
    """Compile one part, and then the whole."""
    model[0] = torch.compile(model[0], backend="eager")
    return torch.compile(model, backend="eager")


def _compiled_in_place(model: Any) -> Any:
    """Compile in place, and then again by wrapping."""
    model.compile(backend="eager")
    return torch.compile(model, backend="eager")


@pytest.mark.parametrize("wrap", [_compiled_inside, _compiled_in_place])
def test_wrapped_twice_counts_once(wrap: Any) -> None:
    """Report 8: compiled twice over, a model has the names, the counts and the values of the plain one (TAG-6)."""
    plain, model = small_model(), small_model()
    wrapped = wrap(model)
    rows = train(wrapped, watched=wrapped)
    assert rows == train(plain, watched=plain)
    assert rows["gradients/count/0.weight"] == {n: 24 for n in (0, 2, 3)}


def test_a_wrapper_and_its_model_are_one_model() -> None:
    """Report 8: plain and compiled are one model, so a second watch on the other refuses; no module, no watch.

    Clause: ATTACH-2.
    """
    model = small_model()
    compiled = torch.compile(model, backend="eager")
    for first, second in ((model, compiled), (compiled, model)):
        with trk.watch(first, trk.MemorySink()) as watch:
            assert watch.plan_report().matched_sites == 4 and watch.plan_report().elements_per_step == 51
            assert refused(partial(trk.watch, second, trk.MemorySink())).code == "tracker_namespace_collision"
    # torch gives a function for what was compiled already, and a function has no parameters.
    twice = torch.compile(compiled, backend="eager")
    if not isinstance(twice, nn.Module):
        assert refused(lambda: trk.watch(twice, trk.MemorySink())).code == "watch_model_invalid"
