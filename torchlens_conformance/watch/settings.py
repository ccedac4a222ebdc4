"""What the caller asked for, checked and resolved (ATTACH-5, TIER-1, TIER-2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn
from uuid import uuid4

from ..protocol.grid import DEFAULT_DESCRIPTOR, GridDescriptor
from ..protocol.refusals import Refusal, short_repr

SIGNALS = ("gradients", "parameters", "updates", "activations", "activation_grads")
"""The signals that can be watched, in the order of their rows."""

BOUNDARY_SIGNALS = frozenset({"gradients", "parameters", "updates"})
"""Tier P: read at the optimizer boundary."""

MODULE_SIGNALS = frozenset({"activations", "activation_grads"})
"""Tier M: read at the outputs of modules."""

BUDGETS = ("max_sites", "max_bytes_per_step", "max_elements_per_step")
"""The hard budgets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """What a session carries besides its signals. Experimental.

    Args:
        descriptor: The grid of the histograms. A bare ``WatchSettings()`` carries the default grid, which then counts
            as the caller's own choice.
        retention: How many named skips the close report keeps whole; all are counted.
        run_id: Name of the run in the manifest; a fresh one when left out.
        segment_id: Number of the first segment; ``new_segment=True`` counts on from it.

    Raises ``watch_settings_invalid``. Clause: ATTACH-4, CLOSE-1.
    """

    descriptor: GridDescriptor = DEFAULT_DESCRIPTOR
    retention: int = 1000
    run_id: str = field(default_factory=lambda: uuid4().hex)
    segment_id: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.descriptor, GridDescriptor):
            refuse_setting("descriptor", self.descriptor, "a GridDescriptor")
        if not isinstance(self.run_id, str) or not self.run_id:
            refuse_setting("run_id", self.run_id, "a text that is not empty")
        for name in ("retention", "segment_id"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                refuse_setting(name, value, "an integer >= 0")


def require_signals(signals: object) -> tuple[str, ...]:
    """Return the signals in the order of their rows, or refuse ``watch_signals_invalid``. Clause: ATTACH-5."""
    given = (signals,) if isinstance(signals, str) else signals
    words = list(given) if isinstance(given, Iterable) else []
    if not words or any(word not in SIGNALS for word in words) or len(set(words)) != len(words):
        raise Refusal(
            "watch_signals_invalid",
            "The signals are empty, repeated or unknown.",
            remedy=f"Give one or more of {', '.join(SIGNALS)}.",
            signals=short_repr(signals),
        )
    return tuple(word for word in SIGNALS if word in words)


def require_period(name: str, value: object, *, optional: bool = False) -> int | None:
    """Return a number of steps >= 1 (or None where that is allowed), or refuse ``watch_settings_invalid``."""
    if value is None and optional:
        return None
    if type(value) is not int or value < 1:
        refuse_setting(name, value, "an integer >= 1" + (" or None" if optional else ""))
    return value


def require_budgets(given: Mapping[str, object], budgets: object) -> dict[str, int]:
    """Return the budgets that were set, by name, or refuse ``watch_budget_invalid``. Clause: ATTACH-5.

    Args:
        given: The keywords ``max_sites`` and so on; None is not set.
        budgets: The same as one mapping, or None.
    """
    merged = {name: value for name, value in given.items() if value is not None}
    if budgets is not None:
        if not isinstance(budgets, Mapping) or any(name not in BUDGETS for name in budgets):
            _refuse_budget("budgets", budgets)
        for name, value in budgets.items():
            if name in merged and merged[name] != value:
                _refuse_budget(name, value)
            if value is not None:
                merged[name] = value
    resolved: dict[str, int] = {}
    for name, value in merged.items():
        if type(value) is not int or value < 1:
            _refuse_budget(name, value)
        resolved[name] = value
    return resolved


def require_within(budgets: Mapping[str, int], costs: Mapping[str, int]) -> None:
    """Refuse ``watch_budget_exceeded`` when a cost is above its budget. Clause: ATTACH-5."""
    for name, limit in budgets.items():
        if costs[name] > limit:
            raise Refusal(
                "watch_budget_exceeded",
                f"{name} is {limit}, and this would be {costs[name]}.",
                remedy="Narrow select=, drop a signal or histograms, or raise the budget.",
                budget=name,
                limit=limit,
                needed=costs[name],
            )


def require_grain(grain: object, *, allow_forward_wrap: object) -> bool:
    """Return whether the grain is that of operations.

    Raises ``watch_forward_wrap_consent_required`` for op grain without consent, and ``watch_settings_invalid`` for
    another word. Clause: TIER-2.
    """
    if grain == "module":
        return False
    if grain != "op":
        refuse_setting("grain", grain, '"module" or "op"')
    if allow_forward_wrap is not True:
        raise Refusal(
            "watch_forward_wrap_consent_required",
            "Op grain wraps the forward of the model on sampled steps.",
            remedy='Give allow_forward_wrap=True, or use grain="module".',
            grain="op",
        )
    return True


def require_op_signals(signals: Iterable[str]) -> None:
    """Refuse ``watch_tier_unavailable`` for anything but activations at op grain. Clause: TIER-3."""
    others = [signal for signal in signals if signal != "activations"]
    if others:
        raise Refusal(
            "watch_tier_unavailable",
            f"Op grain watches activations, and not {', '.join(others)}.",
            remedy='Give signals=("activations",) here, and watch the others in a second session under another name=.',
            signals=others,
        )


def require_module_inputs(signals: Iterable[str], *, select: object, inputs: object) -> None:
    """Refuse ``watch_tier_inputs_missing`` when tier M lacks ``select=`` or ``inputs=``. Clause: TIER-1."""
    missing = [name for name, value in (("select", select), ("inputs", inputs)) if value is None]
    if missing and MODULE_SIGNALS.intersection(signals):
        raise Refusal(
            "watch_tier_inputs_missing",
            f"Watching module outputs needs {' and '.join(f'{name}=' for name in missing)}.",
            remedy="Name the modules by select= and give one example of the model's inputs by inputs=.",
            missing=missing,
        )


def refuse_setting(name: str, value: object, wanted: str) -> NoReturn:
    """Refuse ``watch_settings_invalid``."""
    raise Refusal(
        "watch_settings_invalid",
        f"{name} must be {wanted}.",
        remedy=f"Give {wanted}.",
        setting=name,
        value=short_repr(value),
    )


def _refuse_budget(name: str, value: object) -> NoReturn:
    raise Refusal(
        "watch_budget_invalid",
        f"{name}={short_repr(value)} is no budget.",
        remedy=f"Give positive integers for {', '.join(BUDGETS)}, each in one place.",
        budget=name,
        value=short_repr(value),
    )
