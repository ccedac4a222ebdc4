"""A recorded forward: every operation, where its inputs came from, and a model that is as it was before."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.modules import module as module_hooks  # noqa: E402

from tests.graph.nets import CASES, BranchNet, DataNet, DictNet, ListNet, recorded  # noqa: E402
from torchlens_conformance.watch.operations import OperationRecorder, record_forward  # noqa: E402
from torchlens_conformance.watch.operations.origins import tensors_in  # noqa: E402


def inputs_of(trace: Any, function: str) -> list[tuple[str, ...]]:
    """Return the inputs of every call of a function, in order."""
    return [operation.inputs for operation in trace.operations if operation.function == function]


def test_labels_count_calls_and_operations() -> None:
    """A label has the function, its k-th call, and the n-th operation of the forward (TIER-3)."""
    trace = recorded("branch")
    assert trace.operations[0].label == "linear_1_1"
    for number, operation in enumerate(trace.operations, start=1):
        calls = [other.function for other in trace.operations[:number]].count(operation.function)
        assert operation.label == f"{operation.function}_{calls}_{number}"
        assert operation.number == number and operation.seconds > 0


@pytest.mark.parametrize("case", CASES)
def test_labels_are_the_same_from_run_to_run(case: str) -> None:
    """Two forwards of the same net have the same labels, modules and edges (TIER-3)."""
    first, second = recorded(case), recorded(case)
    assert [(o.label, o.module, o.inputs, o.outputs) for o in first.operations] == [
        (o.label, o.module, o.inputs, o.outputs) for o in second.operations
    ]
    assert first.sources == second.sources and first.outputs == second.outputs


@pytest.mark.parametrize("case", CASES)
def test_every_input_is_an_operation_before_or_a_source(case: str) -> None:
    """The graph is closed and acyclic: an input is a source or an earlier operation (GRAPH-1)."""
    trace = recorded(case)
    known = {source.label for source in trace.sources}
    for operation in trace.operations:
        assert set(operation.inputs) <= known
        known.add(operation.label)
    assert trace.outputs and set(trace.outputs) <= known


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_the_forward_is_bit_identical_and_nothing_is_left(case: str, grad: bool) -> None:
    """A recorded forward gives the same bits, gradients and buffers, and leaves no hook and no mode (TIER-3)."""
    make, args, kwargs = CASES[case]
    results = []
    for record in (False, True):
        torch.manual_seed(0)
        model = make()
        recording = OperationRecorder(model).recording(args, kwargs) if record else nullcontext()
        with torch.set_grad_enabled(grad), recording:
            out: Any = model(*args, **kwargs)
        out = out["logits"] if isinstance(out, dict) else out
        if grad:
            out.square().sum().backward()
        state = [*model.state_dict().values(), *(p.grad for p in model.parameters() if p.grad is not None)]
        results.append([out.detach(), *state])
    assert all(torch.equal(a, b) for a, b in zip(*results))
    assert not module_hooks._global_forward_hooks and not module_hooks._global_forward_pre_hooks
    assert not torch.overrides._get_current_function_mode_stack()


def test_inputs_are_named_by_their_place() -> None:
    """Tensors in dicts, lists and dataclasses are sources named by where they stand (GRAPH-1)."""
    assert [s.label for s in recorded("dict").sources if s.kind == "input"] == ["input.0.x"]
    assert [s.label for s in recorded("list").sources if s.kind == "input"] == ["input.0.0.x", "input.0.1.x"]
    assert [s.label for s in recorded("dataclass").sources if s.kind == "input"] == ["input.0.x"]
    trace = record_forward(DictNet(), batch={"x": torch.ones(1, 4), "name": ""})
    assert [s.label for s in trace.sources if s.kind == "input"] == ["input.batch.x"]


def test_a_branch_on_data_is_told() -> None:
    """What ran is recorded, and that a value was read before it (GRAPH-1)."""
    model = BranchNet()
    with torch.no_grad():
        model.shared.weight.fill_(1.0)
        model.shared.bias.fill_(0.0)
    up, down = record_forward(model, torch.ones(1, 4)), record_forward(model, -torch.ones(1, 4))
    assert "tanh" in up.census() and "sigmoid" not in up.census()
    assert "sigmoid" in down.census() and "tanh" not in down.census()
    (read,) = up.reads
    assert read.function == "bool" and read.inputs == ("gt_1_3",)


def test_a_shared_module_is_two_calls_of_one_path() -> None:
    """A module that is called twice gives two operations with its path and the same parameters (TIER-3)."""
    trace = recorded("branch")
    calls = [operation for operation in trace.operations if operation.function == "linear"]
    assert [(c.module, c.inputs[1:]) for c in calls] == [("shared", ("shared.weight", "shared.bias"))] * 2


def test_a_write_through_a_view_reaches_the_base() -> None:
    """After a view was changed in place, whoever reads the base takes from that change as well (GRAPH-1)."""
    trace = recorded("dataclass")
    ((write, scale),) = [o.inputs for o in trace.operations if o.function == "mul_"]
    assert (write, scale) == ("getitem_1_2", "scale")
    assert inputs_of(trace, "exp") == [("linear_1_1", "mul__1_3")]
    (operation,) = [o for o in trace.operations if o.function == "mul_"]
    assert operation.writes and not any(o.writes for o in trace.operations if o.function != "mul_")


def test_modules_in_a_plain_list_are_named_by_class() -> None:
    """A module that no path leads to is named by its class, its parameters as made outside (GRAPH-1)."""
    trace = record_forward(ListNet(), [{"x": torch.ones(2, 4)}])
    assert {o.module for o in trace.operations if o.function == "linear"} == {"Linear"}
    assert sum(source.kind == "outside" for source in trace.sources) == 4


def test_statistics_are_those_at_the_time_of_the_call() -> None:
    """What is observed is the value at the operation, whatever changes it afterwards (TIER-3)."""
    seen: dict[str, Any] = {}

    def observe(operation: Any, outputs: Any) -> None:
        seen[operation.label] = outputs[0].detach().sum().item()

    model = DataNet()
    trace = record_forward(model, CASES["dataclass"][1][0], observe=observe)
    hidden = model.body(torch.ones(2, 4)).detach()
    assert seen["linear_1_1"] == pytest.approx(hidden.sum().item())
    assert seen["mul__1_3"] == pytest.approx(2 * hidden[:, :2].sum().item())
    assert [operation.label for operation in trace.operations] == list(seen)


def test_autocast_shows_in_the_types() -> None:
    """Under autocast the types are those of the calls (GRAPH-1)."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        trace = record_forward(nn.Linear(4, 4), torch.ones(2, 4))
    assert trace.operations[0].outputs[0].dtype == "bfloat16"


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_is_seen_once(reentrant: bool) -> None:
    """A checkpointed part is recorded in the forward, and its second run in the backward is not (GRAPH-1)."""
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.b(checkpoint(self.a, x, use_reentrant=reentrant))

    model, x = Net(), torch.ones(2, 4, requires_grad=True)
    recorder = OperationRecorder(model)
    with recorder.recording((x,)):
        out = model(x)
    out.sum().backward()
    trace = recorder.trace(out)
    first, second = inputs_of(trace, "linear")
    assert first[0] == "input.0" and second[0] == "linear_1_1"
    assert len(inputs_of(trace, "linear")) == 2


