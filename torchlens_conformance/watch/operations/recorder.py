"""Records the operations of one forward with torch's own function mode; nothing is patched (TIER-3, GRAPH-1)."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from ..wrappers import clean_name
from .model import Operation, OperationTrace, Read
from .naming import function_name, operation_label
from .origins import Origins, facts_of, parameters_of, tensors_in
from .writes import Writes

Observe: TypeAlias = Callable[[Operation, Sequence[Tensor]], None]
"""Called right after an operation with the tensors that it gave, before anything can change them."""

_NO_OPERATIONS = frozenset(
    {"size", "stride", "dim", "numel", "shape", "dtype", "device", "requires_grad", "is_contiguous"}
)
_COMPOSITES = frozenset({"multi_head_attention_forward", "gumbel_softmax", "local_response_norm"})
_READS = frozenset({"item", "tolist", "bool", "int", "float", "index", "numpy", "len", "contains", "equal", "allclose"})


class OperationRecorder:
    """Records what the forwards that run inside :meth:`recording` do.

    Args:
        model: The model; its modules and parameters give the names.
        observe: Called after each operation. What it does with torch is not recorded.
        origins: Whether inputs are followed to what made them, and modules to their calls; without it operations have
            labels, outputs and times alone, no module is hooked, and they cost less.

    An error of the recorder's own never reaches the forward; the trace names it.
    """

    def __init__(self, model: nn.Module, *, observe: Observe | None = None, origins: bool = True) -> None:
        self._model = model
        self._observe = observe
        self._names = {id(module): clean_name(model, path) for path, module in model.named_modules()} if origins else {}
        self._operations: list[Operation] = []
        self._reads: list[Read] = []
        self._modules: dict[str, str] = {}
        self._running: list[str] = []
        self._called: Counter[str] = Counter()
        self._thread = 0
        self._origins = Origins(model) if origins else None
        self._failures: dict[str, None] = {}
        self._unseen: dict[str, None] = {}
        self._compiled = 0
        self._uncounted = False

    @contextmanager
    def recording(self, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Iterator[None]:
        """Record one forward of the model with these arguments; several in one scope make one trace.

        Hooks on all modules are there only inside the scope, and gone after it however it ends.
        """
        self._thread = threading.get_ident()
        compiled = _frames_compiled()
        handles: list[Any] = []
        if self._origins is not None:
            try:
                self._origins.add_inputs(args, kwargs or {})
            except Exception as error:
                self._fail("inputs", error)
            handles = [
                module_hooks.register_module_forward_pre_hook(self._enter),
                module_hooks.register_module_forward_hook(self._leave, always_call=True),
            ]
        try:
            with _Mode(self):
                yield
        finally:
            for handle in handles:
                handle.remove()
            self._running.clear()
            self._compiled += _frames_compiled() - compiled

    @property
    def met_compiled_code(self) -> bool:
        """Whether something was compiled while it was recorded: a recording changes what torch.compile sees."""
        return self._compiled > 0

    def trace(self, returned: Any = None) -> OperationTrace:
        """Return what was recorded; ``returned`` is what the forward gave."""
        outputs: tuple[str, ...] = ()
        try:
            outputs = self._labels([tensor for _, tensor in tensors_in(returned)])
            if returned is not None and not outputs and self._origins is not None:
                self._unseen[f"the forward returned {type(returned).__name__}: no tensor was found in it"] = None
        except Exception as error:
            self._fail("outputs", error)
        return OperationTrace(
            tuple(self._operations),
            () if self._origins is None else tuple(self._origins.sources),
            outputs,
            tuple(self._reads),
            dict(self._modules),
            tuple(self._all_unseen()),
            None if self._origins is None else tuple(parameters_of(self._model)),
        )

    def held(self) -> list[str]:
        """Return the labels of the operations of whose tensors somebody still has one, outputs of the forward say."""
        return [] if self._origins is None else self._origins.held()

    def _all_unseen(self) -> Iterator[str]:
        yield from unseen_in(self._model)
        yield from self._composites()
        if self.met_compiled_code:
            yield "compiled functions ran inside the forward: they were compiled anew for the recording"
        yield from self._failures
        yield from self._unseen
        if self._uncounted:
            yield "torch does not count changes of tensors of inference mode: what writes in place was told by its name"
        outside = () if self._origins is None else [each for each in self._origins.sources if each.kind == "outside"]
        if outside:
            labels = ", ".join(source.label for source in outside)
            yield f"made before the forward or out of sight (by numpy or in another thread, say): {labels}"

    def _enter(self, module: nn.Module, args: Any) -> None:
        # A module that hangs in a plain list has no path; its class stands for it.
        path = self._names.get(id(module), type(module).__name__)
        if threading.get_ident() != self._thread:
            if id(module) in self._names:
                self._unseen[f"{path} ran in another thread: its operations are not recorded"] = None
            return
        if not any(isinstance(mode, _Mode) for mode in _get_current_function_mode_stack()):  # type: ignore[no-untyped-call]
            self._unseen[f"{path} ran inside a function of torch: its operations are not listed one by one"] = None
        self._modules[path] = type(module).__name__
        self._running.append(path)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if threading.get_ident() == self._thread and self._running:
            self._running.pop()

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run one function of torch, record it when it gives tensors, and return what it gave."""
        if threading.get_ident() != self._thread:
            return function(*args, **kwargs)
        name = function_name(function)
        if name in _NO_OPERATIONS:
            return function(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            given, writes = self._before(function, name, args, kwargs)
        start = time.perf_counter()
        result = function(*args, **kwargs)
        seconds = time.perf_counter() - start
        # Modes of others below this one, of a second recording say, are none of what is done here.
        with torch._C.DisableTorchFunction():
            try:
                self._record(name, given, writes, result, seconds)
            except Exception as error:
                self._fail(name, error)
        return result

    def _before(
        self, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[list[Tensor], Writes | None]:
        try:
            given = [tensor for _, tensor in tensors_in((args, dict(kwargs)))]
            writes = Writes(function, name, given, args, kwargs)
            self._uncounted |= writes.uncounted
            return given, writes
        except Exception as error:
            self._fail(name, error)
            return [], None

    def _fail(self, name: str, error: Exception) -> None:
        self._failures[f"{name}: {type(error).__name__} in the recorder: {error}"] = None

    def _record(self, name: str, given: list[Tensor], writes: Writes | None, result: Any, seconds: float) -> None:
        written = [] if writes is None else writes.written()
        outputs = [tensor for _, tensor in tensors_in(result)]
        if not outputs and not written:
            if name in _READS and given:
                self._reads.append(Read(name, self._module(), self._labels(given)))
            return
        inputs = self._labels(given)
        self._called[name] += 1
        number = len(self._operations) + 1
        label = operation_label(name, self._called[name], number)
        if self._origins is not None:
            for tensor in written:
                self._origins.wrote(tensor, label, number)
            for tensor in outputs:
                self._origins.made(tensor, label, number)
        facts = tuple(map(facts_of, outputs or written))
        operation = Operation(label, name, number, self._module(), inputs, facts, bool(written), seconds)
        self._operations.append(operation)
        if self._observe is not None:
            self._observe(operation, outputs or written)

    def _composites(self) -> Iterator[str]:
        for operation in self._operations:
            if operation.function in _COMPOSITES:
                yield f"{operation.label} calls further functions of torch, which are not listed one by one"

    def _labels(self, given: Sequence[Tensor]) -> tuple[str, ...]:
        if self._origins is None:
            return ()
        return tuple(dict.fromkeys(label for tensor in given for label in self._origins.of(tensor)))

    def _module(self) -> str:
        return self._running[-1] if self._running else ""


class _Mode(TorchFunctionMode):
    """Hands every function of torch to a recorder; it is off while the recorder works."""

    def __init__(self, recorder: OperationRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return self._recorder.call(func, args, kwargs or {})


def _frames_compiled() -> int:
    """Return how many frames torch.compile has taken on in this process; 0 while it is not even loaded."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["frames"]["total"])


def unseen_in(model: nn.Module) -> Iterator[str]:
    """Say which modules of a model a recording does not look into, one sentence a module."""
    for path, module in model.named_modules():
        name = clean_name(model, path) or "the root module"
        if isinstance(module, torch.jit.ScriptModule):
            yield f"{name} is scripted: what happens inside it is one step"
        elif type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None:
            yield f"{name} is compiled: it was recorded as the plain torch that it was made from"
        elif isinstance(module, (nn.MultiheadAttention, nn.TransformerEncoderLayer)) and not module.training:
            yield f"{name} takes its ordinary path while it is recorded, not the fast one that torch has for inference"


def record_forward(model: nn.Module, *args: Any, observe: Observe | None = None, **kwargs: Any) -> OperationTrace:
    """Run one forward of ``model`` as it is (mode, gradients, autocast) and return what it did. Experimental.

    Args:
        model: Any module.
        args: Arguments of its forward; tensors may stand in tuples, lists, mappings and dataclasses.
        observe: Called right after each operation with the tensors that it gave.
        kwargs: Keyword arguments of its forward.

    Whatever the forward raises is raised; hooks and mode are gone then as well. Clause: TIER-3, GRAPH-1.
    """
    recorder = OperationRecorder(model, observe=observe)
    with plain_torch(), recorder.recording(args, kwargs):
        returned = model(*args, **kwargs)
    return recorder.trace(returned)


@contextmanager
def plain_torch() -> Iterator[None]:
    """Let what torch.compile made run as plain torch: it would compile the recorder along, and hide the operations."""
    if hasattr(torch.compiler, "set_stance"):
        with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
            # torch warns that hooks on all modules are called for a wrapper too; its name is that of what it wraps.
            warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")
            yield
    else:
        yield
