"""Tier P under torch.compile: the same rows, no recompilation, no break of the graph."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torchlens_conformance.trackers as trk  # noqa: E402

from .helpers import data_rows, small_model, train_step  # noqa: E402


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
    """Compiled once, whole, and the same bits, watched or not (ATTACH-2, TAG-6, CLOSE-3)."""
    _, plain_counts, plain = run(backend, watched=False)
    rows, counts, parameters = run(backend, watched=True, capture_scalars=True)
    assert counts == plain_counts == {"graphs": 1, "breaks": 0}
    assert all(map(torch.equal, plain, parameters))
    assert {point.step for point in rows} == {0, 2, 4} and len({point.tag for point in rows}) >= 80
