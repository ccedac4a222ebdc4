"""What every callback shares: the session of a run, whose steps open and close in different calls (CB-1)."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from ..protocol.refusals import Refusal
from ..watch import CloseReport, StepScope, WatchSession, driving, watch
from .arguments import require_callable
from .configuration import UNSET, Cadence, CallbackSettings, Unset, require_fitting, resolve_settings
from .debts import Debts
from .environment import naming
from .extra_forward import warn
from .insides import OpenStep, falls_due, go_on_after, leave_sinks_open, open_step, optimizers_of

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

    Raises ``watch_env_config_invalid``, ``watch_settings_invalid``, and what
    :func:`~torchlens_conformance.callbacks.configuration.require_fitting` raises; training raises what ``watch()``
    raises, before its first step. A run of which no data arrived anywhere ends with the
    :class:`~torchlens_conformance.callbacks.extra_forward.CallbackWarning` ``watch_close_empty``, and ``report`` says
    why. Clause: CB-1, CB-2, CLOSE-2, PROT-5.
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
        # What the environment cannot mean is refused when the callback is made, not once a run was set up.
        settings = resolve_settings(self._arguments, None)
        require_fitting(settings, to, keywords)
        for name in ("signals", "select"):
            if not isinstance(self._arguments[name], Unset):
                self._arguments[name] = getattr(settings, name)  # An iterator gives its words only once.
        require_callable("print_fn", print_fn)
        self._print = print_fn
        # What a framework leaves out of a step is told in the report; it is no reason to end the run.
        self._keywords = {"allow_missing_phases": True, **keywords}
        self._scope: StepScope | None = None
        self._opened: int | None = None
        self._resumed = False
        self._stepped: set[int] = set()
        self._debts: list[Debts | None] = [None, None]
        self._settings: CallbackSettings | None = None
        self._session: WatchSession | None = None
        self._report: CloseReport | None = None

    @property
    def settings(self) -> CallbackSettings | None:
        """The resolved settings with their sources; None before the first training begins. Clause: CB-2."""
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
        """Attach to a run that begins, in the place of a session that was left over.

        A framework that begins anew after an error, with smaller batches say, tells nobody that the first attempt is
        over. Its session ends here with its sinks open, and the new one begins a segment in them.

        Args:
            model: The model.
            optimizers: Its optimizer or optimizers.
            derived: The framework's cadence.
            resumed: Whether the run goes on at a later step; its first step declares a new segment then.
        """
        self._settings = settings = resolve_settings(self._arguments, derived)
        self._tell(settings)
        self._end_left_over()
        with naming(settings.environment):
            session = watch(
                model,
                self._to,
                optimizer=optimizers,
                signals=settings.signals,
                select=settings.select,
                every=settings.every,
                hist_every=settings.hist_every,
                **self._keywords,
            )
        if self._report is not None:
            go_on_after(session, self._report)
        self._session, self._resumed = session, resumed or self._report is not None
        self._stepped = set()
        self._debts = [None if every is None else Debts(every) for every in (settings.every, settings.hist_every)]

    def _tell(self, settings: CallbackSettings) -> None:
        """Print the settings; what ``print_fn`` raises leaves no session open."""
        try:
            for line in settings.lines():
                self._print(line)
        except BaseException as error:
            self._end(error)
            raise

    def _end_left_over(self) -> None:
        """Close the session of a run that never ended; a step that is open is dropped, and sinks stay open."""
        session, self._session, self._scope = self._session, None, None
        if session is not None:
            leave_sinks_open(session)
            self._close(session, None)

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
        """Leave the open step, if there is one, and sample the next one when an optimizer is owed it."""
        scope, self._scope = self._scope, None
        if scope is None:
            return
        step = open_step(self._session)
        scope.__exit__(type(error) if error is not None else None, error, None)
        if step is not None and error is None:
            self._settle(step)

    def _settle(self, step: OpenStep) -> None:
        taken, stepped, self._stepped = step.taken(), self._stepped, set()
        optimizers = optimizers_of(step.session)
        comes = falls_due(step.session, step.step + 1)
        for debts, sampled, due in zip(self._debts, (step.scalars, step.histograms), comes):
            if debts is None:
                continue
            owed = debts.settle(optimizers, stepped=stepped, sampled=sampled, taken=taken if sampled else ())
            if owed and not due:
                driving.sample_next(step.session)

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
            # Training is done and its result is on its way to the caller: a watch that gave nothing does not take it.
            self._report = getattr(refusal, "report", None)
            why = ", ".join(f"{name}={value}" for name, value in refusal.fields.items())
            remedy = "Look at the callback's report: failed sinks, missing phases, whether the optimizer ever stepped."
            warn(refusal.code, f"{refusal.message} ({why}) Training was not touched. {remedy}")
