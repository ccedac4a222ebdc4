"""The public reports about models of every make (sharded, compiled, sparse, tied), each with its right value.

The number in a docstring is the report's. Inputs are of our own making; everything here is real: torch, its scaler,
its compiler front end, a sink and its reader.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402

from .helpers import batch, by_tag, data_rows, hook_census, refused, small_model, train_step  # noqa: E402
from .reports import Holder, norm, skips  # noqa: E402


@pytest.fixture
def one_process_group() -> Any:
    """Give a process group of one, without a network."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield distributed
    distributed.destroy_process_group()


def test_sharded_models_are_refused(one_process_group: Any) -> None:
    """Report 5: a really sharded model refuses at attach; gradients kept elsewhere are named, no zeros (ATTACH-8)."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    assert one_process_group.get_world_size() == 1
    model = small_model()
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    census = hook_census(model)
    refusal = refused(lambda: trk.watch(model, trk.MemorySink(), every=1))
    assert refusal.code == "watch_sharded_unsupported" and "0.weight" in str(refusal.fields["sites"])
    assert hook_census(model) == census

    whole, sink = small_model(), trk.MemorySink()
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    with trk.watch(whole, sink, optimizer=optimizer, every=1) as watch:
        with watch.step(0):
            train_step(whole, optimizer, 0)
        optimizer.zero_grad(set_to_none=True)
        for n in (1, 2):  # An engine that keeps gradients elsewhere.
            with watch.step(n):
                optimizer.step()
    assert skips(watch) == [("gradient_none", 1), ("gradient_none", 2)]
    assert {point.step for point in data_rows(sink)} == {0}


# Dynamo's own patch: what pytest sets and takes back on this module is hidden from then on.
@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_a_compiled_model_is_not_disturbed() -> None:
    """Report 8: tier P breaks no graph, recompiles nothing, and keeps the plain model's names (TAG-6)."""
    dynamo = torch._dynamo
    counts, rows = [], []
    for watched in (False, True):
        dynamo.reset()
        dynamo.utils.counters.clear()
        model = small_model()
        graphs: list[Any] = []

        def backend(graph: Any, example: Any, graphs: list[Any] = graphs) -> Any:
            del example
            graphs.append(graph)
            return graph.forward

        compiled = torch.compile(model, backend=backend)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sink = trk.MemorySink()
        signals = ("gradients", "updates", "parameters")
        watch = trk.watch(compiled, sink, optimizer=optimizer, signals=signals, every=1) if watched else None
        for n in range(3):
            with watch.step(n) if watch is not None else nullcontext():
                train_step(compiled, optimizer, n)
        counts.append((len(graphs), dict(dynamo.utils.counters["graph_break"])))
        if watch is not None:
            watch.close()
            rows.append(by_tag(sink))
    dynamo.reset()
    assert counts[0] == counts[1] and counts[0][0] == 1
    plain, sink = small_model(), trk.MemorySink()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    with trk.watch(plain, sink, optimizer=optimizer, signals=signals, every=1) as other:
        for n in range(3):
            with other.step(n):
                train_step(plain, optimizer, n)
    assert by_tag(sink).keys() == rows[0].keys() and not any("_orig_mod" in tag for tag in rows[0])


def test_parameters_need_no_forward_hook() -> None:
    """Report 9: with forward() called directly parameters have every row; a silent module is named (TIER-1, STEP-7)."""
    model, sink = small_model(), trk.MemorySink()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def direct(n: int) -> None:
        optimizer.zero_grad()
        model.forward(batch(n)).square().mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    with trk.watch(model, sink, optimizer=optimizer, signals=("parameters",), every=1) as watch:
        for n in range(4):
            with watch.step(n):
                direct(n)
    assert sorted(by_tag(sink)["parameters/norm/3.bias"]) == [0, 1, 2, 3]

    options: dict[str, Any] = {"signals": ("activations",), "select": "_root", "inputs": batch(0), "every": 1}
    session = trk.watch(model, trk.MemorySink(), optimizer=optimizer, **options)

    def step(watch: trk.WatchSession, n: int) -> None:
        with watch.step(n):
            direct(n)

    refusal = refused(lambda: step(session, 0))
    assert (refusal.code, refusal.fields["phases"]) == ("watch_phase_missing", ["forward"])
    assert refused(session.close).code == "watch_close_empty"
    lenient = trk.watch(model, trk.MemorySink(), optimizer=optimizer, allow_missing_phases=True, **options)
    step(lenient, 0)
    assert skips(lenient) == [("phase_missing", 0)]


