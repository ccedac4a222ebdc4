"""ClearML's TensorBoard relay: a SummaryWriter whose events ClearML captures, read back from the offline session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from reference_sinks.readers import ReadResult, Unplaced
from torchlens_conformance.protocol import Point

from ..received import Received, ReceivedHistogram, Refused, from_result, with_histograms
from .base import Route
from .clearml import environment
from .clearml_resume import resume_of
from .relayed import OpenedSink, send_relayed
from .tensorboard import WORDS


def send_to_task(
    points: Sequence[Point],
    place: Path,
    *,
    open_sink: Callable[[Path], OpenedSink],
    words: frozenset[str],
    start: Callable[[Path], Any] | None = None,
    writer_first: bool = False,
) -> list[Refused]:
    """Write the points through a sink over a writer while ClearML listens.

    Args:
        points: What is sent.
        place: Where the log and the session lie.
        open_sink: Makes a writer into a folder and a sink over it.
        words: Capabilities whose points are sent.
        start: Starts or continues the task; None starts a fresh one.
        writer_first: Whether the writer is constructed before the task.
    """
    opening, starting = partial(open_sink, place / "log"), partial(start or _start, place)
    return send_relayed(points, opening, starting, lambda task: task.close(), writer_first=writer_first, words=words)


def clearml_relay_route(
    route_id: str, title: str, open_sink: Callable[[Path], OpenedSink], words: frozenset[str]
) -> Route:
    """Return the route of a writer that ClearML captures."""
    send = partial(send_to_task, open_sink=open_sink, words=words)
    return Route(
        route_id,
        title,
        "clearml",
        send,
        read,
        words,
        partial(send, writer_first=True),
        environment,
        stored_tag,
        chart="surface",
        resume=resume_of(send, _arranged_whole, tensorboard=True),
    )


def _start(place: Path) -> Any:
    from reference_sinks.clearml_offline import start_offline_task

    return start_offline_task("relay", tensorboard=True)


def _open_sink(log: Path) -> OpenedSink:
    from reference_sinks import TensorBoardSink

    from .wire import sink_settings

    sink = TensorBoardSink(log, **sink_settings())
    return sink, sink.close


def read(place: Path) -> Received:
    """Read the offline session; the relay's histogram surfaces become histograms without edges.

    Of each series the last surface is taken: every one repeats the rows before it.
    """
    from reference_sinks.readers import read_clearml

    result = read_clearml(place / "cache")
    latest = {str(item.content["tag"]): item for item in _surfaces(result)}
    return with_histograms(from_result(result), _surface_histograms(latest.values()))


def _arranged_whole(result: ReadResult) -> Received:
    """Arrange a session with at most one histogram of a series in each process, so that no surface repeats another."""
    return with_histograms(from_result(result), _surface_histograms(_surfaces(result)))


def _surfaces(result: ReadResult) -> list[Unplaced]:
    return [item for item in result.unplaced if item.reason == "histogram surface"]


def _surface_histograms(surfaces: Iterable[Unplaced]) -> Iterable[ReceivedHistogram]:
    """Yield a histogram for each row of the surfaces."""
    for item in surfaces:
        rows: Sequence[Sequence[float]] = item.content["z"]  # type: ignore[assignment]
        steps: Sequence[str] = item.content["y_labels"]  # type: ignore[assignment]
        labels: Sequence[str] = item.content["x_labels"]  # type: ignore[assignment]
        # A surface needs two rows; where only one histogram was kept, the first row is made of zeros.
        for row, label in zip(rows[-len(steps) :], steps):
            yield ReceivedHistogram(
                str(item.content["tag"]),
                item.content["step"],  # type: ignore[arg-type]
                tuple(row),
                None,
                edge_labels=tuple(text for text in labels if text),
                step_label=label,
            )


def stored_tag(tag: str, capability: str) -> str:
    """Return the name under which the relay stores ``tag``: cut into metric and variant, slashes made underscores."""
    from reference_sinks.readers.clearml_tags import relayed_tag

    return relayed_tag(tag, capability) if capability in ("scalar", "raw_histogram", "text_manifest") else tag


ROUTE = clearml_relay_route("clearml-relay", "ClearML relay", _open_sink, WORDS)
