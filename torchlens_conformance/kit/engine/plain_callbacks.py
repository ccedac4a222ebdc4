"""The callbacks of the plain engine: what they do stands in the driver, and each framework has a shell that calls it.

They share no code with the callbacks that the project ships. Each method of the driver that a defect makes wrong has
one duty. Frameworks are imported when a callback is made.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ...protocol import Refusal
from .adapter import Ask, CallbackAsk
from .plain_session import PlainSession

PREFIX = "TORCHLENS_WATCH_"
_DEFAULTS: Mapping[str, Any] = {"signals": ("gradients",), "every": 50, "hist_every": None, "select": None}


class PlainDriver:
    """What a plain callback does when its framework says that something happens.

    Args:
        sinks: Where points go.
        ask: What it is asked; what is left out the environment or the framework decides.

    Raises ``watch_env_config_invalid``. Clause: CB-1, CB-2.
    """

    session_class: type[PlainSession] = PlainSession

    def __init__(self, sinks: Iterable[Any], ask: CallbackAsk) -> None:
        self.sinks, self.ask = tuple(sinks), ask
        self.session: PlainSession | None = None
        self.scope: Any = None
        self.counted = 0
        self.resumed = False
        self.settings(None)

    def settings(self, logging: int | None) -> dict[str, Any]:
        """Return the settings: argument, else variable, else what logging gives, else the default. Clause: CB-2."""
        derived = {} if logging is None else {"every": self.cadence(logging)}
        return {**_DEFAULTS, **derived, **self.variables(), **self.ask.keywords()}

    def variables(self) -> dict[str, Any]:
        """Return what the environment says, or refuse what is malformed. Clause: CB-2."""
        found: dict[str, Any] = {}
        for name in _DEFAULTS:
            variable = f"{PREFIX}{name.upper()}"
            text = os.environ.get(variable)
            if text is not None:
                found[name] = self.read(variable, name, text)
        return found

    def read(self, variable: str, name: str, text: str) -> Any:
        """Return the value of one variable."""
        if name in ("signals", "select"):
            return tuple(word.strip() for word in text.split(","))
        if name == "hist_every" and text == "none":
            return None
        if not text.isdigit() or int(text) < 1:
            raise Refusal(
                "watch_env_config_invalid",
                f"{variable} is malformed.",
                remedy=f"Set {variable} to a positive integer.",
                variable=variable,
            )
        return int(text)

    def cadence(self, logging: int) -> int:
        """Return the cadence that follows from the framework's logging. Clause: CB-1."""
        return logging

    def begin(self, model: Any, optimizers: Sequence[Any], *, counted: int, logging: int | None) -> None:
        """Attach to a run that has ``counted`` steps behind it. Clause: CB-1."""
        self.counted, self.resumed = counted, counted > 0
        ask = Ask(optimizer=list(optimizers), allow_missing_phases=True, **self.settings(logging))
        self.session = self.session_class(model, self.sinks, ask)

    def number(self, step: int, taken: int) -> int:
        """Return the number of the rows: the one under which the framework logs. Clause: CB-1, STEP-9.

        Args:
            step: That number.
            taken: How often optimizers have stepped, counted as the framework counts.
        """
        return step

    def new_segment(self) -> bool:
        """Say whether the step that opens begins a segment: the first one of a resumed run does. Clause: STEP-2."""
        resumed, self.resumed = self.resumed, False
        return resumed

    def open(self, step: int, taken: int) -> None:
        """Open a step, unless batches are being gathered for one that is open."""
        if self.scope is None and self.session is not None:
            self.scope = self.session.step(self.number(step, taken), new_segment=self.new_segment())
            self.scope.__enter__()

    def part(self) -> None:
        """More batches belong to the step that is open: it stays open. Clause: STEP-9."""

    def leave(self) -> None:
        """Leave the open step."""
        scope, self.scope = self.scope, None
        if scope is not None:
            scope.__exit__(None, None, None)

    def evaluated(self) -> None:
        """An evaluation is none of a training step: nothing is sent."""

    def raised(self, error: BaseException) -> None:
        """Close while the loop's own exception unwinds, and hide nothing of it. Clause: TAG-4."""
        scope, self.scope = self.scope, None
        if scope is not None:
            with suppress(type(error)):
                scope.__exit__(type(error), error, error.__traceback__)
        session, self.session = self.session, None
        if session is not None:
            with suppress(Refusal):
                session.close()

    def end(self) -> None:
        """Close. Clause: CLOSE-1."""
        self.leave()
        session, self.session = self.session, None
        if session is not None:
            session.close()


class PlainCallback:
    """A callback as the kit takes it.

    Args:
        hook: What the framework takes.
        driver: What it does.
        tells: Whether the framework tells a callback of an exception.
    """

    def __init__(self, hook: Any, driver: PlainDriver, *, tells: bool) -> None:
        self.hook, self.driver, self.tells = hook, driver, tells

    @contextmanager
    def around(self) -> Iterator[None]:
        """See what the framework does not tell: an exception of the loop."""
        try:
            yield
        except BaseException as error:
            if not self.tells:
                self.driver.raised(error)
            raise


def plain_callback(framework: str, driver: PlainDriver) -> PlainCallback:
    """Return a callback of ``framework`` that does what ``driver`` does."""
    shell = {"hf": _hugging_face, "lightning": _lightning}[framework]
    return PlainCallback(shell(driver), driver, tells=framework == "lightning")


def _hugging_face(driver: PlainDriver) -> Any:
    from transformers import TrainerCallback

    class PlainTrainerCallback(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            optimizer = given["optimizer"]
            inner = getattr(optimizer, "optimizer", optimizer)
            driver.begin(given["model"], [inner], counted=state.global_step, logging=state.logging_steps)

        def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            # The Trainer counts a step after it was taken, and logs it under the number that it has then.
            driver.open(state.global_step + 1, state.global_step + 1)

        def on_substep_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            driver.part()

        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            driver.leave()

        def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            driver.evaluated()

        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            driver.end()

    return PlainTrainerCallback()


def _lightning(driver: PlainDriver) -> Any:
    from lightning.pytorch.callbacks import Callback

    class PlainLightningCallback(Callback):  # type: ignore[misc]
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            logging = trainer.log_every_n_steps if trainer.loggers else None
            driver.begin(pl_module, trainer.optimizers, counted=trainer.global_step, logging=logging)

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            # Loggers count batches that stepped, global_step counts steps of optimizers.
            driver.open(trainer.fit_loop.epoch_loop._batches_that_stepped, trainer.global_step)

        def on_train_batch_end(self, trainer: Any, *others: Any) -> None:
            if trainer.fit_loop.epoch_loop._should_accumulate():
                driver.part()
            else:
                driver.leave()

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            if not trainer.sanity_checking:
                driver.evaluated()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            driver.end()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            driver.raised(exception)

    return PlainLightningCallback()
