"""Scenarios about single operations: their values, their facets, consent, disclosure, and a forward that stays."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..adapter import Engine
from ..observation import Observed
from .case import Case, hook_census
from .digests import digest_of, random_state, seed_everything

if TYPE_CHECKING:
    import torch

HEADS = 2

ASK: dict[str, Any] = {
    "signals": ("activations",),
    "grain": "op",
    "allow_forward_wrap": True,
    "functions": ("softmax",),
}
"""What all cases ask, unless they say otherwise."""


def attention(*, fails: bool = False) -> Any:
    """Return a net with two softmaxes over (batch, heads, 3, 3), dropout, batch statistics and in-place writes.

    It keeps copies of what its softmaxes gave in ``seen``, counts its forwards in ``told.calls``, where no attach takes
    them back, overwrites the softmaxes as soon as they were used, and fills a buffer that is None until then.
    """
    import torch

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix, self.out = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            self.norm, self.drop = torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.25)
            self.seen: list[Any] = []
            self.told = SimpleNamespace(calls=0)
            self.register_buffer("mean", None)
            self.mean: Any

        def forward(self, x: Any) -> Any:
            self.told.calls += 1
            self.seen = []
            for _ in range(2):
                heads = self.mix(x).reshape(len(x), 3, HEADS, 2).permute(0, 2, 1, 3)
                weights = torch.softmax(heads @ heads.transpose(2, 3), dim=-1)
                self.seen.append(weights.detach().clone())
                x = x + (weights @ heads).permute(0, 2, 1, 3).reshape(len(x), 3, 4)
                weights.data.mul_(-3)
            if self.mean is None:
                self.mean = x.detach().mean((0, 1))
            x = x - self.mean
            if fails:
                raise ArithmeticError("planted")
            return self.out(torch.relu_(self.drop(self.norm(x))))

    torch.manual_seed(0)
    return Attention()


def example(number: int) -> torch.Tensor:
    """Return the input of one step."""
    import torch

    return torch.randn(4, 3, 4, generator=torch.Generator().manual_seed(2000 + number))


def _train(model: Any, optimizer: Any, n: int) -> Any:
    optimizer.zero_grad()
    output = model(example(n))
    output.square().sum().backward()
    optimizer.step()
    return output.detach()


def _parts(model: Any) -> list[dict[str, list[float]]]:
    """Return what each softmax of the last forward gave: the whole as ``""``, its heads by number."""
    found = []
    for weights in model.seen:
        pieces = {"": weights} | {str(head): weights[:, head] for head in range(HEADS)}
        found.append({name: piece.double().flatten().tolist() for name, piece in pieces.items()})
    return found


def operations(engine: Engine) -> Iterator[Observed]:
    """Outputs of a function, whole and by heads, against copies that the model made of them itself."""
    import torch

    for name, facets in (("whole", None), ("heads", {"softmax": (HEADS, 1)}), ("repeated", None)):
        case = Case(engine, f"operations/{name}")
        model = attention()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        case.facts["outputs"] = {}
        if case.attach(model, optimizer=optimizer, inputs=example(0), hist_every=1, facets=facets, **ASK):
            for n in (1, 2):
                with case.step(n):
                    _train(model, optimizer, n)
                    case.facts["outputs"][n] = _parts(model)
                    if name == "repeated":
                        model(example(n + 10))
            case.close()
        yield case.observed()


def operations_attach(engine: Engine) -> Iterator[Observed]:
    """Attach with and without consent, with what op grain does not take, and what it says of its cost."""
    asks: dict[str, dict[str, Any]] = {
        "disclosed": {},
        "without-consent": {"allow_forward_wrap": None},
        "gradients": {"signals": ("gradients",)},
        "no-such-function": {"functions": ("sigmoid",)},
        "facets-that-do-not-fit": {"facets": {"softmax": (HEADS + 1, 1)}},
        "failing-forward": {},
    }
    for name, changes in asks.items():
        yield _attached(Case(engine, f"operations-attach/{name}"), {**ASK, **changes}, fails=name == "failing-forward")


def _attached(case: Case, ask: dict[str, Any], *, fails: bool) -> Observed:
    import torch

    model = attention(fails=fails)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seed_everything()
    before = _left_by(model, optimizer)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        attached = case.attach(model, optimizer=optimizer, inputs=example(0), **ask)
    case.facts |= {
        "before": before,
        "after": _left_by(model, optimizer),
        "calls": model.told.calls,
        "warned": [str(warning.message) for warning in told],
        "meant_to_refuse": not case.case.endswith("/disclosed"),
    }
    if attached:
        for n in (30, 31):
            with case.step(n):
                _train(model, optimizer, n)
        case.close()
    return case.observed()


def _left_by(model: Any, optimizer: Any) -> dict[str, Any]:
    return {
        "hooks": hook_census(model, [optimizer]),
        "random state": random_state(),
        "buffers": digest_of(dict(model.named_buffers())),
        "parameters": digest_of(dict(model.named_parameters())),
        "modes": digest_of([module.training for module in model.modules()]),
    }


def operations_kept(engine: Engine) -> Iterator[Observed]:
    """What forwards give and leave, watched and unwatched, over sampled and other steps."""
    for name in ("training", "evaluation"):
        case = Case(engine, f"operations-kept/{name}")
        unwatched = _run(name, None)
        yield case.observed(watched=_run(name, case), unwatched=unwatched)


def _run(mode: str, case: Case | None) -> dict[str, Any]:
    import torch

    model = attention().train(mode == "training")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seed_everything()
    hooks = hook_census(model, [optimizer])
    watched = case is not None and case.attach(model, optimizer=optimizer, inputs=example(0), every=2, **ASK)
    left = {f"after attach: {part}": value for part, value in _left_by(model, optimizer).items() if part != "hooks"}
    results: list[Any] = []
    plain: dict[int | str, bool] = {}
    for n in range(5):
        if watched and case is not None:
            with case.step(n):
                plain[n] = _is_plain(model)
                results.append(_train(model, optimizer, n))
            plain[f"behind {n}"] = _is_plain(model)
        else:
            results.append(_train(model, optimizer, n))
    if watched and case is not None:
        case.close()
        case.facts["plain"] = {**plain, "closed": _is_plain(model)}
    ended = {f"in the end: {part}": value for part, value in _left_by(model, optimizer).items()}
    return {
        **left,
        "what the forwards returned": digest_of(results),
        **ended,
        "hooks": (hooks, ended.pop("in the end: hooks")),
    }


def _is_plain(model: Any) -> bool:
    """Say whether the model's forward is the bound method of its class."""
    return getattr(model.forward, "__func__", None) is type(model).forward


