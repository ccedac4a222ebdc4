"""ClearML's TensorBoard relay: a SummaryWriter whose events ClearML captures, read back from the offline session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from reference_sinks.readers import ReadResult, Unplaced
from torchlens_conformance.protocol import Point

from ..received import Received, ReceivedHistogram, Refused, from_result, with_histograms
from .base import Route
from .clearml import environment
from .relayed import OpenedSink, send_relayed
from .tensorboard import WORDS


def send(points: Sequence[Point], place: Path) -> list[Refused]:
    """Start the task, then construct the writer, then write."""
    return send_to_task(points, lambda: _open_sink(place), writer_first=False)


def send_writer_first(points: Sequence[Point], place: Path) -> list[Refused]:
    """Construct the writer, then start the task, then write."""
    return send_to_task(points, lambda: _open_sink(place), writer_first=True)


def send_to_task(
    points: Sequence[Point],
    open_sink: Callable[[], OpenedSink],
    *,
    writer_first: bool,
    words: frozenset[str] = WORDS,
) -> list[Refused]:
    """Write the points through a sink over a writer while ClearML listens."""
    from reference_sinks.clearml_offline import start_offline_task

    return send_relayed(
        points,
        open_sink=open_sink,
        start=lambda: start_offline_task("relay", tensorboard=True),
        finish=lambda task: task.close(),
        writer_first=writer_first,
        words=words,
    )


def _open_sink(place: Path) -> OpenedSink:
    from reference_sinks import TensorBoardSink

    from .wire import sink_settings

    sink = TensorBoardSink(place / "log", **sink_settings())
    return sink, sink.close


def read(place: Path) -> Received:
    """Read the offline session; the relay's histogram surfaces become histograms without edges."""
    from reference_sinks.readers import read_clearml

    result = read_clearml(place / "cache")
    return with_histograms(from_result(result), _surface_histograms(result))


def _surface_histograms(result: ReadResult) -> Iterable[ReceivedHistogram]:
    """Yield a histogram for each row of the last surface of each series; every surface repeats the rows before it."""
    latest: dict[str, Unplaced] = {}
    for item in result.unplaced:
        if item.reason == "histogram surface":
            latest[str(item.content["tag"])] = item
    for tag, item in latest.items():
        rows: Sequence[Sequence[float]] = item.content["z"]  # type: ignore[assignment]
        steps: Sequence[str] = item.content["y_labels"]  # type: ignore[assignment]
        labels: Sequence[str] = item.content["x_labels"]  # type: ignore[assignment]
        # A surface needs two rows; where only one histogram was kept, the first row is made of zeros.
        for row, label in zip(rows[-len(steps) :], steps):
            yield ReceivedHistogram(
                tag,
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


ROUTE = Route(
    "clearml-relay",
    "ClearML relay",
    "clearml",
    send,
    read,
    WORDS,
    send_writer_first,
    environment,
    stored_tag,
    chart="surface",
)
