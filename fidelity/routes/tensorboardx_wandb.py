"""tensorboardX under wandb's TensorBoard relay, which patches its writer apart from torch's. An extra route."""

from __future__ import annotations

from .tensorboardx import WORDS, open_tensorboardx
from .wandb_relay import wandb_relay_route

ROUTE = wandb_relay_route("tensorboardx-wandb", "wandb relay, tensorboardX", open_tensorboardx, WORDS)
