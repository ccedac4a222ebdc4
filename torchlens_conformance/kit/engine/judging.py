"""The verdict on an engine: one pure function from results, controls and what is lacking to a word and a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from .. import model
from ..model import CheckResult, ControlResult
from .laws import LAWS

_MOST_NAMED = 6


def judge(
    lacks: Sequence[str], results: Sequence[CheckResult], controls: Sequence[ControlResult], *, partial_run: bool
) -> tuple[str, str]:
    """Return the verdict and the sentence that says why.

    In this order: void, nonconformant, incomplete, with deviations, conformant.

    Args:
        lacks: The abilities that the engine does not declare.
        results: What the laws say.
        controls: What the controls did.
        partial_run: Whether the caller chose laws, so that the others were left out on purpose.
    """
    broken = [control.control for control in controls if not control.ok]
    if broken or not controls:
        why = _named(broken) or "no control ran"
        return model.VOID, f"The kit did not prove itself, so it says nothing about the engine: {why}."
    levels = {law.id: law.level for law in LAWS}
    failed = [result.check for result in results if result.outcome == model.FAILED]
    must = [law for law in failed if levels[law] == "must"]
    asked = sum(result.outcome in (model.PASSED, model.FAILED, model.COULD_NOT_RUN) for result in results)
    if must:
        return model.NONCONFORMANT, f"{len(must)} of {asked} laws failed: {_named(must)}."
    stuck = [result.check for result in results if result.outcome == model.COULD_NOT_RUN]
    if stuck:
        return model.INCOMPLETE, f"{len(stuck)} laws gave no answer: {_named(stuck)}."
    if partial_run or len(results) < len(LAWS):
        return model.INCOMPLETE, f"Only {len(results)} of {len(LAWS)} laws were asked."
    if failed:
        return model.WITH_DEVIATIONS, f"{len(failed)} laws that an engine should keep failed: {_named(failed)}."
    if lacks:
        return model.WITH_DEVIATIONS, f"It does not declare {_named(lacks)}; all {asked} laws it was asked hold."
    away = sum(result.outcome == model.NOT_APPLICABLE for result in results)
    return model.CONFORMANT, f"All {asked} laws hold." + (f" {away} cannot be asked on this machine." if away else "")


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
