"""What observing costs here: the plain forward against the observed one, taking turns (TIER-2)."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn

from ..activations import ForwardRecord, call_with
from ..discovery import discovery_failed, everything_restored
from ..measure import fetch
from .observer import OperationObserver

PAIRS = 5
"""Pairs of forwards that are measured."""

FEWEST_PAIRS = 3
"""Pairs that are measured even of a slow model."""

PATIENCE = 4.0
"""Seconds after which no further pair begins."""


class WatchOpGrainCostWarning(UserWarning):
    """Says what a sampled step costs at op grain; the message begins with the code. Clause: TIER-2."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Times of a few pairs on this machine; a disclosure, not a published number.

    Attributes:
        plain: Seconds of the plain forwards, under no_grad.
        observed: Seconds of the observed forwards with all statistics that a sampled step takes.
    """

    plain: tuple[float, ...]
    observed: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median over the pairs of observed over plain."""
        return median(after / before for before, after in zip(self.plain, self.observed))

    def sentence(self) -> str:
        """What was found, for people."""
        return (
            f"tier O: on sampled steps the first forward took {self.ratio:.2f} times the plain one "
            f"(median of {len(self.plain)} pairs on this machine under no_grad, a disclosure and no published number)"
        )

    def text(self) -> str:
        """The text row, as JSON. Clause: TIER-2."""
        return json.dumps(
            {
                "format": "torchlens.watch.op_grain_calibration.v1",
                "meaning": self.sentence(),
                "overhead_median_x": self.ratio,
                "plain_seconds": list(self.plain),
                "observed_seconds": list(self.observed),
            }
        )

    def warn(self) -> None:
        """Say it once, where the caller attached. Clause: TIER-2."""
        warnings.warn(
            f"watch_op_grain_cost_disclosed: {self.sentence()}; every= is the lever on time",
            WatchOpGrainCostWarning,
            stacklevel=4,
        )


def calibrate(
    model: nn.Module, inputs: object, observer: OperationObserver, new_record: Callable[[], ForwardRecord]
) -> Calibration:
    """Measure pairs of forwards; every one begins with the same random states and buffers, which are restored.

    Args:
        model: The innermost model.
        inputs: See :func:`~torchlens_conformance.watch.activations.call_with`.
        observer: Observes as a sampled step would; it ends removed.
        new_record: Makes a record to fill and throw away.

    Raises ``watch_discovery_failed`` when a forward raises. Clause: TIER-2.
    """

    def plain() -> None:
        call_with(model, inputs)

    def observed() -> None:
        observer.record = record = new_record()
        try:
            call_with(model, inputs)
        finally:
            observer.record = None
            record.close()
        fetch([record.measurements])

    times: dict[Callable[[], None], list[float]] = {plain: [], observed: []}
    _timed(observed, model)  # The first one compiles and allocates.
    began = time.perf_counter()
    for pair in range(PAIRS):
        if pair >= FEWEST_PAIRS and time.perf_counter() - began > PATIENCE:
            break
        # The order alternates, so that neither always runs with warm caches.
        for run in (plain, observed) if pair % 2 == 0 else (observed, plain):
            times[run].append(_timed(run, model))
    return Calibration(tuple(times[plain]), tuple(times[observed]))


def _timed(run: Callable[[], None], model: nn.Module) -> float:
    with everything_restored(model), torch.no_grad():
        _wait(model)
        start = time.perf_counter()
        try:
            run()
        except Exception as error:
            raise discovery_failed(error) from error
        _wait(model)
        return time.perf_counter() - start


def _wait(model: nn.Module) -> None:
    """Wait for the accelerator of the model, if it has one, so that a time is that of its work."""
    device = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), None)
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
