"""Scenarios about sinks: one that fails, what comes after close, a run with nothing to show."""

from __future__ import annotations

from collections.abc import Iterator

from ..adapter import Engine
from ..observation import Observed
from ..recording import FailingSink
from .case import Case, batch, parameters_of, small_model

_FAILS_AT = (1, 2, 9, 40)


def failing_sink(engine: Engine) -> Iterator[Observed]:
    """Three sinks, the middle one of which raises from its n-th point on; and the same run without a failure."""
    import torch

    for fails_at in (0, *_FAILS_AT):
        case = Case(engine, f"failing-sink/at-{fails_at}" if fails_at else "failing-sink/healthy")
        first = case.sink("first")
        middle = FailingSink(case.clock, engine.spellings, fails_at=fails_at or 10**9)
        case.sinks["middle"] = middle
        last = case.sink("last")
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if case.attach(model, (first, middle, last), optimizer=optimizer, hist_every=1):
            for n in (1, 2):
                with case.step(n):
                    optimizer.zero_grad()
                    model(batch(n)).square().sum().backward()
                    optimizer.step()
            case.close()
        yield case.observed(fails_at=fails_at, calls=middle.calls, parameters=parameters_of(model))


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
