"""Scenarios about sinks: one that fails, what comes after close, a run with nothing to show."""

from __future__ import annotations

from collections.abc import Iterator

from ..adapter import Engine
from ..observation import Observed
from ..recording import EndingSink, FailingSink, RecordingSink, SlowSink
from .case import Case, batch, hook_census, parameters_of, small_model

_FAILS_AT = (1, 2, 9, 40)
_HANGS_AT, _HANGS_FOR = 20, 1.0


def failing_sink(engine: Engine) -> Iterator[Observed]:
    """Three sinks, the middle one of which raises from its n-th point on; and the same run without a failure."""
    for fails_at in (0, *_FAILS_AT):
        case = Case(engine, f"failing-sink/at-{fails_at}" if fails_at else "failing-sink/healthy")
        middle = FailingSink(case.clock, engine.spellings, fails_at=fails_at or 10**9)
        parameters = _train_with(case, middle)
        yield case.observed(fails_at=fails_at, calls=middle.calls, parameters=parameters)


def slow_sink(engine: Engine) -> Iterator[Observed]:
    """Three sinks, the middle one of which hangs for a second at one point; and the same run without."""
    for name, hangs_at in (("healthy", 0), ("hangs", _HANGS_AT)):
        case = Case(engine, f"slow-sink/{name}")
        middle = SlowSink(case.clock, engine.spellings, hangs_at=hangs_at, seconds=_HANGS_FOR)
        yield case.observed(parameters=_train_with(case, middle))


def ending_sink(engine: Engine) -> Iterator[Observed]:
    """Three sinks, the middle one of which raises when it is flushed, or when it is closed; and the same without."""
    for way in ("", "flush", "close"):
        case = Case(engine, f"ending-sink/{way or 'healthy'}")
        parameters = _train_with(case, EndingSink(case.clock, engine.spellings, raises_in=way))
        closed = {name: sink.closed for name, sink in case.sinks.items()}
        yield case.observed(raises_in=way, closed=closed, parameters=parameters)


def interrupted_sink(engine: Engine) -> Iterator[Observed]:
    """An interrupt from the keyboard while a sink is at work: it is the user's, and no failure of the sink."""
    import torch

    case = Case(engine, "interrupted-sink/keyboard")
    sink = EndingSink(case.clock, engine.spellings, raises_in="emit")
    case.sinks["first"] = sink
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = hook_census(model, [optimizer])
    if case.attach(model, (sink,), optimizer=optimizer):
        case.facts["interrupted"] = False
        try:
            with case.step(1):
                model(batch(1)).square().sum().backward()
                optimizer.step()
        except KeyboardInterrupt:
            case.facts["interrupted"] = True
        case.close()
    yield case.observed(before=before, after=hook_census(model, [optimizer]))


def _train_with(case: Case, middle: RecordingSink) -> dict[str, list[float]]:
    """Watch two steps by three sinks with ``middle`` among them; return the parameters afterwards."""
    import torch

    sinks = (case.sink("first"), middle, RecordingSink(case.clock, case.engine.spellings))
    case.sinks |= {"middle": middle, "last": sinks[2]}
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if case.attach(model, sinks, optimizer=optimizer, hist_every=1):
        for n in (1, 2):
            with case.step(n):
                optimizer.zero_grad()
                model(batch(n)).square().sum().backward()
                optimizer.step()
        case.close()
    return parameters_of(model)


def after_close(engine: Engine) -> Iterator[Observed]:
    """Close twice, then train, then ask for another step."""
    import torch

    case = Case(engine, "after-close/twice")
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if case.attach(model, optimizer=optimizer):
        with case.step(1):
            model(batch(1)).square().sum().backward()
            optimizer.step()
        case.close()
        first = case.report
        case.facts["rows_at_close"] = len(case.sinks["first"].rows)
        case.close()
        case.facts["same_report"] = first == case.report and first is not None
        with case.log.doing("train"):
            optimizer.step()
        with case.step(2):
            optimizer.step()
    yield case.observed()


def empty_close(engine: Engine) -> Iterator[Observed]:
    """A sink that never takes a data point: a run that saw steps has nothing to show."""
    import torch

    for name in ("failed", "healthy"):
        case = Case(engine, f"empty-close/{name}")
        sink = FailingSink(case.clock, engine.spellings, fails_at=1 if name == "failed" else 10**9)
        case.sinks["first"] = sink
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if case.attach(model, (sink,), optimizer=optimizer):
            for n in (1, 2):
                with case.step(n):
                    model(batch(n)).square().sum().backward()
                    optimizer.step()
            case.close()
        yield case.observed()
