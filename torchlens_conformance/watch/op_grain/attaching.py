"""The parts of attach that op grain has of its own: discovery, choice, calibration (TIER-2, TIER-3)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from ...protocol.grid import GridDescriptor
from ..activations import ForwardRecord
from ..schedule import Due
from ..watched import Watched
from ..wrappers import unwrapped
from .calibration import Calibration, calibrate
from .calls import calls_of
from .discovery import discover_operations
from .observer import OperationObserver
from .selection import OperationChoice
from .sites import operation_sites

NOTES = (
    "tier O: on a sampled step the first forward runs with an observer in the place of model.forward; every call is"
    " looked at, and the chosen outputs are read where they are made",
    "tier O: narrowing select= therefore moves only part of the bill; a further forward of the step, and every forward"
    " of other steps, runs as it is",
    "tier O: the root module's own hooks fire once on observed steps, as on all others; discovery and calibration at"
    " attach ran it some more times",
)
"""What the plan says about op grain."""


def watched_operations(
    model: nn.Module,
    inputs: object,
    prefixes: Sequence[str] | None,
    choice: OperationChoice,
    descriptor: GridDescriptor,
    *,
    allow_missing_phases: bool,
) -> Watched:
    """Return what is watched, by one discovery forward. Clause: TIER-2, TIER-3."""
    found = discover_operations(unwrapped(model), inputs)
    sites = operation_sites(found.trace, prefixes, choice)
    calls = calls_of(sites, choice, found)
    return Watched(
        model, ("activations",), [], [], {}, descriptor, allow_missing_phases, sites, choice, found.trace, calls
    )


def calibrate_watched(watched: Watched, inputs: object, *, histograms: bool) -> Calibration | None:
    """Measure what observing costs; None at module grain. Clause: TIER-2."""
    if watched.choice is None:
        return None
    model = unwrapped(watched.model)
    leaves = frozenset(watched.output_leaves)
    due = Due(0, scalars=True, histograms=histograms)

    def new_record() -> ForwardRecord:
        return ForwardRecord(due, watched.descriptor, leaves=leaves)

    observer = OperationObserver(model, watched.calls, watched.choice, in_own_forwards=True)
    return calibrate(model, inputs, observer, new_record)
