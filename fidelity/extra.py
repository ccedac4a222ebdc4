"""The extra routes, measured together: tensorboardX, alone and under both relays, and trailer (FID-1, FID-2)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import HistogramPoint

from .files import write_pickle
from .processes import ProcessFailed, ProcessGroup
from .results import Result
from .routes import EXTRA_ROUTES, get_route
from .run import Options, measure_routes
from .stimulus import SentData
from .worker import MAIN, OUTPUT

SCHEMA = "torchlens-conformance.extra.v1"
"""The name and version of the format."""

EXTRA_RESULTS = Path("fidelity") / "results" / "extra.json"
"""The committed results."""

EXTRA_PAGE = Path("docs") / "extra-routes.md"
"""The generated page."""

_STORED_OTHERWISE = "trailer"
_EDGES = (0.0, 1.0, 2.0, 3.0)
_PROBES: Mapping[str, HistogramPoint] = {
    "that never fall": HistogramPoint("extra/rising", 1, (1, 2, 3), _EDGES),
    "that fall somewhere": HistogramPoint("extra/falling", 1, (1, 3, 2), _EDGES),
}
"""What trailer is sent beside the rows of the table, by what it tries."""


def measure_extra(data: SentData, *, timeout: float, progress: Callable[[str, str], None]) -> dict[str, Any]:
    """Measure every extra route and both controls, and what trailer makes of :data:`_PROBES`.

    A route that fails or is not installed has cells that say so, and the result is incomplete.
    """
    result = measure_routes(
        data, Options(routes=EXTRA_ROUTES, timeout=timeout), replayed=True, progress=progress
    ).result
    beside: dict[str, Any] = {}
    if any(route["id"] == _STORED_OTHERWISE and route["status"] == "measured" for route in result["routes"]):
        progress(_STORED_OTHERWISE, "sending what no row shows")
        try:
            beside[_STORED_OTHERWISE] = measure_beside(data, _STORED_OTHERWISE, timeout=timeout)
        except ProcessFailed as failure:
            result["incomplete"].append(f"{_STORED_OTHERWISE}, beside the rows: {failure.reason}")
    return {"schema": SCHEMA, "measured": result, "beside": beside}


def exit_code(extra: Mapping[str, Any]) -> int:
    """Return 0 for a whole result, 2 for one that is void or incomplete."""
    result: Result = extra["measured"]
    return 2 if result["void"] or result["incomplete"] else 0


def measure_beside(data: SentData, route_id: str, *, timeout: float) -> list[dict[str, Any]]:
    """Send :data:`_PROBES` in a process of its own; return of each what it was and what came back, None for nothing.

    Raises :class:`~fidelity.processes.ProcessFailed`.
    """
    route = get_route(route_id)
    with tempfile.TemporaryDirectory(prefix="fidelity-") as folder:
        place = Path(folder)
        write_pickle(place / "points", SentData(tuple(_PROBES.values()), data.provenance, data.tensor_digest))
        arguments = ["--points", str(place / "points"), "--route", route_id, "--run", MAIN, "--place", str(place)]
        environment = {"HOME": folder, "TMPDIR": folder, **route.environment(place / "store")}
        ProcessGroup().run(
            ["send", *arguments], output=place / OUTPUT, timeout=timeout, cwd=place, environment=environment
        )
        received = route.read(place / "store")
    came = {item.tag: list(item.counts) for item in received.histograms}
    return [
        {"what": what, "sent": list(point.counts), "received": came.get(point.tag)} for what, point in _PROBES.items()
    ]
