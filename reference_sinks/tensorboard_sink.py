"""TensorBoardSink: points as events of a TensorBoard event file (TB-1)."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import (
    SUMMARY_FIELDS,
    GraphPoint,
    GridDescriptor,
    HistogramPoint,
    ImagePoint,
    Refusal,
    RelayState,
    ScalarPoint,
    TextPoint,
)

from .encodable import require_encodable_tag, require_encodable_text
from .graph_def import graph_to_proto
from .packages import require_package
from .png import encode_png
from .relays import detect_relays
from .sink_state import SinkState
from .tensorboard_wire import HISTOGRAM_WIRES, limits_and_counts, triples

SCALAR_FORMS = ("float32", "float64")
"""How scalars are stored: torch's default, or the double precision form of the scalar plugin."""

_PROTO = "tensorboard.compat.proto"


class TensorBoardSink:
    """Write points to a TensorBoard logdir, through torch's SummaryWriter.

    What the store holds afterwards:

    - Scalars in the form ``float32`` are rounded to float32, as ``SummaryWriter.add_scalar`` does: 0.1 comes back as
      0.10000000149, 16777217 as 16777216, 1e300 as infinity, 5e-324 as 0. The form ``float64`` is exact for every
      float; TensorBoard's pages show it alike, older readers list it among tensors. NaN and infinities survive in both.
    - Histograms keep counts (up to 2**53), limits and summary as float64. A summary field that the point lacks is left
      unset; the format has no "missing", so other readers see 0 there. TensorBoard's pages draw the first occupied
      bucket from ``min`` and the last one to ``max``, in float32; the wire form ``tensor`` is drawn exactly but has no
      summary.
    - Texts, and images of uint8 with 1, 3 or 4 channels (as PNG), are exact.

    Everything that ``flush()`` has returned for stays readable when the process is killed; a full disk is refused at
    the next call.

    Args:
        target: A log folder (made if missing), or an open SummaryWriter. The sink closes only a writer that it opened.
        histogram_wire: One of :data:`~reference_sinks.tensorboard_wire.HISTOGRAM_WIRES`.
        scalar_form: One of :data:`SCALAR_FORMS`.

    Raises ``tracker_sink_settings_invalid``, ``tracker_sink_unavailable`` and ``tracker_sink_write_failed``. Every
    ``emit_*`` and ``flush`` raises ``tracker_sink_closed``, ``tracker_sink_forked`` and ``tracker_sink_write_failed``,
    every ``emit_*`` also ``tracker_tag_unsafe`` and ``tracker_value_unsupported``.

    Clause: TB-1, PROT-1, PROT-6, PROT-10, PROT-11, POINT-3.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | Any,
        *,
        histogram_wire: str = "leading-edge",
        scalar_form: str = "float32",
    ) -> None:
        _require_choice("histogram_wire", histogram_wire, HISTOGRAM_WIRES)
        _require_choice("scalar_form", scalar_form, SCALAR_FORMS)
        self._state = SinkState(type(self).__name__)
        # tensorboardX writes events of its own class; one of TensorBoard's ends its writer thread, and all is lost.
        self._foreign = type(target).__module__.partition(".")[0] == "tensorboardX"
        if self._foreign and (histogram_wire == "tensor" or scalar_form == "float64"):
            raise Refusal(
                "tracker_sink_settings_invalid",
                "A writer of tensorboardX takes neither tensor histograms nor float64 scalars.",
                remedy="Leave the forms out, or give a path or a torch.utils.tensorboard.SummaryWriter.",
                setting="target",
                value="tensorboardX",
            )
        self._histogram_wire = histogram_wire
        self._double_precision = scalar_form == "float64"
        self._taken = 0
        self._owns_writer = isinstance(target, (str, os.PathLike))
        if self._owns_writer:
            library = require_package("torch.utils.tensorboard", extra="tensorboard")
            self._writer = self._attempt(lambda: library.SummaryWriter(log_dir=os.fspath(target) or os.curdir))
        elif callable(getattr(target, "add_scalar", None)) and callable(getattr(target, "add_histogram_raw", None)):
            self._writer = target
        else:
            raise Refusal(
                "tracker_sink_settings_invalid",
                "The target is neither a folder nor a SummaryWriter.",
                remedy="Give a path, or a torch.utils.tensorboard.SummaryWriter.",
                target=type(target).__name__,
            )

    @property
    def logdir(self) -> Path:
        """The folder that holds the event files."""
        return Path(self._writer.get_logdir())

    def capabilities(self) -> frozenset[str]:
        """Return what an event file carries: scalars, raw histograms, texts, images and graphs.

        Through a writer of tensorboardX neither images nor graphs. Clause: PROT-2.
        """
        words = {"scalar", "raw_histogram", "text_manifest"}
        return frozenset(words if self._foreign else words | {"image", "graph"})

    def emit_scalar(self, point: ScalarPoint) -> None:
        """Write one scalar in the sink's scalar form. An int beyond float64's range is refused. Clause: TB-1."""
        self._emit(point.tag, lambda: self._add_scalar(point))

    def emit_histogram(self, point: HistogramPoint) -> None:
        """Write one histogram in the sink's wire form; counts beyond 2**53 are refused. Clause: TB-1."""
        add = self._add_histogram_tensor if self._histogram_wire == "tensor" else self._add_histogram_proto
        self._emit(point.tag, lambda: add(point))

    def emit_text(self, point: TextPoint) -> None:
        """Write one text; torch stores its tag with the suffix ``/text_summary``. Clause: TB-1."""
        self._emit(point.tag, lambda: self._add_text(point))

    def emit_image(self, point: ImagePoint) -> None:
        """Write one image of uint8, shape (height, width, 1, 3 or 4), as PNG; others are refused. Clause: TB-1."""
        self._require_own_class("images")
        self._emit(point.tag, lambda: self._add_image(point))

    def emit_graph(self, point: GraphPoint) -> None:
        """Write one graph as GraphDef; it has neither tag nor step. Clause: TB-1, GRAPH-1."""
        self._require_own_class("graphs")
        self._emit("", lambda: self._add_graph(point))

    def _require_own_class(self, what: str) -> None:
        if self._foreign:
            raise Refusal(
                "tracker_sink_capability_missing",
                f"A writer of tensorboardX takes no {what}.",
                remedy="Give a path or a torch.utils.tensorboard.SummaryWriter.",
                sink=self._state.name,
            )

    def flush(self) -> None:
        """Block until everything emitted so far is in the event file. Clause: PROT-6, PROT-10."""
        self._state.require_usable()
        self._attempt(self._writer.flush)

    def close(self) -> None:
        """Close the writer if the sink opened it; again, or in a forked child, do nothing. Clause: PROT-6, TB-1."""
        if self._state.close() and self._owns_writer:
            self._attempt(self._writer.close)

    def preflight_tags(self, tags: Iterable[str]) -> None:
        """Refuse ``tracker_tag_unsafe`` for a tag that has no UTF-8 form. Clause: PROT-7."""
        for tag in tags:
            require_encodable_tag(tag, store="TensorBoard")

    def preflight_histograms(self, descriptor: GridDescriptor) -> None:
        """Refuse ``tracker_relay_histogram_unsupported`` while a relay listens; ``emit_histogram`` still works.

        The event file takes any grid, so ``descriptor`` is never the reason. Clause: ATTACH-4, TB-1.
        """
        for relay in detect_relays(self._file_writer()):
            raise Refusal(
                "tracker_relay_histogram_unsupported",
                f"A relay ({relay.name}) rebuilds the histograms of this writer: {relay.finding}.",
                remedy=f"Send histograms to {relay.native_sink} as well or instead, or turn the relay off.",
                relay=relay.name,
                evidence=relay.evidence,
                buckets=descriptor.bucket_count,
            )

    def relay_state(self) -> RelayState:
        """Return ``relay_configured`` while a relay listens, else how far points came. Clause: PROT-7, PROT-8."""
        relays = detect_relays(self._file_writer())
        if relays:
            return RelayState("relay_configured", "; ".join(f"{relay.name}: {relay.evidence}" for relay in relays))
        state = "emitted" if self._taken else "computed"
        return RelayState(state, f"{self._taken} points were handed to the event file writer; no relay was found")

    def last_step(self) -> int | None:
        """Return the largest step in the logdir's own event files, or None when they hold no point.

        Sub-folders are other runs and do not count; a torn tail is passed over. Raises ``reader_file_corrupt`` and
        ``reader_file_foreign``. Clause: PROT-11.
        """
        from .readers.tensorboard import largest_step

        if not self._state.closed and not self._state.forked:
            self._attempt(self._writer.flush)
        return largest_step(self.logdir)

    def _add_scalar(self, point: ScalarPoint) -> None:
        if self._double_precision:
            self._writer.add_scalar(point.tag, float(point.value), point.step, new_style=True, double_precision=True)
        else:
            self._writer.add_scalar(point.tag, float(point.value), point.step)

    def _add_text(self, point: TextPoint) -> None:
        require_encodable_text(point.text, tag=point.tag, store="TensorBoard")
        self._writer.add_text(point.tag, point.text, point.step)

    def _add_image(self, point: ImagePoint) -> None:
        # Not through add_image: that turns one channel into three.
        encoded = encode_png(point, extra="tensorboard")
        height, width, channels = point.shape
        image = {"height": height, "width": width, "colorspace": channels, "encoded_image_string": encoded}
        self._add_value({"tag": point.tag, "image": image}, point.step)

    def _add_graph(self, point: GraphPoint) -> None:
        serialized = graph_to_proto(point.graph).SerializeToString()
        event = require_package(f"{_PROTO}.event_pb2", extra="tensorboard").Event(graph_def=serialized)
        self._writer._get_file_writer().add_event(event)

    def _add_histogram_proto(self, point: HistogramPoint) -> None:
        limits, counts = limits_and_counts(point, self._histogram_wire)
        # None leaves a field of the message unset, which is as near to "missing" as the format comes.
        summary = {key: point.summary.get(key) for key in SUMMARY_FIELDS}
        self._writer.add_histogram_raw(
            point.tag, **summary, bucket_limits=limits, bucket_counts=counts, global_step=point.step
        )

    def _add_histogram_tensor(self, point: HistogramPoint) -> None:
        content = triples(point)
        tensor = require_package(f"{_PROTO}.tensor_pb2", extra="tensorboard").TensorProto(
            dtype="DT_DOUBLE", tensor_content=struct.pack(f"<{len(content)}d", *content)
        )
        for size in (len(point.counts), 3):
            tensor.tensor_shape.dim.add(size=size)
        metadata = require_package("tensorboard.plugins.histogram.metadata", extra="tensorboard")
        plugin = metadata.create_summary_metadata(display_name=None, description=None)
        self._add_value({"tag": point.tag, "tensor": tensor, "metadata": plugin}, point.step)

    def _add_value(self, value: dict[str, Any], step: int) -> None:
        summary = require_package(f"{_PROTO}.summary_pb2", extra="tensorboard").Summary(value=[value])
        self._writer._get_file_writer().add_summary(summary, step)

    def _file_writer(self) -> object | None:
        return getattr(self._writer, "file_writer", None)

    def _emit(self, tag: str, call: Callable[[], object]) -> None:
        self._state.require_usable()
        try:
            self._attempt(call)
        except UnicodeEncodeError:
            require_encodable_tag(tag, store="TensorBoard")
            raise
        except OverflowError as error:
            raise _unsupported(tag, str(error)) from error
        self._taken += 1

    def _attempt(self, call: Callable[[], Any]) -> Any:
        # The writer's thread hands its OSError to the next caller.
        try:
            return call()
        except OSError as error:
            raise Refusal(
                "tracker_sink_write_failed",
                f"The event file could not be written: {error}",
                remedy="Free space or choose a writable folder, and make a new sink.",
                error=type(error).__name__,
                errno=error.errno,
            ) from error


def _require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise Refusal(
            "tracker_sink_settings_invalid",
            f"{name} is not one of the allowed words.",
            remedy=f"Use one of {', '.join(choices)}.",
            setting=name,
            value=repr(value),
        )


def _unsupported(tag: str, why: str) -> Refusal:
    return Refusal(
        "tracker_value_unsupported",
        f"TensorBoard stores floats, and this number is beyond their range: {why}.",
        remedy="Use a sink that keeps integers, JSONLSink for example.",
        tag=tag,
    )
