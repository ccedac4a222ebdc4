"""Defects about numbers, loss scales, sinks and being a guest: each is the plain session with one thing wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....protocol import HistogramPoint, Point, Refusal, ScalarPoint
from ..plain_attach import Held
from ..plain_scaler import ScalerWatch
from ..plain_session import PlainSession
from ..plain_statistics import GRID, histogram_point
from .base import planted

if TYPE_CHECKING:
    import torch


class SampleStd(PlainSession):
    """Divides the variance by one less than the number of values."""

    def scalars(self, family: str, leaf: str, values: torch.Tensor, step: int) -> list[ScalarPoint]:
        """Replace the standard deviation."""
        points = super().scalars(family, leaf, values, step)
        right = values[values.isfinite()]
        return [ScalarPoint(p.tag, step, right.std().item()) if "/std/" in p.tag else p for p in points]


class FloatCounts(PlainSession):
    """Finds the bin by a logarithm in float32."""

    def histogram(self, family: str, leaf: str, values: torch.Tensor, step: int) -> Point:
        """Count by logarithms."""
        import torch

        right = histogram_point(family, leaf, values, step, self.naming)
        finite = values[values.isfinite() & (values.abs() < GRID.edges[-1])].float()
        raw = ((finite.abs().log2() - GRID.lo_exp) * GRID.bins_per_octave).floor().clamp(-1, GRID.bins_per_side - 1)
        index = torch.where(finite < 0, -(raw + 1), raw + 1).long() + GRID.bins_per_side
        counts = torch.bincount(index, minlength=GRID.bucket_count).tolist()
        return HistogramPoint(right.tag, step, tuple(counts), right.edges, right.summary)


class OnlyNan(PlainSession):
    """Leaves out the counts of non-finite values that are zero."""

    def scalars(self, family: str, leaf: str, values: torch.Tensor, step: int) -> list[ScalarPoint]:
        """Drop zeros."""
        points = super().scalars(family, leaf, values, step)
        return [point for point in points if not point.tag.startswith("nonfinite/") or point.value]


class MissingAsZeros(PlainSession):
    """Writes zeros for a gradient that does not exist."""

    def take_gradients(self, held: Held) -> None:
        """Fill what is missing."""
        super().take_gradients(held)
        for leaf, parameter in self.sites.items():
            if parameter.grad is None:
                held.gradients[leaf] = parameter.detach().double().flatten() * 0


class RateTimesGradient(PlainSession):
    """Tells the rate times the gradient as the update."""

    def update(self, held: Held, leaf: str, parameter: torch.Tensor, optimizer: Any) -> torch.Tensor:
        """Multiply."""
        rate = optimizer.param_groups[0]["lr"]
        gradient = held.gradients.get(leaf)
        return super().update(held, leaf, parameter, optimizer) if gradient is None else -rate * gradient


class RatioInverted(PlainSession):
    """Divides the norm of the parameter by that of the update."""

    def emit(self, point: Point, *, data: bool = False) -> None:
        """Turn the ratio over."""
        if isinstance(point, ScalarPoint) and "/ratio/" in point.tag and point.value:
            point = ScalarPoint(point.tag, point.step, 1 / point.value)
        super().emit(point, data=data)


class HalfParameters(PlainSession):
    """Reads parameters in half precision."""

    def emit_site(self, family: str, leaf: str, values: torch.Tensor, step: int) -> None:
        """Round parameters."""
        super().emit_site(family, leaf, values.half().double() if family == "parameters" else values, step)


class NameLast(PlainSession):
    """Puts the session's name at the end of a tag."""

    def emit(self, point: Point, *, data: bool = False) -> None:
        """Move the name."""
        name = self.ask.name
        if isinstance(point, ScalarPoint) and name is not None:
            point = ScalarPoint(f"{point.tag.replace(f'/{name}/', '/', 1)}/{name}", point.step, point.value)
        super().emit(point, data=data)


