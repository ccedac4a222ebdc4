"""Our own sinks as subjects, each with its honest deviations and the reasons for them.

``torchlens-conformance certify torchlens_conformance.kit.subjects:JSONL`` certifies one. Each module imports its
tracker, once and before any process is forked, so it is imported only when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clearml import CLEARML
    from .comet import COMET
    from .jsonl import JSONL
    from .memory import MEMORY
    from .mlflow import MLFLOW
    from .tensorboard import TENSORBOARD
    from .wandb import WANDB

_LAZY = {
    "CLEARML": "clearml",
    "COMET": "comet",
    "JSONL": "jsonl",
    "MEMORY": "memory",
    "MLFLOW": "mlflow",
    "TENSORBOARD": "tensorboard",
    "WANDB": "wandb",
}

__all__ = ["CLEARML", "COMET", "JSONL", "MEMORY", "MLFLOW", "TENSORBOARD", "WANDB"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
