"""Lightning: rows on the axis of its loggers, automatic and manual optimization (CB-1, CB-2)."""

from __future__ import annotations

from typing import Any

from reference_sinks.packages import require_package

from ..watch import driving
from .configuration import Cadence, derive_cadence
from .lightning_profiler import LayerProfilerCallback
from .lightning_summary import SummaryCallback
from .running import WatchingCallback

__all__ = ["LayerProfilerCallback", "LightningWatchCallback", "SummaryCallback", "logger_step", "trainer_cadence"]

_lightning = require_package("lightning.pytorch.callbacks", extra="lightning")


class LightningWatchCallback(WatchingCallback, _lightning.Callback):  # type: ignore[misc, name-defined]
    """Watch a module while a Lightning ``Trainer`` fits it.

    ``Trainer(callbacks=[LightningWatchCallback(to=sink)])``. Rows lie on the axis of Lightning's loggers, which counts
    batches that stepped, whatever the number of optimizers; accumulated batches count once. Under manual optimization
    an optimizer that does not step in a batch is named as skipped there. One that was not sampled for a whole cadence
    is owed a sample until it has one: batches in which it is likely to step are sampled beside the cadence, so that no
    cadence falls for ever between its steps; see :class:`~torchlens_conformance.callbacks.debts.Debts`. When fitting
    ends, or raises, the session is closed and ``report`` is its close report.

    Arguments are those of :class:`~torchlens_conformance.callbacks.running.WatchingCallback`; ``every`` follows the
    trainer's ``log_every_n_steps``, else about 100 points of the run.

    Raises ``tracker_sink_unavailable`` without Lightning and ``watch_env_config_invalid``; fitting raises what
    ``watch()`` raises, before the first batch. Experimental. Clause: CB-1, CB-2.
    """

    _paused: Any = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach."""
        self._attach(pl_module, trainer.optimizers, trainer_cadence(trainer), resumed=trainer.global_step > 0)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Open the step, unless batches are being accumulated for one that is open."""
        self._open(logger_step(trainer), scaler=getattr(trainer.precision_plugin, "scaler", None))

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Note which optimizer steps in this batch, and what the scaler did to the one before."""
        self._stepped.add(id(optimizer))
        if self._session is not None:
            driving.look_at_scaler(self._session)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Leave the step, unless more batches belong to it."""
        if not pl_module.automatic_optimization or not _accumulates(trainer):
            self._leave()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Leave its forwards alone: it may stand between batches that are accumulated."""
        if self._session is not None and self._scope is not None:
            self._paused = driving.pause(self._session)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Go on with the step that is open."""
        record, self._paused = self._paused, None
        if self._session is not None:
            driving.go_on(self._session, record)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Close."""
        self._end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Close; the exception goes on as it is."""
        self._end(exception)


def logger_step(trainer: Any) -> int:
    """Return the step under which the trainer's loggers write what is logged in the present batch.

    It counts batches that stepped, not calls of optimizers, so two optimizers do not double it.
    """
    loop = getattr(getattr(trainer, "fit_loop", None), "epoch_loop", None)
    return int(getattr(loop, "_batches_that_stepped", trainer.global_step))


def _accumulates(trainer: Any) -> bool:
    loop = trainer.fit_loop.epoch_loop
    return bool(loop._should_accumulate())


def trainer_cadence(trainer: Any) -> Cadence | None:
    """Return what the trainer's own cadence gives: ``log_every_n_steps``, else the run's length. Clause: CB-1."""
    every = trainer.log_every_n_steps if trainer.loggers else None
    steps = trainer.estimated_stepping_batches
    length = int(steps) if steps not in (None, float("inf")) else None
    return derive_cadence(int(every) if every else None, "log_every_n_steps", length)
