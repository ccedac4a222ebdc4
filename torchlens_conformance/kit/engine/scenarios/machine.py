"""A Hypothesis state machine over the step law: it finds scripts on which an engine and the model part ways.

Derandomized and without a database: two runs with the same Hypothesis try the same scripts. What is found is made short
here, by leaving operations out, and judged like every other script.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..adapter import Engine
from ..observation import Observed
from ..script_judge import judge_script
from ..step_model import Op, StepModel
from .scripts import ScriptRun, possible, run_script

EXAMPLES, LONGEST = 20, 14
"""How many scripts are tried, and how many operations each has at most."""

INVALID_STEPS = (-1, 2.0, True, 2**63, "3", None)
"""Steps that no engine may take."""


def machine(engine: Engine) -> Iterator[Observed]:
    """Yield the shortest script found on which the engine parts ways with the model, or the last one tried."""
    found = explore(engine)
    yield found


def explore(engine: Engine, *, examples: int = EXAMPLES) -> Observed:
    """Try scripts and return the worst that was seen.

    Args:
        engine: The engine.
        examples: How many scripts are tried.
    """
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis import strategies as st
    from hypothesis.reporting import with_reporter
    from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

    tried: list[Observed] = []
    steps = st.integers(0, 12) | st.sampled_from(INVALID_STEPS)

    class StepMachine(RuleBasedStateMachine):
        """Drives a session and the model side by side."""

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
            tried.append(self.run.finish())
            if judge_script(tried[-1]):
                raise AssertionError("the engine and the model part ways")

    chosen = settings(
        max_examples=examples,
        stateful_step_count=LONGEST,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    try:
        with with_reporter(_say_nothing):
            run_state_machine_as_test(StepMachine, settings=chosen)
    except AssertionError:
        return shortened(engine, tried[-1])
    worst = tried[-1]
    return Observed(worst.case, worst.rows, worst.events, worst.report, {**worst.facts, "tried": len(tried)})


def _say_nothing(*text: object, **settings: object) -> None:
    """Print nothing: the report tells what was found."""


def shortened(engine: Engine, found: Observed) -> Observed:
    """Leave out every operation without which the engine and the model still part ways."""
    ops: Sequence[Op] = found.facts["ops"]
    best = found
    index = 0
    while index < len(ops):
        fewer = (*ops[:index], *ops[index + 1 :])
        seen = run_script(engine, found.case, _sensible(fewer))
        # Ending the run adds operations again, so only what is really shorter counts.
        if len(seen.facts["ops"]) < len(ops) and judge_script(seen):
            best, ops = seen, seen.facts["ops"]
        else:
            index += 1
    return best


def _sensible(ops: Sequence[Op]) -> tuple[Op, ...]:
    """Leave out what no open scope is there for, as the model sees it."""
    model, kept = StepModel(), []
    for op in ops:
        if possible(model, op):
            allowed = model.allowed(op)
            model.apply(op, None if None in allowed else "refused")
            kept.append(op)
    return tuple(kept)