def test_a_forward_that_raises_leaves_nothing() -> None:
    """What the forward raises is raised, and hooks and mode are gone (TIER-3)."""

    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            x.exp()
            raise ArithmeticError("mine")

    with pytest.raises(ArithmeticError, match="mine"):
        record_forward(Net(), torch.ones(2))
    assert not module_hooks._global_forward_hooks and not module_hooks._global_forward_pre_hooks
    assert not torch.overrides._get_current_function_mode_stack()


def test_other_threads_are_not_recorded() -> None:
    """A forward of another thread meanwhile is no part of the trace (GRAPH-1)."""
    other = nn.Linear(4, 4)

    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            thread = threading.Thread(target=lambda: other(torch.ones(1, 4)))
            thread.start()
            thread.join()
            return x.exp()

    trace = record_forward(Net(), torch.ones(2))
    assert [operation.label for operation in trace.operations] == ["exp_1_1"]
    assert "Linear" not in trace.modules


def test_what_is_not_looked_into_is_named() -> None:
    """Scripted modules and composite functions are told, since their inside is one step (GRAPH-1)."""
    with pytest.warns(DeprecationWarning):
        scripted = torch.jit.script(nn.Linear(4, 4))
    trace = record_forward(nn.Sequential(scripted, nn.ReLU()), torch.ones(2, 4))
    assert trace.unseen[0] == "0 is scripted: what happens inside it is one step"
    assert trace.unseen[1].endswith(": outside_1") and len(trace.unseen) == 2
    attention = nn.MultiheadAttention(4, 2)
    x = torch.ones(3, 4)
    (told,) = record_forward(attention, x, x, x).unseen
    assert told.startswith("multi_head_attention_forward_1_")


def _cyclic() -> dict[str, Any]:
    found: dict[str, Any] = {"x": torch.ones(1)}
    found["me"] = found
    found["list"] = [found, (found, {"y": torch.ones(2)})]
    return found


def _deep() -> Any:
    found: Any = torch.ones(1)
    for _ in range(5000):
        found = [found]
    return found


class _Raises(dict):  # type: ignore[type-arg]
    """Does not let itself be read."""

    def items(self) -> Any:
        """Raise."""
        raise ArithmeticError("mine")


@pytest.mark.parametrize("made", [_cyclic, _deep, _Raises])
def test_no_container_keeps_a_forward_from_running(made: Any) -> None:
    """One that holds itself, is deep, or raises is an input and an output like others (GRAPH-1)."""

    class Returns(nn.Module):
        def forward(self, x: Any, given: Any) -> Any:
            return {"x": x + 1, "given": given}

    given = made()
    trace = record_forward(Returns(), torch.ones(1), given)
    assert [operation.function for operation in trace.operations] == ["add"]
    assert made is _Raises or trace.outputs[0] == "add_1_1"
    assert [("in the recorder" in sentence) for sentence in trace.unseen] == ([True] * 2 if made is _Raises else [])


def test_a_container_that_holds_itself_is_looked_into_once() -> None:
    """Its tensors are named by their places, those of a container that stands twice at both (GRAPH-1)."""
    twice = [torch.ones(1)]
    found = [path for path, _ in tensors_in({"a": twice, "b": twice, **_cyclic()})]
    assert found == ["a.0", "b.0", "x", "me.x", "me.list.1.1.y", "list.0.x", "list.1.0.x", "list.1.1.y"]
