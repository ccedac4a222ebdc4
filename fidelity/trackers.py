"""Which routes measure which tracker."""

from __future__ import annotations

from torchlens_conformance.protocol import Refusal

from .routes import CONTROL_ROUTES, ROUTE_IDS, get_route


def routes_of(tracker: str) -> tuple[str, ...]:
    """Return the ids of the routes that measure ``tracker``, a distribution's name.

    Raises ``fidelity_tracker_unknown``.
    """
    by_tracker: dict[str, list[str]] = {}
    for route_id in ROUTE_IDS:
        if route_id not in CONTROL_ROUTES:
            by_tracker.setdefault(get_route(route_id).distribution or "", []).append(route_id)
    if tracker not in by_tracker:
        raise Refusal(
            "fidelity_tracker_unknown",
            f"No route measures {tracker!r}.",
            remedy=f"Use one of {', '.join(sorted(by_tracker))}.",
            tracker=tracker,
        )
    return tuple(by_tracker[tracker])
