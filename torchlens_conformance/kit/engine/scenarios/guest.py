"""Scenarios about being a guest: the same training watched and unwatched, hooks before and after, what is moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..adapter import Engine
from ..observation import Observed
from .case import Case, batch, chosen_gradients, hook_census, small_model
from .digests import seed_everything, state_digests

OPTIMIZERS: Mapping[str, Mapping[str, Any]] = {
    "SGD": {"lr": 0.05, "momentum": 0.9},
    "AdamW": {"lr": 0.01, "weight_decay": 0.1},
    "AdamW fused": {"lr": 0.01, "fused": True},
    "LBFGS": {"lr": 0.2, "max_iter": 3},
}
STEPS, SHORT = 50, 8
"""How long the two runs are, and how long where many engines are asked: in the kill matrix."""

BOUNDARY = ("gradients", "parameters", "updates")
MODULES = ("activations",)
_OVERFLOW = 4

_steps = STEPS


@contextmanager
def short_runs() -> Iterator[None]:
    """Let the two runs be :data:`SHORT` steps long inside of the block."""
    global _steps
    _steps = SHORT
    try:
        yield
    finally:
        _steps = STEPS


class Training:
    """One training of the small model: what it draws, computes and leaves is the same each time.

    Args:
        name: The optimizer, out of :data:`OPTIMIZERS`.
        amp: Whether a loss scale is used.
    """

    def __init__(self, name: str, *, amp: bool) -> None:
        import torch

        seed_everything()
        self.closure = name == "LBFGS"
        self.amp = amp
        self.model: Any = small_model()
        self.optimizer: Any = getattr(torch.optim, name.partition(" ")[0])(self.model.parameters(), **OPTIMIZERS[name])
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2, enabled=amp)
        self.losses: list[float] = []

    @property
    def overflows(self) -> tuple[int, ...]:
        """The steps that the scaler leaves out."""
        return (_OVERFLOW,) if self.amp and not self.closure else ()

    def step(self, n: int) -> None:
        """Take one step."""

        def evaluate() -> Any:
            self.optimizer.zero_grad()
            factor = float("inf") if n in self.overflows else 1.0
            loss = self.model(batch(n)).square().mean() * factor
            self.losses.append(float(loss.detach()))
            self.scaler.scale(loss).backward()
            return loss

        if self.closure:
            # torch's scaler takes no closure: the caller's own step keeps the scale in the gradients.
            self.optimizer.step(evaluate)
            return
        evaluate()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def left(self) -> dict[str, Any]:
        """Return digests of everything that it leaves, and the hooks that are set."""
        digests: dict[str, Any] = dict(state_digests(self.model, self.optimizer, self.losses, self.scaler))
        return {**digests, "hooks": hook_census(self.model, [self.optimizer])}


def _run(training: Training, case: Case | None, ask: Mapping[str, Any]) -> dict[str, Any]:
    before = hook_census(training.model, [training.optimizer])
    watched = case is not None and case.attach(
        training.model, optimizer=training.optimizer, hist_every=10, **{**ask, "signals": tuple(ask["signals"])}
    )
    for n in range(_steps):
        if watched and case is not None:
            with case.step(n, **({"scaler": training.scaler} if training.amp else {})):
                training.step(n)
        else:
            training.step(n)
    if watched and case is not None:
        case.close()
    return {**training.left(), "hooks before": before}


def _twins(engine: Engine, scenario: str, names: Iterable[str], ask: Mapping[str, Any]) -> Iterator[Observed]:
    for name in names:
        for amp in (False, True):
            case = Case(engine, f"{scenario}/{name}{', AMP' if amp else ''}")
            unwatched = _run(Training(name, amp=amp), None, ask)
            training = Training(name, amp=amp)
            yield case.observed(
                watched=_run(training, case, ask),
                unwatched=unwatched,
                signals=tuple(ask["signals"]),
                steps=[n for n in range(_steps) if n not in training.overflows],
            )


def twins(engine: Engine) -> Iterator[Observed]:
    """The same run watched at the optimizer boundary and unwatched, with and without a loss scale."""
    yield from _twins(engine, "twins", ("SGD", "AdamW", "AdamW fused"), {"signals": BOUNDARY})


def twins_closure(engine: Engine) -> Iterator[Observed]:
    """The same with LBFGS, which evaluates a closure several times a step."""
    yield from _twins(engine, "twins-closure", ("LBFGS",), {"signals": BOUNDARY})


def twins_modules(engine: Engine) -> Iterator[Observed]:
    """The same with the outputs of all modules watched as well."""
    ask = {"signals": BOUNDARY + MODULES, "select": ("0", "1", "2", "3", "4"), "inputs": batch(0)}
    yield from _twins(engine, "twins-modules", OPTIMIZERS, ask)


def hooks(engine: Engine) -> Iterator[Observed]:
    """Hooks before attach, while attached, after close; also after an exception of the loop's own."""
    import torch

    for name in ("plain", "raising"):
        case = Case(engine, f"hooks/{name}")
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.register_forward_hook(lambda module, inputs, output: None)
        optimizer.register_step_post_hook(lambda optimizer, arguments, keywords: None)
        before = hook_census(model, [optimizer])
        signals = ("gradients", "parameters", "updates")
        if case.attach(model, optimizer=optimizer, signals=signals):
            with case.step(1):
                model(batch(1)).square().sum().backward()
                if name == "raising":
                    raise LookupError("the loop's own")
                optimizer.step()
            case.close()
        yield case.observed(before=before, after=hook_census(model, [optimizer]))


def transfer(engine: Engine) -> Iterator[Observed]:
    """The same three tensors at two sizes: what the plan says is moved, and what grows in Python's own memory."""
    import tracemalloc

    import torch

    for size in (1_000, 400_000):
        case = Case(engine, f"transfer/{size}")
        model = chosen_gradients({name: torch.ones(size) for name in ("a", "b", "c")})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if case.attach(model, optimizer=optimizer, hist_every=1):
            assert case.session is not None
            if "plan" not in engine.lacks:
                with case.log.doing("plan"):
                    case.facts["planned"] = case.session.planned_bytes()
            for n in (1, 2):
                with case.step(n):
                    optimizer.zero_grad()
                    model().backward()
                    if n == 2:
                        # The first step may compile and fill caches; the second is what every later one costs.
                        tracemalloc.start()
                    optimizer.step()
            # Numpy and Python tell this watcher what they take; torch's own memory stays where the tensors are.
            case.facts["peak"] = tracemalloc.get_traced_memory()[1] if tracemalloc.is_tracing() else None
            tracemalloc.stop()
            case.close()
        yield case.observed(size=size, elements=3 * size)
