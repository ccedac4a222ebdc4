"""The ledger: what each sink took, and the first failure of each (PROT-4..6, PROT-8).

One failing sink never starves the others, and never reaches the code that computes the points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .capabilities import CAPABILITY_METHODS, advertised_capabilities, require_advertised, require_word
from .delivery import RelayState
from .points import Point
from .refusals import Refusal


@dataclass(frozen=True, slots=True)
class SinkFailure:
    """The first failure of a sink.

    Args:
        where: The method that raised.
        exception_type: The exception's class name.
        text: ``str(exception)``.
        code: The refusal code, or None for any other exception.
    """

    where: str
    exception_type: str
    text: str
    code: str | None = None


@dataclass(slots=True)
class LedgerRow:
    """What one sink of a session took.

    Args:
        name: The class name, with ``#2`` and so on for further objects of one class (ATTACH-1).
        sink: The sink object.
        capabilities: The words it advertised when it was entered.
        emitted: Points it took without raising, by capability word.
        failure: The first failure, or None.
        notes: What else a reader of the report should know.
        data_points: Points of ``emitted`` that are data, not heartbeat, manifest or check (CLOSE-2).
        closed: Whether ``close()`` was attempted.
    """

    name: str
    sink: object
    capabilities: frozenset[str]
    emitted: Counter[str] = field(default_factory=Counter)
    failure: SinkFailure | None = None
    notes: list[str] = field(default_factory=list)
    closed: bool = False
    data_points: int = 0

    @property
    def delivery(self) -> RelayState:
        """How far the points are known to have come, never more than the evidence.

        A sink that took no point delivered none, whatever its ``relay_state()`` says. Clause: PROT-8.
        """
        taken = sum(self.emitted.values())
        state = "emitted" if taken else "computed"
        evidence = f"points taken without an error: {taken}" if taken else "no point was taken yet"
        try:
            hook = getattr(self.sink, "relay_state", None)
            if not callable(hook):
                return RelayState(state, evidence)
            claim = hook()
        except Exception as error:
            return RelayState(state, f"{evidence}; relay_state() raised {type(error).__name__}: {_text_of(error)}")
        if not isinstance(claim, RelayState):
            return RelayState(state, f"{evidence}; relay_state() gave a {type(claim).__name__}")
        if taken or claim.state == "computed":
            return claim
        return RelayState(state, f"{evidence}; the sink reports {claim.state}: {claim.evidence}")

    def as_dict(self) -> dict[str, object]:
        """The row as plain values."""
        delivery = self.delivery
        failure = self.failure
        return {
            "name": self.name,
            "emitted": dict(self.emitted),
            "failed": None if failure is None else f"{failure.where}: {failure.exception_type}: {failure.text}",
            "failed_code": None if failure is None else failure.code,
            "delivery": delivery.state,
            "evidence": delivery.evidence,
            "notes": list(self.notes),
        }


class Ledger:
    """The sinks of one session, with a row each.

    Args:
        sinks: The sink objects, in order.

    Raises ``tracker_sink_duplicate`` and ``tracker_sink_invalid``, before anything is emitted.
    Clause: PROT-3, PROT-5, PROT-6, ATTACH-1.
    """

    def __init__(self, sinks: Iterable[object]) -> None:
        self.rows: list[LedgerRow] = []
        self._closed = False
        names: Counter[str] = Counter()
        for sink in sinks:
            kind = type(sink).__name__
            if any(row.sink is sink for row in self.rows):
                raise Refusal(
                    "tracker_sink_duplicate",
                    f"One {kind} was listed twice.",
                    remedy="List each sink object once; for two stores make two sinks.",
                    sink=kind,
                )
            names[kind] += 1
            name = kind if names[kind] == 1 else f"{kind}#{names[kind]}"
            self.rows.append(LedgerRow(name, sink, advertised_capabilities(sink)))

    def require(self, capabilities: Iterable[str]) -> None:
        """Check every sink against every word, before anything is emitted.

        Raises ``tracker_sink_capability_missing``, and ``tracker_sink_invalid`` for an unknown word. Clause: PROT-4.
        """
        wanted = tuple(capabilities)
        for word in wanted:
            require_word(word)
        for row in self.rows:
            for word in wanted:
                require_advertised(row.name, row.capabilities, word)

    def deliver(self, point: Point, *, data: bool = False) -> None:
        """Hand ``point`` to every healthy sink that advertises its kind.

        With ``data`` it counts among the rows' ``data_points``. An exception of a sink latches its row;
        ``KeyboardInterrupt`` and ``SystemExit`` pass. Raises ``tracker_sink_closed`` after :meth:`close`.

        Clause: PROT-5, PROT-6.
        """
        if self._closed:
            raise Refusal(
                "tracker_sink_closed",
                "The sinks of this session are closed.",
                remedy="Emit before close(), or open a new session.",
                capability=point.capability,
            )
        word = point.capability
        method = CAPABILITY_METHODS[word]
        for row in self.rows:
            if row.failure is None and word in row.capabilities and self._attempt(row, method, point):
                row.emitted[word] += 1
                row.data_points += data

    def flush(self) -> None:
        """Flush every open sink that has not failed; a failure latches its row. Clause: PROT-6."""
        for row in self.rows:
            if row.failure is None and not row.closed:
                self._attempt(row, "flush")

    def close(self, *, keep_open: Iterable[object] = ()) -> None:
        """Flush, then close every sink, failed ones too; neither attempt prevents the other.

        Sinks in ``keep_open`` are flushed and left to their other holders. Called again, it closes only what an
        interrupt left open. Clause: PROT-6, ATTACH-7.
        """
        self._closed = True
        kept = list(keep_open)
        for row in self.rows:
            if not row.closed:
                self._attempt(row, "flush")
        for row in self.rows:
            if not row.closed and not any(row.sink is sink for sink in kept):
                self._attempt(row, "close")
                row.closed = True

    def _attempt(self, row: LedgerRow, method: str, *arguments: object) -> bool:
        try:
            # The look-up belongs inside: a sink may have lost the method since it was entered.
            call: Callable[..., object] = getattr(row.sink, method)
            call(*arguments)
        except Exception as error:
            # The first failure is the one that explains the rest.
            if row.failure is None:
                code = error.code if isinstance(error, Refusal) else None
                row.failure = SinkFailure(method, type(error).__name__, _text_of(error), code)
            return False
        return True


def _text_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception:
        # An exception that cannot be shown must not reach the training loop either.
        return "the exception has no readable text"
