"""What each layer does, once an epoch, as rows of a JSONL file (CB-3)."""

from __future__ import annotations

import json
import os
from typing import Any
from uuid import uuid4

from reference_sinks.packages import require_package

from ..protocol.refusals import Refusal
from ..watch.operations import HOST_TIME, OperationTrace, record_forward
from ..watch.settings import require_period
from .arguments import require_callable, require_path, require_run_id
from .extra_forward import InputGetter, beside_training, forward_inputs, warn

_lightning = require_package("lightning.pytorch.callbacks", extra="lightning")

DISCLOSURE = "from one extra forward in eval mode under no_grad, not from the training step"
"""Stands in every row."""


class LayerProfilerCallback(_lightning.Callback):  # type: ignore[misc, name-defined]
    """Write one row a layer and epoch: how often it ran, its operations, shapes, host time and parameters.

    This is a snapshot of structure, not of training: it comes from an extra forward of the epoch's first batch in eval
    mode under ``no_grad``, after which modes, buffers and random states are as they were. Gradients and statistics of
    training are what :class:`~torchlens_conformance.callbacks.lightning.LightningWatchCallback` is for.

    Args:
        path: The file; rows are appended.
        run_id: Stands in every row; a fresh one at every setup when left out.
        input_getter: See :class:`~torchlens_conformance.callbacks.lightning_summary.SummaryCallback`.
        every_n_epochs: Epochs from one profile to the next, an integer >= 1.

    A batch that the forward rejects is skipped with the warning ``lightning_profile_skipped``, and so is a profile that
    cannot be written any more; training goes on. Raises ``watch_settings_invalid``; setup raises
    ``tracker_sink_write_failed`` when the file cannot be written. Experimental. Clause: CB-3.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        run_id: str | None = None,
        input_getter: InputGetter | None = None,
        every_n_epochs: int = 1,
    ) -> None:
        super().__init__()
        self._path = require_path("path", path)
        self._fixed = require_run_id("run_id", run_id)
        require_callable("input_getter", input_getter, optional=True)
        self._input_getter = input_getter
        self._every = require_period("every_n_epochs", every_n_epochs) or 1
        self.run_id = run_id or ""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begin a run: a fresh id, and a file that can be written."""
        self.run_id = self._fixed or uuid4().hex
        self._append(b"")

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Profile the first batch of an epoch that is due."""
        if batch_idx or trainer.current_epoch % self._every or not trainer.is_global_zero:
            return
        try:
            arguments, keywords = forward_inputs(batch, self._input_getter)
            with beside_training(pl_module):
                trace = record_forward(pl_module, *arguments, **keywords)
            rows = layer_rows(pl_module, trace)
        except Exception as error:
            text = f"epoch {trainer.current_epoch}, the forward raised {type(error).__name__}: {error}"
            warn("lightning_profile_skipped", text)
            return
        told = {"run_id": self.run_id, "epoch": trainer.current_epoch, "disclosure": DISCLOSURE}
        try:
            self._append(b"".join(json.dumps({**told, **row}).encode() + b"\n" for row in rows))
        except Refusal as refusal:
            # Training is under way; a profile is no reason to end it.
            warn("lightning_profile_skipped", f"epoch {trainer.current_epoch}, {refusal}")

    def _append(self, text: bytes) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(text)
        except OSError as error:
            raise Refusal(
                "tracker_sink_write_failed",
                f"The profile cannot be written: {error.strerror}.",
                remedy="Give a path that can be written.",
                path=str(self._path),
            ) from error


def layer_rows(module: Any, trace: OperationTrace) -> list[dict[str, Any]]:
    """Return one row a module that ran, in the order in which they first did. Clause: CB-3."""
    own = {path: sum(p.numel() for p in part.parameters(recurse=False)) for path, part in module.named_modules()}
    rows: dict[str, dict[str, Any]] = {}
    for operation in trace.operations:
        kind = trace.modules.get(operation.module, "")
        row = rows.setdefault(
            operation.module,
            {
                "layer": operation.module,
                "class": kind,
                "operations": [],
                "host_seconds": 0.0,
                "host_seconds_evidence": HOST_TIME,
                "own_parameters": own.get(operation.module, 0),
            },
        )
        row["operations"].append(operation.label)
        row["host_seconds"] += operation.seconds
        row["output_shape"] = list(operation.outputs[0].shape)
    return list(rows.values())
