"""The face: the names of ``torchlens.trackers``, so that ``import torchlens_conformance.trackers as trk`` reads alike.

Every name is experimental. Importing this module imports neither torch nor any tracker; a name is loaded when it is
first used, and what it needs then refuses by name when it is missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reference_sinks import ClearMLSink, CometSink, JSONLSink, MemorySink, MLflowSink, TensorBoardSink, WandbSink

    from .callbacks import HFTrainerWatchCallback, LightningWatchCallback
    from .graph import build_graph_ir, graph_ir_to_tensorboard
    from .protocol import (
        DEFAULT_DESCRIPTOR,
        WANDB_SAFE_DESCRIPTOR,
        EmbeddingPoint,
        EventPoint,
        GraphPoint,
        GridDescriptor,
        HistogramPoint,
        ImagePoint,
        MetadataPoint,
        Refusal,
        ScalarPoint,
        TextPoint,
    )
    from .watch.attach import watch
    from .watch.op_grain import func, split_heads
    from .watch.op_grain.calibration import WatchOpGrainCostWarning
    from .watch.operations import record_forward
    from .watch.plan import PlanReport
    from .watch.report import CloseReport
    from .watch.session import WatchSession, WatchUnclosedWarning
    from .watch.settings import WatchSettings
    from .watch.skips import NamedSkip

_PROTOCOL = "torchlens_conformance.protocol"
_WATCH = "torchlens_conformance.watch"
_GRAPH = "torchlens_conformance.graph"
_CALLBACKS = "torchlens_conformance.callbacks"

_HOMES = {
    "ClearMLSink": "reference_sinks",
    "CloseReport": _WATCH,
    "CometSink": "reference_sinks",
    "DEFAULT_DESCRIPTOR": _PROTOCOL,
    "EmbeddingPoint": _PROTOCOL,
    "EventPoint": _PROTOCOL,
    "GraphPoint": _PROTOCOL,
    "GridDescriptor": _PROTOCOL,
    "HFTrainerWatchCallback": _CALLBACKS,
    "HistogramPoint": _PROTOCOL,
    "ImagePoint": _PROTOCOL,
    "JSONLSink": "reference_sinks",
    "LightningWatchCallback": _CALLBACKS,
    "MLflowSink": "reference_sinks",
    "MemorySink": "reference_sinks",
    "MetadataPoint": _PROTOCOL,
    "NamedSkip": _WATCH,
    "PlanReport": _WATCH,
    "Refusal": _PROTOCOL,
    "ScalarPoint": _PROTOCOL,
    "TensorBoardSink": "reference_sinks",
    "TextPoint": _PROTOCOL,
    "WANDB_SAFE_DESCRIPTOR": _PROTOCOL,
    "WandbSink": "reference_sinks",
    "WatchOpGrainCostWarning": _WATCH,
    "WatchSession": _WATCH,
    "WatchSettings": _WATCH,
    "WatchUnclosedWarning": _WATCH,
    "build_graph_ir": _GRAPH,
    "func": f"{_WATCH}.op_grain",
    "graph_ir_to_tensorboard": _GRAPH,
    "record_forward": f"{_WATCH}.operations",
    "split_heads": f"{_WATCH}.op_grain",
    "watch": _WATCH,
}

__all__ = [
    "DEFAULT_DESCRIPTOR",
    "WANDB_SAFE_DESCRIPTOR",
    "ClearMLSink",
    "CloseReport",
    "CometSink",
    "EmbeddingPoint",
    "EventPoint",
    "GraphPoint",
    "GridDescriptor",
    "HFTrainerWatchCallback",
    "HistogramPoint",
    "ImagePoint",
    "JSONLSink",
    "LightningWatchCallback",
    "MLflowSink",
    "MemorySink",
    "MetadataPoint",
    "NamedSkip",
    "PlanReport",
    "Refusal",
    "ScalarPoint",
    "TensorBoardSink",
    "TextPoint",
    "WandbSink",
    "WatchOpGrainCostWarning",
    "WatchSession",
    "WatchSettings",
    "WatchUnclosedWarning",
    "build_graph_ir",
    "func",
    "graph_ir_to_tensorboard",
    "record_forward",
    "split_heads",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
