"""A Hypothesis state machine over the step law, for tests: it explores and shrinks, and never decides a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .adapter import Engine
from .scenarios.scripts import ScriptRun
from .script_judge import judge_script
from .step_model import INVALID_STEPS, Op, StepModel

if TYPE_CHECKING:
    from hypothesis.stateful import RuleBasedStateMachine


def step_machine(engine: Engine) -> type[RuleBasedStateMachine]:
    """Return a state machine that drives a session of ``engine`` and the model side by side.

    Run it with ``hypothesis.stateful.run_state_machine_as_test``; needs Hypothesis. Clause: STEP-1, STEP-2, STEP-3.
    """
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

    steps = st.integers(0, 12) | st.sampled_from(INVALID_STEPS)

    class StepMachine(RuleBasedStateMachine):
        """Open, train, overflow, leave, raise and close in any order."""

        def __init__(self) -> None:
            super().__init__()
            self.run = ScriptRun(engine, "machine/found")
            self.model = StepModel()

        def _do(self, op: Op) -> None:
            if self.run.attached:
                self.model.apply(op, self.run.do(op))

        def _open(self) -> bool:
            return self.model.open is not None

        @rule(step=steps, new_segment=st.just(False) if "new-segment" in engine.lacks else st.booleans())
        def open(self, step: object, new_segment: bool) -> None:
            self._do(Op("open", step, new_segment))

        @rule(further=st.integers(1, 4))
        def open_next(self, further: int) -> None:
            self._do(Op("open", 0 if self.model.last is None else self.model.last + further))

        @rule()
        def train(self) -> None:
            self._do(Op("train"))

        @precondition(lambda self: "amp" not in engine.lacks and self._open())
        @rule()
        def overflow(self) -> None:
            self._do(Op("overflow"))

        @precondition(lambda self: self._open())
        @rule()
        def leave(self) -> None:
            self._do(Op("leave"))

        @precondition(lambda self: self._open())
        @rule()
        def leave_raising(self) -> None:
            self._do(Op("raise"))

        @precondition(lambda self: not self._open() and len(self.run.ops) > 6)
        @rule()
        def close(self) -> None:
            self._do(Op("close"))

        def teardown(self) -> None:
            found = judge_script(self.run.finish())
            assert not found, found[0].message

    return StepMachine
