"""What torch is asked to do, seen from below: transfers, waits for a value, and memory that is alive."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

WAITS = ("_local_scalar_dense", "equal", "nonzero", "is_nonzero", "bincount", "unique", "masked_select")
"""Operations that wait for a device: their result, or its shape, depends on values."""


class Watcher(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Notes what passes.

    Attributes:
        operations: How many passed.
        transfers: Bytes of every copy from a device to the host.
        waits: Names of the operations that wait for a value.
        largest: Bytes of the largest tensor that was made.
        peak: Most bytes that were alive at once, of what was made under it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.transfers: list[int] = []
        self.waits: list[str] = []
        self.largest = 0
        self.peak = 0
        self._alive: list[weakref.ReferenceType[Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and note what it was."""
        found = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        self.operations += 1
        if name in WAITS:
            self.waits.append(name)
        if isinstance(found, torch.Tensor):
            given = [each for each in (*(kwargs or {}).values(), *args) if isinstance(each, torch.Tensor)]
            if name in ("_to_copy", "copy_") and given[-1].device.type != "cpu" and found.device.type == "cpu":
                self.transfers.append(found.numel() * found.element_size())
            storage = found.untyped_storage()._cdata
            if not any(each.untyped_storage()._cdata == storage for each in given):
                self._note(found)
        return found

    @property
    def alive(self) -> int:
        """Bytes that are alive now, of what was made under it."""
        return sum(storage.nbytes() for each in self._alive if (storage := each()) is not None)

    def _note(self, made: Any) -> None:
        self._alive = [each for each in self._alive if each() is not None]
        self._alive.append(weakref.ref(made.untyped_storage()))
        self.largest = max(self.largest, made.untyped_storage().nbytes())
        self.peak = max(self.peak, self.alive)
