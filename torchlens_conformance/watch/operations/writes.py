"""Which tensors a call changes in place: by torch's count of changes, else by the name of its function (GRAPH-1)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import FunctionType
from typing import Any

from torch import Tensor

from .origins import tensors_in, version_of

_NO_WRITES = frozenset({"requires_grad_", "detach_", "share_memory_", "rename_", "set_"})
"""End like functions that write, and leave values alone."""


class Writes:
    """What is known of the tensors of a call before it.

    Args:
        function: The function of torch.
        name: Its name as a user writes it.
        given: The tensors among its arguments.
        args: Its arguments.
        kwargs: Its keyword arguments.

    Attributes:
        uncounted: Whether there is a tensor whose changes torch does not count; those of inference mode are such.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        given: Sequence[Tensor],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        self._counted = [(tensor, version_of(tensor)) for tensor in given]
        self.uncounted = any(version is None for _, version in self._counted)
        self._named = list(_written_by_name(function, name, args, kwargs)) if self.uncounted else []

    def written(self) -> list[Tensor]:
        """Return the tensors that the call has changed."""
        return [tensor for tensor, version in self._counted if self._changed(tensor, version)]

    def _changed(self, tensor: Tensor, version: int | None) -> bool:
        if version is None:
            return any(tensor is named for named in self._named)
        return version_of(tensor) != version


def _written_by_name(
    function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[Tensor]:
    in_place = name == "setitem" or (name.endswith("_") and name not in _NO_WRITES) or _asked(function, args, kwargs)
    first = args[:1] if args else tuple(kwargs.values())[:1]
    for _, tensor in tensors_in((first if in_place else (), kwargs.get("out"))):
        yield tensor


def _asked(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call says ``inplace=True``, also by position."""
    place = _place_of_inplace(function) if isinstance(function, FunctionType) else None
    by_position = place is not None and place < len(args) and bool(args[place])
    return by_position or bool(kwargs.get("inplace", False))


@lru_cache(maxsize=1024)
def _place_of_inplace(function: Callable[..., Any]) -> int | None:
    names = list(inspect.signature(function).parameters)
    return names.index("inplace") if "inplace" in names else None
