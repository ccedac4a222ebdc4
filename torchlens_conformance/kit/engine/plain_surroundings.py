"""What the plain engine sees around itself: wrappers of the model, other processes, the environment. Clause: ENV-1."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

DISABLE = "TORCHLENS_WATCH_DISABLE"
"""Set to 1, it turns collection off; no variable turns anything on. Clause: ENV-1."""


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model that a compiled or data-parallel one wraps. Clause: TAG-6."""
    inner: Any = model
    while True:
        parts = vars(inner).get("_modules", {})
        if "_orig_mod" in parts:
            inner = parts["_orig_mod"]
        elif is_data_parallel(inner):
            inner = inner.module
        else:
            found: torch.nn.Module = inner
            return found


def is_data_parallel(model: Any) -> bool:
    """Say whether a model is wrapped for data-parallel training."""
    return type(model).__name__ == "DistributedDataParallel"


def disabled_by(model: torch.nn.Module) -> str:
    """Return what turns a session off: the environment, or another process that emits; empty when nothing does."""
    import torch

    if os.environ.get(DISABLE) == "1":
        return f"{DISABLE}=1"
    rank = torch.distributed.get_rank() if is_data_parallel(model) else 0
    return f"rank {rank}: rank 0 emits" if rank else ""
