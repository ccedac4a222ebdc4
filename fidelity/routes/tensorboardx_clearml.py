"""tensorboardX under ClearML's TensorBoard relay, which patches its writer apart from torch's. An extra route."""

from __future__ import annotations

from .clearml_relay import clearml_relay_route
from .tensorboardx import WORDS, open_tensorboardx

ROUTE = clearml_relay_route("tensorboardx-clearml", "ClearML relay, tensorboardX", open_tensorboardx, WORDS)
