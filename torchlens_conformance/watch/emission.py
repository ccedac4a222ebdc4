"""Points out of results, through the ledger, with counts of what was computed (CLOSE-1, STEP-8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from ..protocol.ledger import Ledger
from ..protocol.points import EventPoint, HistogramPoint, Point, ScalarPoint, TextPoint
from ..statistics import TensorStatistics
from .report import SinkReport
from .rows import TagBook, site_points

EventStream = Callable[[EventPoint], object]
"""Takes one event of the engine after another."""

_KINDS: dict[type[Point], str] = {ScalarPoint: "scalars", HistogramPoint: "histograms", TextPoint: "texts"}


class Emitter:
    """Emits synchronously: a point is with every healthy sink when the call returns.

    Args:
        ledger: The sinks.
        tags: The session's tags.
        events: Takes structured events, or None.

    Attributes:
        computed: Points computed, by kind, and ``data_points`` among them.

    Clause: CLOSE-1, ATTACH-9, PROT-5.
    """

    def __init__(self, ledger: Ledger, tags: TagBook, *, events: EventStream | None = None) -> None:
        self._ledger = ledger
        self._tags = tags
        self._events = events
        self._event_failure: str | None = None
        self.computed: Counter[str] = Counter({"scalars": 0, "histograms": 0, "texts": 0, "data_points": 0})

    @property
    def arrived(self) -> int:
        """Data points that at least one sink took."""
        return max((row.data_points for row in self._ledger.rows), default=0)

    @property
    def event_failure(self) -> str | None:
        """Why the event stream was given up, or None."""
        return self._event_failure

    def run(self, key: str, step: int, value: float) -> None:
        """Emit one run-health scalar. Clause: TAG-1."""
        self._deliver(ScalarPoint(self._tags.run[key], step, value))

    def meta(self, kind: str, step: int, text: str) -> None:
        """Emit one text about the run, to the sinks that carry texts. Clause: ATTACH-9."""
        self._deliver(TextPoint(self._tags.meta[kind], step, text))

    def check(self, name: str, step: int, value: int) -> None:
        """Emit one check row. Clause: TAG-1."""
        self._deliver(ScalarPoint(self._tags.check(name), step, value))

    def site(self, family: str, leaf: str, step: int, statistics: TensorStatistics, extra: Mapping[str, float]) -> None:
        """Emit the rows of one site."""
        for point in site_points(statistics, self._tags.site(family, leaf), step, dict(extra)):
            self._deliver(point, data=True)

    def event(self, kind: str, step: int | None, payload: Mapping[str, object]) -> None:
        """Tell the event stream; an error of its own ends it and goes no further."""
        if self._events is None:
            return
        try:
            self._events(EventPoint(f"torchlens/event/{kind}", step or 0, kind, payload))
        except Exception as error:
            self._events = None
            self._event_failure = f"{type(error).__name__}: {error}"

    def sink_reports(self) -> tuple[SinkReport, ...]:
        """Return what every sink took. Clause: CLOSE-1."""
        reports = []
        for row in self._ledger.rows:
            told = row.as_dict()
            delivery = row.delivery
            reports.append(
                SinkReport(
                    row.name,
                    row.emitted["scalar"],
                    row.emitted["raw_histogram"],
                    row.emitted["text_manifest"],
                    row.data_points,
                    None if row.failure is None else str(told["failed"]),
                    None if row.failure is None else row.failure.code,
                    delivery.state,
                    delivery.evidence,
                    tuple(row.notes),
                )
            )
        return tuple(reports)

    def _deliver(self, point: Point, *, data: bool = False) -> None:
        self.computed[_KINDS[type(point)]] += 1
        self.computed["data_points"] += data
        self._ledger.deliver(point, data=data)
