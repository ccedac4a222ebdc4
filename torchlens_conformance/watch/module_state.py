"""What modules hold, taken before a forward beside the training and put back after it (TIER-1, TIER-2, GRAPH-1)."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn.parameter import is_lazy

from .own_forwards import own_forward
from .unseen import unseen

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, torch.device, torch.dtype})
"""What holds nothing further; most of what stands in a large list."""


@contextmanager
def put_back(model: nn.Module) -> Iterator[ModuleState]:
    """Restore the random states of Python, numpy and torch, and what the modules hold, whatever happens inside.

    Forwards of the model inside are ours, and no session takes them for one of the training.

    Args:
        model: Its modules, also those in plain lists. What is restored is told at :class:`ModuleState`.

    Yields the state that will be there again. Clause: TIER-1, TIER-2.
    """
    with unseen():
        state = ModuleState(model)
    python_state = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = None if numpy is None else numpy.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    try:
        with torch.random.fork_rng(devices=devices), own_forward(model):
            yield state
    finally:
        random.setstate(python_state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
        with unseen():
            state.restore()


class ModuleState:
    """What the modules of a model hold now.

    That is: their attributes, buffers (also those that are None), parameters, submodules and hooks by name; what stands
    in lists, dicts, sets, deques and dataclasses among them, however deep; and the values of buffers and of
    other tensors that are held so. It is not: values of parameters, and what lies in other objects.

    Args:
        model: The root.
    """

    def __init__(self, model: nn.Module) -> None:
        self._contents: list[tuple[Any, Any]] = []
        self._scripted: list[tuple[nn.Module, str, Any]] = []
        self._tensors: list[_KeptTensor] = []
        seen: set[int] = set()
        todo: list[Any] = [model]
        while todo:  # No recursion: containers may be deep, and hold themselves.
            value = todo.pop()
            if id(value) not in seen:
                seen.add(id(value))
                with suppress(Exception):  # A container of somebody's own may not let itself be read.
                    todo.extend(part for part in self._take(value) if type(part) not in _PLAIN)

    def _take(self, value: Any) -> Collection[Any]:
        """Keep one thing, and return what it holds. A proxy of a module is none: its type decides."""
        kind = type(value)
        if issubclass(kind, torch.jit.ScriptModule):
            return self._take_scripted(value)
        if issubclass(kind, Tensor):
            if not issubclass(kind, nn.Parameter) and not is_lazy(value):
                self._tensors += _kept(value)
            return ()
        held: list[Any] = []
        if issubclass(kind, nn.Module) or (is_dataclass(kind) and hasattr(value, "__dict__")):
            held.append(vars(value))
        if issubclass(kind, dict):
            self._contents.append((value, dict(value)))
            held += value.values()
        elif issubclass(kind, (list, set, deque)):
            self._contents.append((value, set(value) if issubclass(kind, set) else list(value)))
            held += value
        elif issubclass(kind, tuple):
            held += value
        return held

    def _take_scripted(self, module: nn.Module) -> Collection[Any]:
        """Keep the buffers of a scripted module, which live behind Python's back."""
        held = list(module.named_buffers(recurse=False))
        self._scripted += [(module, name, tensor) for name, tensor in held]
        return (*(tensor for _, tensor in held), *module.children())

    def restore(self) -> None:
        """Put everything back; what cannot be put back does not keep the rest from it. A second time does nothing."""
        for container, kept in self._contents:
            with suppress(Exception):
                _refill(container, kept)
        for module, name, tensor in self._scripted:
            with suppress(Exception):
                if getattr(module, name) is not tensor:
                    setattr(module, name, tensor)
        with torch.no_grad():
            for each in self._tensors:
                if not each.restore():
                    self._exchange(each.tensor, each.value)

    def stand_in(self, change: Callable[[nn.Parameter], Any]) -> None:
        """Let something stand in the place of every parameter until :meth:`restore`."""
        for container, kept in self._contents:
            if not isinstance(kept, set):
                for place, held in kept.items() if isinstance(kept, dict) else enumerate(kept):
                    if isinstance(held, nn.Parameter):
                        container[place] = change(held)

    def _exchange(self, tensor: Tensor, value: Tensor) -> None:
        """Put a copy in the place of a tensor that cannot be written."""
        for container, _ in self._contents:
            with suppress(Exception):
                places = container.items() if isinstance(container, dict) else enumerate(container)
                for place in [place for place, held in places if held is tensor]:
                    container[place] = value


