"""What every scenario drives: a small model whose gradients are chosen, an attached session, and a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..adapter import Ask, Engine, Session
from ..observation import CloseFacts, Observed
from ..recording import Clock, Log, RecordingSink

if TYPE_CHECKING:
    import torch


class Case:
    """One case: its clock, its log, its sinks, and the session when there is one.

    Args:
        engine: The engine.
        case: ``scenario/case``.
    """

    def __init__(self, engine: Engine, case: str) -> None:
        self.engine, self.case = engine, case
        self.clock = Clock()
        self.log = Log(self.clock, engine.spellings)
        self.sinks: dict[str, RecordingSink] = {}
        self.session: Session | None = None
        self.report: CloseFacts | None = None
        self.facts: dict[str, Any] = {}

    def sink(self, name: str = "first", **settings: Any) -> RecordingSink:
        """Return a new recording sink."""
        self.sinks[name] = RecordingSink(self.clock, self.engine.spellings, **settings)
        return self.sinks[name]

    def attach(self, model: Any, sinks: Iterable[Any] | None = None, **ask: Any) -> bool:
        """Attach, log it, and say whether there is a session."""
        with self.log.doing("attach"):
            self.session = self.engine.attach(model, tuple(sinks or (self.sink(),)), Ask(**ask))
        return self.session is not None

    @contextmanager
    def step(self, n: Any, **keywords: Any) -> Iterator[None]:
        """Open a step, run the block in it, close it; what the engine raises is logged and goes no further.

        When the step cannot be opened the block runs all the same, as a loop that catches refusals goes on.
        """
        assert self.session is not None
        self.clock.now = len(self.log.events)
        try:
            scope = self.session.step(n, **keywords)
            scope.__enter__()
        except Exception as error:
            self.log.events.append(self.log.event_of("step", error, n))
            with suppress(Exception):
                yield
            return
        with self.log.doing("step", n), ExitStack() as stack:
            stack.push(scope)
            yield

    def close(self) -> None:
        """Close the session and keep what it reports."""
        if self.session is not None:
            with self.log.doing("close"):
                self.report = self.session.close()

    def observed(self, **facts: Any) -> Observed:
        """Return all that was observed."""
        rows = {name: tuple(sink.rows) for name, sink in self.sinks.items()}
        return Observed(self.case, rows, tuple(self.log.events), self.report, {**self.facts, **facts})


def chosen_gradients(gradients: Mapping[str, torch.Tensor]) -> torch.nn.Module:
    """Return a module whose parameters get exactly these gradients when its output is differentiated.

    Each parameter is zero and its share of the output is the sum of parameter times gradient. A dot in a name makes
    submodules.
    """
    import torch

    class Chosen(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wanted = dict(gradients)
            for name, gradient in gradients.items():
                *path, leaf = name.split(".")
                home: torch.nn.Module = self
                for part in path:
                    if not hasattr(home, part):
                        home.add_module(part, torch.nn.Module())
                    home = home.get_submodule(part)
                home.register_parameter(leaf, torch.nn.Parameter(torch.zeros_like(gradient)))

        def forward(self) -> torch.Tensor:
            parts = [
                (parameter * self.wanted[name]).sum().double()
                for name, parameter in self.named_parameters()
                if name in self.wanted and parameter.requires_grad
            ]
            return torch.stack(parts).sum()

    return Chosen()


def small_model() -> torch.nn.Module:
    """Return a small network with a fixed seed; it holds a buffer, and a layer that draws random numbers."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 6),
        torch.nn.BatchNorm1d(6),
        torch.nn.Tanh(),
        torch.nn.Dropout(0.25),
        torch.nn.Linear(6, 2),
    )


def batch(number: int) -> torch.Tensor:
    """Return the input of one step."""
    import torch

    return torch.randn(8, 4, generator=torch.Generator().manual_seed(1000 + number))


def values_of(tensors: Mapping[str, torch.Tensor | None]) -> dict[str, list[float]]:
    """Return tensors as lists of Python floats, exactly; what is None is left out."""
    return {name: tensor.detach().double().flatten().tolist() for name, tensor in tensors.items() if tensor is not None}


def gradients_of(model: torch.nn.Module) -> dict[str, list[float]]:
    """Return the gradients that are there now."""
    return values_of({name: parameter.grad for name, parameter in model.named_parameters()})


def parameters_of(model: torch.nn.Module) -> dict[str, list[float]]:
    """Return the parameters as they are now."""
    return values_of(dict(model.named_parameters()))


def hook_census(model: torch.nn.Module, optimizers: Iterable[Any] = ()) -> dict[str, int]:
    """Count every hook that is set on a model, its parameters and its optimizers, and what replaced a method."""
    counts: dict[str, int] = {}
    owners: list[tuple[str, Any]] = [(f"module {name!r}", module) for name, module in model.named_modules()]
    owners += [(f"parameter {name!r}", parameter) for name, parameter in model.named_parameters()]
    owners += [(f"optimizer {number}", optimizer) for number, optimizer in enumerate(optimizers)]
    for owner, thing in owners:
        names = {name for name in dir(type(thing)) if name.endswith("_hooks")} | set(vars(thing))
        for name in sorted(name for name in names if name.endswith("_hooks") or name in ("forward", "step")):
            hooks = getattr(thing, name, None)
            size = len(hooks) if isinstance(hooks, Mapping) else int(name in vars(thing))
            if size:
                counts[f"{owner}.{name}"] = size
    return counts
