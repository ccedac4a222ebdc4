"""The Hugging Face Trainer: rows on its own log axis, one an optimizer step (CB-1, CB-2, STEP-9)."""

from __future__ import annotations

from typing import Any

from reference_sinks.packages import require_package

from .configuration import Cadence, derive_cadence
from .running import WatchingCallback

_trainer_callback = require_package("transformers.trainer_callback", extra="hf")


class HFTrainerWatchCallback(WatchingCallback, _trainer_callback.TrainerCallback):  # type: ignore[misc, name-defined]
    """Watch a model while a ``transformers.Trainer`` trains it.

    ``Trainer(..., callbacks=[HFTrainerWatchCallback(to=sink)])``. Each optimizer step is one step of the watch, at
    ``state.global_step + 1``: the number under which the Trainer logs what that step gave. Gradient accumulation counts
    once, gradients are those after clipping, and a resumed run begins a new segment. When ``train()`` ends the session
    is closed and ``report`` is its close report. When ``train()`` raises, nothing tells a callback: use it as a context
    manager around ``train()``, or call :meth:`close`, so that what was seen is flushed and reported. When the Trainer
    begins anew by itself (``auto_find_batch_size``), rows go on into the same sinks in a new segment, and ``report`` is
    that of the last attempt.

    Arguments are those of :class:`~torchlens_conformance.callbacks.running.WatchingCallback`; ``every`` follows the
    Trainer's ``logging_steps`` (a ratio resolved), else about 100 points of ``max_steps``.

    Raises ``tracker_sink_unavailable`` without transformers and ``watch_env_config_invalid``; training raises what
    ``watch()`` raises, before the first step. Experimental. Clause: CB-1, CB-2, STEP-9.
    """

    _scaler: object | None = None
    _optimizer: object | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Attach."""
        optimizer = kwargs.get("optimizer")
        self._scaler = getattr(optimizer, "scaler", None)
        # accelerate's wrapper has no hooks of its own; the optimizer that steps is inside.
        self._optimizer = getattr(optimizer, "optimizer", optimizer)
        self._attach(kwargs["model"], self._optimizer, trainer_cadence(args, state), resumed=state.global_step > 0)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the step that the Trainer is about to count."""
        self._open(int(state.global_step) + 1, scaler=self._scaler)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave it: the Trainer has counted it."""
        self._stepped.add(id(self._optimizer))
        self._leave()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close."""
        self._end()


def trainer_cadence(args: Any, state: Any) -> Cadence | None:
    """Return what the Trainer's own cadence gives: ``logging_steps`` (a ratio resolved), else the run's length.

    Clause: CB-1.
    """
    strategy = str(getattr(args.logging_strategy, "value", args.logging_strategy))
    every = None
    if strategy == "steps":
        resolved = getattr(state, "logging_steps", None) or args.logging_steps
        ratio = isinstance(resolved, float) and resolved < 1
        every = max(1, round(resolved * state.max_steps)) if ratio else int(resolved)
    return derive_cadence(every, "logging_steps", int(state.max_steps) if state.max_steps else None)