class _KeptTensor:
    """A tensor, with what has to be there again: memory, shape, values, and the count of changes that autograd asks."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.value = tensor.detach().clone()
        self._place = _place(tensor)
        self._count = None if tensor.is_inference() else _unsafe_preserve_version_counter(tensor)

    def restore(self) -> bool:
        """Put values back where they differ; return whether the tensor is what it was.

        A value that nobody changed is not written: not every tensor can be, and a graph may still need it.
        """
        try:
            if self._place is not None and _place(self.tensor) != self._place:
                storage, offset, shape, stride = self._place[0].storage, *self._place[1:]
                self.tensor.set_(storage, offset, shape, stride)
            if not _same_bits(self.tensor, self.value):
                _write(self.tensor, self.value)
            if self._count is not None:
                self._count.__exit__(None, None, None)
        except Exception:
            return False
        return True


class _Memory:
    """A storage, equal to itself alone."""

    def __init__(self, tensor: Tensor) -> None:
        self.storage = tensor.untyped_storage()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Memory) and self.storage._cdata == other.storage._cdata

    __hash__ = None  # type: ignore[assignment]


def _place(tensor: Tensor) -> tuple[_Memory, int, torch.Size, tuple[int, ...]] | None:
    try:
        return _Memory(tensor), int(tensor.storage_offset()), tensor.shape, tensor.stride()
    except (RuntimeError, NotImplementedError):
        return None  # A sparse one, say.


def _kept(tensor: Tensor) -> list[_KeptTensor]:
    try:
        with torch.no_grad():
            return [_KeptTensor(tensor)]
    except Exception:
        return []  # A kind of tensor that cannot be copied.


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors hold the same bits: a NaN is the same as itself, and -0.0 is not 0.0."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.layout != torch.strided or one.is_quantized:
        return False  # Their memory is not all of it: they are written in any case.
    try:
        return torch.equal(_bytes(one), _bytes(other))
    except Exception:
        return False


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().reshape(-1).contiguous().view(torch.uint8)


def _write(tensor: Tensor, value: Tensor) -> None:
    """Write values without telling autograd: they are those that it saw."""
    inference = tensor.is_inference()
    with torch.inference_mode() if inference else nullcontext():
        target = tensor if inference else tensor.data
        _written_once(target).copy_(_written_once(value, like=target))


def _written_once(tensor: Tensor, like: Tensor | None = None) -> Tensor:
    """Return the part that stands for all of an expanded tensor, whose elements share their memory."""
    if tensor.layout != torch.strided:
        return tensor
    strides = (tensor if like is None else like).stride()
    return tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)]


def _refill(container: Any, kept: Any) -> None:
    """Give a container its contents back, when they are not there as they were."""
    if isinstance(container, dict):
        _refill_dict(container, kept)
    elif isinstance(container, set):
        if container != kept:
            container.clear()
            container.update(kept)
    elif len(container) != len(kept) or any(one is not other for one, other in zip(container, kept)):
        container.clear()
        container.extend(kept)


def _refill_dict(container: dict[Any, Any], kept: dict[Any, Any]) -> None:
    for key in [key for key in container if key not in kept]:
        del container[key]
    for key, value in kept.items():
        if key not in container or container[key] is not value:
            container[key] = value
    if any(one != other for one, other in zip(container, kept)):  # Names keep their order, as in a state_dict.
        for key in kept:
            container[key] = container.pop(key)
