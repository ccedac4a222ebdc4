"""Scenarios about being a guest: the same training watched and unwatched, hooks before and after, what is moved."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..adapter import Engine
from ..observation import Observed
from .case import Case, batch, chosen_gradients, hook_census, small_model

if TYPE_CHECKING:
    import torch

OPTIMIZERS: Mapping[str, Mapping[str, Any]] = {
    "SGD": {"lr": 0.05, "momentum": 0.9},
    "AdamW": {"lr": 0.01, "weight_decay": 0.1},
    "AdamW fused": {"lr": 0.01, "fused": True},
    "LBFGS": {"lr": 0.2, "max_iter": 3},
}
_STEPS = 8


def state_digests(model: torch.nn.Module, optimizer: Any, losses: list[float], scaler: Any) -> dict[str, str]:
    """Return a digest of each part of what a run leaves: two runs are the same bit for bit iff these agree."""
    import torch

    def of(things: Any) -> str:
        seen = hashlib.sha256()

        def walk(thing: Any) -> None:
            if isinstance(thing, torch.Tensor):
                plain = thing.detach().cpu().contiguous()
                seen.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
                seen.update(plain.view(torch.uint8).numpy().tobytes() if plain.dim() else repr(plain.item()).encode())
            elif isinstance(thing, Mapping):
                for key in thing:
                    seen.update(repr(key).encode())
                    walk(thing[key])
            elif isinstance(thing, (list, tuple)):
                for item in thing:
                    walk(item)
            else:
                seen.update(repr(thing).encode())

        walk(things)
        return seen.hexdigest()[:16]

    return {
        "parameters": of(dict(model.named_parameters())),
        "gradients": of({name: p.grad for name, p in model.named_parameters() if p.grad is not None}),
        "buffers": of(dict(model.named_buffers())),
        "optimizer state": of(optimizer.state_dict()),
        "random state": of(torch.get_rng_state()),
        "modes": of([module.training for module in model.modules()]),
        "losses": of([loss.hex() for loss in losses]),
        "scale": of(scaler.state_dict()),
    }


def _run(name: str, *, amp: bool, case: Case | None) -> dict[str, str]:
    import torch

    kind, _, _flavour = name.partition(" ")
    model = small_model()
    model.train()
    optimizer = getattr(torch.optim, kind)(model.parameters(), **OPTIMIZERS[name])
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2, enabled=amp)
    losses: list[float] = []
    signals = ("gradients", "parameters", "updates")
    watched = case is not None and case.attach(model, optimizer=optimizer, signals=signals, hist_every=2)
    for n in range(_STEPS):

        def forward(n: int = n) -> Any:
            optimizer.zero_grad()
            # An infinity in the fifth step, so that a scaler leaves it out.
            loss = model(batch(n)).square().mean() * (float("inf") if amp and n == 4 else 1.0)
            losses.append(float(loss.detach()))
            return loss

        def once(n: int = n) -> None:
            if kind == "LBFGS":

                def evaluate() -> Any:
                    loss = forward()
                    loss.backward()
                    return loss

                optimizer.step(evaluate)
                return
            scaler.scale(forward()).backward()
            scaler.step(optimizer)
            scaler.update()

        if watched and case is not None:
            with case.step(n, **({"scaler": scaler} if amp else {})):
                once()
        else:
            once()
    digests = state_digests(model, optimizer, losses, scaler)
    if watched and case is not None:
        case.close()
    return digests


def twins(engine: Engine) -> Iterator[Observed]:
    """The same run watched and unwatched, for each optimizer, with and without a scaler."""
    for name in OPTIMIZERS:
        for amp in (False, True):
            if name == "LBFGS" and (amp or "closure" in engine.lacks):
                continue
            case = Case(engine, f"twins/{name}{', AMP' if amp else ''}")
            unwatched = _run(name, amp=amp, case=None)
            watched = _run(name, amp=amp, case=case)
            yield case.observed(
                unwatched=unwatched,
                watched=watched,
                steps=[n for n in range(_STEPS) if not (amp and n == 4)],
            )


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
