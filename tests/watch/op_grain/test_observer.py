"""What a session at op grain observes, and that it is a guest."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.modules import module as module_hooks  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import torchlens_conformance.trackers as trk  # noqa: E402
from torchlens_conformance.statistics import compute  # noqa: E402

from ..helpers import by_tag, data_rows, histograms, refused  # noqa: E402
from .nets import HEADS, OPTIONS, SOFTMAX, attach, example, net, train  # noqa: E402

PER_HEAD = {SOFTMAX: trk.split_heads(HEADS, dim=1)}


def optimizer_of(model: Any) -> Any:
    """Return plain SGD over a model."""
    return torch.optim.SGD(model.parameters(), lr=0.1)


def assert_nothing_left(model: Any) -> None:
    """Neither a forward in the instance, nor a global hook, nor a mode."""
    assert "forward" not in vars(model)
    assert not module_hooks._global_forward_hooks and not module_hooks._global_forward_pre_hooks
    assert not torch.overrides._get_current_function_mode_stack()


@pytest.mark.parametrize("spoil", [False, True])
def test_rows_are_those_of_the_moment(spoil: bool) -> None:
    """Statistics and counts are of the tensor where it is made, whatever overwrites it later (TIER-3)."""
    model, sink = net(spoil=spoil), trk.MemorySink()
    with attach(model, sink, hist_every=1, facets=PER_HEAD) as watch, watch.step(7):
        train(model, optimizer_of(model), 0)
    rows, bars = by_tag(sink), histograms(sink)
    parts = {SOFTMAX: model.seen, **{f"{SOFTMAX}/head_{i}": model.seen[:, i] for i in range(HEADS)}}
    for leaf, tensor in parts.items():
        found = compute(tensor, descriptor=trk.DEFAULT_DESCRIPTOR)
        assert rows[f"activations/norm/{leaf}"] == {7: found.norm}
        assert rows[f"activations/mean/{leaf}"] == {7: found.mean}
        assert rows[f"activations/count/{leaf}"] == {7: tensor.numel()}
        assert rows[f"activations/calls/{leaf}"] == {7: 1}
        assert bars[f"activations/hist/{leaf}"][7].counts == found.counts
    leaves = {tag.split("/", 2)[2] for tag in rows if tag.startswith("activations/")}
    assert leaves == set(parts)


def test_steps_that_are_not_sampled_run_the_plain_forward() -> None:
    """The very bound method, on every step but the sampled ones, and after close (TIER-3)."""
    model, sink = net(), trk.MemorySink()
    optimizer = optimizer_of(model)
    plain = []
    with attach(model, sink, every=3) as watch:
        assert_nothing_left(model)
        for n in range(5):
            with watch.step(n):
                plain.append("forward" not in vars(model) and model.forward.__func__ is type(model).forward)
                train(model, optimizer, n)
            assert_nothing_left(model)
    assert plain == [False, True, True, False, True]
    assert sorted(by_tag(sink)[f"activations/mean/{SOFTMAX}"]) == [0, 3]


def test_the_first_forward_of_a_step_is_observed() -> None:
    """Further ones, of micro-batches say, are one named skip a step (TIER-3)."""
    model, sink = net(), trk.MemorySink()
    optimizer = optimizer_of(model)
    with attach(model, sink) as watch, watch.step(0):
        model(example(0)).mean().backward()
        first = model.seen
        for n in (1, 2):
            model(example(n)).mean().backward()
        optimizer.step()
    assert by_tag(sink)[f"activations/norm/{SOFTMAX}"] == {0: compute(first).norm}
    assert watch.close().skip_counts == {"forward_repeated": 1}


def test_a_step_without_a_forward_is_refused() -> None:
    """As at module grain; with consent it is a named skip (STEP-7, TIER-3)."""
    model = net()
    watch = attach(model, trk.MemorySink())
    with pytest.raises(trk.Refusal) as caught, watch.step(0):
        pass
    assert caught.value.code == "watch_phase_missing" and caught.value.fields["phases"] == ["forward"]
    assert_nothing_left(model)
    watch.step(1).__enter__()
    assert refused(watch.close).code == "watch_close_empty"
    assert_nothing_left(model)


def test_facets_that_do_not_fit_any_more_are_named() -> None:
    """The whole still has its rows when a shape changes (TIER-3)."""

    class Plain(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.softmax(x, dim=-1)

    model, sink = Plain(), trk.MemorySink()
    facets = {trk.func("softmax"): trk.split_heads(2, dim=1)}
    with attach(model, sink, inputs=torch.ones(2, 4), facets=facets) as watch:
        for n, width in enumerate((4, 5, 6)):
            with watch.step(n):
                model(torch.ones(2, width))
    rows = by_tag(sink)
    assert rows["activations/count/softmax_1_1"] == {0: 8, 1: 10, 2: 12}
    assert rows["activations/count/softmax_1_1/head_1"] == {0: 4, 2: 6}
    assert watch.close().skip_counts == {"facet_shape_changed": 1}


def test_a_forward_called_by_its_name_is_observed() -> None:
    """``model.forward(x)`` passes no hook of the module, and is observed all the same (TIER-3)."""
    model, sink = net(), trk.MemorySink()
    with attach(model, sink) as watch, watch.step(0):
        model.forward(example())
    assert by_tag(sink)[f"activations/norm/{SOFTMAX}"] == {0: compute(model.seen).norm}


def test_the_roots_own_hooks_fire_once() -> None:
    """On observed steps as on others, and what they return counts (TIER-3)."""
    model, fired = net(), []  # type: ignore[var-annotated]
    watch = attach(model, trk.MemorySink(), every=2)
    model.register_forward_hook(lambda module, args, output: fired.append(1) or output + 1)
    for n in range(2):
        with watch.step(n):
            watched = model(example())
            assert len(fired) == n + 1
            assert torch.equal(watched, net()(example()) + 1) or n
    watch.close()


def test_an_observed_forward_hooks_no_module() -> None:
    """Labels need no module: the modules of a sampled step are called as on every other one (TIER-3)."""
    hooked: list[int] = []

    class Looking(nn.Module):
        def forward(self, x: Any) -> Any:
            hooked.append(len(module_hooks._global_forward_hooks) + len(module_hooks._global_forward_pre_hooks))
            return torch.softmax(x, dim=-1)

    model, sink = Looking(), trk.MemorySink()
    with attach(model, sink, inputs=torch.ones(2, 3)) as watch, watch.step(0):
        hooked.clear()
        model(torch.ones(2, 3))
    assert hooked == [0] and by_tag(sink)["activations/count/softmax_1_1"] == {0: 6}


def test_an_error_of_the_forward_is_the_callers() -> None:
    """It surfaces unchanged, with everything put back; the step says exception (TIER-3, TAG-4)."""
    model = net()
    watch = attach(model, trk.MemorySink())
    with pytest.raises(RuntimeError, match="shape"), watch.step(0):
        model(torch.ones(3, 4, 8))
    assert_nothing_left(model)
    with watch.step(1):
        train(model, optimizer_of(model), 1)
    assert watch.close().skip_counts == {"exception": 1}


def test_an_interrupt_leaves_nothing() -> None:
    """Ctrl-C inside the forward goes through, and neither mode nor stand-in stays (TIER-3)."""

    class Interrupted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.now = False

        def forward(self, x: Any) -> Any:
            y = torch.softmax(x, dim=-1)
            if self.now:
                raise KeyboardInterrupt
            return y

    model = Interrupted()
    watch = attach(model, trk.MemorySink(), inputs=torch.ones(2, 3))
    model.now = True
    with pytest.raises(KeyboardInterrupt), watch.step(0):
        model(torch.ones(2, 3))
    assert_nothing_left(model)
    assert watch.close().skip_counts == {"exception": 1}


def test_an_error_of_ours_is_a_named_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong while observing never reaches the model (TIER-3)."""
    from torchlens_conformance.watch import activations
    from torchlens_conformance.watch.operations import recorder

    model, sink = net(), trk.MemorySink()
    watch = attach(model, sink)

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise OSError("ours")

    with monkeypatch.context() as patch, watch.step(0):
        patch.setattr(activations.ForwardRecord, "start", fails)
        assert torch.equal(model(example()), net()(example()))
    with monkeypatch.context() as patch, watch.step(1):
        patch.setattr(recorder, "tensors_in", fails)
        assert model(example()).shape == example().shape
    with monkeypatch.context() as patch, watch.step(2):
        patch.setattr(recorder.OperationRecorder, "recording", fails)
        assert model(example()).shape == example().shape
    with watch.step(3):
        model(example())
    assert sorted(by_tag(sink)[f"activations/mean/{SOFTMAX}"]) == [3]
    names = {(skip.step, skip.name) for skip in watch.close().named_skips}
    assert {(0, "collection_failed"), (1, "operation_missing"), (2, "collection_failed")} <= names
    assert_nothing_left(model)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_recomputed_forward_is_not_observed_again(reentrant: bool) -> None:
    """Activation checkpointing runs it again inside the backward (TIER-3)."""

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, x: Any) -> Any:
            return checkpoint(self.inner, x, use_reentrant=reentrant)

    model, sink = Checkpointed(), trk.MemorySink()
    x = example().requires_grad_()
    with attach(model, sink, inputs=x) as watch, watch.step(0):
        calls = model.inner.calls
        model(x).mean().backward()
        assert model.inner.calls == calls + 2
    assert sorted(tag for tag in by_tag(sink) if "/calls/" in tag) == [f"activations/calls/{SOFTMAX}"]
    assert by_tag(sink)[f"activations/calls/{SOFTMAX}"] == {0: 1}
    assert watch.close().skip_counts == {}


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_model_that_the_loop_checkpoints_is_observed_once(reentrant: bool) -> None:
    """The recomputation calls the model itself again, and is neither observed nor a skip (TIER-3)."""
    model, sink = net(), trk.MemorySink()
    x = example().requires_grad_()
    with attach(model, sink) as watch, watch.step(0):
        calls = model.calls
        checkpoint(model, x, use_reentrant=reentrant).mean().backward()
        assert model.calls == calls + 2
    assert by_tag(sink)[f"activations/calls/{SOFTMAX}"] == {0: 1}
    assert watch.close().skip_counts == {}


