"""Digests of what a run leaves: two runs are the same bit for bit iff their digests agree."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def digest_of(things: Any) -> str:
    """Return a digest of tensors, mappings, lists and plain values, with dtypes, shapes and bits."""
    seen = hashlib.sha256()
    _walk(things, seen)
    return seen.hexdigest()[:16]


def _walk(thing: Any, seen: Any) -> None:
    import torch

    if isinstance(thing, torch.Tensor):
        plain = thing.detach().cpu().contiguous()
        seen.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
        seen.update(plain.view(torch.uint8).numpy().tobytes() if plain.dim() else repr(plain.item()).encode())
    elif isinstance(thing, Mapping):
        for key in thing:
            seen.update(repr(key).encode())
            _walk(thing[key], seen)
    elif isinstance(thing, (list, tuple)):
        for item in thing:
            _walk(item, seen)
    else:
        seen.update(repr(thing).encode())


def random_state() -> str:
    """Return a digest of the random states of torch, of Python, and of numpy where it is loaded."""
    import torch

    numpy = sys.modules.get("numpy")
    drawn = None if numpy is None else [repr(part) for part in numpy.random.get_state()]
    return digest_of([torch.get_rng_state(), random.getstate(), drawn])


def seed_everything() -> None:
    """Put every random state where two runs can start from."""
    import torch

    random.seed(0)
    torch.manual_seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


def state_digests(model: torch.nn.Module, optimizer: Any, losses: list[float], scaler: Any) -> dict[str, str]:
    """Return a digest of each part of what a training run leaves."""
    return {
        "parameters": digest_of(dict(model.named_parameters())),
        "gradients": digest_of({name: p.grad for name, p in model.named_parameters() if p.grad is not None}),
        "buffers": digest_of(dict(model.named_buffers())),
        "optimizer state": digest_of(optimizer.state_dict()),
        "random state": random_state(),
        "modes": digest_of([module.training for module in model.modules()]),
        "losses": digest_of([loss.hex() for loss in losses]),
        "scale": digest_of(scaler.state_dict()),
    }
