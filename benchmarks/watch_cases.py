"""The cases of ``watch_cost.py``: one optimizer step, bare or under a watcher that looks at every gradient.

Attaching and closing are not timed; each case times its own step with the clock that it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module, util
from pathlib import Path
from typing import Any

import torch
from statistics_cost import gradients
from torch import nn

import torchlens_conformance.trackers as trk
from torchlens_conformance.statistics import compiled_available, start_many

BARE, READ = "bare optimizer step (SGD)", "read pass (torch.sum)"
BARE_BACKWARD = "the same with a backward"

BASELINES = {"wandb.watch, offline": BARE_BACKWARD}
"""Cases that are compared with another bare step than the usual one."""


class Clock:
    """Times what runs inside ``with``.

    Attributes:
        wall: Seconds that passed.
        processor: Seconds of processor time, of all threads of this process; other processes do not add to it.
    """

    def __init__(self) -> None:
        self.wall = self.processor = 0.0

    def __enter__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def __exit__(self, *error: object) -> None:
        self.wall += time.perf_counter() - self._wall
        self.processor += time.process_time() - self._processor


Step = Callable[[int, Clock], None]
"""Runs one step and times it."""


class Parameters(nn.Module):
    """Parameters of given shapes, whose gradients are the same on every step."""

    def __init__(self, shapes: list[tuple[int, ...]], *, seed: int) -> None:
        super().__init__()
        values = gradients(shapes, dtype=torch.float32, seed=seed)
        self.parameters_of = nn.ParameterList(nn.Parameter(torch.zeros_like(value)) for value in values)
        for parameter, value in zip(self.parameters_of, values):
            parameter.grad = value

    def forward(self) -> torch.Tensor:
        """Return the first element of every parameter, summed: a forward that costs nothing."""
        return torch.stack([parameter.view(-1)[0] for parameter in self.parameters_of]).sum()


def gradient_of(parameter: torch.Tensor) -> torch.Tensor:
    """Return the gradient, which is there in every case that is timed."""
    assert parameter.grad is not None
    return parameter.grad


class PointsOnly:
    """Takes points and keeps none, so that no store is timed."""

    def capabilities(self) -> frozenset[str]:
        """Return what a watch emits."""
        return frozenset({"scalar", "raw_histogram", "text_manifest"})

    def emit_scalar(self, point: Any) -> None:
        """Drop it."""

    def emit_histogram(self, point: Any) -> None:
        """Drop it."""

    def emit_text(self, point: Any) -> None:
        """Drop it."""

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


@contextmanager
def plain_torch() -> Iterator[None]:
    """Let the engine compute with plain torch, as where numba is missing."""
    measure: Any = import_module("torchlens_conformance.watch.measure")
    kept = measure.start_many
    measure.start_many = partial(start_many, backend="torch")
    try:
        yield
    finally:
        measure.start_many = kept


class Cases:
    """Everything that is timed, by name.

    Args:
        model: The model.
        folder: Where stores are written.
        stack: Takes what has to be undone at the end.

    Attributes:
        missing: Why a case was not measured, by name.
    """

    def __init__(self, model: Parameters, folder: Path, stack: ExitStack) -> None:
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        self._folder = folder
        self._stack = stack
        self.missing: dict[str, str] = {}

    def bare(self, step: int, clock: Clock) -> None:
        """Step without a watcher."""
        del step
        with clock:
            self.optimizer.step()

    def read(self, step: int, clock: Clock) -> None:
        """Read every tensor once."""
        del step
        with clock:
            for parameter in self.model.parameters():
                gradient_of(parameter).sum()

    def ours(self, *, histograms: bool, every: int = 1, plain: bool = False) -> Step:
        """Attach our watch for one step at a time, so that cases do not meet."""
        model, optimizer = self.model, self.optimizer

        def one(step: int, clock: Clock) -> None:
            watch = trk.watch(
                model, PointsOnly(), optimizer=optimizer, every=every, hist_every=1 if histograms else None
            )
            try:
                if every > 1:  # The first step is always sampled; what is timed is a later one.
                    with watch.step(0):
                        optimizer.step()
                with plain_torch() if plain else ExitStack(), clock, watch.step(step + 1):
                    optimizer.step()
            finally:
                watch.close()

        return one

    def torchlens(self, *, histograms: bool) -> Step:
        """Return a step under torchlens's own watch, by its public interface."""
        theirs: Any = import_module("torchlens.trackers")
        options = {"hist_every": 1} if histograms else {}

        def one(step: int, clock: Clock) -> None:
            watch = theirs.watch(
                self.model, to=PointsOnly(), signals=("gradients",), optimizer=self.optimizer, every=1, **options
            )
            try:
                with clock, watch.step(step + 1):
                    self.optimizer.step()
            finally:
                watch.close()

        return one

    def tensorboard(self) -> Step:
        """Return the usual loop over ``add_histogram``."""
        from torch.utils.tensorboard import SummaryWriter

        writer = self._stack.enter_context(SummaryWriter(str(self._folder / "tensorboard")))

        def one(step: int, clock: Clock) -> None:
            with clock:
                self.optimizer.step()
                for index, parameter in enumerate(self.model.parameters()):
                    writer.add_histogram(f"gradients/{index}", parameter.grad, step)

        return one

    def bare_backward(self, step: int, clock: Clock) -> None:
        """Step behind a backward: what ``wandb.watch`` has to be compared with."""
        del step
        with self._backward_needed() as loss, clock:
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()

    def wandb(self) -> Step:
        """Return a step under ``wandb.watch``, whose hooks fire in the backward."""
        import wandb

        settings = wandb.Settings(silent=True, console="off")
        run = wandb.init(mode="offline", dir=self._folder, project="cost", settings=settings)
        self._stack.callback(run.finish)

        def one(step: int, clock: Clock) -> None:
            run.watch(self.model, log="gradients", log_freq=1)
            try:
                with self._backward_needed() as loss, clock:
                    loss.backward()  # type: ignore[no-untyped-call]
                    self.optimizer.step()
                    run.log({"step": step})
            finally:
                run.unwatch(self.model)

        return one

    @contextmanager
    def _backward_needed(self) -> Iterator[torch.Tensor]:
        """Give a loss whose backward makes the very gradients anew; put the first ones back afterwards."""
        kept = [gradient_of(parameter) for parameter in self.model.parameters()]
        for parameter in self.model.parameters():
            parameter.grad = None
        try:
            yield torch.stack([(p * g).sum() for p, g in zip(self.model.parameters(), kept)]).sum()
        finally:
            for parameter, gradient in zip(self.model.parameters(), kept):
                parameter.grad = gradient