def test_the_fast_path_of_inference_is_left_alone() -> None:
    """Where observing would change which kernel runs, the forward is plain and a skip says so (TIER-3)."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model, x = nn.Sequential(layer), example()
    sink = trk.MemorySink()
    watch = attach(model, sink, select=trk.func("layer_norm"))
    model.eval()
    with torch.inference_mode():
        expected = model(x)
        with watch.step(0):
            assert torch.equal(model(x), expected)
    model.train()
    with watch.step(1):
        model(x)
    assert watch.close().skip_counts == {"forward_not_observable": 1}
    assert {step for rows in by_tag(sink).values() for step in rows if step} == {1}


def test_a_step_callable_observes_the_same() -> None:
    """Under ``step=`` the forward is looked at when it begins; the rows are those of scopes (STEP-6, TIER-3)."""
    sinks = {}
    for way in ("scope", "callable"):
        model, sinks[way] = net(dropout=0.3), trk.MemorySink()
        optimizer, now = optimizer_of(model), [0]
        source = {"step": lambda now=now: now[0]} if way == "callable" else {}
        watch = attach(model, sinks[way], every=2, facets=PER_HEAD, **source)
        for n in range(5):
            now[0] = n
            if way == "scope":
                with watch.step(n):
                    train(model, optimizer, n)
            else:
                train(model, optimizer, n)
        report = watch.close()
        assert report.skip_counts == {} and report.sampled_steps == 3
        assert_nothing_left(model)
    rows = {way: [(p.tag, p.step, p.value) for p in data_rows(sink)] for way, sink in sinks.items()}
    assert rows["scope"] == rows["callable"] and len(rows["scope"]) == 3 * 3 * 8


def test_parameter_streams_go_beside_it_under_another_name() -> None:
    """Two sessions on one model, each whole (TIER-3, ATTACH-1)."""
    model, sink, other = net(), trk.MemorySink(), trk.MemorySink()
    optimizer = optimizer_of(model)
    first = attach(model, sink)
    second = trk.watch(model, other, optimizer=optimizer, name="parameters", every=1)
    with first.step(0), second.step(0):
        train(model, optimizer, 0)
    assert first.close().skip_counts == {} and second.close().skip_counts == {}
    assert f"activations/mean/{SOFTMAX}" in by_tag(sink) and "gradients/parameters/norm/out.weight" in by_tag(other)


@pytest.mark.parametrize("first_out", [0, 1])
def test_two_sessions_see_the_same_labels(first_out: int) -> None:
    """What one of them does with torch is no operation to the other; they may close in any order (TIER-3)."""
    model, sinks = net(), [trk.MemorySink(), trk.MemorySink()]
    select = (trk.func("softmax"), "out")  # The second one runs after the first one was looked at.
    watches = [attach(model, sink, name=f"s{i}", select=select, facets=PER_HEAD) for i, sink in enumerate(sinks)]
    with watches[0].step(0), watches[1].step(0):
        model(example())
    watches.pop(first_out).close()
    with watches[0].step(1):
        model(example())
    assert watches[0].close().skip_counts == {}
    assert_nothing_left(model)
    kept = by_tag(sinks[1 - first_out])
    assert sorted(kept[f"activations/s{1 - first_out}/mean/{SOFTMAX}/head_1"]) == [0, 1]
    gone = by_tag(sinks[first_out])
    assert sorted(gone[f"activations/s{first_out}/mean/{SOFTMAX}/head_1"]) == [0]


def test_hooks_of_a_session_at_module_grain_are_no_operations() -> None:
    """Modules that are watched meanwhile do not move the labels (TIER-1, TIER-3)."""
    model, sink, other = net(), trk.MemorySink(), trk.MemorySink()
    first = attach(model, sink, select=(trk.func("softmax"), "out"))
    options = {"signals": ("activations", "activation_grads"), "select": "mix", "inputs": example()}
    second = trk.watch(model, other, name="modules", every=1, **options)
    with first.step(0), second.step(0):
        model(example()).mean().backward()
    assert first.close().skip_counts == {} and second.close().skip_counts == {}
    assert by_tag(sink)["activations/count/linear_2_24"] == {0: example().numel()}
    assert by_tag(other)["activations/modules/count/mix"] == {0: 3 * example().numel()}


def test_closing_and_dropping_remove_the_wrap() -> None:
    """Inside a step, under ``step=``, and when the session is only dropped (CLOSE-3, CLOSE-4)."""
    model = net()
    watch = attach(model, trk.MemorySink())
    with watch.step(0):
        assert "forward" in vars(model)
        watch.close()
        assert_nothing_left(model)
    watch = attach(model, trk.MemorySink(), step=lambda: 0)
    assert "forward" in vars(model)
    with pytest.warns(trk.WatchUnclosedWarning):
        del watch
        gc.collect()
    assert_nothing_left(model)


def test_watched_names_are_those_of_the_trace() -> None:
    """Every series names an operation of the trace that the session shows (TIER-3, GRAPH-1)."""
    model, sink = net(), trk.MemorySink()
    with attach(model, sink, select=("mix", "out", trk.func("softmax")), facets=PER_HEAD) as watch, watch.step(0):
        model(example())
    labels = {operation.label for operation in watch.operations.operations}
    leaves = {tag.split("/", 2)[2] for tag in by_tag(sink) if tag.startswith("activations/")}
    assert {leaf.split("/")[0] for leaf in leaves} == {"linear_1_1", SOFTMAX, "linear_2_24"} <= labels
    graph = trk.build_graph_ir(watch.operations)
    assert labels <= {node.name.rsplit("/", 1)[-1] for node in graph.nodes}
    session = trk.watch(model, trk.MemorySink(), signals=("gradients",))
    assert session.operations is None
    session.close()


def test_compiled_and_scripted_models_are_refused() -> None:
    """By name, before anything is run (TIER-3)."""
    compiled = torch.compile(net(), backend="eager")
    assert refused(lambda: trk.watch(compiled, trk.MemorySink(), **OPTIONS, inputs=example())).code == (
        "watch_compiled_unsupported"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(nn.Softmax(dim=-1))
    assert refused(lambda: trk.watch(scripted, trk.MemorySink(), **OPTIONS, inputs=example())).code == (
        "watch_compiled_unsupported"
    )


@pytest.mark.parametrize("action", ["ignore", "error"])
def test_compiled_functions_inside_a_forward_are_refused(action: Any) -> None:
    """Whether the compiler swallows the recording or stumbles over it, with nothing left (TIER-3)."""
    inner = torch.compile(lambda x: x.sin().cos(), backend="eager")

    class Hidden(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.softmax(inner(x), dim=-1)

    model = Hidden()
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        refusal = refused(lambda: trk.watch(model, trk.MemorySink(), **OPTIONS, inputs=example()))
    assert refusal.code == "watch_compiled_unsupported" and "Hidden" in refusal.fields["modules"][0]
    assert_nothing_left(model)
