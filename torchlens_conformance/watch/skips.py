"""Named skips: why a step, or a part of it, has no rows (STEP-7, TAG-4)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

SHOWN_SITES = 8
"""Sites that one skip names; the others are counted."""


@dataclass(frozen=True, slots=True)
class NamedSkip:
    """Why something that was due is missing.

    Attributes:
        name: What happened, one word of :data:`SKIP_NAMES`.
        step: The caller's step, or None where no step was open.
        detail: More, in words.
        sites: The first leaves that it concerns; empty when it concerns the whole step.
        site_count: How many leaves it concerns.
    """

    name: str
    step: int | None
    detail: str = ""
    sites: tuple[str, ...] = ()
    site_count: int = 0

    def as_dict(self) -> dict[str, object]:
        """The skip as plain values."""
        return {
            "name": self.name,
            "step": self.step,
            "detail": self.detail,
            "sites": list(self.sites),
            "site_count": self.site_count,
        }


SKIP_NAMES = {
    "amp_skipped": "The scaler found an infinity or NaN and left the optimizer step out.",
    "amp_skip_undetermined": "A second update of the scaler in the scope took the record along that tells a skip.",
    "phase_missing": "The scope ended before a phase that its signals need.",
    "optimizer_not_stepped": "Some of the watched optimizers did not step in the scope.",
    "optimizer_discovered_late": "An optimizer stepped for the first time after the rows of the step had gone out.",
    "boundary_repeated": "An optimizer stepped again in the scope; the first boundary was taken.",
    "boundary_incomplete": "The optimizer raised inside its own step.",
    "exception": "The loop's own exception unwound through the scope.",
    "drain_refused": "Something was refused while the loop's own exception unwound.",
    "closed_inside_step": "The session was closed inside a step scope.",
    "gradient_none": "A gradient was None at the boundary.",
    "gradient_without_optimizer": "A gradient belongs to no optimizer that is watched.",
    "closure_not_called": "The optimizer did not evaluate its closure, so there is no gradient of this step.",
    "parameter_missing": "A parameter is no longer where it was at attach.",
    "parameter_uninitialized": "A lazily created parameter has no values yet.",
    "tied_after_attach": "A parameter was tied to another one after attach; it counts once.",
    "untied_after_attach": "An alias became a parameter of its own after attach; its series has no name.",
    "statistics_refused": "There are no statistics of a tensor, because of its dtype or layout.",
    "collection_failed": "An error of the watcher's own; training went on.",
    "amp_scale_not_power_of_two": "The factor at the boundary is no power of two; numbers are as measured.",
    "activation_missing": "A watched module did not run.",
    "activation_gradient_missing": "No gradient reached the output of a watched module.",
    "activation_not_floating": "An output is no floating-point tensor.",
    "activation_unknown_leaf": "An output has a part that discovery did not see; its series has no name.",
    "operation_missing": "A watched operation did not run under its label.",
    "operation_unknown_label": "A chosen function was called where, or as often as, discovery did not see; no series.",
    "facet_shape_changed": "An output could not be split into its facets, because its shape is another one now.",
    "forward_repeated": "A further forward of a sampled step; the first one was observed.",
    "forward_not_observable": "Observing this forward could have changed its result, so it ran as it is.",
    "forward_outside_step": "A forward belonged to a step whose boundary never came.",
    "final_gradients_unknown": "At close the basis of the last gradients was not known.",
}
"""Every name of a skip, with its meaning."""


class Skips:
    """The named skips of a session.

    Args:
        retention: How many are kept whole; all are counted.

    Attributes:
        kept: The first ``retention`` skips.
        counts: How often each name occurred.
        steps: How many steps have a skip.
    """

    def __init__(self, *, retention: int) -> None:
        self._retention = retention
        self._last_step: int | None = None
        self.kept: list[NamedSkip] = []
        self.counts: Counter[str] = Counter()
        self.steps = 0

    def add(self, name: str, step: int | None, detail: str = "", *, sites: tuple[str, ...] = ()) -> None:
        """Record one skip."""
        if name not in SKIP_NAMES:
            raise LookupError(f"{name!r} is no name of a skip; add it to SKIP_NAMES")
        self.counts[name] += 1
        if step is not None and step != self._last_step:
            self.steps += 1
            self._last_step = step
        if len(self.kept) < self._retention:
            self.kept.append(NamedSkip(name, step, detail, sites[:SHOWN_SITES], len(sites)))
