"""Readers: one a store, from a path to points. They never look at a live sink object."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .result import ReadResult, Unplaced

if TYPE_CHECKING:
    from .clearml import read_clearml
    from .comet import read_comet
    from .jsonl import read_jsonl
    from .mlflow import read_mlflow
    from .tensorboard import read_tensorboard
    from .wandb import read_wandb

_LAZY = {
    "read_clearml": "clearml",
    "read_comet": "comet",
    "read_jsonl": "jsonl",
    "read_mlflow": "mlflow",
    "read_tensorboard": "tensorboard",
    "read_wandb": "wandb",
}

__all__ = [
    "ReadResult",
    "Unplaced",
    "read_clearml",
    "read_comet",
    "read_jsonl",
    "read_mlflow",
    "read_tensorboard",
    "read_wandb",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
