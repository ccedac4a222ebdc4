"""The sinks of the plain engine: what each took, which one failed, and their end. Clause: PROT-5, PROT-6."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...protocol import Point
from .observation import SinkFacts


class PlainSinks:
    """The part of a session that speaks to sinks.

    Args:
        sinks: The sinks, in order.
    """

    def __init__(self, sinks: Iterable[Any]) -> None:
        self.sinks = tuple(sinks)
        self.failed: dict[int, str] = {}
        self.emitted = [0] * len(self.sinks)
        self.data = [0] * len(self.sinks)

    def held_step(self) -> int | None:
        """Return the last step that a resumed store holds already, as far as it says. Clause: PROT-11."""
        held = [sink.last_step() for sink in self.sinks if hasattr(sink, "last_step")]
        return max((step for step in held if step is not None), default=None)

    def emit(self, point: Point, *, data: bool = False) -> None:
        """Send one point to every healthy sink that takes its kind. Clause: PROT-5."""
        method = {"ScalarPoint": "emit_scalar", "HistogramPoint": "emit_histogram"}.get(
            type(point).__name__, "emit_text"
        )
        for index, sink in enumerate(self.sinks):
            if index in self.failed or not hasattr(sink, method):
                continue
            if self.attempt(index, getattr(sink, method), point):
                self.emitted[index] += 1
                self.data[index] += data

    def attempt(self, index: int, call: Callable[..., Any], *arguments: Any) -> bool:
        """Call a sink, latch it when it raises, and say whether it returned; an interrupt passes. Clause: PROT-5."""
        try:
            call(*arguments)
        except Exception as error:
            self.latch(index, f"{type(error).__name__}: {error}")
            return False
        return True

    def latch(self, index: int, why: str) -> None:
        """Send nothing more to one sink; the first failure is the one that is told. Clause: PROT-5."""
        self.failed.setdefault(index, why)

    def close_sinks(self) -> None:
        """Flush every sink, then close every sink; neither attempt prevents the other. Clause: PROT-6."""
        for index, sink in enumerate(self.sinks):
            self.attempt(index, sink.flush)
        for index, sink in enumerate(self.sinks):
            self.attempt(index, sink.close)

    def sink_facts(self) -> tuple[SinkFacts, ...]:
        """Return the ledger. Clause: CLOSE-1."""
        return tuple(
            SinkFacts(type(sink).__name__, self.emitted[index], index in self.failed, self.failed.get(index, ""))
            for index, sink in enumerate(self.sinks)
        )
