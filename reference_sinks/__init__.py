"""Reference sinks: one file a tracker, each a serializer over emission points, and the readers of their stores."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clearml_sink import ClearMLSink
    from .comet_sink import CometSink
    from .jsonl_sink import JSONLSink
    from .memory_sink import MemorySink
    from .mlflow_sink import MLflowSink
    from .tensorboard_sink import TensorBoardSink
    from .wandb_sink import WandbSink

_LAZY = {
    "ClearMLSink": "clearml_sink",
    "CometSink": "comet_sink",
    "JSONLSink": "jsonl_sink",
    "MLflowSink": "mlflow_sink",
    "MemorySink": "memory_sink",
    "TensorBoardSink": "tensorboard_sink",
    "WandbSink": "wandb_sink",
}

__all__ = ["ClearMLSink", "CometSink", "JSONLSink", "MLflowSink", "MemorySink", "TensorBoardSink", "WandbSink"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
