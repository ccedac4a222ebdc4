"""Where a tensor came from: by the object itself, else by the storage that it shares (GRAPH-1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakTensorKeyDictionary

from ..wrappers import clean_name
from .model import Source, TensorFacts


def facts_of(tensor: Tensor) -> TensorFacts:
    """Return shape, dtype and device of a tensor."""
    return TensorFacts(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), str(tensor.device))


def tensors_in(value: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield (path, tensor) for every tensor in tuples, lists, mappings and dataclasses, in order.

    What stands inside itself is not looked into again there.
    """
    # No recursion: nesting may be deeper than Python's stack.
    levels: list[tuple[int, Iterator[tuple[str, Any]]]] = [(0, iter([(path, value)]))]
    while levels:
        place, part = next(levels[-1][1], (None, None))
        if place is None:
            levels.pop()
        elif isinstance(part, Tensor):
            yield place, part
        elif all(id(part) != above for above, _ in levels):
            levels.append((id(part), _parts_of(part, place)))


def _parts_of(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    named: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        named = value.items()
    elif isinstance(value, (tuple, list)):
        named = enumerate(value)
    elif is_dataclass(value) and not isinstance(value, type):
        named = ((field.name, getattr(value, field.name, None)) for field in fields(value))
    return ((f"{path}.{name}" if path else str(name), part) for name, part in named)


def storage_of(tensor: Tensor) -> StorageWeakRef | None:
    """Return what tensors of one storage share, or None for a tensor without one.

    It holds no memory of the storage. While it is kept no later storage is equal to it, as one at the same address
    could be otherwise.
    """
    try:
        return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
    except (RuntimeError, NotImplementedError):
        return None


class Origins:
    """Which operation or source each live tensor came from.

    An operation that writes in place is the origin of everything that shares the storage from then on. A tensor that
    was never seen but shares a storage with one that was (the output of a custom autograd function, say) comes from
    the last operation on that storage.
    """

    def __init__(self, model: nn.Module) -> None:
        self.sources: list[Source] = []
        self._by_tensor: Any = WeakTensorKeyDictionary()
        self._by_storage: dict[StorageWeakRef, tuple[int, str]] = {}
        self._written: dict[StorageWeakRef, tuple[int, str]] = {}
        self._number_of: dict[str, int] = {}
        self._listed: set[str] = set()
        self._outside = 0
        self._kinds: dict[str, str] = {}
        for kind, named in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
            for path, tensor in named:
                label = clean_name(model, path)
                self._kinds[label] = kind
                self._by_tensor[tensor] = label

    def add_inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Make the tensors among the arguments of the forward sources of their own, named by their place."""
        for path, tensor in tensors_in((*args, dict(kwargs)) if kwargs else args):
            place = path.split(".", 1)[1] if kwargs and path.startswith(f"{len(args)}.") else path
            if tensor in self._by_tensor:  # A parameter, or an argument that stands in an earlier place as well.
                continue
            # A model may hold something that is called ``input`` itself.
            label = f"input.{place}" if f"input.{place}" not in self._kinds else f"argument.{place}"
            self._kinds[label] = "input"
            self._by_tensor[tensor] = label

    def of(self, tensor: Tensor) -> tuple[str, ...]:
        """Return the labels that a tensor came from: its own origin, and a later writer to its storage.

        A lazy parameter comes from nowhere until it has values.
        """
        if is_lazy(tensor):
            return ()
        label = self._by_tensor.get(tensor)
        key = storage_of(tensor)
        if label is None and key is not None and key in self._by_storage:
            label = self._by_storage[key][1]
        if label is None:
            self._outside += 1
            label = f"outside_{self._outside}"
            self._kinds[label] = "outside"
            self._by_tensor[tensor] = label
        if label in self._kinds and label not in self._listed:
            self._listed.add(label)
            self.sources.append(Source(label, self._kinds[label], facts_of(tensor)))
        number, writer = self._written.get(key, (0, "")) if key is not None else (0, "")
        return (label, writer) if writer != label and number > self._number_of.get(label, 0) else (label,)

    def made(self, tensor: Tensor, label: str, number: int) -> None:
        """Note that an operation gave a tensor."""
        self._number_of[label] = number
        self._by_tensor[tensor] = label
        key = storage_of(tensor)
        if key is not None:
            self._by_storage[key] = (number, label)

    def wrote(self, tensor: Tensor, label: str, number: int) -> None:
        """Note that an operation changed a tensor in place."""
        self.made(tensor, label, number)
        key = storage_of(tensor)
        if key is not None:
            self._written[key] = (number, label)

    def held(self) -> list[str]:
        """Return the labels of the operations of whose tensors somebody still has one."""
        return list(dict.fromkeys(label for label in self._by_tensor.values() if label not in self._kinds))


def parameters_of(model: nn.Module) -> Iterator[Source]:
    """Yield every parameter that has values, tied ones once under their first name, used by a forward or not."""
    for path, parameter in model.named_parameters():
        if not is_lazy(parameter):
            yield Source(clean_name(model, path), "parameter", facts_of(parameter))


def version_of(tensor: Tensor) -> int | None:
    """Return the count of changes in place, or None for a tensor that keeps none."""
    try:
        return int(tensor._version)
    except RuntimeError:
        return None
