"""Scenarios about outputs of modules: their values, a module that runs twice, and a forward that stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..adapter import Engine
from ..observation import Observed
from .case import Case, batch, hook_census, small_model
from .digests import digest_of, random_state, seed_everything
from .steps import in_both_spellings

if TYPE_CHECKING:
    import torch

Seen = dict[str, list[float]]


def _shared() -> torch.nn.Module:
    import torch

    class Shared(torch.nn.Module):
        """Runs one layer twice."""

        def __init__(self) -> None:
            super().__init__()
            self.encoder = torch.nn.Linear(4, 4)
            self.head = torch.nn.Linear(4, 2)

        def forward(self, inputs: Any) -> Any:
            return self.head(self.encoder(self.encoder(inputs).tanh()))

    torch.manual_seed(0)
    return Shared()


class Oracle:
    """What an independent hook sees: the outputs of the named modules, and the gradients that reach them.

    Args:
        model: The model.
        names: Names of its modules; ``_root`` for the model itself.
    """

    def __init__(self, model: torch.nn.Module, names: tuple[str, ...]) -> None:
        self.outputs: dict[str, list[list[float]]] = {}
        self.gradients: dict[str, list[list[float]]] = {}
        for name in names:
            module = model if name == "_root" else model.get_submodule(name)
            module.register_forward_hook(self._hook(name))

    def clear(self) -> None:
        """Forget what earlier forwards gave."""
        self.outputs, self.gradients = {}, {}

    def _hook(self, name: str) -> Any:
        def see_gradient(gradient: Any) -> None:
            self.gradients.setdefault(name, []).append(_values(gradient))

        def see(module: Any, inputs: Any, output: Any) -> None:
            self.outputs.setdefault(name, []).append(_values(output))
            if output.requires_grad:
                output.register_hook(see_gradient)

        return see


def _values(tensor: Any) -> list[float]:
    values: list[float] = tensor.detach().double().flatten().tolist()
    return values


def outputs(engine: Engine) -> Iterator[Observed]:
    """Outputs of modules against those that a hook of the scenario's own saw."""
    yield _watch_outputs(engine, "outputs/layers", small_model(), ("0", "2"), ("activations",), scale=None)


def root_output(engine: Engine) -> Iterator[Observed]:
    """The same of the model itself."""
    yield _watch_outputs(engine, "root-output/root", small_model(), ("_root",), ("activations",), scale=None)


def shared_outputs(engine: Engine) -> Iterator[Observed]:
    """The same of a model in which one layer runs twice a step."""
    select = ("encoder", "head")
    yield _watch_outputs(engine, "shared-outputs/encoder", _shared(), select, ("activations",), scale=None)


def output_gradients(engine: Engine) -> Iterator[Observed]:
    """Gradients of outputs, without and with a loss scale."""
    for name, scale in (("plain", None), ("scaled", 1024.0)):
        signals = ("activation_grads",)
        yield _watch_outputs(engine, f"output-gradients/{name}", small_model(), ("0", "2"), signals, scale=scale)


def _watch_outputs(
    engine: Engine,
    name: str,
    model: torch.nn.Module,
    select: tuple[str, ...],
    signals: tuple[str, ...],
    *,
    scale: float | None,
) -> Observed:
    import torch

    case = Case(engine, name)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
    case.facts = {"outputs": {}, "gradients": {}}
    if case.attach(model, optimizer=optimizer, signals=signals, select=select, inputs=batch(0), hist_every=1):
        oracle = Oracle(model, select)
        for n in (1, 2):
            oracle.clear()
            with case.step(n, **({} if scale is None else {"scaler": scaler})):
                optimizer.zero_grad()
                scaler.scale(model(batch(n)).square().sum()).backward()
                scaler.step(optimizer)
                scaler.update()
            case.facts["outputs"][n] = oracle.outputs
            case.facts["gradients"][n] = {
                leaf: [[value / (scale or 1.0) for value in call] for call in calls]
                for leaf, calls in oracle.gradients.items()
            }
        case.close()
    return case.observed()


def _filled_by_its_first_forward() -> torch.nn.Module:
    """Return the small model with a buffer more, which is None until the first forward fills it from its input."""
    import torch

    class Centre(torch.nn.Module):
        """Takes away the mean of the first input that it met."""

        mean: Any

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", None)

        def forward(self, inputs: Any) -> Any:
            if self.mean is None:
                self.mean = inputs.detach().mean(0)
            return inputs - self.mean

    layers: Any = small_model()
    return torch.nn.Sequential(*layers, Centre())


def forward_kept(engine: Engine) -> Iterator[Observed]:
    """What a forward gives and leaves behind, watched and unwatched, in training and in evaluation mode.

    The example that attach is given is none of the batches, so what a forward at attach leaves in the model tells.
    """
    for name in ("training", "evaluation"):
        case = Case(engine, f"forward-kept/{name}")
        unwatched = _forwards(name, None)
        yield case.observed(watched=_forwards(name, case), unwatched=unwatched)


def _forwards(mode: str, case: Case | None) -> dict[str, Any]:
    import torch

    model = _filled_by_its_first_forward().train(mode == "training")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hooks = hook_census(model, [optimizer])
    seed_everything()
    watched = case is not None and case.attach(
        model, optimizer=optimizer, signals=("activations",), select=("0", "3", "_root"), inputs=batch(0)
    )
    left = {"after attach: buffers": digest_of(dict(model.named_buffers())), "after attach: random": random_state()}
    left["after attach: modes"] = digest_of([module.training for module in model.modules()])
    results = []
    for n in (1, 2):
        if watched and case is not None:
            with case.step(n):
                results.append(_forward(model, optimizer, n))
        else:
            results.append(_forward(model, optimizer, n))
    if watched and case is not None:
        case.close()
    return {
        **left,
        "what the forward returned": digest_of(results),
        "hooks": (hooks, hook_census(model, [optimizer])),
        "random state": random_state(),
        "parameters": digest_of(dict(model.named_parameters())),
        "buffers": digest_of(dict(model.named_buffers())),
    }


def _forward(model: Any, optimizer: Any, n: int) -> list[Any]:
    output = model(batch(n))
    optimizer.zero_grad()
    output.square().sum().backward()
    optimizer.step()
    return [output.detach().clone(), type(output).__name__, output.requires_grad, type(output.grad_fn).__name__]


def both_spellings(engine: Engine) -> Iterator[Observed]:
    """Outputs of modules by scope and by ``step=``, where the forward comes before the block opens."""
    ask = {"signals": ("activations",), "select": ("0", "2"), "inputs": batch(0)}
    yield from in_both_spellings(engine, "module-spellings", **ask)


def explicit(engine: Engine) -> Iterator[Observed]:
    """Outputs of modules asked for without ``select=``, and without ``inputs=``."""
    import torch

    for name, ask in (("select", {"inputs": batch(0)}), ("inputs", {"select": ("0",)})):
        case = Case(engine, f"explicit/without-{name}")
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        before = hook_census(model, [optimizer])
        case.attach(model, optimizer=optimizer, signals=("activations",), **ask)
        after = hook_census(model, [optimizer])
        case.close()
        yield case.observed(before=before, after=after, meant_to_refuse=True)
