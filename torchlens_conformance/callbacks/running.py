"""What every callback shares: the session of a run, whose steps open and close in different calls (CB-1)."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from ..protocol.refusals import Refusal
from ..watch import CloseReport, StepScope, WatchSession, watch
from .configuration import UNSET, Cadence, CallbackSettings, Unset, resolve_settings

Print = Callable[[str], object]
"""Takes one line."""


class WatchingCallback:
    """A watch that a framework's callbacks drive.

    Args:
        to: One sink, or several.
        signals: What to watch; left out, ``TORCHLENS_WATCH_SIGNALS`` or gradients.
        select: Prefixes of names, or selectors of operations; left out, ``TORCHLENS_WATCH_SELECT`` or all parameters.
        every: Steps that it divides are sampled; left out, ``TORCHLENS_WATCH_EVERY``, the framework's own cadence of
            logging, about 100 points of the run's length, or 50.
        hist_every: The same for histograms; left out, ``TORCHLENS_WATCH_HIST_EVERY`` or none.
        print_fn: Takes one line a setting when training begins.
        keywords: Further keywords of :func:`~torchlens_conformance.watch.watch`.

    Raises ``watch_env_config_invalid``; training raises what ``watch()`` raises, before its first step.
    Clause: CB-1, CB-2.
    """

    def __init__(
        self,
        to: object,
        *,
        signals: Any = UNSET,
        select: Any = UNSET,
        every: int | Unset = UNSET,
        hist_every: int | Unset | None = UNSET,
        print_fn: Print = print,
        **keywords: Any,
    ) -> None:
        super().__init__()
        self._to = to
        self._arguments = {"signals": signals, "select": select, "every": every, "hist_every": hist_every}
        # A malformed variable is refused when the callback is made, not once a run was set up.
        resolve_settings(self._arguments, None)
        self._print = print_fn
        # What a framework leaves out of a step is told in the report; it is no reason to end the run.
        self._keywords = {"allow_missing_phases": True, **keywords}
        self._scope: StepScope | None = None
        self._opened: int | None = None
        self._resumed = False
        self._settings: CallbackSettings | None = None
        self._session: WatchSession | None = None
        self._report: CloseReport | None = None

    @property
    def settings(self) -> CallbackSettings | None:
        """The resolved settings with their sources; None before training began. Clause: CB-2."""
        return self._settings

    @property
    def session(self) -> WatchSession | None:
        """The running session; None outside of training."""
        return self._session

    @property
    def report(self) -> CloseReport | None:
        """The close report of the last run; None before its end."""
        return self._report

    def close(self) -> CloseReport | None:
        """Close a session that is still open and return the last report; again, return the same."""
        return self._end()

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)

    def _attach(self, model: Any, optimizers: Any, derived: Cadence | None, *, resumed: bool) -> None:
        """Attach to a run that begins; a session that was left over is closed first.

        Args:
            model: The model.
            optimizers: Its optimizer or optimizers.
            derived: The framework's cadence.
            resumed: Whether the run goes on at a later step; its first step declares a new segment then.
        """
        self._end()
        settings = resolve_settings(self._arguments, derived)
        self._session = watch(
            model,
            self._to,
            optimizer=optimizers,
            signals=settings.signals,
            select=settings.select,
            every=settings.every,
            hist_every=settings.hist_every,
            **self._keywords,
        )
        self._settings, self._resumed = settings, resumed
        for line in settings.lines():
            self._print(line)

    def _open(self, step: int, *, scaler: object | None) -> None:
        """Open a step, unless it is open: frameworks begin it once a batch, or again when a window spans two epochs.

        Another one that is open is left first.
        """
        if self._scope is not None and step == self._opened:
            return
        self._leave()
        if self._session is not None and not self._session.closed:
            scope = self._session.step(step, scaler=scaler, new_segment=self._resumed)
            scope.__enter__()
            self._scope, self._opened, self._resumed = scope, step, False

    def _leave(self, error: BaseException | None = None) -> None:
        """Leave the open step, if there is one."""
        scope, self._scope = self._scope, None
        if scope is not None:
            scope.__exit__(type(error) if error is not None else None, error, None)

    def _end(self, error: BaseException | None = None) -> CloseReport | None:
        """Close the session and keep its report; nothing of the close hides an ``error`` that is on its way."""
        try:
            self._leave(error)
        finally:
            session, self._session = self._session, None
            if session is not None:
                self._close(session, error)
        return self._report

    def _close(self, session: WatchSession, error: BaseException | None) -> None:
        if error is not None:
            session.__exit__(type(error), error, None)
        try:
            self._report = session.close()
        except Refusal as refusal:
            # A run that gave nothing refuses, and its report says why.
            self._report = getattr(refusal, "report", None)
            raise
