"""From one value of a TensorBoard summary to a point, or to what it is instead (TB-1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from torchlens_conformance.protocol import HistogramPoint, Point, Refusal, ScalarPoint, TextPoint

from ..packages import require_package
from ..png import decode_png
from .result import Unplaced
from .tensorboard_histograms import Buckets, buckets_of_proto, buckets_of_triples

TEXT_SUFFIX = "/text_summary"
"""What torch appends to the tag of a text."""


class ValueReader:
    """Place the values of one run folder.

    Args:
        plugins: Tag to plugin name, shared by the files of a folder: writers may say it with the first value only.
        points: Where points are appended.
        unplaced: Where everything else is appended.
        notes: What had to be inferred, counted.
    """

    def __init__(
        self, plugins: dict[str, str], points: list[Point], unplaced: list[Unplaced], notes: Counter[str]
    ) -> None:
        self.plugins = plugins
        self.points = points
        self.unplaced = unplaced
        self.notes = notes
        self._tensor_readers: dict[str, Callable[[str, int, Any], Point]] = {
            "scalars": self._scalar_tensor,
            "histograms": self._histogram_tensor,
            "text": self._text_tensor,
            "images": self._image_tensor,
        }

    def read(self, value: Any, step: int, where: str) -> None:
        """Append the point of one Summary.Value, or the reason why there is none."""
        try:
            self.points.append(self._point(value, step))
        except _NotAPoint as reason:
            self.unplaced.append(Unplaced(where, str(reason), {"tag": value.tag, "step": step, **reason.content}))
        except Refusal as refusal:
            # The protocol's own check of the point: a negative step, say.
            content = {"tag": value.tag, "step": step, "why": str(refusal)}
            self.unplaced.append(Unplaced(where, "a value that no point can hold", content))

    def _point(self, value: Any, step: int) -> Point:
        kind = value.WhichOneof("value")
        if kind == "simple_value":
            return ScalarPoint(value.tag, step, value.simple_value)
        if kind == "histo":
            return self._histogram(value.tag, step, buckets_of_proto(value.histo))
        if kind == "image":
            return _image(value.tag, step, value.image.encoded_image_string)
        if kind == "tensor":
            plugin = value.metadata.plugin_data.plugin_name or self.plugins.get(value.tag, "")
            self.plugins[value.tag] = plugin
            read = self._tensor_readers.get(plugin or "scalars")
            if read is None:
                raise _NotAPoint(f"a tensor of the plugin {plugin}")
            return read(value.tag, step, value.tensor)
        raise _NotAPoint(f"a value of kind {kind}")

    def _histogram(self, tag: str, step: int, buckets: Buckets) -> HistogramPoint:
        content = {"counts": buckets.counts, "edges": buckets.edges, "summary": buckets.summary}
        if buckets.problem is not None:
            raise _NotAPoint(buckets.problem, **content)
        if not all(count.is_integer() for count in buckets.counts):
            raise _NotAPoint("a histogram whose counts are not integers", **content)
        point = HistogramPoint(tag, step, tuple(map(int, buckets.counts)), buckets.edges, buckets.summary)
        if buckets.note is not None:
            self.notes[buckets.note] += 1
        return point

    def _scalar_tensor(self, tag: str, step: int, tensor: Any) -> Point:
        array = _array(tensor)
        if array.size != 1 or array.dtype.kind not in "fiu":
            raise _NotAPoint("a tensor that is no single number", shape=list(array.shape), dtype=str(array.dtype))
        return ScalarPoint(tag, step, array.reshape(-1)[0].item())

    def _histogram_tensor(self, tag: str, step: int, tensor: Any) -> Point:
        array = _array(tensor)
        if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind != "f":
            raise _NotAPoint("a histogram tensor of another shape", shape=list(array.shape), dtype=str(array.dtype))
        return self._histogram(tag, step, buckets_of_triples(array.tolist()))

    def _text_tensor(self, tag: str, step: int, tensor: Any) -> Point:
        if len(tensor.string_val) != 1:
            raise _NotAPoint("a text tensor that is no single text", texts=len(tensor.string_val))
        try:
            text = tensor.string_val[0].decode("utf-8")
        except UnicodeDecodeError:
            raise _NotAPoint("a text that is not UTF-8", bytes=bytes(tensor.string_val[0])) from None
        if tag.endswith(TEXT_SUFFIX):
            self.notes[f"text tags whose suffix {TEXT_SUFFIX} was removed"] += 1
            tag = tag[: -len(TEXT_SUFFIX)]
        return TextPoint(tag, step, text)

    def _image_tensor(self, tag: str, step: int, tensor: Any) -> Point:
        # The plugin's form: width and height as text, then one encoded image or several.
        if len(tensor.string_val) != 3:
            raise _NotAPoint("an image tensor that is no single image", parts=len(tensor.string_val))
        return _image(tag, step, tensor.string_val[2])


class _NotAPoint(Exception):
    """Carries the reason, spelled equally for equal reasons, and what the value holds."""

    def __init__(self, reason: str, **content: object) -> None:
        super().__init__(reason)
        self.content = content


def _image(tag: str, step: int, encoded: bytes) -> Point:
    try:
        return decode_png(tag, step, encoded, extra="tensorboard")
    except ValueError as error:
        raise _NotAPoint("an image that is no plain PNG", why=str(error), size=len(encoded)) from None


def _array(tensor: Any) -> Any:
    try:
        return require_package("tensorboard.util.tensor_util", extra="tensorboard").make_ndarray(tensor)
    except (TypeError, ValueError) as error:
        raise _NotAPoint("a tensor that does not decode", why=str(error)) from None
