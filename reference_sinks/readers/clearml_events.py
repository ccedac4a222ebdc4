"""From the lines of a ClearML session to events, and from one event to a point (FID-1)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from torchlens_conformance.protocol import Point, Refusal, ScalarPoint, TextPoint

from .clearml_session import Session
from .clearml_tags import TagReader
from .damage import Damage
from .result import Unplaced

HISTOGRAM_SURFACE = "histogram surface"
"""The reason of an unplaced plot that the relay made from histograms."""

SINGLE_VALUE_STEP = -(2**31)
"""What ClearML stores as the step of ``report_single_value``."""

_Event = dict[str, Any]
_DECODER = json.JSONDecoder()


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the bytes of every line, with its end if it has one."""
    offset = 0
    while offset < len(content):
        end = content.find(b"\n", offset) + 1 or len(content)
        yield offset, content[offset:end]
        offset = end


def events(content: bytes) -> Iterator[tuple[str, _Event]]:
    """Yield place and event for every event of a file, in stored order; each line is a list of events.

    A cut last line, which may be the only one, still yields the events that are whole in it.

    Raises :class:`~reference_sinks.readers.damage.Damage`: ``foreign``, ``truncated`` or ``corrupt``.
    """
    for offset, line in _lines(content):
        if offset == 0 and not line.lstrip().startswith(b"["):
            raise Damage("foreign", 0, "the first line is no list of events")
        if not line.endswith(b"\n"):
            for index, event in enumerate(_whole_events(line)):
                yield f"@{offset}[{index}]", event
            raise Damage("truncated", offset, "the last line has no end")
        for index, event in enumerate(_parsed(line, offset)):
            yield f"@{offset}[{index}]", event


def _parsed(line: bytes, offset: int) -> list[_Event]:
    try:
        items = json.loads(line)
    except (ValueError, RecursionError):
        raise Damage("corrupt", offset, "a line does not parse") from None
    if not isinstance(items, list) or not all(_is_event(item) for item in items):
        kind = "foreign" if offset == 0 else "corrupt"
        raise Damage(kind, offset, "a line is no list of events")
    return items


def _whole_events(line: bytes) -> Iterator[_Event]:
    # The writer's JSON is ASCII, so a replaced byte is damage and ends the whole part.
    text = line.decode("ascii", errors="replace")
    position = 1
    while True:
        try:
            event, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return
        if not _is_event(event):
            return
        yield event
        if text[position : position + 2] != ", ":
            return
        position += 2


def _is_event(item: object) -> bool:
    return isinstance(item, dict) and isinstance(item.get("type"), str)


class EventPlacer:
    """Place the events of one session.

    Args:
        session: Where the files of media lie.
        tags: Turns stored names into tags.
        points: Where points are appended.
        unplaced: Where everything else is appended.
        last_use: For each file of a medium, the place of the last event that names it.
    """

    def __init__(
        self,
        session: Session,
        tags: TagReader,
        points: list[Point],
        unplaced: list[Unplaced],
        last_use: Mapping[str, str],
    ) -> None:
        self.session = session
        self.tags = tags
        self.points = points
        self.unplaced = unplaced
        self.last_use = last_use

    def place(self, event: _Event, where: str) -> None:
        """Append the point of one event, or the reason why there is none."""
        kind = event["type"]
        try:
            if event.get("model_event"):
                self._leave(where, "an event of a model", event, **_further(event))
            elif kind == "training_stats_scalar":
                self._scalar(event, where)
            elif kind == "plot":
                self._plot(event, where)
            elif kind == "training_debug_image":
                self._medium(event, where)
            elif kind == "log":
                self.unplaced.append(Unplaced(where, "console text", {key: event.get(key) for key in ("level", "msg")}))
            else:
                self._leave(where, f"an event of type {kind}", event, **_further(event))
        except Refusal as refusal:
            self._leave(where, "a value that no point can hold", event, **_further(event), why=str(refusal))

    def _scalar(self, event: _Event, where: str) -> None:
        step, value = event.get("iter"), event.get("value")
        if step == SINGLE_VALUE_STEP:
            self._leave(where, "a single value without a step", event, value=value)
            return
        tag = self._tag(event, "scalar")
        self.points.append(ScalarPoint(tag, step, value))  # type: ignore[arg-type]  # the point itself refuses

    def _plot(self, event: _Event, where: str) -> None:
        try:
            figure = json.loads(event.get("plot_str", ""))
        except (TypeError, ValueError, RecursionError):
            self._leave(where, "a plot that does not parse", event, plot_str=event.get("plot_str"))
            return
        surface = _histogram_surface(figure)
        if surface is None:
            self._leave(where, "a plot", event, figure=figure)
        else:
            self._leave(where, HISTOGRAM_SURFACE, event, **{"tag": self._tag(event, "raw_histogram"), **surface})

    def _medium(self, event: _Event, where: str) -> None:
        key, url = event.get("key"), event.get("url")
        file = f"data/{key}"
        if not isinstance(key, str) or not self.session.holds(file):
            self._leave(where, "a medium whose file is not in the session", event, key=key, url=url)
        elif self.last_use[key] != where:
            # ClearML numbers the files of a series round and round: a later one took this one's place.
            self._leave(where, "a medium whose file was overwritten", event, file=file)
        elif PurePosixPath(key).suffix != ".txt":
            kind = PurePosixPath(key).suffix or "unknown"
            self._leave(where, f"a medium of kind {kind}", event, file=file, bytes=len(self.session.content(file)))
        else:
            self._text(event, where, file)

    def _text(self, event: _Event, where: str, file: str) -> None:
        raw = self.session.content(file)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            self._leave(where, "a text that is not UTF-8", event, file=file, bytes=len(raw))
            return
        tag = self._tag(event, "text_manifest")
        self.points.append(TextPoint(tag, event.get("iter"), text))  # type: ignore[arg-type]  # the point itself refuses

    def _tag(self, event: _Event, capability: str) -> str:
        return self.tags.tag(str(event.get("metric")), str(event.get("variant")), capability)

    def _leave(self, where: str, reason: str, event: _Event, **content: object) -> None:
        stored = {"tag": f"{event.get('metric')}/{event.get('variant')}", "step": event.get("iter")}
        self.unplaced.append(Unplaced(where, reason, {**stored, **content}))


def _further(event: _Event) -> dict[str, object]:
    """Return what an event says beyond its name, its step, and which task, which request and when."""
    told_elsewhere = ("metric", "variant", "iter", "task", "method", "timestamp")
    return {key: value for key, value in event.items() if key not in told_elsewhere}


def _histogram_surface(figure: object) -> dict[str, object] | None:
    """Return rows and labels of a surface as the relay draws it, or None for another plot."""
    try:
        scene = figure["layout"]["scene"]  # type: ignore[index]
        (trace,) = figure["data"]  # type: ignore[index]
        drawn_by_relay = (
            trace["type"] == "surface" and scene["xaxis"]["title"] == " " and scene["yaxis"]["title"] == "iteration"
        )
        if not drawn_by_relay:
            return None
        return {
            "z": tuple(tuple(float(value) for value in row) for row in trace["z"]),
            "x_labels": tuple(scene["xaxis"]["ticktext"] or ()),
            "y_labels": tuple(scene["yaxis"]["ticktext"] or ()),
        }
    except (KeyError, TypeError, ValueError):
        return None
