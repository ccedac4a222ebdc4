"""A walk at random over the step law: it finds scripts on which an engine and the model part ways.

From a fixed seed: every run tries the same operations wherever it runs, so it may decide a report. The Hypothesis state
machine that explores for tests stands in ``stateful``. What is found is made short here, by leaving operations out, and
judged like every other script.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from ..adapter import Engine
from ..observation import Observed
from ..script_judge import judge_script
from ..step_model import INVALID_STEPS, Op, StepModel
from .scripts import ScriptRun, possible, run_script

SCRIPTS, LONGEST = 40, 14
"""How many scripts are tried, and how many operations each has at most."""

_SEED = 20261129


def machine(engine: Engine) -> Iterator[Observed]:
    """Yield the shortest script found on which the engine parts ways with the model, or the last one tried."""
    yield explore(engine)


def explore(engine: Engine, *, scripts: int = SCRIPTS) -> Observed:
    """Try scripts and return the first on which the engine parts ways with the model, made short, or the last one.

    Args:
        engine: The engine.
        scripts: How many are tried.
    """
    chance = random.Random(_SEED)
    for _ in range(scripts):
        seen = _walk(engine, chance)
        if judge_script(seen):
            return shortened(engine, seen)
    return Observed(seen.case, seen.rows, seen.events, seen.report, {**seen.facts, "tried": scripts})


def _walk(engine: Engine, chance: random.Random) -> Observed:
    run, model = ScriptRun(engine, "machine/found"), StepModel()
    for done in range(chance.randint(3, LONGEST)):
        if run.attached:
            op = _next_op(engine, model, done, chance)
            model.apply(op, run.do(op))
    return run.finish()


def _next_op(engine: Engine, model: StepModel, done: int, chance: random.Random) -> Op:
    new_segment = "new-segment" not in engine.lacks and chance.random() < 0.3
    following = 0 if model.last is None else model.last + chance.randint(1, 4)
    step = chance.choice((following, chance.randint(0, 12), chance.choice(INVALID_STEPS)))
    ops = [Op("open", step, new_segment), Op("train"), Op("train")]
    if model.open is not None:
        ops += [Op("leave"), Op("leave"), Op("raise")]
        ops += [] if "amp" in engine.lacks else [Op("overflow")]
    elif done > 6:
        ops.append(Op("close"))
    else:
        ops.append(Op("open", following))
    return chance.choice(ops)


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
