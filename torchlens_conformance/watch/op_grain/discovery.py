"""The discovery pass of op grain: which operations a forward calls, from metadata alone (TIER-2)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ...protocol.refusals import Refusal
from ..activations import call_with
from ..checks import compiled_unsupported
from ..discovery import discovery_failed, everything_restored
from ..operations.model import Operation, OperationTrace
from ..operations.recorder import OperationRecorder
from .places import Place, paths_of, place_here
from .wrap import Forward, ForwardWrap

_STANCE = "fail_on_recompile"
"""How torch.compile is told to raise; its error names it."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """What discovery saw.

    Attributes:
        trace: The operations.
        places: From where each of them was called, by its label.
    """

    trace: OperationTrace
    places: Mapping[str, Place]


def discover_operations(model: nn.Module, inputs: object) -> Discovery:
    """Run one forward under no_grad in the model's current mode and return its operations; no value is kept.

    Everything that :func:`~torchlens_conformance.watch.discovery.everything_restored` names is restored, also when the
    forward raises.

    Args:
        model: The innermost model.
        inputs: See :func:`~torchlens_conformance.watch.activations.call_with`.

    Raises ``watch_discovery_failed``, and ``watch_compiled_unsupported`` when the forward calls compiled functions.
    Clause: TIER-2.
    """
    found: list[Discovery] = []
    started = compiled = False

    def around(plain: Forward, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        nonlocal started, compiled
        if started:  # A forward that calls itself is one forward.
            return plain(*args, **kwargs)
        started = True
        places: dict[str, Place] = {}
        paths = paths_of(model)

        def note(operation: Operation, tensors: object) -> None:
            places[operation.label] = place_here(operation.function, model, paths)

        recorder = OperationRecorder(model, observe=note)
        try:
            with recorder.recording(args, kwargs):
                returned = plain(*args, **kwargs)
        finally:
            compiled = recorder.met_compiled_code
        found.append(Discovery(recorder.trace(returned), places))
        return returned

    wrap = ForwardWrap(model, around)
    with everything_restored(model), torch.no_grad(), _nothing_compiled():
        wrap.install()
        try:
            call_with(model, inputs)
        except Exception as error:
            raise (_compiled(model) if compiled or _STANCE in str(error) else discovery_failed(error)) from error
        finally:
            wrap.remove()
    if compiled:
        raise _compiled(model)
    if not found:
        raise Refusal(
            "watch_discovery_failed",
            "The model's forward was not called in the discovery forward.",
            remedy="Watch the module whose forward runs.",
        )
    return found[0]


@contextmanager
def _nothing_compiled() -> Iterator[None]:
    """Let torch.compile raise where it would compile: under a recording it would take the recorder along.

    A torch before 2.6 compiles, and the recorder says that it did.
    """
    if "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):
        with torch.compiler.set_stance(_STANCE):
            yield
    else:
        yield


def _compiled(model: nn.Module) -> Refusal:
    return compiled_unsupported([f"functions that {type(model).__name__} calls"])
