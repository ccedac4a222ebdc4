"""Defects of histograms and of everything that is no scalar (POINT-2)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from torchlens_conformance.protocol import (
    EmbeddingPoint,
    EventPoint,
    GraphPoint,
    HistogramPoint,
    ImagePoint,
    MetadataPoint,
    Point,
    Refusal,
    TextPoint,
    encode_value,
)
from torchlens_conformance.protocol.compare import as_float32

from .base import Defect, planted
from .scalar_defects import AlteringSink

_BUCKET_CAP = 512


class HistogramSink(AlteringSink):
    """A plain sink that alters each histogram."""

    def alter(self, point: Point) -> Point:
        """Return another histogram, and every other point as it is."""
        return self.histogram(point) if isinstance(point, HistogramPoint) else point

    def histogram(self, point: HistogramPoint) -> HistogramPoint:
        """Return what is written in place of ``point``."""
        raise NotImplementedError


class BinsCapped(HistogramSink):
    """Histograms keep their first 512 buckets only."""

    def histogram(self, point: HistogramPoint) -> HistogramPoint:
        """Cut counts and edges."""
        return replace(point, counts=point.counts[:_BUCKET_CAP], edges=point.edges[: _BUCKET_CAP + 1])


class EdgesRounded(HistogramSink):
    """The edges of histograms are stored as float32."""

    def histogram(self, point: HistogramPoint) -> HistogramPoint:
        """Round the edges, unless two of them would fall together or become infinite."""
        try:
            return replace(point, edges=tuple(map(as_float32, point.edges)))
        except Refusal:
            return point


class CountsAsFloats(HistogramSink):
    """The counts of histograms are stored as float64."""

    def histogram(self, point: HistogramPoint) -> HistogramPoint:
        """Lose what lies beyond 53 bits."""
        return replace(point, counts=tuple(int(float(count)) for count in point.counts))


class CountsIn32Bits(HistogramSink):
    """The counts of histograms are stored in 32 bits."""

    def histogram(self, point: HistogramPoint) -> HistogramPoint:
        """Lose the upper half."""
        return replace(point, counts=tuple(count % 2**32 for count in point.counts))


class Rebinned(HistogramSink):
    """Neighbouring buckets of histograms are merged into one."""

    def histogram(self, point: HistogramPoint) -> HistogramPoint:
        """Merge buckets in pairs; the last one of an odd number stays alone."""
        counts = [sum(point.counts[index : index + 2]) for index in range(0, len(point.counts), 2)]
        edges = point.edges[: len(point.counts) : 2] + point.edges[-1:]
        return replace(point, counts=tuple(counts), edges=edges)


class EmptyBucketsLeftOut(HistogramSink):
    """Empty buckets at both ends of a histogram are left out."""

    def histogram(self, point: HistogramPoint) -> HistogramPoint:
        """Keep from the first filled bucket to the last."""
        filled = [index for index, count in enumerate(point.counts) if count]
        if not filled:
            return point
        first, last = filled[0], filled[-1] + 1
        return replace(point, counts=point.counts[first:last], edges=point.edges[first : last + 1])


class SummaryLost(HistogramSink):
    """The summary of histograms is left out."""

    def histogram(self, point: HistogramPoint) -> HistogramPoint:
        """Empty the summary."""
        return replace(point, summary={})


class SummaryInvented(HistogramSink):
    """Summary fields that nobody gave come back as zero."""

    def histogram(self, point: HistogramPoint) -> HistogramPoint:
        """Fill the summary up with zeros."""
        zeros: dict[str, Any] = {"min": 0.0, "max": 0.0, "num": 0, "sum": 0.0, "sum_squares": 0.0}
        return replace(point, summary={**zeros, **point.summary})


class TextLinesNormalized(AlteringSink):
    """Line ends of texts are rewritten."""

    def alter(self, point: Point) -> Point:
        """Make every line end a line feed."""
        if not isinstance(point, TextPoint):
            return point
        return replace(point, text=point.text.replace("\r\n", "\n").replace("\r", "\n"))


class TextAsAscii(AlteringSink):
    """Characters beyond ASCII become question marks."""

    def alter(self, point: Point) -> Point:
        """Replace them in texts."""
        if not isinstance(point, TextPoint):
            return point
        return replace(point, text=point.text.encode("ascii", "replace").decode("ascii"))


class ImageReversed(AlteringSink):
    """The bytes of images are stored in reverse."""

    def alter(self, point: Point) -> Point:
        """Turn them around."""
        return replace(point, data=point.data[::-1]) if isinstance(point, ImagePoint) else point


class ImageDtypeLost(AlteringSink):
    """Every image is stored as bytes, whatever its type of number."""

    def alter(self, point: Point) -> Point:
        """Call the data one row of unsigned bytes."""
        if not isinstance(point, ImagePoint) or point.dtype == "uint8":
            return point
        return replace(point, dtype="uint8", shape=(1, len(point.data)))


class GraphInputsLost(AlteringSink):
    """Graphs lose the inputs of their nodes."""

    def alter(self, point: Point) -> Point:
        """Empty the inputs."""
        if not isinstance(point, GraphPoint):
            return point
        nodes: Any = point.graph.get("nodes", ())
        return GraphPoint({**point.graph, "nodes": [{**node, "inputs": ()} for node in nodes]})


class EmbeddingLabelsLost(AlteringSink):
    """Embeddings lose their labels."""

    def alter(self, point: Point) -> Point:
        """Leave the labels out."""
        return replace(point, labels=None) if isinstance(point, EmbeddingPoint) else point


class EventPayloadAsText(AlteringSink):
    """The payload of an event is stored as one text."""

    def alter(self, point: Point) -> Point:
        """Write the payload as JSON into one field."""
        if not isinstance(point, EventPoint):
            return point
        return replace(point, payload={"payload": json.dumps(encode_value(point.payload))})


class EventKindLost(AlteringSink):
    """Every event is stored under one kind."""

    def alter(self, point: Point) -> Point:
        """Replace the kind."""
        return replace(point, kind="event") if isinstance(point, EventPoint) else point


class MetadataAsText(AlteringSink):
    """The values of metadata are stored as text."""

    def alter(self, point: Point) -> Point:
        """Show each value."""
        if not isinstance(point, MetadataPoint):
            return point
        return replace(point, metadata={key: str(value) for key, value in point.metadata.items()})


PAYLOAD_DEFECTS: tuple[Defect, ...] = (
    planted("bins-capped", "values.histogram", sink=BinsCapped),
    planted("edges-rounded", "values.histogram", sink=EdgesRounded),
    planted("counts-as-floats", "values.histogram", sink=CountsAsFloats),
    planted("counts-in-32-bits", "values.histogram", sink=CountsIn32Bits),
    planted("re-binned", "values.histogram", sink=Rebinned),
    planted("empty-buckets-left-out", "values.histogram", sink=EmptyBucketsLeftOut),
    planted("summary-lost", "values.summary", sink=SummaryLost),
    planted("summary-invented", "values.summary", sink=SummaryInvented),
    planted("line-ends-rewritten", "values.text", sink=TextLinesNormalized),
    planted("text-as-ascii", "values.text", sink=TextAsAscii),
    planted("image-reversed", "values.image", sink=ImageReversed),
    planted("image-type-lost", "values.image", sink=ImageDtypeLost),
    planted("graph-inputs-lost", "values.graph", sink=GraphInputsLost),
    planted("labels-lost", "values.embedding", sink=EmbeddingLabelsLost),
    planted("event-as-text", "values.event", sink=EventPayloadAsText),
    planted("event-kind-lost", "values.event", sink=EventKindLost),
    planted("metadata-as-text", "values.metadata", sink=MetadataAsText),
)
"""Histograms, texts, images, graphs, embeddings, events and metadata that come back as others."""
