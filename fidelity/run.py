"""A whole measurement: points, routes side by side, controls, one result (FID-1..7)."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torchlens_conformance
from torchlens_conformance.protocol import decode_value

from .controls import control_faults
from .files import write_pickle
from .grids import GRIDS
from .identity import read_files
from .pins import installed_version, pinned_versions, version_differences
from .processes import ProcessFailed, ProcessGroup
from .published import SOURCE, published
from .results import SCHEMA, Result
from .resume_run import send_resume
from .routes import CONTROL_ROUTES, EXTRA_ROUTES, ROUTE_IDS, get_route
from .routes.base import Route
from .routes.wire import HISTOGRAM_VARIABLE, SCALAR_VARIABLE
from .stimulus import SentData
from .tensors import PARAMETER_TENSORS, PARAMETERS, STEPS, Provenance
from .verdicts import GRID_ROWS, NOT_MEASURED, ROWS, judge
from .worker import MAIN, OUTPUT, WRITER_FIRST, output_name, read_data, without_paths

BUILD_TIMEOUT = 600.0
"""Seconds that making the points may take."""

STEP_TIMEOUT = 120.0
"""Seconds that one step of one route may take."""

Progress = Callable[[str, str], None]
"""Called with a route's id (or ``tensors``) and what it is doing now."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a run gives.

    Args:
        result: The document to be written.
        pictures: For each route, the histograms to be drawn, sent and received.
    """

    result: Result
    pictures: dict[str, Any]

    @property
    def exit_code(self) -> int:
        """0 measured, 2 void or incomplete."""
        return 2 if self.result["void"] or self.result["incomplete"] else 0


@dataclass(frozen=True, slots=True)
class Options:
    """How to measure.

    Args:
        routes: Route ids; the controls run always.
        timeout: Seconds that one step of one route may take.
        jobs: Routes that run at the same time.
        histogram_wire: A form of the TensorBoard sink's histograms, None for its default.
        scalar_form: A form of the TensorBoard sink's scalars, None for its default.
        environment: A name for the environment that is measured, to be noted in the result.
        resume: Whether the routes beside the controls continue a run; if not, they have no row for it.
    """

    routes: Sequence[str] = ROUTE_IDS
    timeout: float = STEP_TIMEOUT
    jobs: int = 0
    histogram_wire: str | None = None
    scalar_form: str | None = None
    environment: str | None = None
    resume: bool = True


def build_points(
    provenance: Provenance, *, checkpoint: Path | None = None, group: ProcessGroup | None = None
) -> SentData:
    """Make the data points in a process of its own, which gives its two gigabytes back when it ends.

    Raises :class:`ProcessFailed`.
    """
    with tempfile.TemporaryDirectory(prefix="fidelity-") as folder:
        place = Path(folder)
        arguments = ["build", "--points", str(place / "points"), "--provenance", json.dumps(asdict(provenance))]
        if checkpoint is not None:
            arguments += ["--checkpoint", str(checkpoint.resolve())]
        (group or ProcessGroup()).run(
            arguments, output=place / OUTPUT, timeout=BUILD_TIMEOUT, cwd=place, environment={}
        )
        return read_data(place / "points")


def measure_routes(
    data: SentData,
    options: Options,
    *,
    replayed: bool,
    progress: Progress = lambda route, doing: None,
    group: ProcessGroup | None = None,
) -> Measurement:
    """Send ``data`` and the probes through every route and return the judged result.

    A route that crashes, hangs or lacks its tracker has cells that say so; the others complete. On Ctrl-C the routes
    that are not done are marked and what is done is kept. Raises ``fidelity_route_unknown`` before anything starts.

    Clause: FID-1, FID-3, FID-7.
    """
    routes = [get_route(route) for route in dict.fromkeys([*options.routes, *CONTROL_ROUTES])]
    group = group or ProcessGroup()
    place = Path(tempfile.mkdtemp(prefix="fidelity-"))
    try:
        points = place / "points"
        write_pickle(points, data)
        jobs = options.jobs or max(2, os.cpu_count() or 2)
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            # The slowest first, so that the last one to end is a short one.
            order = sorted(routes, key=lambda route: -bool(route.send_writer_first))
            futures = {
                route.id: pool.submit(_run_route, route, points, place / route.id, options, progress, group)
                for route in order
            }
            _wait(list(futures.values()), group)
        outcomes = [futures[route.id].result() for route in routes]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return Measurement(
        _assemble(data, options, outcomes, replayed=replayed),
        {outcome["id"]: outcome.pop("pictures") for outcome in outcomes},
    )


def _wait(futures: Sequence[Future[Any]], group: ProcessGroup) -> None:
    try:
        for future in futures:
            future.result()
    except KeyboardInterrupt:
        group.interrupt()


def _run_route(
    route: Route, points: Path, place: Path, options: Options, progress: Progress, group: ProcessGroup
) -> dict[str, Any]:
    started = time.monotonic()
    version = installed_version(route.distribution) if route.distribution else torchlens_conformance.__version__
    outcome: dict[str, Any] = {
        "id": route.id,
        "title": route.title,
        "tracker": route.distribution,
        "version": version,
        "status": "measured",
        "detail": "",
        "seconds": 0.0,
        "package": None,
        "code": None,
        "pictures": None,
        "unmeasured": [],
    }
    if version is None:
        outcome |= {"status": "missing", "detail": _missing(route)}
    else:
        try:
            measured = _steps(route, points, place, options, progress, group)
            lacking: Mapping[str, str] = measured["unmeasured"]
            outcome |= {
                "rows": [_row(route.id, cell) for cell in measured["cells"]]
                + [row for name, reason in lacking.items() for row in _unmeasured(route.id, reason, rows=(name,))],
                "unmeasured": [f"{route.id} {name} {reason}" for name, reason in lacking.items()],
                "pictures": measured["pictures"],
                "package": _package(route.distribution, measured["reported"]),
                "code": measured["code"],
            }
        except ProcessFailed as failure:
            outcome |= {"status": failure.reason, "detail": without_paths(failure.detail, place)}
    if "rows" not in outcome:
        outcome["rows"] = _unmeasured(route.id, f"{outcome['status']}: {outcome['detail']}")
    outcome["seconds"] = round(time.monotonic() - started, 1)
    progress(route.id, outcome["status"])
    return outcome


def _steps(
    route: Route, points: Path, place: Path, options: Options, progress: Progress, group: ProcessGroup
) -> dict[str, Any]:
    runs = [MAIN, WRITER_FIRST] if route.send_writer_first else [MAIN]
    common = ["--points", str(points), "--route", route.id]

    def send(run: str, folder: Path, way: int = 0) -> None:
        for name in ("home", "tmp", "work"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        environment = {
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "PYTHONUNBUFFERED": "1",
            HISTOGRAM_VARIABLE: options.histogram_wire or "",
            SCALAR_VARIABLE: options.scalar_form or "",
            **route.environment(folder / "store"),
        }
        group.run(
            ["send", *common, "--run", run, "--way", str(way), "--place", str(folder)],
            output=folder / output_name(run),
            timeout=options.timeout,
            cwd=folder / "work",
            environment=environment,
        )

    for run in runs:
        progress(route.id, "sending" if run == MAIN else "sending, writer first")
        send(run, place / run)
    resumed = options.resume or route.id in CONTROL_ROUTES
    if resumed:
        progress(route.id, "sending, continued")
        send_resume(route, place, send)
    progress(route.id, "reading back")
    group.run(
        ["measure", *common, "--place", str(place), *([] if resumed else ["--no-resume"])],
        output=place / OUTPUT,
        timeout=options.timeout,
        cwd=place,
        environment={"WANDB_MODE": "offline"},
    )
    measured: dict[str, Any] = decode_value(json.loads((place / "measured.json").read_text(encoding="utf-8")))
    return measured


def _row(route: str, cell: dict[str, Any]) -> dict[str, Any]:
    word = judge(cell["row"], cell["numbers"])
    known = published(cell["row"], route, cell["grid"])
    return {
        "id": cell["row"],
        "grid": cell["grid"],
        "verdict": word,
        "numbers": cell["numbers"],
        "published": None if known is None else asdict(known),
        "differs": known is not None and known.word != word,
        "evidence": cell["evidence"],
    }


def _unmeasured(route: str, reason: str, *, rows: Sequence[str] = ROWS) -> list[dict[str, Any]]:
    found = []
    for row in rows:
        for grid in GRIDS if row in GRID_ROWS else (None,):
            known = published(row, route, grid)
            found.append(
                {
                    "id": row,
                    "grid": grid,
                    "verdict": NOT_MEASURED,
                    "numbers": {},
                    "published": None if known is None else asdict(known),
                    "differs": False,
                    "evidence": [reason],
                }
            )
    return found


def _lacks(outcome: Mapping[str, Any]) -> list[str]:
    """Say what was not measured: the whole route, or rows of it."""
    if outcome["status"] != "measured":
        return [f"{outcome['id']} {outcome['status']}: {outcome['detail']}"]
    return list(outcome["unmeasured"])


def _package(distribution: str | None, reported: str | None) -> dict[str, Any] | None:
    """What the measured package says about itself; None for a control."""
    found = read_files(distribution) if distribution else None
    if found is None:
        return None
    return {"reported": reported, "digest": found.digest, "files": found.files, "altered": list(found.altered[:5])}


def _missing(route: Route) -> str:
    package = route.distribution if route.id in EXTRA_ROUTES else f"'torchlens-conformance[{_extra(route)}]'"
    return f"{route.distribution} is not installed; pip install {package}"


def _extra(route: Route) -> str:
    return {"comet_ml": "comet"}.get(str(route.distribution), str(route.distribution))


def _assemble(data: SentData, options: Options, outcomes: list[dict[str, Any]], *, replayed: bool) -> Result:
    void_reasons = control_faults({outcome["id"]: outcome["rows"] for outcome in outcomes})
    shortfall = data.shortfall()
    if shortfall:
        void_reasons.append(shortfall)
    provenance = data.provenance
    versions = {name: version for name in pinned_versions() if (version := installed_version(name))}
    kept = ("id", "title", "tracker", "version", "status", "detail", "seconds", "package", "code", "rows")
    now = datetime.now(timezone.utc)
    return {
        "schema": SCHEMA,
        "date": now.date().isoformat(),
        "moment": now.isoformat(timespec="seconds"),
        "kit_version": torchlens_conformance.__version__,
        "tensors": {
            "source": provenance.source,
            "description": provenance.description,
            "seed": provenance.seed,
            "digest": data.tensor_digest,
            "sent_digest": data.digest,
            "replayed": replayed,
            "tensors": PARAMETER_TENSORS,
            "elements": PARAMETERS,
            "steps": list(STEPS),
            "grids": list(GRIDS),
        },
        "environment": {
            "python": platform.python_version(),
            "platform": f"{platform.system()} {platform.machine()}",
            "versions": versions,
            "pins_differ": version_differences(),
            "name": options.environment,
            "histogram_wire": options.histogram_wire or "default",
            "scalar_form": options.scalar_form or "default",
        },
        "void": bool(void_reasons),
        "void_reasons": void_reasons,
        "incomplete": [line for outcome in outcomes for line in _lacks(outcome)],
        "published_source": SOURCE,
        "routes": [{key: outcome[key] for key in kept} for outcome in outcomes],
    }
