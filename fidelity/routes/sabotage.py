"""The wrong control: the exact route with its store falsified, one row at a time (FID-7)."""

from __future__ import annotations

from collections.abc import Sequence

from torchlens_conformance.protocol import Point

from ..measure import Cell, measure, measure_writer_first
from ..probes import writer_first_points
from ..received import Received, from_points
from ..spoils import SPOILS
from ..verdicts import judge
from . import jsonl
from .base import Route

ROUTE = Route("sabotage", "sabotage (wrong control)", None, jsonl.send, jsonl.read, jsonl.ROUTE.capabilities)


def measure_spoiled(sent: Sequence[Point], received: Received) -> list[Cell]:
    """Return each row's cells under its own spoil.

    The evidence names the spoil; the number ``leaks`` lists other rows whose word the spoil changed as well, of which
    there must be none.
    """
    honest = _words(measure(sent, received, capabilities=ROUTE.capabilities))
    cells = []
    for row, spoil in SPOILS.items():
        if row == "writer-first":
            points = writer_first_points()
            found, leaks = [measure_writer_first(points, spoil.apply(from_points(points)))], []
        else:
            found = measure(sent, spoil.apply(received), capabilities=ROUTE.capabilities)
            leaks = sorted({key[0] for key, word in _words(found).items() if key[0] != row and honest[key] != word})
        cells += [
            Cell(cell.row, cell.grid, {**cell.numbers, "leaks": leaks}, (f"spoil: {spoil.name}", *cell.evidence[:1]))
            for cell in found
            if cell.row == row
        ]
    return cells


def _words(cells: Sequence[Cell]) -> dict[tuple[str, str | None], str]:
    return {(cell.row, cell.grid): judge(cell.row, cell.numbers) for cell in cells}
