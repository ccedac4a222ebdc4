"""The planted defects of engines, and the way to one of them."""

from __future__ import annotations

from ....protocol import Refusal
from .base import Defect
from .callback_defects import CALLBACK_DEFECTS
from .module_defects import MODULE_DEFECTS
from .number_defects import NUMBER_DEFECTS
from .operation_defects import OPERATION_DEFECTS
from .step_defects import STEP_DEFECTS
from .surrounding_defects import SURROUNDING_DEFECTS

DEFECTS: tuple[Defect, ...] = (
    *STEP_DEFECTS,
    *NUMBER_DEFECTS,
    *MODULE_DEFECTS,
    *OPERATION_DEFECTS,
    *SURROUNDING_DEFECTS,
    *CALLBACK_DEFECTS,
)
"""Every planted defect."""


def get_defect(identity: str) -> Defect:
    """Return a defect by its id. Raises ``kit_defect_unknown``."""
    for defect in DEFECTS:
        if defect.id == identity:
            return defect
    raise Refusal(
        "kit_defect_unknown",
        f"There is no planted defect {identity!r}.",
        remedy=f"Use one of {', '.join(defect.id for defect in DEFECTS)}.",
        defect=identity,
    )


__all__ = ["DEFECTS", "Defect", "get_defect"]