class ScaleOfOne(PlainSession):
    """Claims a scale of one where there is no scaler."""

    def emit_block(self, step: int, boundaries: list[Held]) -> None:
        """Claim it."""
        super().emit_block(step, boundaries)
        if self.scaler.scale is None:
            self.run_row("amp_scale", step, 1.0)


class ScaleAfterUpdate(PlainSession):
    """Reads the scale after the scaler was updated."""

    def recorded_scale(self) -> float | None:
        """Read it when the scope closes."""
        scaler = self.scaler.scaler
        return float(scaler.get_scale()) if self.scaler.enabled else self.scaler.scale


class AlwaysDivides(PlainSession):
    """Divides by the scale whatever was unscaled before."""

    def unscaled(self, gradient: torch.Tensor, held: Held) -> torch.Tensor:
        """Divide."""
        return gradient / (self.scaler.scale or 1.0)


class UnscaledAsserted(PlainSession):
    """Asserts that gradients carry no scale, without looking."""

    def unscaled(self, gradient: torch.Tensor, held: Held) -> torch.Tensor:
        """Take them as they are."""
        held.factor = None
        return gradient


class DerivedSilently(PlainSession):
    """Corrects the numbers and does not tell."""

    def run_row(self, key: str, step: int, value: float | None) -> None:
        """Leave the disclosure out."""
        if key != "amp_unscale_derived":
            super().run_row(key, step, value)


class TrustsDuck(PlainSession):
    """Divides by the scale of a scaler whose stage cannot be read."""

    def unscaled(self, gradient: torch.Tensor, held: Held) -> torch.Tensor:
        """Divide when nothing is known."""
        duck = self.scaler.enabled and self.scaler.records is None
        return gradient / (self.scaler.scale or 1.0) if duck else super().unscaled(gradient, held)


class UnnamedSkip(PlainSession):
    """Says nothing of a step that the scaler left out."""

    def leave(self) -> None:
        """Drop the name."""
        super().leave()
        self.skips = [skip for skip in self.skips if skip[0] != "amp_skipped"]


class FusedTrusted(PlainSession):
    """Takes the gradients of a fused optimizer as unscaled because ``scaler.step`` was called."""

    def unscaled(self, gradient: torch.Tensor, held: Held) -> torch.Tensor:
        """Leave the scale in."""
        if getattr(held.optimizer, "grad_scale", None) is not None:
            held.factor = None
        return super().unscaled(gradient, held)


class FusedOverflow(PlainSession):
    """Takes a fused step that was left out as one that was made."""

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        """Look away."""
        changed = super().before_step(optimizer, args, kwargs)
        self.boundaries[-1].skipped = False
        return changed


class _AnyScale(ScalerWatch):
    def require_power_of_two(self) -> None:
        """Take every scale."""


class AnyScale(PlainSession):
    """Takes a scale that is no power of two."""

    def enter(self, n: Any, scaler: Any, new_segment: bool) -> None:
        """Open without looking at the scale."""
        super().enter(n, None, new_segment)
        self.scaler = _AnyScale(scaler)


class CountsFirst(PlainSession):
    """Counts a point before the sink took it."""

    def latch(self, index: int, why: str) -> None:
        """Count the point that failed."""
        self.emitted[index] += 1
        super().latch(index, why)


class LatchesWrongSink(PlainSession):
    """Latches the first sink when another one fails."""

    def latch(self, index: int, why: str) -> None:
        """Latch the first."""
        super().latch(0, why)


class NeverLatches(PlainSession):
    """Calls a sink again that has failed."""

    def latch(self, index: int, why: str) -> None:
        """Note it and go on."""

    def facts(self, forced: bool) -> Any:
        """Tell nothing of it."""
        return super().facts(forced)


class OneUlp(PlainSession):
    """Moves one gradient by one unit in the last place."""

    def take_gradients(self, held: Held) -> None:
        """Touch the first gradient."""
        import torch

        super().take_gradients(held)
        gradient = next((p.grad for p in self.sites_of(held.optimizer).values() if p.grad is not None), None)
        if gradient is not None:
            first = gradient.view(-1)[:1]
            first.copy_(torch.nextafter(first, torch.full_like(first, float("inf"))))


