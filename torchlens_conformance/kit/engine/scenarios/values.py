"""Scenarios about numbers: gradients that are chosen, and what optimizers do to parameters."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan, nextafter
from typing import TYPE_CHECKING, Any

from ....protocol import DEFAULT_DESCRIPTOR
from ..adapter import Engine
from ..observation import Observed
from .case import Case, batch, chosen_gradients, gradients_of, parameters_of, small_model

if TYPE_CHECKING:
    import torch


def gradient_corpus() -> dict[str, torch.Tensor]:
    """Return the gradients that an engine has to reduce: each leaf is one idea."""
    import torch

    side = DEFAULT_DESCRIPTOR.side_edges
    generator = torch.Generator().manual_seed(7)
    near = [value for edge in side[::3] for value in (edge, nextafter(edge, inf), nextafter(edge, 0.0))]
    signed = [sign * value for value in near for sign in (1.0, -1.0)]
    # The middles of neighbouring float32 numbers are no float32: edges that float32 arithmetic puts in the wrong bin.
    singles = torch.tensor(side, dtype=torch.float32)
    return {
        "plain.weight": torch.randn(257, generator=generator),
        "plain.bias": torch.randn(1, generator=generator),
        "edges.f64": torch.tensor(signed, dtype=torch.float64),
        "edges.f32": torch.cat([singles, torch.nextafter(singles, torch.tensor(0.0)), -singles]),
        "edges.bf16": torch.tensor(side[::5]).bfloat16(),
        "edges.f16": torch.tensor([value for value in side if 6e-8 < value < 6e4]).half(),
        "zeros": torch.cat([torch.zeros(5), torch.ones(3)]),
        "tiny": torch.tensor([2.0**-60, -(2.0**-70), 2.0**-48, nextafter(2.0**-48, 0.0)], dtype=torch.float64),
        "large": torch.tensor([2.0**16, -(2.0**16), nextafter(2.0**16, 0.0), 3e20, 1.0], dtype=torch.float64),
        "broken": torch.tensor([nan, 1.0, inf, -inf, -2.0, nan, inf]),
        "lost": torch.tensor([nan, inf]),
        "empty": torch.zeros(0),
    }


def statistics(engine: Engine) -> Iterator[Observed]:
    """Chosen gradients of every dtype, with one parameter that is frozen and one that is not used."""
    import torch

    for name in ("finite", "broken", "empty"):
        case = Case(engine, f"statistics/{name}")
        corpus = gradient_corpus()
        apart = {"broken": ("broken", "lost"), "empty": ("empty", "zeros")}
        chosen = {
            leaf: gradient
            for leaf, gradient in corpus.items()
            if (leaf in apart[name] if name in apart else leaf not in ("broken", "lost", "empty"))
        }
        model = chosen_gradients(chosen)
        model.register_parameter("unused", torch.nn.Parameter(torch.ones(3)))
        model.register_parameter("frozen", torch.nn.Parameter(torch.ones(2), requires_grad=False))
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=2.0**-10)
        if case.attach(model, optimizer=optimizer, hist_every=1):
            with case.step(5):
                model().backward()
                case.facts["gradients"] = gradients_of(model)
                optimizer.step()
            case.close()
        yield case.observed(step=5)


def updates(engine: Engine) -> Iterator[Observed]:
    """Three steps of AdamW with weight decay: an update is nothing like the rate times the gradient."""
    import torch

    case = Case(engine, "updates/adamw")
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.3)
    signals = ("gradients", "parameters", "updates")
    case.facts = {"gradients": {}, "before": {}, "after": {}, "leaves": [name for name, _ in model.named_parameters()]}
    if case.attach(model, optimizer=optimizer, signals=signals, hist_every=1):
        for n in (40, 41, 42):
            with case.step(n):
                optimizer.zero_grad()
                model(batch(n)).square().sum().backward()
                case.facts["gradients"][n], case.facts["before"][n] = gradients_of(model), parameters_of(model)
                optimizer.step()
                case.facts["after"][n] = parameters_of(model)
        case.close()
    yield case.observed(signals=signals)


def names(engine: Engine) -> Iterator[Observed]:
    """Two named sessions of one model on one sink, and one under a namespace."""
    import torch

    model = chosen_gradients({"h.1.weight": torch.ones(2), "h.11.weight": torch.full((2,), 2.0)})
    asks: dict[str, dict[str, Any]] = {
        "plain": {},
        "name": {"name": "teacher"},
        "namespace": {"namespace": "run7"},
        "select": {"select": ("h.1",)},
    }
    for key, ask in asks.items():
        case = Case(engine, f"names/{key}")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if case.attach(model, optimizer=optimizer, hist_every=1, **ask):
            with case.step(3):
                model().backward()
                optimizer.step()
            case.close()
        yield case.observed(**ask)
