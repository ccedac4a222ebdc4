"""Defects about single operations: each is the plain session with one thing wrong."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ....protocol import TextPoint, meta_tag
from ..adapter import Ask
from ..plain_operations import PlainOperations
from ..plain_session import PlainSession
from .base import Defect, planted_operation


def _planted(identity: str, kind: type[PlainOperations], *killed_by: str) -> Defect:
    """Return a defect of what looks at operations, whose idea is the first line of the class's documentation."""
    session = type(kind.__name__, (PlainSession,), {"__doc__": kind.__doc__, "operations": kind})
    return planted_operation(identity, session, *killed_by)


class LaterValues(PlainOperations):
    """Keeps the outputs of operations themselves and reads them when the forward is over."""

    def looked_at(self, *args: Any, **kwargs: Any) -> Any:
        """Read at the end."""
        self.waiting: list[tuple[str, Any]] = []
        result = super().looked_at(*args, **kwargs)
        for label, tensor in self.waiting:
            super().keep_call(label, tensor)
        return result

    def keep_call(self, label: str, tensor: Any) -> None:
        """Wait."""
        self.waiting.append((label, tensor))


class FirstCallOnly(PlainOperations):
    """Observes the first call of a chosen function alone."""

    def keep_call(self, label: str, tensor: Any) -> None:
        """Leave the other calls out."""
        if "_1_" in label:
            super().keep_call(label, tensor)


class CountsFromZero(PlainOperations):
    """Counts the calls of a function from nought in its labels."""

    def label(self, function: str) -> str:
        """Count from nought."""
        return f"{function}_{self.calls[function] - 1}_{self.number}"


class CallsMerged(PlainOperations):
    """Puts all calls of a function under the label of the first one."""

    def label(self, function: str) -> str:
        """Use one label."""
        return f"{function}_1_{min(self.number, 9)}"


class OtherAxis(PlainOperations):
    """Splits facets along the last axis, whatever was asked for."""

    def facets(self, label: str, tensor: Any) -> Sequence[Any]:
        """Split the last axis."""
        heads = len(super().facets(label, tensor))
        return tensor.tensor_split(heads, dim=-1) if heads else ()


class FacetsTurned(PlainOperations):
    """Gives the facets in the opposite order."""

    def facets(self, label: str, tensor: Any) -> Sequence[Any]:
        """Turn them round."""
        return tuple(super().facets(label, tensor))[::-1]


class LastFacetLost(PlainOperations):
    """Leaves the last facet out."""

    def facets(self, label: str, tensor: Any) -> Sequence[Any]:
        """Drop one."""
        return tuple(super().facets(label, tensor))[:-1]


class LastForward(PlainOperations):
    """Observes the last forward of a step in place of the first, and names the others."""

    def forward_again(self, *args: Any, **kwargs: Any) -> Any:
        """Forget the forward before."""
        self.skip("forward_repeated")
        self.values = {}
        return self.looked_at(*args, **kwargs)


class SilentSecondForward(PlainOperations):
    """Does not say that a second forward was not observed."""

    def forward_again(self, *args: Any, **kwargs: Any) -> Any:
        """Say nothing."""
        return self.plain(*args, **kwargs)


class WithoutConsent(PlainSession):
    """Wraps the forward without consent."""

    def consent(self, ask: Ask) -> None:
        """Ask nobody."""


class LateConsent(PlainSession):
    """Asks for consent when discovery has run."""

    def consent(self, ask: Ask) -> None:
        """Run the model first."""
        if ask.grain == "op" and ask.functions:
            self.model.forward(ask.inputs)
        super().consent(ask)


class AnySignal(PlainSession):
    """Takes gradients at op grain, and watches them at the boundary."""

    def consent(self, ask: Ask) -> None:
        """Look at the consent alone."""
        if ask.grain == "op" and ask.allow_forward_wrap:
            return
        super().consent(ask)


class UncheckedFacets(PlainOperations):
    """Takes facets that do not fit, and lets the parts be of other sizes."""

    def require_choice(self) -> None:
        """Look at the choice alone."""
        if not self.shapes:
            super().require_choice()


class NothingChosen(PlainOperations):
    """Attaches although the choice takes no operation."""

    def require_choice(self) -> None:
        """Look at the facets alone."""
        if self.shapes:
            super().require_choice()


class RandomMoved(PlainOperations):
    """Lets the forwards at attach draw from the random states."""

    def restore_random(self, states: tuple[Any, Any]) -> None:
        """Leave them where they are."""


class BuffersMoved(PlainOperations):
    """Lets the forwards at attach move the buffers."""

    def restore_buffers(self, buffers: Any) -> None:
        """Leave them as they are."""


class FilledBufferMoved(PlainOperations):
    """Leaves a buffer filled that was None before its own forwards."""

    def restore_none(self, name: str) -> None:
        """Leave it."""