class DrawsRandom(PlainSession):
    """Draws a random number at every boundary."""

    def take_gradients(self, held: Held) -> None:
        """Draw."""
        import torch

        super().take_gradients(held)
        torch.rand(1)


class CopiesTensors(PlainSession):
    """Copies whole tensors to the host."""

    def take_gradients(self, held: Held) -> None:
        """Keep lists of numbers."""
        super().take_gradients(held)
        self.copies = [gradient.tolist() for gradient in held.gradients.values()]


class PlansElements(PlainSession):
    """States bytes that grow with the elements."""

    def planned_bytes(self) -> int | None:
        """Count elements."""
        return 8 * sum(parameter.numel() for parameter in self.sites.values())


class NoPreflight(PlainSession):
    """Asks no sink about its grid before attach."""

    def __init__(self, model: Any, sinks: Any, ask: Any) -> None:
        try:
            super().__init__(model, sinks, ask)
        except Refusal as refusal:
            if refusal.code != "tracker_histogram_bucket_cap":
                raise
            sinks = tuple(sink for sink in sinks if not hasattr(sink, "preflight_histograms"))
            super().__init__(model, sinks, ask)


class RowBeforeRefusal(PlainSession):
    """Sends its manifest before it refuses."""

    def __init__(self, model: Any, sinks: Any, ask: Any) -> None:
        try:
            super().__init__(model, sinks, ask)
        except Refusal:
            for sink in sinks:
                if hasattr(sink, "emit_scalar"):
                    sink.emit_scalar(ScalarPoint("torchlens/run/attached", 0, 1))
            raise


class Null(PlainSession):
    """Attaches, takes every step, and sends nothing."""

    def emit(self, point: Point, *, data: bool = False) -> None:
        """Count and drop."""
        self.emitted = [number + 1 for number in self.emitted]
        self.data = [number + data for number in self.data]


NUMBER_DEFECTS = (
    planted("sample-std", SampleStd, "values.statistics"),
    planted("counts-by-float32", FloatCounts, "values.counts"),
    planted("only-nan", OnlyNan, "values.nonfinite"),
    planted("missing-as-zeros", MissingAsZeros, "values.missing"),
    planted("rate-times-gradient", RateTimesGradient, "values.updates"),
    planted("ratio-inverted", RatioInverted, "values.ratio"),
    planted("half-parameters", HalfParameters, "values.parameters"),
    planted("name-last", NameLast, "values.names"),
    planted("scale-of-one", ScaleOfOne, "values.no-claims"),
    planted("scale-after-update", ScaleAfterUpdate, "amp.scale"),
    planted("always-divides", AlwaysDivides, "amp.observed"),
    planted("unscaled-asserted", UnscaledAsserted, "amp.derived"),
    planted("derived-silently", DerivedSilently, "amp.derived"),
    planted("trusts-duck", TrustsDuck, "amp.unknown"),
    planted("unnamed-skip", UnnamedSkip, "amp.skipped"),
    planted("fused-trusted", FusedTrusted, "amp.fused"),
    planted("fused-overflow", FusedOverflow, "amp.fused-skipped"),
    planted("any-scale", AnyScale, "amp.invalid-scale"),
    planted("counts-first", CountsFirst, "ledger.balance"),
    planted("latches-wrong-sink", LatchesWrongSink, "ledger.isolation", "ledger.balance"),
    planted("never-latches", NeverLatches, "ledger.latched"),
    planted("one-ulp", OneUlp, "guest.twins"),
    planted("draws-random", DrawsRandom, "guest.twins"),
    planted("copies-tensors", CopiesTensors, "transfer.bounded"),
    planted("plans-elements", PlansElements, "transfer.plan"),
    planted("no-preflight", NoPreflight, "attach.refusals"),
    planted("row-before-refusal", RowBeforeRefusal, "attach.clean"),
    planted("null", Null, "values.statistics", "values.once", "guest.twins", "ledger.balance"),
)
"""The defects about numbers, scales, sinks and being a guest."""
