"""One stateful test that a sink's author imports: Hypothesis emits, flushes, closes and reads in any order.

>>> from torchlens_conformance.kit.stateful import sink_machine
>>> TestMySink = sink_machine(SUBJECT).TestCase  # doctest: +SKIP

It explores and shrinks, in the test's own process, and never decides a certificate. Needs ``hypothesis``.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ..protocol import CAPABILITY_METHODS, Point, Refusal, point_to_row
from .strategies import points
from .subject import Subject


def sink_machine(subject: Subject) -> type[RuleBasedStateMachine]:
    """Return a state machine over a subject's sink; its ``TestCase`` is a test.

    What it demands: a point is taken or refused with a code; a closed sink refuses; ``close`` may be repeated; what
    was taken comes back, each point once and in order, and nothing else. A store that coerces values does not pass:
    it is a test for sinks that keep them.

    Args:
        subject: The sink; each example gets a place of its own.
    """

    class SinkMachine(RuleBasedStateMachine):
        """Drives one sink on one place."""

        def __init__(self) -> None:
            super().__init__()
            self.place = Path(tempfile.mkdtemp(prefix="conformance-"))
            self.sink: Any = None
            self.taken: list[Point] = []
            self.closed = False

        @initialize()
        def open(self) -> None:
            """Open the sink."""
            self.sink = subject.open(self.place)

        @precondition(lambda self: not self.closed)
        @rule(data=st.data())
        def emit(self, data: st.DataObject) -> None:
            """Emit any point that the sink advertises; a refusal must have a code."""
            words = subject.capabilities if subject.capabilities is not None else self.sink.capabilities()
            point = data.draw(points(words))
            try:
                getattr(self.sink, CAPABILITY_METHODS[point.capability])(point)
            except Exception as error:
                if not _code(error):
                    raise AssertionError(f"refused without a code: {type(error).__name__}: {error}") from error
            else:
                self.taken.append(point)

        @precondition(lambda self: not self.closed)
        @rule()
        def flush(self) -> None:
            """Flush the open sink."""
            self.sink.flush()

        @rule()
        def close(self) -> None:
            """Close the sink; again as well."""
            self.sink.close()
            self.closed = True

        @precondition(lambda self: self.closed)
        @rule(data=st.data())
        def refuse(self, data: st.DataObject) -> None:
            """Emit into the closed sink, which must refuse ``tracker_sink_closed``."""
            words = subject.capabilities if subject.capabilities is not None else self.sink.capabilities()
            point = data.draw(points(words))
            try:
                getattr(self.sink, CAPABILITY_METHODS[point.capability])(point)
            except Exception as error:
                assert _code(error) == "tracker_sink_closed", f"refused with {_code(error)}"
            else:
                raise AssertionError("a closed sink took a point")

        @precondition(lambda self: self.closed)
        @invariant()
        def everything_is_back(self) -> None:
            """What was taken comes back, in order, and nothing else."""
            sent = [repr(point_to_row(point)) for point in self.taken]
            assert [repr(point_to_row(point)) for point in subject.read(self.place)] == sent

        def teardown(self) -> None:
            """Close the sink and take the place away."""
            try:
                if self.sink is not None:
                    self.sink.close()
            finally:
                shutil.rmtree(self.place, ignore_errors=True)

    SinkMachine.__name__ = SinkMachine.__qualname__ = "SinkMachine"
    return SinkMachine


def _code(error: Exception) -> str | None:
    if isinstance(error, Refusal):
        return error.code
    code = getattr(error, "code", None) or (getattr(error, "fields", None) or {}).get("code")
    return code if isinstance(code, str) else None