class EvaluationAtAttach(PlainOperations):
    """Measures in evaluation mode, and leaves the model in it."""

    def run_once(self, *, observed: bool) -> None:
        """Switch the mode."""
        self.model.eval()
        super().run_once(observed=observed)


class WithoutDropout(PlainOperations):
    """Observes a forward without its dropout."""

    def looked_at(self, *args: Any, **kwargs: Any) -> Any:
        """Switch the mode for a while."""
        modes = [(module, module.training) for module in self.model.modules()]
        for module, _ in modes:
            if type(module).__name__ == "Dropout":
                module.eval()
        result = super().looked_at(*args, **kwargs)
        for module, training in modes:
            module.training = training
        return result


class SeenByModes(PlainOperations):
    """Copies what operations give where a checkpoint counts the operations."""

    def unseen(self) -> AbstractContextManager[Any]:
        """Leave every mode on."""
        return nullcontext()


class RoundsOnce(PlainOperations):
    """Gives back a result of half precision from an observed forward."""

    def looked_at(self, *args: Any, **kwargs: Any) -> Any:
        """Round the result."""
        result = super().looked_at(*args, **kwargs)
        return result.half().to(result.dtype)


class AlwaysWrapped(PlainOperations):
    """Stays in the forward's place on steps that are not sampled."""

    def begin(self, *, due: bool) -> None:
        """Take it always."""
        super().begin(due=True)


class WrapStays(PlainOperations):
    """Does not give the forward's place back when it is closed."""

    def remove(self) -> None:
        """Keep it, and run the plain forward there."""
        self.model.__dict__["forward"] = self.plain


class NoWarning(PlainOperations):
    """Does not warn of the cost."""

    def disclose(self) -> None:
        """Say nothing."""


class WarnsTwice(PlainOperations):
    """Warns of the cost twice."""

    def disclose(self) -> None:
        """Say it again."""
        super().disclose()
        super().disclose()


class NoRatio(PlainSession):
    """Sends no scalar of what observing costs."""

    def tell_cost(self, step: int, ratio: float) -> None:
        """Send the text alone."""
        self.emit(TextPoint(meta_tag("op_grain_calibration", **self.naming.parts), step, f"{ratio} times the forward"))


class NoCalibrationText(PlainSession):
    """Sends no text of what observing costs."""

    def tell_cost(self, step: int, ratio: float) -> None:
        """Send the scalar alone."""
        self.run_row("op_grain_overhead_median_x", step, ratio)


OPERATION_DEFECTS = (
    _planted("op-later-values", LaterValues, "op.values"),
    _planted("op-first-call-only", FirstCallOnly, "op.values"),
    _planted("op-counts-from-zero", CountsFromZero, "op.values"),
    _planted("op-calls-merged", CallsMerged, "op.values"),
    _planted("op-other-axis", OtherAxis, "op.facets"),
    _planted("op-facets-turned", FacetsTurned, "op.facets"),
    _planted("op-last-facet-lost", LastFacetLost, "op.facets"),
    _planted("op-last-forward", LastForward, "op.first-forward"),
    _planted("op-silent-second-forward", SilentSecondForward, "op.first-forward"),
    planted_operation("op-without-consent", WithoutConsent, "op.consent"),
    planted_operation("op-late-consent", LateConsent, "op.consent"),
    planted_operation("op-any-signal", AnySignal, "op.refusals"),
    _planted("op-unchecked-facets", UncheckedFacets, "op.refusals"),
    _planted("op-nothing-chosen", NothingChosen, "op.refusals"),
    _planted("op-random-moved", RandomMoved, "op.forward-kept", "op.refusals"),
    _planted("op-buffers-moved", BuffersMoved, "op.forward-kept", "op.refusals"),
    _planted("op-filled-buffer-moved", FilledBufferMoved, "op.forward-kept", "op.refusals"),
    _planted("op-evaluation-at-attach", EvaluationAtAttach, "op.forward-kept"),
    _planted("op-without-dropout", WithoutDropout, "op.forward-kept"),
    _planted("op-seen-by-modes", SeenByModes, "op.checkpointed"),
    _planted("op-rounds-once", RoundsOnce, "op.forward-kept"),
    _planted("op-always-wrapped", AlwaysWrapped, "op.plain-forward"),
    _planted("op-wrap-stays", WrapStays, "op.plain-forward", "op.forward-kept"),
    _planted("op-no-warning", NoWarning, "op.disclosed"),
    _planted("op-warns-twice", WarnsTwice, "op.disclosed"),
    planted_operation("op-no-ratio", NoRatio, "op.disclosed"),
    planted_operation("op-no-calibration-text", NoCalibrationText, "op.disclosed"),
)
"""The planted defects of single operations."""
