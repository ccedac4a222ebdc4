"""Our own sinks as subjects, each with its honest deviations and the reasons for them.

``torchlens-conformance certify torchlens_conformance.kit.subjects:JSONL`` certifies one. Each module imports its
tracker, once and before any process is forked, so it is imported only when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .jsonl import JSONL
    from .memory import MEMORY
    from .tensorboard import TENSORBOARD
    from .wandb import WANDB

_LAZY = {"JSONL": "jsonl", "MEMORY": "memory", "TENSORBOARD": "tensorboard", "WANDB": "wandb"}

__all__ = ["JSONL", "MEMORY", "TENSORBOARD", "WANDB"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
