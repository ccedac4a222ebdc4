"""The wrong control: the exact route with its store falsified, one row at a time (FID-7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchlens_conformance.protocol import Point

from ..measure import Cell, measure
from ..measure_runs import measure_resume, measure_writer_first
from ..probes import resume_points, writer_first_points
from ..received import Received, from_points
from ..spoils import SPOILS, Spoil
from ..verdicts import judge
from . import jsonl

ROUTE = replace(jsonl.ROUTE, id="sabotage", title="sabotage (wrong control)")


def measure_spoiled(sent: Sequence[Point], received: Received, resumed: Received | None) -> list[Cell]:
    """Return each row's cells under its own spoil.

    The evidence names the spoil; the number ``leaks`` lists other rows whose word the spoil changed as well, of which
    there must be none.

    Args:
        sent: Data points and probes, as they were sent.
        received: What the exact route gave back of them.
        resumed: What it gave back of the run that was continued; None where that was not measured, and then there is
            no cell for it.
    """
    honest = _words(measure(sent, received, capabilities=ROUTE.capabilities))
    cells: list[Cell] = []
    for row, spoil in SPOILS.items():
        leaks: list[str] = []
        if row == "writer-first":
            points = writer_first_points()
            found = [measure_writer_first(points, spoil.apply(from_points(points)))]
        elif row == "resume":
            found = _resume_cells(spoil, resumed)
        else:
            found = measure(sent, spoil.apply(received), capabilities=ROUTE.capabilities)
            leaks = sorted({key[0] for key, word in _words(found).items() if key[0] != row and honest[key] != word})
        cells += [
            Cell(cell.row, cell.grid, {**cell.numbers, "leaks": leaks}, (f"spoil: {spoil.name}", *cell.evidence[:1]))
            for cell in found
            if cell.row == row
        ]
    return cells


def _resume_cells(spoil: Spoil, resumed: Received | None) -> list[Cell]:
    if resumed is None:
        return []
    return [measure_resume(*resume_points(), spoil.apply(resumed), capabilities=ROUTE.capabilities)]


def _words(cells: Sequence[Cell]) -> dict[tuple[str, str | None], str]:
    return {(cell.row, cell.grid): judge(cell.row, cell.numbers) for cell in cells}
