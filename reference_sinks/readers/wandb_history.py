"""From one history row of wandb to points (WANDB-1)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, TypeAlias, cast

from torchlens_conformance.protocol import HistogramPoint, Point, Refusal, ScalarPoint, TextPoint

from .result import Unplaced
from .wandb_records import HistoryRow

SYSTEM_KEYS = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})
"""Keys of a row that are wandb's own."""

_Path: TypeAlias = tuple[str, ...]
_TYPE = "_type"


class HistoryReader:
    """Place the items of history rows.

    Args:
        points: Where points are appended.
        unplaced: Where everything else is appended.
        notes: What had to be inferred, counted.
    """

    def __init__(self, points: list[Point], unplaced: list[Unplaced], notes: Counter[str]) -> None:
        self.points = points
        self.unplaced = unplaced
        self.notes = notes

    def read(self, history: HistoryRow, where: str) -> None:
        """Append the points of one row, in the order of its items."""
        values, malformed = _decoded_items(history)
        step = _row_step(history, values)
        for path, text in malformed.items():
            self._leave(where, "a value that is no JSON", path, step, json=text)
        if step is None:
            content = {".".join(path): value for path, value in values.items()}
            self.unplaced.append(Unplaced(where, "a row without a step", content))
            return
        for path, value in _typed_values_joined(values).items():
            if path[0] not in SYSTEM_KEYS:
                self._place(path, value, step, where)

    def _place(self, path: _Path, value: Any, step: int, where: str) -> None:
        if len(path) > 1:
            self._leave(where, "a value inside a nested mapping", path, step, value=value)
            return
        tag = path[0]
        try:
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self.points.append(ScalarPoint(tag, step, value))
            elif isinstance(value, str):
                self.points.append(TextPoint(tag, step, value))
            elif isinstance(value, dict) and value.get(_TYPE) == "histogram":
                self._histogram(path, value, step, where)
            else:
                self._leave(where, _what(value), path, step, value=value)
        except Refusal as refusal:
            self._leave(where, "a value that no point can hold", path, step, value=value, why=str(refusal))

    def _histogram(self, path: _Path, value: dict[str, Any], step: int, where: str) -> None:
        counts = _numbers(value.get("values"))
        edges, note = _numbers(value.get("bins")), None
        if edges is None and isinstance(value.get("packedBins"), dict):
            edges, note = _unpacked(value["packedBins"]), "histograms with packed edges"
        if counts is None or edges is None or len(edges) != len(counts) + 1 or not counts:
            self._leave(where, "a histogram that is not whole", path, step, value=value)
        elif not all(float(count).is_integer() for count in counts):
            reason = "a histogram whose counts are not integers"
            self._leave(where, reason, path, step, counts=tuple(counts), edges=tuple(map(float, edges)))
        else:
            self.points.append(HistogramPoint(path[0], step, tuple(map(int, counts)), tuple(map(float, edges))))
            if note is not None:
                self.notes[note] += 1

    def _leave(self, where: str, reason: str, path: _Path, step: int | None, **content: object) -> None:
        self.unplaced.append(Unplaced(where, reason, {"tag": ".".join(path), "step": step, **content}))


def _decoded_items(history: HistoryRow) -> tuple[dict[_Path, Any], dict[_Path, str]]:
    values: dict[_Path, Any] = {}
    malformed: dict[_Path, str] = {}
    for path, text in history.items:
        try:
            values[path] = json.loads(text, parse_int=_integer)
        except ValueError:
            malformed[path] = text
    return values, malformed


def _integer(text: str) -> int | float:
    # wandb writes a negative zero without a point.
    return -0.0 if text == "-0" else int(text)


def _row_step(history: HistoryRow, values: dict[_Path, Any]) -> int | None:
    if history.step is not None:
        return history.step
    step = values.get(("_step",))
    return step if isinstance(step, int) and not isinstance(step, bool) else None


def _typed_values_joined(values: dict[_Path, Any]) -> dict[_Path, Any]:
    """Put the leaves of a typed value (a histogram arrives as three) back together, where the first of them stood."""
    typed = {path[:-1] for path in values if len(path) > 1 and path[-1] == _TYPE}
    joined: dict[_Path, Any] = {}
    for path, value in values.items():
        owner = next((path[:size] for size in range(1, len(path)) if path[:size] in typed), None)
        if owner is None:
            joined[path] = value
        else:
            inner = joined.setdefault(owner, {})
            for key in path[len(owner) : -1]:
                inner = inner.setdefault(key, {})
            inner[path[-1]] = value
    return joined


def _numbers(value: object) -> list[int | float] | None:
    plain = isinstance(value, list) and all(type(number) in (int, float) for number in value)
    return cast("list[int | float]", value) if plain else None


def _unpacked(packed: dict[str, Any]) -> list[int | float] | None:
    numbers = _numbers([packed.get("min"), packed.get("size"), packed.get("count")])
    if numbers is None or not 0 < numbers[2] < 2**20:
        return None
    return [numbers[0] + numbers[1] * index for index in range(int(numbers[2]) + 1)]


def _what(value: object) -> str:
    if isinstance(value, dict):
        return f"a value of type {value[_TYPE]}" if _TYPE in value else "a mapping"
    return {bool: "a truth value", type(None): "a null", list: "a list"}.get(type(value), "a value of no known kind")
