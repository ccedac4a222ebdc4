"""MemorySink: points kept as they came, for tests and notebooks (MEM-1)."""

from __future__ import annotations

from typing import TypeVar

from torchlens_conformance.protocol import (
    CAPABILITY_METHODS,
    EmbeddingPoint,
    EventPoint,
    GraphPoint,
    HistogramPoint,
    ImagePoint,
    MetadataPoint,
    Point,
    ScalarPoint,
    TextPoint,
)

from .sink_state import SinkState

_Kind = TypeVar("_Kind", bound=Point)


class MemorySink:
    """Keep every point in lists; all eight capabilities, no store, nothing written anywhere.

    Memory grows with every point. The points are the objects that were emitted, not copies. They stay readable after
    ``close()``.

    Attributes:
        points: Every point, in the order it came.
        scalars: The scalars among them; likewise the lists below.
        histograms: Histograms.
        texts: Texts.
        images: Images.
        graphs: Graphs.
        embeddings: Tables of vectors.
        events: Structured events.
        metadata: Facts about the run.

    Every ``emit_*`` and ``flush`` raises ``tracker_sink_closed`` and ``tracker_sink_forked``.

    Clause: MEM-1, PROT-1, PROT-6, PROT-11.
    """

    def __init__(self) -> None:
        self._state = SinkState(type(self).__name__)
        self.points: list[Point] = []
        self.scalars: list[ScalarPoint] = []
        self.histograms: list[HistogramPoint] = []
        self.texts: list[TextPoint] = []
        self.images: list[ImagePoint] = []
        self.graphs: list[GraphPoint] = []
        self.embeddings: list[EmbeddingPoint] = []
        self.events: list[EventPoint] = []
        self.metadata: list[MetadataPoint] = []

    def capabilities(self) -> frozenset[str]:
        """Return all capability words. Clause: PROT-2."""
        return frozenset(CAPABILITY_METHODS)

    def emit_scalar(self, point: ScalarPoint) -> None:
        """Keep one scalar. Clause: MEM-1."""
        self._keep(point, self.scalars)

    def emit_histogram(self, point: HistogramPoint) -> None:
        """Keep one histogram. Clause: MEM-1."""
        self._keep(point, self.histograms)

    def emit_text(self, point: TextPoint) -> None:
        """Keep one text. Clause: MEM-1."""
        self._keep(point, self.texts)

    def emit_image(self, point: ImagePoint) -> None:
        """Keep one image. Clause: MEM-1."""
        self._keep(point, self.images)

    def emit_graph(self, point: GraphPoint) -> None:
        """Keep one graph. Clause: MEM-1."""
        self._keep(point, self.graphs)

    def emit_embedding(self, point: EmbeddingPoint) -> None:
        """Keep one table of vectors. Clause: MEM-1."""
        self._keep(point, self.embeddings)

    def emit_event(self, point: EventPoint) -> None:
        """Keep one structured event. Clause: MEM-1."""
        self._keep(point, self.events)

    def emit_metadata(self, point: MetadataPoint) -> None:
        """Keep one mapping of facts about the run. Clause: MEM-1."""
        self._keep(point, self.metadata)

    def flush(self) -> None:
        """Do nothing, but refuse what a closed sink refuses. Clause: PROT-6."""
        self._state.require_usable()

    def close(self) -> None:
        """Take nothing more; the points stay. Again, do nothing. Clause: PROT-6."""
        self._state.close()

    def _keep(self, point: _Kind, kept: list[_Kind]) -> None:
        self._state.require_usable()
        kept.append(point)
        self.points.append(point)
