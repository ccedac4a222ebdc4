"""What follows a step: what was accepted, what was missing, and what close adds (STEP-4, STEP-7, STEP-8)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..protocol.refusals import Refusal
from .amp import is_near, read_all
from .block import Basis, Block, OptimizerBoundary
from .boundary import owned_ids, parameter_requests
from .emission import Emitter
from .measure import Request, Results, measure
from .missing import missing_phases
from .op_grain.calibration import Calibration
from .owners import Owners
from .schedule import StepLaw
from .sites import live_sites
from .skips import Skips
from .unseen import unseen
from .watched import Watched
from .writer import BlockWriter

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer


@dataclass(slots=True)
class LastStep:
    """The last step whose boundary was accepted, for the forced final sample.

    Attributes:
        step: The caller's step.
        sampled: Whether it was sampled when it ran.
        optimizers: Those that stepped.
        bases: What tells whether gradients are still those of the step; None where that was not known.
    """

    step: int
    sampled: bool
    optimizers: list[Optimizer]
    bases: list[Basis | None] = field(default_factory=list)


class Drain:
    """Turns a finished block into rows and skips.

    Args:
        watched: What is watched.
        law: The step law.
        emitter: Takes the rows.
        skips: Takes named skips.
        manifest: The manifest, as text.
        retention: How many missing phases are kept.
        calibration: What op grain costs, told once beside the manifest.

    Attributes:
        writer: Emits the rows of a sampled step.
        missing_phases: (step, phase) pairs.
        forced_final: Whether close sampled the last step.
        notes: What else the close report says.

    Clause: STEP-7, STEP-8, AMP-7, CLOSE-1.
    """

    def __init__(
        self,
        watched: Watched,
        *,
        law: StepLaw,
        emitter: Emitter,
        skips: Skips,
        manifest: str,
        retention: int,
        calibration: Calibration | None = None,
    ) -> None:
        self._watched = watched
        self._law = law
        self._emitter = emitter
        self._skips = skips
        self._manifest = manifest
        self._retention = retention
        self._calibration = calibration
        self._announced = False
        self._deferred: list[tuple[int, str, torch.Tensor]] = []
        self._last: LastStep | None = None
        self.writer = BlockWriter(watched, emitter)
        self.missing_phases: list[tuple[int, str]] = []
        self.forced_final = False
        self.notes: list[str] = []

    @property
    def stepped_last(self) -> list[Optimizer]:
        """The optimizers whose update was accepted last."""
        return [] if self._last is None else self._last.optimizers

    def announce(self, step: int, *, segment: int | None = None) -> None:
        """Emit heartbeat and manifest once, and the number of a segment that begins. Clause: STEP-8, ATTACH-9."""
        if not self._announced:
            self._announced = True
            self._emitter.run("attached", step, 1)
            self._emitter.meta("manifest", step, self._manifest)
            if self._calibration is not None:
                self._emitter.run("op_grain_overhead_median_x", step, self._calibration.ratio)
                self._emitter.meta("op_grain_calibration", step, self._calibration.text())
            self._emitter.event("attached", step, {})
        if segment is not None:
            self._emitter.run("segment", step, segment)
            self._emitter.event("segment", step, {"segment": segment})

    def finish(self, block: Block, owners: Owners, *, error: BaseException | None) -> None:
        """Emit what a block has and name what it lacks; refuse a missing phase unless ``error`` unwinds.

        Raises ``watch_phase_missing``. Clause: STEP-7, TAG-4.
        """
        step = block.due.step
        produced = 0
        missing: list[str] = []
        try:
            accepted, left_out = self._sort_boundaries(block, owners, unwinding=error is not None)
            if error is None:
                missing = missing_phases(
                    self._watched, block, owners, self._skips, accepted=accepted, left_out=left_out
                )
            else:
                self._skips.add("exception", step, type(error).__name__)
            if block.due.scalars:
                self.settle()
                outputs = error is None and not missing and not self._watched.boundary_signals
                produced = self.writer.write(block, owners, accepted=accepted, left_out=left_out, outputs=outputs)
            if accepted:
                optimizers = [boundary.optimizer for boundary in accepted]
                self._last = LastStep(step, block.due.scalars, optimizers, [boundary.basis for boundary in accepted])
        except Exception as problem:
            name = "drain_refused" if isinstance(problem, Refusal) and error is not None else "collection_failed"
            self._skips.add(name, step, f"{type(problem).__name__}: {problem}")
        finally:
            self._law.close(produced=produced > 0)
        self._tell_skips(block)
        for phase in missing:
            self._miss(step, phase, demoted=block.implicit)
        if missing and not self._watched.allow_missing_phases and not block.implicit:
            raise _phase_missing(step, missing, self._watched.signals)

    def finalise(self) -> None:
        """Sample the last step if it was not, and write heartbeat and manifest if nothing was seen.

        Clause: STEP-4, STEP-8.
        """
        with unseen():
            self.settle()
        last = self._last
        if last is not None and last.step == self._law.last and not last.sampled:
            with unseen():
                results = self._final_results(last)
            if results:
                self._emitter.run("last_step", last.step, last.step)
                self.writer.write_results(last.step, results, {}, {})
                self._law.sampled += 1
                self.forced_final = True
        self.announce(self._law.last or 0)

    def settle(self) -> None:
        """Look at what fused optimizers left out on steps for which their device was not waited for. Clause: AMP-8."""
        deferred, self._deferred = self._deferred, []
        for (step, label, _), found in zip(deferred, read_all([found for _, _, found in deferred])):
            if found:
                self._skips.add("amp_skipped", step, label)
                if self._last is not None and self._last.step == step:
                    self._last = None

    def _sort_boundaries(
        self, block: Block, owners: Owners, *, unwinding: bool
    ) -> tuple[list[OptimizerBoundary], list[OptimizerBoundary]]:
        """Return the boundaries whose update was accepted, and those that a fused optimizer left out itself."""
        accepted: list[OptimizerBoundary] = []
        left_out: list[OptimizerBoundary] = []
        for boundary in block.boundaries.values():
            if not boundary.complete:
                if not unwinding:
                    self._skips.add("boundary_incomplete", block.due.step, type(boundary.optimizer).__name__)
            elif self._left_itself_out(block, boundary):
                left_out.append(boundary)
            else:
                accepted.append(boundary)
        labels = owners.labels() if left_out else {}
        for boundary in left_out:
            self._skips.add("amp_skipped", block.due.step, labels.get(id(boundary.optimizer), ""))
        return accepted, left_out

    def _left_itself_out(self, block: Block, boundary: OptimizerBoundary) -> bool:
        if boundary.found is None:
            return False
        if block.due.scalars or is_near(boundary.found):
            return float(boundary.found) != 0.0
        self._deferred.append((block.due.step, type(boundary.optimizer).__name__, boundary.found))
        return False

    def _miss(self, step: int, phase: str, *, demoted: bool) -> None:
        if len(self.missing_phases) < self._retention:
            self.missing_phases.append((step, phase))
        if self._watched.allow_missing_phases or demoted:
            self._skips.add("phase_missing", step, phase)

    def _tell_skips(self, block: Block) -> None:
        record = block.forward
        for name, detail, leaf in () if record is None else record.problems:
            block.report(name, detail, leaf)
        for (name, detail), leaves in block.skips.items():
            self._skips.add(name, block.due.step, detail, sites=tuple(leaf for leaf in leaves if leaf))

    def _final_results(self, last: LastStep) -> Results:
        live = live_sites(self._watched.parameters, self._watched.model)
        sites = [(site, parameter) for site, parameter, _ in live if parameter is not None]
        requests: list[Request] = []
        if "parameters" in self._watched.signals:
            requests += parameter_requests(sites, None)
        if "gradients" in self._watched.signals and self._gradients_are_known(last):
            owned = {key for optimizer in last.optimizers for key in owned_ids(optimizer)}
            requests += [
                Request("gradients", site.leaf, parameter.grad)
                for site, parameter in sites
                if parameter.grad is not None and id(parameter) in owned
            ]

        def report(name: str, detail: str, leaf: str) -> None:
            self._skips.add(name, last.step, detail, sites=(leaf,))

        return measure(requests, report)

    def _gradients_are_known(self, last: LastStep) -> bool:
        bases = [basis for basis in last.bases if basis is not None]
        if len(bases) < len(last.bases) or not all(basis.holds() for basis in bases):
            self._skips.add("final_gradients_unknown", last.step)
            return False
        if not all(basis.whole for basis in bases):
            self.notes.append("final gradients: that they are those of the last step was seen at some of them only")
        return True


def _phase_missing(step: int, phases: list[str], signals: tuple[str, ...]) -> Refusal:
    return Refusal(
        "watch_phase_missing",
        f"Step {step} ended without the {' and the '.join(phases)} that its signals need.",
        remedy="Let the scope hold the whole step, or give allow_missing_phases=True to have it as a named skip.",
        step=step,
        phases=phases,
        signals=list(signals),
    )
