"""What one forward did: its operations, where their inputs came from, and what was not seen (TIER-3, GRAPH-1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HOST_TIME = "host time between call and return; on an accelerator the kernel may still run"
"""What a duration is evidence of."""

TRACE_MODES = {
    "executed": "The forward ran on real values.",
    "fake": "The forward ran on tensors without values: nothing was computed, and times say nothing.",
    "meta": "The model holds no values; the forward ran on shapes alone, and times say nothing.",
    "structure": "No forward went through; there are modules and parameters only.",
}
"""What an account of a forward comes from."""


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What is kept of a tensor: never its values.

    Attributes:
        shape: Sizes of its dimensions.
        dtype: Its dtype without ``torch.``, for example ``float32``.
        device: Its device, for example ``cpu`` or ``cuda:0``.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor that no operation of the forward made.

    Attributes:
        label: ``input.0``, ``input.mask``, the name of a parameter or buffer, or ``outside_<n>``.
        kind: ``input``, ``parameter``, ``buffer`` or ``outside`` (made before the forward, or out of sight).
        facts: Shape, dtype and device when it was first used.
    """

    label: str
    kind: str
    facts: TensorFacts


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of a function of torch that gave tensors.

    Attributes:
        label: ``<function>_<k>_<n>``: the k-th call of that function, the n-th operation of the forward.
        function: Its name as a user writes it: ``softmax``, ``linear``, ``add``, ``getitem``.
        number: The n of the label, from 1.
        module: Path of the innermost running module, empty for the root.
        inputs: Labels of the operations and sources that its tensors came from, in the order of the arguments.
        outputs: Shape, dtype and device of each tensor that it gave.
        writes: Whether it changed a tensor in place.
        seconds: Host time of the call. See :data:`HOST_TIME`.
    """

    label: str
    function: str
    number: int
    module: str
    inputs: tuple[str, ...]
    outputs: tuple[TensorFacts, ...]
    writes: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Read:
    """A value that left the tensors: what the forward does next may depend on it.

    Attributes:
        function: ``item``, ``bool``, ``tolist`` and the like.
        module: Path of the innermost running module.
        inputs: Labels of what was read.
    """

    function: str
    module: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OperationTrace:
    """The directed acyclic graph of one forward as it ran.

    Attributes:
        operations: In the order in which they returned.
        sources: In the order in which they were first used.
        outputs: Labels of what the forward returned.
        reads: Values that left the tensors.
        modules: By path, the class name of each module that ran.
        unseen: Sentences on what was not looked into.
        parameters: Every parameter of the model once, used or not; one that is still lazy is left out. None where
            inputs were not followed.
        trace_mode: One of :data:`TRACE_MODES`.
    """

    operations: tuple[Operation, ...]
    sources: tuple[Source, ...]
    outputs: tuple[str, ...]
    reads: tuple[Read, ...]
    modules: Mapping[str, str]
    unseen: tuple[str, ...]
    parameters: tuple[Source, ...] | None = None
    trace_mode: str = "executed"

    def census(self) -> dict[str, int]:
        """Return how often each function was called, the most frequent first."""
        counts: dict[str, int] = {}
        for operation in self.operations:
            counts[operation.function] = counts.get(operation.function, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
