"""One step of one route, in a process of its own: ``python -m fidelity.worker STEP ...`` (FID-3).

Steps: ``build`` makes the data points from tensors, ``send`` puts points into a tracker, ``measure`` reads the store
back and writes the cells. Files go between the steps; a step writes its result whole or not at all.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import Point, encode_value

from .code import code_digest, route_modules
from .files import write_pickle, write_text
from .identity import reported_version
from .measure import Cell, measure
from .measure_runs import RESUME_ROW, measure_writer_first
from .probes import all_probes, writer_first_points
from .received import Received, Refused
from .resume_run import REFUSED_FILE, RUNS, ResumeUnmeasured, resume_cell, resume_received, send_part
from .routes import get_route
from .routes.base import Route
from .stimulus import SentData, build_data
from .tensors import Provenance

MAIN, WRITER_FIRST = "main", "writer-first"
"""Runs of a route; each has a folder of its own, as has the run that is continued."""

OUTPUT = "output.txt"
"""What a sending process printed."""

_SENT_WITH = "sent-with.json"


def build(arguments: argparse.Namespace) -> None:
    """Make the data points and write them to ``--points``."""
    provenance = Provenance(**json.loads(arguments.provenance))
    data = build_data(provenance, checkpoint=arguments.checkpoint)
    write_pickle(arguments.points, data)


def send(arguments: argparse.Namespace) -> None:
    """Send one run of one route and write what was refused."""
    route = get_route(arguments.route)
    store = arguments.place / "store"
    store.mkdir(parents=True, exist_ok=arguments.run in RUNS)
    if arguments.run in RUNS:
        if route.resume is None:
            raise ValueError(f"{route.id} continues no run")
        send_part(route.resume, route.capabilities, arguments.run, arguments.place, store, arguments.way)
        return
    if arguments.run == WRITER_FIRST:
        if route.send_writer_first is None:
            raise ValueError(f"{route.id} has no relay")
        refused = route.send_writer_first(writer_first_points(), store)
    else:
        refused = route.send([*read_data(arguments.points).points, *all_probes()], store)
    write_pickle(arguments.place / REFUSED_FILE, refused)
    version = reported_version(route.distribution) if route.distribution else None
    sent_with = {"reported": version, "modules": route_modules()}
    write_text(arguments.place / _SENT_WITH, json.dumps(sent_with))


def measure_route(arguments: argparse.Namespace) -> None:
    """Read the runs of one route back and write its cells, and one histogram for the picture."""
    route = get_route(arguments.route)
    sent: list[Point] = [*read_data(arguments.points).points, *all_probes()]
    received = _received(arguments.place / MAIN, route.read)
    unmeasured = {}
    if route.id == "sabotage":
        cells = _spoiled_cells(route, sent, received, arguments.place)
    else:
        first = _received(arguments.place / WRITER_FIRST, route.read) if route.send_writer_first else None
        cells = [
            *measure(sent, received, capabilities=route.capabilities, stored_tag=route.stored_tag),
            measure_writer_first(writer_first_points(), first, stored_tag=route.stored_tag),
        ]
        try:
            cells += [] if arguments.no_resume else [resume_cell(route, arguments.place, _received)]
        except ResumeUnmeasured as reason:
            unmeasured[RESUME_ROW] = without_paths(str(reason), arguments.place)
    from .pictures import picture_data

    sent_with = json.loads((arguments.place / MAIN / _SENT_WITH).read_text(encoding="utf-8"))
    document = {
        "cells": [_plain(cell) for cell in cells],
        "unmeasured": unmeasured,
        "pictures": picture_data(sent, received, route.stored_tag, route.chart),
        "reported": sent_with["reported"],
        "code": code_digest({*sent_with["modules"], *route_modules()}),
    }
    write_text(arguments.place / "measured.json", json.dumps(encode_value(document)))


def _spoiled_cells(route: Route, sent: Sequence[Point], received: Received, place: Path) -> list[Cell]:
    from .routes.sabotage import measure_spoiled

    try:
        resumed = resume_received(route, place, _received)
    except ResumeUnmeasured:
        # Without its cell the control is off.
        resumed = None
    return measure_spoiled(sent, received, resumed if isinstance(resumed, Received) else None)


def _received(place: Path, read: Any) -> Received:
    """Read one store; what the sending process printed and what raised there belong to it."""
    received: Received = read(place / "store")
    refused: Sequence[Refused] = pickle.loads((place / REFUSED_FILE).read_bytes())
    printed = [place / output_name(run) for run in (MAIN, *RUNS)]
    texts = [file.read_text(errors="replace") for file in printed if file.exists()]
    shown = [line for text in texts for line in text.splitlines() if line.strip()]
    return replace(
        received,
        refused=tuple(replace(item, reason=without_paths(item.reason, place)) for item in refused),
        shown=tuple(without_paths(line, place) for line in shown),
        logged=tuple(without_paths(line, place) for line in received.logged),
    )


def without_paths(line: str, place: Path) -> str:
    """Name the folders of this machine by what they are, so that evidence can be compared and shown."""
    folders = (
        (str(place), "<place>"),
        (sysconfig.get_paths()["purelib"], "<packages>"),
        (sys.prefix, "<python>"),
        # Behind the environment, which may lie inside a checkout or hold this package itself.
        (str(Path(__file__).parent.parent), "<project>"),
        (tempfile.gettempdir(), "<temporary>"),
    )
    for folder, name in folders:
        line = line.replace(folder, name)
    return line


def output_name(run: str) -> str:
    """Return the name of the file that takes what the process of a run prints; some runs have several processes."""
    return f"{run}-{OUTPUT}" if run in RUNS else OUTPUT


def _plain(cell: Cell) -> dict[str, Any]:
    return {**asdict(cell), "evidence": list(cell.evidence)}


def read_data(path: Path) -> SentData:
    """Read the data points that :func:`build` or the parent process wrote; a pickle of our own."""
    data: SentData = pickle.loads(path.read_bytes())
    return data


def main(argv: Sequence[str] | None = None) -> int:
    """Run one step; a failure is a traceback in this process's output and a non-zero exit."""
    parser = argparse.ArgumentParser(prog="python -m fidelity.worker", description=__doc__)
    steps = parser.add_subparsers(required=True)
    for name, step in (("build", build), ("send", send), ("measure", measure_route)):
        sub = steps.add_parser(name)
        sub.set_defaults(step=step)
        sub.add_argument("--points", type=Path, required=True)
        sub.add_argument("--route")
        sub.add_argument("--run", default=MAIN)
        sub.add_argument("--way", type=int, default=0)
        sub.add_argument("--no-resume", action="store_true")
        sub.add_argument("--place", type=Path)
        sub.add_argument("--provenance")
        sub.add_argument("--checkpoint", type=Path)
    arguments = parser.parse_args(argv)
    arguments.step(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
