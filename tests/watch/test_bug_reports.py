"""The public reports about watchers, hooks, loss scales and steps, each with its right value.

The number in a docstring is the report's. Inputs are of our own making; everything here is real: torch, its scaler,
its compiler front end, a sink and its reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from reference_sinks.readers import read_jsonl, read_tensorboard, read_wandb  # noqa: E402

from .helpers import batch, by_tag, data_rows, histograms, hook_census, refused, small_model, train_step  # noqa: E402
from .test_guest_law import differences  # noqa: E402


class Holder(nn.Module):
    """Modules by name, and a forward that runs them one after another."""

    def __init__(self, **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)

    def forward(self, x: Any) -> Any:
        """Run the modules in order."""
        for module in self.children():
            x = module(x)
        return x


def adamw(parameters: Any, **options: Any) -> Any:
    """Return AdamW with weight decay, so that an update is not lr times gradient."""
    return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1, **options)


def sgd(parameters: Any) -> Any:
    """Return SGD."""
    return torch.optim.SGD(parameters, lr=0.1)


def values(parameters: Iterable[Any]) -> list[Any]:
    """Return copies of the parameters."""
    return [parameter.detach().clone() for parameter in parameters]


def norm(tensor: Any) -> float:
    """Return the norm, reduced in float64."""
    return float(tensor.double().norm())


def families(sink: trk.MemorySink) -> set[str]:
    """Return the families that have rows."""
    return {tag.split("/")[0] for tag in by_tag(sink)} - {"torchlens"}


def skips(session: trk.WatchSession) -> list[tuple[str, int | None]]:
    """Return name and step of the named skips."""
    return [(skip.name, skip.step) for skip in session.close().named_skips]


def test_updates_and_activations_can_be_watched() -> None:
    """Report 1: updates are what the optimizer did, not lr times gradient; outputs carry the path (STAT-4, TIER-1)."""
    model: Any = small_model()
    sink = trk.MemorySink()
    optimizer = adamw(model.parameters())
    expected: list[float] = []
    guessed: list[float] = []
    signals = ("updates", "activations")
    with trk.watch(
        model, sink, optimizer=optimizer, signals=signals, select=("0", "3"), inputs=batch(0), every=1
    ) as watch:
        for n in range(20):
            with watch.step(n):
                optimizer.zero_grad()
                model(batch(n)).square().mean().backward()
                before = values(model.parameters())
                optimizer.step()
                expected.append(norm(model[0].weight.detach() - before[0]))
                guessed.append(0.01 * norm(model[0].weight.grad))
    rows = by_tag(sink)
    found = rows["updates/norm/0.weight"]
    assert [found[n] for n in range(20)] == pytest.approx(expected, rel=1e-12)
    assert all(abs(one - other) > 0.2 * one for one, other in zip(expected, guessed))
    assert families(sink) == {"updates", "activations"}
    assert rows["activations/count/0"] == {n: 5 * 6 for n in range(20)}
    assert rows["activations/count/3"] == {n: 5 * 3 for n in range(20)}


def test_exactly_what_was_selected_is_watched() -> None:
    """Report 2: whole components select; a typo names what exists; a budget refuses early (ATTACH-5, TAG-6)."""
    blocks = [Holder(attn=nn.Linear(2, 2), mlp=nn.Linear(2, 2)) for _ in range(12)]
    model = Holder(h=nn.Sequential(*blocks))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink, census = trk.MemorySink(), hook_census(model, [optimizer])
    typo = refused(lambda: trk.watch(model, sink, optimizer=optimizer, select=("h.0", "h.12")))
    assert typo.code == "watch_selector_matched_no_sites" and typo.fields["selectors"] == ["h.12"]
    assert "h.0.attn.weight" in str(typo.fields["census"]) and typo.fields["exist"] == 48
    chosen = ("h.1", "h.11.mlp")
    budget = refused(lambda: trk.watch(model, sink, optimizer=optimizer, select=chosen, max_sites=3))
    assert (budget.code, budget.fields["needed"], budget.fields["limit"]) == ("watch_budget_exceeded", 6, 3)
    assert hook_census(model, [optimizer]) == census and sink.points == []
    with trk.watch(model, sink, optimizer=optimizer, select=chosen, max_sites=6) as watch, watch.step(0):
        model(batch(0, width=2)).mean().backward()
        optimizer.step()
    leaves = {tag.rsplit("/", 1)[1] for tag in by_tag(sink) if tag.startswith("gradients/")}
    inside = {f"{path}.{kind}" for path in ("h.1.attn", "h.1.mlp", "h.11.mlp") for kind in ("weight", "bias")}
    assert leaves == inside


@pytest.mark.parametrize("allowed", [True, False])
def test_two_adversaries_are_both_whole(allowed: bool) -> None:
    """Report 3: each network has its own series; a turn it does not take is named (STEP-7, TAG-2)."""
    generator, critic = small_model(), Holder(only=nn.Linear(3, 1))
    sink = trk.MemorySink()
    optimizers = [torch.optim.Adam(net.parameters(), lr=0.01) for net in (generator, critic)]
    held: dict[int, float] = {}
    first = trk.watch(generator, sink, optimizer=optimizers[0], name="gen", every=1, allow_missing_phases=allowed)
    second = trk.watch(critic, sink, optimizer=optimizers[1], name="disc", every=1)
    refusals = []
    for n in range(6):
        try:
            with first.step(n), second.step(n):
                for optimizer in optimizers:
                    optimizer.zero_grad()
                if n % 2 == 0:
                    critic(generator(batch(n))).mean().backward()
                    held[n] = norm(generator[0].weight.grad)
                    optimizers[0].step()
                    optimizers[1].zero_grad()
                # Without detach the critic's backward leaves gradients in the generator; they are no step of it.
                critic(generator(batch(n))).square().mean().backward()
                optimizers[1].step()
        except trk.Refusal as refusal:
            refusals.append((refusal.code, refusal.fields["step"]))
    rows = by_tag(sink)
    assert rows["gradients/gen/norm/0.weight"] == pytest.approx(held, rel=1e-12) and sorted(held) == [0, 2, 4]
    assert sorted(rows["gradients/disc/norm/only.weight"]) == list(range(6))
    assert refusals == ([] if allowed else [("watch_phase_missing", n) for n in (1, 3, 5)])
    named = skips(first)
    assert named == ([("phase_missing", n) for n in (1, 3, 5)] if allowed else [])
    assert first.close().missing_phases == tuple((n, "optimizer boundary") for n in (1, 3, 5))
    assert skips(second) == []


def test_many_tensors_with_histograms_cost_the_same_every_step(tmp_path: Any) -> None:
    """Report 4: 300 tensors, every step whole and of one size; what cannot be carried is named (XFER-1)."""
    wandb = pytest.importorskip("wandb")
    from fidelity.routes.wandb import finish_run

    model = Holder(**{f"layer{n}": nn.Linear(2, 2) for n in range(150)})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    small = trk.GridDescriptor(bins_per_octave=1, lo_exp=-12, hi_exp=4)
    run = wandb.init(mode="offline", dir=tmp_path, settings=wandb.Settings(silent=True, console="off"))
    try:
        census = hook_census(model, [optimizer])
        wide = refused(
            lambda: trk.watch(
                model, trk.WandbSink(run), optimizer=optimizer, hist_every=1, descriptor=trk.DEFAULT_DESCRIPTOR
            )
        )
        assert wide.code == "tracker_histogram_bucket_cap" and hook_census(model, [optimizer]) == census
        sizes = []
        path = tmp_path / "rows.jsonl"
        options: dict[str, Any] = {"optimizer": optimizer, "every": 1, "hist_every": 1, "descriptor": small}
        for sink, steps in ((trk.JSONLSink(path), 6), (trk.WandbSink(run), 2)):
            with trk.watch(model, sink, **options) as watch:
                for n in range(steps):
                    with watch.step(n):
                        optimizer.zero_grad()
                        model(batch(0, width=2)).square().mean().backward()
                        optimizer.step()
                    sizes.append(path.stat().st_size)
            (row,) = watch.close().sinks
            assert (row.failed, row.histograms, row.data_points) == (None, steps * 300, steps * 300 * 8)
        plan = watch.plan_report()
        assert plan.matched_sites == 300
        assert plan.bytes_per_histogram_step == 300 * (80 + 8 * (small.bucket_count + 2))
    finally:
        finish_run(run, tmp_path)
    growth = [after - before for before, after in pairwise(sizes[1:6])]
    assert max(growth) - min(growth) < 0.01 * min(growth)
    stored = [getattr(point, "step", -1) for point in read_wandb(next((tmp_path / "wandb").glob("offline-run-*")))]
    assert all(stored.count(n) >= 300 * 8 for n in range(2))


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


def test_several_models_are_told_apart() -> None:
    """Report 6: names keep models apart; no name collides, bad ones refuse (TAG-2, ATTACH-2, ATTACH-7)."""
    first, second, sink = small_model(), small_model(seed=1), trk.MemorySink()
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (first, second)]
    sessions = [
        trk.watch(net, sink, optimizer=optimizer, name=name, every=1)
        for net, optimizer, name in zip((first, second), optimizers, ("gen", "disc"))
    ]
    for net, optimizer, session in zip((first, second), optimizers, sessions):
        with session.step(7):
            train_step(net, optimizer, 7)
    plain = trk.watch(first, trk.MemorySink())
    assert refused(lambda: trk.watch(first, trk.MemorySink())).code == "tracker_namespace_collision"
    for bad in ("a/b", "", ".", "a b\n"):
        refusal = refused(partial(trk.watch, second, trk.MemorySink(), name=bad))
        assert refusal.code in ("tracker_name_invalid", "tracker_tag_unsafe")
    plain.close()
    sessions[0].close()
    sink.flush()
    sessions[1].close()
    assert refused(sink.flush).code == "tracker_sink_closed"
    tags = [str(getattr(point, "tag", "")) for point in sink.points]
    assert len(tags) == len(set(tags)) and len([tag for tag in tags if "/gen/" in tag]) == len(tags) / 2


def test_attaching_again_is_as_good_as_the_first_time() -> None:
    """Report 7: after close, a refused attach or Ctrl-C, every hook dictionary is as before (CLOSE-3, ATTACH-6)."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    census = hook_census(model, [optimizer])
    options: dict[str, Any] = {"optimizer": optimizer, "every": 1, "select": ("0", "3"), "inputs": batch(0)}
    for n in range(20):
        sink = trk.MemorySink()
        watch = trk.watch(model, sink, signals=("gradients", "updates", "activations"), **options)
        assert hook_census(model, [optimizer]) != census
        if n % 3 == 1:
            with pytest.raises(KeyboardInterrupt), watch.step(n):
                optimizer.register_step_pre_hook(interrupt_once())
                train_step(model, optimizer, n)
            optimizer._optimizer_step_pre_hooks.popitem()
        else:
            with watch.step(n):
                train_step(model, optimizer, n)
        assert watch.close() is watch.close()
        assert hook_census(model, [optimizer]) == census
        bad = refused(lambda: trk.watch(model, [trk.MemorySink(), object()], **options))
        assert bad.code == "tracker_sink_invalid" and hook_census(model, [optimizer]) == census
        assert len(families(sink)) == (0 if n % 3 == 1 else 3)