def test_sparse_gradients_are_refused_at_attach() -> None:
    """Report 10: the module with sparse=True is named early; what is dense, and parameters, run (ATTACH-3)."""
    model = Holder(embed=nn.Embedding(10, 4, sparse=True), head=nn.Linear(4, 2))
    optimizers = [torch.optim.SparseAdam(model.embed.parameters()), torch.optim.Adam(model.head.parameters())]
    census = hook_census(model, optimizers)
    refusal = refused(lambda: trk.watch(model, trk.MemorySink(), optimizer=optimizers, every=1))
    assert (refusal.code, refusal.fields["modules"]) == ("watch_sparse_grad_unsupported", ["embed"])
    assert hook_census(model, optimizers) == census
    dense, whole = trk.MemorySink(), trk.MemorySink()
    first = trk.watch(model, dense, optimizer=optimizers[1], select="head", name="dense", every=1)
    second = trk.watch(model, whole, optimizer=optimizers, signals=("parameters",), name="whole", every=1)
    for n in range(3):
        with first.step(n), second.step(n):
            for optimizer in optimizers:
                optimizer.zero_grad()
            model(torch.tensor([1, 2, 2])).square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()
    assert skips(first) == skips(second) == []
    assert sorted(by_tag(dense)["gradients/dense/norm/head.weight"]) == [0, 1, 2]
    assert sorted(by_tag(whole)["parameters/whole/norm/embed.weight"]) == [0, 1, 2]


def test_lazy_parameters_are_filled_by_training_alone() -> None:
    """Report 40: what needs an extra forward refuses a lazy model; what needs none trains it bit for bit (TIER-1)."""
    ends = []
    for signals in ((), ("activations",), ("parameters", "gradients", "updates")):
        torch.manual_seed(0)
        model: Any = nn.Sequential(nn.LazyLinear(6), nn.LazyBatchNorm1d(), nn.Dropout(0.5), nn.Linear(6, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        options: dict[str, Any] = {"optimizer": optimizer, "signals": signals, "every": 1}
        watch, census = None, hook_census(model, [optimizer])
        if "activations" in signals:
            attach = partial(trk.watch, model, trk.MemorySink(), select="3", inputs=batch(0), **options)
            refusal = refused(attach)
            assert refusal.code == "watch_discovery_failed" and "0.weight" in str(refusal.fields["parameters"])
            assert hook_census(model, [optimizer]) == census and nn.parameter.is_lazy(model[0].weight)
        elif signals:
            watch = trk.watch(model, trk.MemorySink(), **options)
        for n in range(3):
            with nullcontext() if watch is None else watch.step(n):
                train_step(model, optimizer, n)
        if watch is not None:
            assert watch.close().sampled_steps == 3
        ends.append([*model.state_dict().values(), torch.get_rng_state()])
    assert all(torch.equal(plain, other) for end in ends[1:] for plain, other in zip(ends[0], end))


def test_tied_weights_are_one_series() -> None:
    """Report 17: the tied weight counts once with its whole gradient; either name selects it (TAG-6)."""

    def tied() -> Holder:
        torch.manual_seed(0)
        model = Holder(embed=nn.Embedding(6, 4), head=nn.Linear(4, 6, bias=False))
        model.head.weight = model.embed.weight
        return model

    for select in (None, "embed", "head"):
        model, sink = tied(), trk.MemorySink()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with trk.watch(model, sink, optimizer=optimizer, select=select, every=1) as watch, watch.step(0):
            model(torch.tensor([0, 1])).square().mean().backward()
            optimizer.step()
            expected = norm(model.embed.weight.grad)
        plan = watch.plan_report()
        assert plan.aliases == {"embed.weight": ("head.weight",)}
        assert plan.elements_per_step == sum(parameter.numel() for parameter in model.parameters()) == 24
        norms = {tag: row for tag, row in by_tag(sink).items() if tag.startswith("gradients/norm/")}
        assert norms == {"gradients/norm/embed.weight": {0: pytest.approx(expected, rel=1e-12)}}

    model = tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trk.watch(model, trk.MemorySink(), optimizer=optimizer, every=1) as watch, watch.step(0):
        model.head.weight = nn.Parameter(model.embed.weight.detach().clone())
        model(torch.tensor([0, 1])).square().mean().backward()
        optimizer.step()
    assert skips(watch) == [("untied_after_attach", 0)]

    model = Holder(embed=nn.Embedding(6, 4), head=nn.Linear(4, 6, bias=False))
    sink, optimizer = trk.MemorySink(), torch.optim.SGD(model.parameters(), lr=0.1)
    with trk.watch(model, sink, optimizer=optimizer, every=1) as watch, watch.step(0):
        model.head.weight = model.embed.weight
        model(torch.tensor([0, 1])).square().mean().backward()
        optimizer.step()
    assert skips(watch) == [("tied_after_attach", 0)] and "gradients/norm/head.weight" not in by_tag(sink)
