"""From the lines of ``messages.json`` to messages, and from one message to a point (COMET-1)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import inf, nan
from typing import IO, Any

from torchlens_conformance.protocol import HistogramPoint, Point, Refusal, ScalarPoint, TextPoint

from .comet_histograms import decode_histogram
from .damage import Damage
from .result import Unplaced

LONGEST_NAME = 100
"""Characters of a metric's name; Comet cuts longer ones (measured with 3.54.2 and 3.58.8)."""

OWN_METRIC = "process duration"
"""The metric that Comet adds by itself when an experiment ends."""

TEXT, HISTOGRAM = "text-sample", "histogram3d"
"""Types of uploaded files that hold points."""

_CUT = " [truncated]"
_OWN_PARAMETERS = frozenset({"curr_step", "curr_epoch"})
_NONFINITE = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}


def lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of every line, with its end if it has one."""
    offset = 0
    for line in file:
        yield offset, line
        offset += len(line)


def parse_message(line: bytes, offset: int) -> dict[str, Any]:
    """Return the message of one line.

    Raises :class:`~reference_sinks.readers.damage.Damage`: ``truncated`` for a line without an end, ``corrupt`` for
    another one that is no message.
    """
    try:
        message = json.loads(line)
        whole = isinstance(message["type"], str) and isinstance(message["payload"], dict)
    except (ValueError, TypeError, KeyError, RecursionError):
        whole = False
    if not line.endswith(b"\n"):
        raise Damage("truncated", offset, "the last line has no end")
    if not whole:
        raise Damage("corrupt", offset, "a line is no message")
    found: dict[str, Any] = message
    return found


def stored_metric(payload: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """Return name, step and value of a metric, or None when it is none; the words for non-finite numbers are floats."""
    metric = payload.get("metric")
    if not isinstance(metric, dict) or not isinstance(metric.get("metricName"), str):
        return None
    value = metric.get("metricValue")
    if isinstance(value, str):
        value = _NONFINITE.get(value, value)
    return metric["metricName"], metric.get("step"), value


def stored_file(payload: Mapping[str, Any]) -> tuple[str, str | None, Any, str] | None:
    """Return type, tag, step and file name of an upload, or None when it is none.

    The tag is the one in the metadata; where there is none, a histogram's is its name, and a text has no tag.
    """
    parameters, name = payload.get("additional_params"), payload.get("file_path")
    if not isinstance(parameters, dict) or not isinstance(name, str):
        return None
    kind, metadata = str(parameters.get("type", "asset")), payload.get("metadata")
    tag = metadata.get("tag") if isinstance(metadata, dict) else None
    if tag is None and kind == HISTOGRAM:
        tag = parameters.get("fileName")
    return kind, tag if isinstance(tag, str) else None, parameters.get("step"), name


class MessagePlacer:
    """Place the messages of one experiment.

    Args:
        content: ``content(name)``: the bytes of a file of the store, or None when it is not there.
        points: Where points are appended.
        unplaced: Where everything else is appended.
        notes: What had to be inferred, counted.
    """

    def __init__(
        self,
        content: Callable[[str], bytes | None],
        points: list[Point],
        unplaced: list[Unplaced],
        notes: Counter[str],
    ) -> None:
        self._content = content
        self._points = points
        self._unplaced = unplaced
        self._notes = notes

    def place(self, message: Mapping[str, Any], where: str) -> None:
        """Append what one message holds."""
        kind, payload = message["type"], message["payload"]
        try:
            if kind == "metric_msg":
                self._metric(payload, where)
            elif kind == "file_upload":
                self._upload(payload, where)
            elif not _is_own(kind, payload):
                self._leave(where, f"a message of type {kind}", payload)
        except Refusal as refusal:
            self._leave(where, "a value that no point can hold", {**payload, "why": str(refusal)})

    def _metric(self, payload: Mapping[str, Any], where: str) -> None:
        found = stored_metric(payload)
        if found is None:
            self._leave(where, "a metric without a name", payload)
            return
        name, step, value = found
        context = payload.get("context")
        if name == OWN_METRIC and not context:
            self._leave(where, "a metric that Comet itself adds", payload)
        elif type(step) is not int:
            self._leave(where, "a metric whose step is no integer", payload)
        elif type(value) not in (int, float):
            self._leave(where, "a metric whose value is no number", payload)
        else:
            # Comet cuts the name alone, and to this very length; a shorter one that ends so was given like that.
            if len(name) == LONGEST_NAME and name.endswith(_CUT):
                self._notes[f"names that Comet cut at {LONGEST_NAME} characters"] += 1
            if isinstance(context, str):
                name = f"{context}_{name}"
                self._notes["metrics of a context, whose name Comet puts before theirs"] += 1
            self._points.append(ScalarPoint(name, step, value))

    def _upload(self, payload: Mapping[str, Any], where: str) -> None:
        found = stored_file(payload)
        if found is None:
            self._leave(where, "an uploaded file without a name", payload)
            return
        kind, tag, step, name = found
        if kind not in (TEXT, HISTOGRAM):
            self._leave(where, f"an uploaded file of type {kind}", payload)
        elif tag is None:
            self._leave(where, "a text without a tag", payload)
        elif type(step) is not int:
            self._leave(where, "an uploaded file whose step is no integer", payload)
        elif (content := self._content(name)) is None:
            self._leave(where, "an uploaded file that is not in the store", payload)
        elif kind == TEXT:
            self._text(tag, step, content, payload, where)
        else:
            self._histogram(tag, step, content, payload, where)

    def _text(self, tag: str, step: int, content: bytes, payload: Mapping[str, Any], where: str) -> None:
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            self._leave(where, "a text that is no UTF-8", payload)
        else:
            self._points.append(TextPoint(tag, step, text))

    def _histogram(self, tag: str, step: int, content: bytes, payload: Mapping[str, Any], where: str) -> None:
        histogram = decode_histogram(content)
        if histogram is None:
            self._leave(where, "a histogram that is not whole", payload)
        elif any(histogram.outside):
            found = {"tag": tag, "step": step, "counts": histogram.counts, "edges": histogram.edges}
            reason = "a histogram with counts beyond its last edges"
            self._unplaced.append(Unplaced(where, reason, {**found, "outside": histogram.outside}))
        else:
            self._points.append(HistogramPoint(tag, step, histogram.counts, histogram.edges))
            self._notes["histograms on Comet's own grid, its edges computed from four stored numbers"] += 1

    def _leave(self, where: str, reason: str, payload: Mapping[str, Any]) -> None:
        self._unplaced.append(Unplaced(where, reason, payload))


def _is_own(kind: str, payload: Mapping[str, Any]) -> bool:
    """Whether a message is Comet's own bookkeeping: the current step and epoch, and that the experiment is offline."""
    if kind == "parameter_msg":
        parameter = payload.get("param")
        return isinstance(parameter, dict) and parameter.get("paramName") in _OWN_PARAMETERS
    return kind == "log_other" and payload.get("key") == "offline_experiment"
