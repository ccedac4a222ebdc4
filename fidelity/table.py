"""The table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .results import Result
from .routes import CONTROL_ROUTES
from .verdicts import LOSSLESS, NOT_APPLICABLE, NOT_MEASURED

if TYPE_CHECKING:
    from rich.table import Table

DIFFERS_MARK = " ≠"
"""Marks a cell whose word differs from the published one."""


def row_index(result: Result) -> dict[tuple[str, str | None], dict[str, Mapping[str, Any]]]:
    """Return the cells by (row, grid), then by route id, in the order of the table."""
    index: dict[tuple[str, str | None], dict[str, Mapping[str, Any]]] = {}
    for route in result["routes"]:
        for row in route["rows"]:
            index.setdefault((row["id"], row["grid"]), {})[route["id"]] = row
    return index


def heading(route: Mapping[str, Any]) -> str:
    """Return a column's heading: title and version."""
    return f"{route['title']} {route['version']}" if route["tracker"] else str(route["title"])


def shown_routes(result: Result, *, controls: bool) -> list[Mapping[str, Any]]:
    """Return the routes to be shown, the controls only on demand."""
    return [route for route in result["routes"] if controls or route["id"] not in CONTROL_ROUTES]


def terminal_table(result: Result, *, controls: bool = False) -> Table:
    """Return the table for :mod:`rich`: a line a row and grid, a column a route."""
    from rich.table import Table
    from rich.text import Text

    routes = shown_routes(result, controls=controls)
    table = Table(
        title=Text(_title(result)), caption=Text(_caption(result)), caption_justify="left", title_justify="left"
    )
    table.add_column("row")
    table.add_column("grid")
    for route in routes:
        table.add_column(heading(route))
    previous = None
    for (row, grid), found in row_index(result).items():
        words = [Text(_mark(found[r["id"]]), style=_style(found[r["id"]])) for r in routes if r["id"] in found]
        table.add_row("" if row == previous else row, grid or "", *words)
        previous = row
    return table


def _title(result: Result) -> str:
    state = "VOID" if result["void"] else "INCOMPLETE" if result["incomplete"] else "measured"
    return f"Fidelity, {state} {result['date']}"


def _caption(result: Result) -> str:
    tensors = result["tensors"]
    lines = [
        f"Tensors: {tensors['description']}.",
        f"Sent digest {tensors['sent_digest'][:16]}.{DIFFERS_MARK} differs from the published table.",
    ]
    lines += [f"Not the pinned versions: {difference}" for difference in result["environment"]["pins_differ"]]
    lines += [f"VOID: {reason}" for reason in result["void_reasons"]]
    lines += [f"INCOMPLETE: {reason}" for reason in result["incomplete"]]
    return "\n".join(lines)


def _mark(row: Mapping[str, Any]) -> str:
    return f"{row['verdict']}{DIFFERS_MARK if row['differs'] else ''}"


def _style(row: Mapping[str, Any]) -> str:
    word = row["verdict"]
    if word in LOSSLESS:
        return "green"
    if word == NOT_APPLICABLE:
        return "dim"
    return "bold magenta" if word == NOT_MEASURED else "red" if word != "faithful (float32)" else "yellow"