def interrupt_once() -> Callable[..., None]:
    """Return a hook that stands for Ctrl-C in the middle of a step."""

    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    return interrupt


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
    kinds = {
        "mapping": lambda x: {"a": x, "b": 2 * x},
        "record": lambda x: output(last_hidden_state=x),
        "pair": lambda x: (x, None),
        "nested": lambda x: (3, [x, {"k": x + 1}]),
        "truth": lambda x: x > 0,
        "integer": lambda x: x.long(),
        "nothing": lambda x: (),
        "shared": lambda x: x * 2,
    }
    modules = nn.ModuleDict({name: Gives(make) for name, make in kinds.items()})

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin, self.parts = nn.Linear(4, 3), modules

        def forward(self, x: Any) -> Any:
            y = self.lin(x)
            for part in self.parts.values():
                part(y)
            return self.parts["shared"](y)

    model, sink = Net(), trk.MemorySink()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trk.watch(
        model, sink, optimizer=optimizer, signals=("activations",), select="parts", inputs=batch(0), every=1
    ) as watch:
        for n in range(2):
            with watch.step(n):
                train_step(model, optimizer, n)
    rows = by_tag(sink)
    leaves = {tag.removeprefix("activations/norm/parts.") for tag in rows if tag.startswith("activations/norm/")}
    assert leaves == {
        "mapping/a",
        "mapping/b",
        "record/last_hidden_state",
        "pair/0",
        "nested/1/0",
        "nested/1/1/k",
        "shared",
    }
    assert rows["activations/calls/parts.shared"] == {0: 2, 1: 2}
    named = {
        site for skip in watch.close().named_skips if skip.name == "activation_not_floating" for site in skip.sites
    }
    assert named >= {"parts.truth", "parts.integer"}


