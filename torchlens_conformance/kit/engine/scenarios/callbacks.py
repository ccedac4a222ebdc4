"""Scenarios about callbacks: real runs of a framework, watched by the engine's callback and unwatched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..adapter import Callback, CallbackAsk, Engine
from ..observation import NotApplicable, Observed
from ..recording import HoldingSink, RecordingSink
from .case import Case, hook_census
from .frameworks import BATCHES, FrameworkRun, HuggingFaceRun, LightningRun, TwoOptimizersRun, folder, require
from .surroundings import set_variables

RUNS: Mapping[str, type[FrameworkRun]] = {"hf": HuggingFaceRun, "lightning": LightningRun}
PACKAGES: Mapping[str, tuple[str, ...]] = {"hf": ("transformers", "accelerate"), "lightning": ("lightning",)}
EVERYTHING = ("gradients", "parameters", "updates")
HELD = 2
# How many steps further than its checkpoint the store of a resumed run is.


def _made(case: Case, framework: str, *, sink: RecordingSink | None = None, **ask: Any) -> Callback | None:
    """Make the engine's callback, and log what became of it."""
    maker: Any = case.engine
    made: list[Callback] = []
    with case.log.doing("attach"):
        made.append(maker.callback(framework, (sink or case.sink(),), CallbackAsk(**ask)))
    return made[0] if made else None


def _train(case: Case, callback: Callback, run: FrameworkRun, home: Path, resume: Path | None = None) -> None:
    """Train, log what became of it, and keep what the framework told."""
    with case.log.doing("train"):
        try:
            with callback.around():
                run.train([callback.hook], home, resume=resume)
        except BaseException as error:
            case.facts["the same error"] = error is run.error
            raise
    case.facts |= {"logged": run.logged, "gradients": run.gradients}


def _unwatched(run: FrameworkRun, home: Path, resume: Path | None = None) -> None:
    """Train without any callback; what a framework cannot do here by itself is no question to an engine."""
    try:
        run.train([], home, resume=resume)
    except Exception as error:
        raise NotApplicable(f"the framework does not do that here: {type(error).__name__}: {error}") from error


def whole_run(framework: str, engine: Engine) -> Iterator[Observed]:
    """Two epochs of windows of two batches, the last one short, clipped, with evaluations; watched and unwatched."""
    for package in PACKAGES[framework]:
        require(package, framework)
    case = Case(engine, f"{framework}-run/every-step")
    settings: Any = {"window": 2, "evaluate": True}
    with folder() as home:
        unwatched = RUNS[framework](**settings)
        _unwatched(unwatched, home)
        left = {**unwatched.left(), "hooks": str(hook_census(unwatched.model, unwatched.optimizers))}
        run = RUNS[framework](**settings)
        callback = _made(case, framework, signals=EVERYTHING, every=1)
        if callback is not None:
            _train(case, callback, run, home)
    told = {**run.left(), "hooks": str(hook_census(run.model, run.optimizers))}
    yield case.observed(watched=told, unwatched=left)


def resumed_run(framework: str, engine: Engine) -> Iterator[Observed]:
    """The second epoch from a checkpoint of the first, into a store that went on after that checkpoint was made."""
    for package in PACKAGES[framework]:
        require(package, framework)
    case = Case(engine, f"{framework}-resume/second-epoch")
    with folder() as home:
        checkpoint = RUNS[framework]().checkpoint(home)
        _unwatched(RUNS[framework](), home, checkpoint)
        sink = HoldingSink(case.clock, engine.spellings, last=BATCHES + HELD)
        case.sinks["first"] = sink
        callback = _made(case, framework, sink=sink, signals=("gradients",), every=1)
        if callback is not None:
            _train(case, callback, RUNS[framework](), home, checkpoint)
    yield case.observed()


def raising_run(framework: str, engine: Engine) -> Iterator[Observed]:
    """A loop whose forward raises in the first half of its third step."""
    for package in PACKAGES[framework]:
        require(package, framework)
    case = Case(engine, f"{framework}-raises/third-step")
    with folder() as home:
        run = RUNS[framework](window=2, raises_at=4)
        callback = _made(case, framework, signals=("gradients",), every=1)
        if callback is not None:
            _train(case, callback, run, home)
    leaks = {name: count for name, count in hook_census(run.model, run.optimizers).items() if _is_foreign(name, count)}
    yield case.observed(leaks=leaks, closed=case.sinks["first"].closed)


def _is_foreign(name: str, count: int) -> bool:
    """Say whether a hook is none of the kit's: one after the step of each optimizer, and the scheduler's step."""
    return not (name.endswith(".step") or (name.endswith("_step_post_hooks") and count == 1))


LOGGING = 3
"""The framework's cadence of logging in the runs about settings."""

_SETTINGS: Mapping[str, tuple[str | None, int | None, int | None]] = {
    "derived": (None, None, LOGGING),
    "variable": ("2", None, 2),
    "argument": ("2", 4, 4),
    "malformed": ("often", None, None),
}
# By case: the variable, the argument, and the cadence that has to come of them.


def settings(framework: str, engine: Engine) -> Iterator[Observed]:
    """The cadence by what the framework logs, by a variable, by an argument beside it, and by nonsense."""
    for package in PACKAGES[framework]:
        require(package, framework)
    for name, (variable, argument, every) in _SETTINGS.items():
        case = Case(engine, f"{framework}-settings/{name}")
        with folder() as home, set_variables({} if variable is None else {"TORCHLENS_WATCH_EVERY": variable}):
            callback = _made(case, framework, signals=("gradients",), every=argument)
            if callback is not None:
                _train(case, callback, RUNS[framework](logging=LOGGING), home)
        yield case.observed(meant_to_refuse=every is None, every=every, steps=2 * BATCHES)


def two_optimizers(engine: Engine) -> Iterator[Observed]:
    """Lightning with manual optimization of two optimizers, one of which rests in every second batch."""
    require("lightning", "lightning")
    case = Case(engine, "lightning-optimizers/two")
    with folder() as home:
        callback = _made(case, "lightning", signals=("gradients",), every=1)
        if callback is not None:
            _train(case, callback, TwoOptimizersRun(), home)
    yield case.observed()


_KINDS: Mapping[str, Callable[[str, Engine], Iterator[Observed]]] = {
    "run": whole_run,
    "resume": resumed_run,
    "raises": raising_run,
    "settings": settings,
}
SCENARIOS: Mapping[str, Callable[[Engine], Iterator[Observed]]] = {
    **{f"{framework}-{kind}": partial(scenario, framework) for framework in RUNS for kind, scenario in _KINDS.items()},
    "lightning-optimizers": two_optimizers,
}
"""The scenarios of both frameworks."""