def build(cases: Cases) -> dict[str, Step]:
    """Return the steps by name; what is not installed is named in ``cases.missing``."""
    found: dict[str, Step] = {READ: cases.read, BARE: cases.bare, BARE_BACKWARD: cases.bare_backward}
    found["ours, not sampled"] = cases.ours(histograms=False, every=1_000_003)
    if compiled_available():
        found["ours, compiled: scalars"] = cases.ours(histograms=False)
        found["ours, compiled: scalars and histograms"] = cases.ours(histograms=True)
    else:
        cases.missing["compiled kernel"] = "numba is not installed"
    found["ours, plain torch: scalars"] = cases.ours(histograms=False, plain=True)
    found["ours, plain torch: scalars and histograms"] = cases.ours(histograms=True, plain=True)
    optional: list[tuple[str, str, Callable[[], Step]]] = [
        ("torchlens", "torchlens: scalars", lambda: cases.torchlens(histograms=False)),
        ("torchlens", "torchlens: scalars and histograms", lambda: cases.torchlens(histograms=True)),
        ("tensorboard", "TensorBoard add_histogram", cases.tensorboard),
        ("wandb", "wandb.watch, offline", cases.wandb),
    ]
    for package, name, make in optional:
        if util.find_spec(package) is None:
            cases.missing[name] = f"{package} is not installed"
        else:
            found[name] = make()
    return found
