"""All laws, in the order of a report."""

from __future__ import annotations

from ....protocol import Refusal
from ..observation import Law
from . import amp, callbacks, conduct, modules, operations, sinks, steps, surroundings, values

LAWS: tuple[Law, ...] = tuple(
    law
    for home in (steps, values, amp, modules, operations, sinks, conduct, surroundings, callbacks)
    for law in home.LAWS
)
"""Every law."""


def get_law(identity: str) -> Law:
    """Return a law by its id. Raises ``kit_check_unknown``."""
    for law in LAWS:
        if law.id == identity:
            return law
    raise Refusal(
        "kit_check_unknown",
        f"There is no law {identity!r}.",
        remedy=f"Use one of {', '.join(law.id for law in LAWS)}.",
        check=identity,
    )


__all__ = ["LAWS", "get_law"]