def checkpointed(engine: Engine) -> Iterator[Observed]:
    """Train under selective activation checkpointing, which counts operations, watched and unwatched."""
    asks = {
        "modules": {"signals": ("activations",), "select": ("part",)},
        "operations": {**ASK, "facets": {"softmax": (HEADS, 1)}},
    }
    for name, ask in asks.items():
        case = Case(engine, f"checkpointed/{name}")
        unwatched = _checkpointed_run(None, ask)
        yield case.observed(watched=_checkpointed_run(case, ask), unwatched=unwatched)


def _checkpointed_run(case: Case | None, ask: dict[str, Any]) -> dict[str, Any]:
    import torch

    model = _checkpointed_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watching = None
    if case is not None and case.attach(model, optimizer=optimizer, inputs=example(0), hist_every=1, **ask):
        watching = case
    for n in range(3):
        with nullcontext() if watching is None else watching.step(n):
            _train(model, optimizer, n)
    if watching is not None:
        watching.close()
    return {"parameters": digest_of(dict(model.named_parameters()))}


def _checkpointed_net() -> Any:
    """Return a net that keeps for its recomputation what copies, splits and sums a tensor.

    An engine reads a part of a tensor that is not dense and a softmax. Behind each of those operations comes one whose
    gradient needs what it gave, so one more of them, which takes the place of one of the model's own, trains another
    model.
    """
    import torch
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    kept = ("clone", "_to_copy", "split", "sum")

    def policy(context: Any, operation: Any, *args: Any, **kwargs: Any) -> Any:
        keeps = str(operation).split(".")[1] in kept
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

    def contexts() -> Any:
        return create_selective_checkpoint_contexts(policy)  # type: ignore[no-untyped-call]

    class Part(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = torch.nn.Linear(4, 8)

        def forward(self, x: Any) -> Any:
            return self.mix(x)[..., ::2]

    class Checkpointed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part, self.out = Part(), torch.nn.Linear(4, 4)

        def block(self, x: Any) -> Any:
            heads = self.part(x).reshape(len(x), 3, HEADS, 2).permute(0, 2, 1, 3)
            weights = torch.softmax(heads @ heads.transpose(2, 3), dim=-1)
            y = (weights @ heads).permute(0, 2, 1, 3).clone(memory_format=torch.contiguous_format).tanh()
            y, z = y.double().sigmoid().float().reshape(len(x), 3, 4).chunk(2, dim=-1)
            return self.out(torch.cat([y * z.sum(-1, keepdim=True), z / 3], dim=-1))

        def forward(self, x: Any) -> Any:
            return checkpoint(self.block, x, use_reentrant=False, context_fn=contexts)

    torch.manual_seed(0)
    return Checkpointed()
