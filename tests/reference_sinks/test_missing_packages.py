"""A sink or a reader whose package is missing says so by name, and how to get it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

_PROGRAM = """
import json, sys
sys.modules[sys.argv[1]] = None  # As if it were not installed.
import reference_sinks
from torchlens_conformance.protocol import Refusal
try:
    getattr(reference_sinks, sys.argv[2])(*sys.argv[3:])
    print(json.dumps(None))
except Refusal as refusal:
    print(json.dumps([refusal.code, refusal.fields["extra"], refusal.remedy]))
"""


@pytest.mark.parametrize(
    ("package", "sink", "arguments", "extra"),
    [
        ("torch", "TensorBoardSink", ("runs",), "tensorboard"),
        ("wandb", "WandbSink", ("run",), "wandb"),
        ("clearml", "ClearMLSink", ("task",), "clearml"),
        ("mlflow", "MLflowSink", (), "mlflow"),
        ("comet_ml", "CometSink", ("experiment",), "comet"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    package: str, sink: str, arguments: tuple[str, ...], extra: str, program: Callable[..., Any]
) -> None:
    """Without its package a sink refuses before anything else, and names the extra that brings it (SINK-0, PROT-9)."""
    code, named, remedy = program(_PROGRAM, package, sink, *arguments).printed
    assert (code, named) == ("tracker_sink_unavailable", extra)
    assert f"torchlens-conformance[{extra}]" in remedy


@pytest.mark.parametrize("sink", ["JSONLSink", "MemorySink"])
def test_sinks_without_a_package_need_none(sink: str, program: Callable[..., Any]) -> None:
    """JSONLSink and MemorySink work where no tracker and no torch is installed (SINK-0)."""
    assert program(_PROGRAM, "torch", sink, *(["run.jsonl"] if sink == "JSONLSink" else [])).printed is None
