"""Scripts of single operations on a session: fixed ones by topic, and those that a walk at random finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from math import inf
from typing import Any

from ..adapter import Engine
from ..observation import ACKNOWLEDGED, RAISED, Event, Observed
from ..step_model import EVERY, Op, StepModel
from .case import Case, chosen_gradients

SCRIPTS: dict[str, dict[str, str]] = {
    "increasing": {
        "in-order": "open 4; train; leave; open 5; train; leave; open 6; train; leave; close",
        "repeated": "open 4; train; leave; open 4; open 5; train; leave; close",
        "back": "open 4; train; leave; open 2; open 5; train; leave; close",
    },
    "segments": {
        "new-segment": "open 4; train; leave; open 2 new; train; leave; open 3; train; leave; close",
        "back-in-segment": "open 4; train; leave; open 2 new; train; leave; open 1; open 6; train; leave; close",
    },
    "scopes": {
        "nested": "open 4; open 5; train; leave; open 6; train; leave; close",
        "negative": "open -1; open 4; train; leave; close",
        "float": "open 4; train; leave; open 5.5; open 6; train; leave; close",
        "bool": "open True; open 4; train; leave; close",
        "too-large": "open 9223372036854775808; open 4; train; leave; close",
        "largest": "open 9223372036854775807; train; leave; close",
    },
    "source": {
        "bare": "open 4; train; leave; train; open 5; train; leave; close",
        "bare-first": "train; open 4; train; leave; close",
    },
    "phases": {
        "missing": "open 4; leave; open 5; train; leave; close",
    },
    "overflows": {
        "overflow": "open 3; train; leave; open 6; overflow; leave; open 9; train; leave; close",
        "only-overflow": "open 3; overflow; leave; close",
    },
    "exceptions": {
        "before-boundary": "open 4; raise; open 5; train; leave; close",
        "after-boundary": "open 4; train; leave; open 6; train; raise; open 7; train; leave; close",
    },
}
"""The fixed scripts by topic."""

_ATOMS = {"True": True, "5.5": 5.5}


def parse_script(text: str) -> tuple[Op, ...]:
    """Return the operations of a script as it is written in :data:`SCRIPTS`."""
    ops = []
    for part in text.split("; "):
        what, *rest = part.split(" ")
        step = _ATOMS.get(rest[0]) if rest else None
        ops.append(Op(what, (step if step is not None else int(rest[0])) if rest else None, "new" in rest))
    return tuple(ops)


class ScriptRun:
    """Drives one session by single operations.

    Args:
        engine: The engine.
        case: The id of the case.
    """

    def __init__(self, engine: Engine, case: str) -> None:
        import torch

        self.case = Case(engine, case)
        self.amp = "amp" not in engine.lacks
        self.model: Any = chosen_gradients({"weight": torch.tensor([1.0, -2.0])})
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        self.scope: AbstractContextManager[Any] | None = None
        self.ops: list[Op] = []
        self.attached = self.case.attach(self.model, optimizer=self.optimizer, every=EVERY)

    def do(self, op: Op) -> str | None:
        """Do one operation and return the code that it was refused by, if it was."""
        self.ops.append(op)
        getattr(self, f"_do_{op.what}")(op)
        return self.case.log.last.code

    def _do_open(self, op: Op) -> None:
        assert self.case.session is not None
        keywords: dict[str, Any] = {"new_segment": True} if op.new_segment else {}
        if self.amp:
            keywords["scaler"] = self.scaler
        with self.case.log.doing("open", op.step):
            scope = self.case.session.step(op.step, **keywords)
            scope.__enter__()
            self.scope = scope

    def _do_train(self, op: Op, factor: float = 1.0) -> None:
        with self.case.log.doing(op.what):
            self.optimizer.zero_grad()
            # Outside of a scope a refused step would leave the scaler halfway, which is no matter of the engine.
            if self.amp and self.scope is not None:
                self.scaler.scale(self.model() * factor).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                self.model().backward()
                self.optimizer.step()

    def _do_overflow(self, op: Op) -> None:
        self._do_train(op, inf)

    def _do_leave(self, op: Op) -> None:
        scope, self.scope = self.scope, None
        with self.case.log.doing("leave"):
            if scope is not None:
                scope.__exit__(None, None, None)

    def _do_raise(self, op: Op) -> None:
        scope, self.scope = self.scope, None
        own = LookupError("the loop's own")
        if scope is None:
            self.case.log.events.append(Event("raise", ACKNOWLEDGED))
            return
        self.case.clock.now = len(self.case.log.events)
        try:
            swallowed = scope.__exit__(LookupError, own, None)
        except BaseException as error:
            event = Event("raise", ACKNOWLEDGED) if error is own else self.case.log.event_of("raise", error)
        else:
            event = (
                Event("raise", RAISED, exception="the loop's own exception was swallowed")
                if swallowed
                else Event("raise")
            )
        self.case.log.events.append(event)

    def _do_close(self, op: Op) -> None:
        self.case.close()

    def finish(self) -> Observed:
        """End what is still open, and return what was observed."""
        if self.attached:
            if self.scope is not None:
                self.do(Op("raise"))
            if not any(op.what == "close" for op in self.ops):
                self.do(Op("close"))
        return self.case.observed(ops=tuple(self.ops))


def run_script(engine: Engine, case: str, ops: Sequence[Op]) -> Observed:
    """Run one script; an operation that needs an open scope and has none does nothing."""
    run = ScriptRun(engine, case)
    if run.attached:
        for op in ops:
            run.do(op)
    return run.finish()


def scripts_of(topic: str, engine: Engine) -> Iterator[Observed]:
    """Run the fixed scripts of one topic."""
    for name, text in SCRIPTS[topic].items():
        yield run_script(engine, f"{topic}/{name}", parse_script(text))


def possible(model: StepModel, op: Op) -> bool:
    """Say whether a script may go on by ``op``."""
    if op.what == "close":
        # What a close inside of an open scope leaves is not said.
        return model.open is None
    return model.open is not None if op.what in ("leave", "raise") else True
