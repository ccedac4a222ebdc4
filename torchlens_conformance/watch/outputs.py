"""The tensors in a module's output, each under a stable label (TIER-1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import torch

DEEPEST = 8
"""Nesting below this is not looked into."""


def labelled(output: object, leaf: str) -> Iterator[tuple[str, object]]:
    """Yield (leaf, part) for every part of a module's output that is no container.

    A bare output keeps the module's leaf; parts of tuples, lists, mappings and dataclasses get their index, key or
    field name after a slash: ``encoder/last_hidden_state``, ``block/1/k``. None and empty containers yield nothing.
    Clause: TIER-1.
    """
    yield from _walk(output, leaf, 0)


def _walk(value: object, label: str, depth: int) -> Iterator[tuple[str, object]]:
    if value is None:
        return
    parts = _parts(value) if depth < DEEPEST else None
    if parts is None:
        yield label, value
        return
    for key, part in parts:
        yield from _walk(part, f"{label}/{key}", depth + 1)


def _parts(value: object) -> list[tuple[str, object]] | None:
    if isinstance(value, Mapping):
        return [(str(key), part) for key, part in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value))
    if isinstance(value, (tuple, list)):
        return [(str(index), part) for index, part in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def is_watchable(value: object) -> bool:
    """Return whether ``value`` is a tensor of floating-point numbers."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()
