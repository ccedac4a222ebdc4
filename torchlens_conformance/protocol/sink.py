"""The shape of a sink, for type checkers and for sink authors (PROT-1, PROT-7)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from .delivery import RelayState
from .grid import GridDescriptor


@runtime_checkable
class Sink(Protocol):
    """A serializer over points: capabilities, one ``emit_*`` a capability, ``flush`` and ``close``.

    Only the three methods that every sink has stand here; the ``emit_*`` methods follow from the capability words by
    :data:`~torchlens_conformance.protocol.CAPABILITY_METHODS`. Clause: PROT-1.
    """

    def capabilities(self) -> Iterable[str]:
        """Return the capability words, out of the closed list."""

    def flush(self) -> None:
        """Hand everything emitted so far to the store."""

    def close(self) -> None:
        """Finish the store; may be called again."""


@runtime_checkable
class PreflightsHistograms(Protocol):
    """Optional hook: judge a grid before anything is emitted. Clause: PROT-7."""

    def preflight_histograms(self, descriptor: GridDescriptor) -> None:
        """Refuse a grid that the store cannot carry."""


@runtime_checkable
class PreflightsTags(Protocol):
    """Optional hook: judge all tags before anything is emitted. Clause: PROT-7."""

    def preflight_tags(self, tags: Iterable[str]) -> None:
        """Refuse tags that the store cannot carry."""


@runtime_checkable
class OffersGrid(Protocol):
    """Optional hook: offer the grid that suits the store. Clause: PROT-7, ATTACH-4."""

    def default_histogram_descriptor(self) -> GridDescriptor:
        """Return the grid that the store carries whole."""


@runtime_checkable
class ReportsRelay(Protocol):
    """Optional hook: say how far points are known to come. Clause: PROT-7, PROT-8."""

    def relay_state(self) -> RelayState:
        """Return the delivery state and the evidence for it."""


@runtime_checkable
class KnowsLastStep(Protocol):
    """Optional hook: say what a resumed store already holds. Clause: PROT-11."""

    def last_step(self) -> int | None:
        """Return the largest step in the store, or None when it holds none."""
