"""Scenarios about the step: cadence, spellings, the first and the last rows, closures, several optimizers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..adapter import Engine
from ..observation import Observed
from .case import Case, batch, chosen_gradients, gradients_of, parameters_of, small_model


def cadence(engine: Engine) -> Iterator[Observed]:
    """Scalars every 4, histograms every 6, on a caller's axis that starts at 101 and has gaps."""
    import torch

    case = Case(engine, "cadence/axis")
    model = chosen_gradients({"weight": torch.ones(3)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = [101, 102, 103, 104, 106, 107, 108, 111, 112, 113, 114, 118, 120, 121]
    if case.attach(model, optimizer=optimizer, every=4, hist_every=6):
        for n in steps:
            with case.step(n):
                optimizer.zero_grad()
                model().backward()
                optimizer.step()
        case.close()
    yield case.observed(steps=steps, every=4, hist_every=6)


def final_sample(engine: Engine) -> Iterator[Observed]:
    """Three steps far from the cadence: the last one has to be forced at close."""
    import torch

    case = Case(engine, "final-sample/parameters")
    model = chosen_gradients({"weight": torch.ones(3)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if case.attach(model, optimizer=optimizer, signals=("gradients", "parameters", "updates"), every=50):
        for n in (7, 8, 9):
            with case.step(n):
                optimizer.zero_grad()
                model().backward()
                case.facts["before"] = parameters_of(model)
                optimizer.step()
        case.facts["after"] = parameters_of(model)
        case.close()
    yield case.observed()


def both_spellings(engine: Engine) -> Iterator[Observed]:
    """The same training by scope and by ``step=``."""
    yield from in_both_spellings(engine, "both-spellings", signals=("gradients", "parameters", "updates"))


def in_both_spellings(engine: Engine, scenario: str, **ask: Any) -> Iterator[Observed]:
    """Run one training by scope and by ``step=``, watched by ``ask``."""
    import torch

    for spelling in ("scope", "callable"):
        case = Case(engine, f"{scenario}/{spelling}")
        now = [20]
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        source: dict[str, Any] = {"step": lambda now=now: now[0]} if spelling == "callable" else {}
        if case.attach(model, optimizer=optimizer, every=3, hist_every=6, **ask, **source):
            for n in range(20, 29):
                now[0] = n
                with case.step(n) if spelling == "scope" else case.log.doing("step", n):
                    _train(model, optimizer, n)
            case.close()
        yield case.observed()


def _train(model: Any, optimizer: Any, n: int) -> None:
    optimizer.zero_grad()
    model(batch(n)).square().sum().backward()
    optimizer.step()


def first_rows(engine: Engine) -> Iterator[Observed]:
    """A first step that is not 0, a run without a step, and one that closes with nothing to show."""
    import torch

    for name, steps in {"resumed": (1200, 1201), "never": ()}.items():
        case = Case(engine, f"first-rows/{name}")
        model = chosen_gradients({"weight": torch.ones(3)})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if case.attach(model, optimizer=optimizer, every=50):
            case.facts["rows_at_attach"] = len(case.sinks["first"].rows)
            for n in steps:
                with case.step(n):
                    model().backward()
                    optimizer.step()
            case.close()
        yield case.observed(steps=steps)


def closure(engine: Engine) -> Iterator[Observed]:
    """LBFGS evaluates its closure several times in one step."""
    import torch

    case = Case(engine, "closure/lbfgs")
    torch.manual_seed(3)
    model = torch.nn.Linear(4, 1)
    optimizer: Any = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    case.facts = {"gradients": {}, "evaluations": {}}
    if case.attach(model, optimizer=optimizer, hist_every=1):
        for n in (1, 2):
            seen: list[dict[str, list[float]]] = []

            def evaluate(n: int = n, seen: list[Any] = seen) -> Any:
                optimizer.zero_grad()
                loss = (model(batch(n)) - 1.0).square().sum()
                loss.backward()
                seen.append(gradients_of(model))
                return loss

            with case.step(n):
                optimizer.step(evaluate)
            if seen:
                case.facts["gradients"][n], case.facts["evaluations"][n] = seen[0], len(seen)
        case.close()
    yield case.observed()


def several_optimizers(engine: Engine) -> Iterator[Observed]:
    """Two optimizers; in the second step only one of them steps."""
    import torch

    case = Case(engine, "several-optimizers/two")
    model = chosen_gradients({"left": torch.ones(2), "right": torch.full((3,), 2.0)})
    left, right = (torch.optim.SGD([model.get_parameter(name)], lr=0.1) for name in ("left", "right"))
    if case.attach(model, optimizer=[left, right]):
        for n in (1, 2):
            with case.step(n):
                model().backward()
                left.step()
                if n == 1:
                    right.step()
                left.zero_grad()
                right.zero_grad()
        case.close()
    yield case.observed()