@pytest.mark.parametrize("signals", [(), ("activation_grads",), ("activations", "activation_grads")])
def test_in_place_operations_keep_working(signals: tuple[str, ...]) -> None:
    """Report 19: outputs are watched though an in-place operation follows; training is the same (TIER-4)."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act, self.last = nn.Conv2d(2, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(2, 2, 1)

        def forward(self, x: Any) -> Any:
            y = self.last(self.act(self.conv(x)))
            y += x
            return y

    def train(signals: tuple[str, ...]) -> tuple[Any, trk.MemorySink]:
        torch.manual_seed(0)
        model, sink = Residual(), trk.MemorySink()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(1, 2, 3, 3, generator=torch.Generator().manual_seed(1))
        options = {"optimizer": optimizer, "select": ("conv", "act", "last"), "inputs": x, "every": 1}
        watch = trk.watch(model, sink, signals=signals, **options) if signals else None
        for n in range(3):
            with watch.step(n) if watch is not None else nullcontext():
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
        if watch is not None:
            watch.close()
        return model.state_dict(), sink

    state, sink = train(signals)
    assert differences(train(())[0], state) == []
    if signals:
        for leaf in ("act", "last"):
            assert by_tag(sink)[f"activation_grads/count/{leaf}"] == {n: 18 for n in range(3)}


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
