"""The routes: one module a column of the table."""

from __future__ import annotations

from importlib import import_module

from torchlens_conformance.protocol import Refusal

from .base import Route

_MODULES = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "wandb-relay": "wandb_relay",
    "clearml": "clearml",
    "clearml-relay": "clearml_relay",
    "comet": "comet",
    "mlflow": "mlflow",
    "tensorboardx": "tensorboardx",
    "tensorboardx-wandb": "tensorboardx_wandb",
    "tensorboardx-clearml": "tensorboardx_clearml",
    "trailer": "trailer",
    "jsonl": "jsonl",
    "sabotage": "sabotage",
}

TRACKER_ROUTES = ("tensorboard", "wandb", "wandb-relay", "clearml", "clearml-relay", "comet", "mlflow")
"""The measured routes, in the order of the table."""

CONTROL_ROUTES = ("jsonl", "sabotage")
"""The controls; if one of them is off, the whole table is void (FID-7)."""

EXTRA_ROUTES = ("tensorboardx", "tensorboardx-wandb", "tensorboardx-clearml", "trailer")
"""Routes that are measured only when they are named: their packages are no dependencies of ours."""

ROUTE_IDS = (*TRACKER_ROUTES, *CONTROL_ROUTES)
"""Every route of a run that names none."""


def get_route(route_id: str) -> Route:
    """Return the route with this id. Raises ``fidelity_route_unknown``."""
    if route_id not in _MODULES:
        raise Refusal(
            "fidelity_route_unknown",
            f"There is no route {route_id!r}.",
            remedy=f"Use one of {', '.join((*ROUTE_IDS, *EXTRA_ROUTES))}.",
            route=route_id,
        )
    route: Route = import_module(f".{_MODULES[route_id]}", __name__).ROUTE
    return route
