"""The life of a step: opening, boundaries, forwards (STEP-1..11). What follows a step stands in ``drain``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..protocol.refusals import Refusal
from .activations import ForwardRecord, ModuleObserver
from .amp import ScalerView, found_infinities
from .block import Basis, Block, OptimizerBoundary
from .boundary import Arguments, SampledBoundary, is_inner_step, owned_ids
from .op_grain.observer import OperationObserver
from .owners import Owners
from .schedule import Due, StepLaw, require_step
from .sites import ParameterSite, live_sites
from .skips import Skips
from .unseen import unseen
from .watched import Watched
from .wrappers import unwrapped

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from .drain import Drain


class Engine:
    """Holds the open step and what the hooks tell about it.

    Args:
        watched: What is watched.
        law: The step law.
        owners: The optimizers.
        drain: Takes a finished step.
        skips: Takes named skips.
        source: The ``step=`` callable, or None.

    Clause: STEP-1, STEP-6, STEP-7, STEP-10, STEP-11.
    """

    def __init__(
        self,
        watched: Watched,
        *,
        law: StepLaw,
        owners: Owners,
        drain: Drain,
        skips: Skips,
        source: Callable[[], object] | None,
    ) -> None:
        self.watched = watched
        self.law = law
        self.owners = owners
        self.observer = _observer_of(watched)
        self._drain = drain
        self._skips = skips
        self._source = source
        self._block: Block | None = None
        self._pending: ForwardRecord | None = None
        self._pending_step: int | None = None
        self._settled = False
        self._gradient_parameters: dict[int, list[Any]] = {}

    def open(self, step: object, *, scaler: object | None = None, new_segment: bool = False) -> None:
        """Open a step scope. Every refusal leaves the session as it was. Clause: STEP-2, STEP-3, AMP-3."""
        if self._block is not None and self._block.implicit:
            self.flush()
        number = self.law.check(step, new_segment=new_segment)
        with unseen():
            view = ScalerView(scaler, due=self.law.due(number).scalars)
        self._begin(number, view, implicit=False, new_segment=new_segment)

    def close_scope(self, error: BaseException | None) -> None:
        """Close the step scope; refuse what is missing unless the loop's ``error`` unwinds. Clause: STEP-7, TAG-4."""
        block = self._take_block()
        if block is not None:
            with unseen():
                self._drain.finish(block, self.owners, error=error)

    def flush(self, error: BaseException | None = None) -> None:
        """Finish the block that ``step=`` opened, if there is one."""
        if self._block is not None:
            self._settled = True
            self.close_scope(error)

    def end(self, error: BaseException | None) -> None:
        """Let go of the open step: what ``step=`` opened is finished, a scope is dropped. Clause: CLOSE-4."""
        if self._block is not None and self._block.implicit:
            self.flush(error)
        self._drop_pending()
        block = self._take_block()
        if block is not None:
            self._skips.add("closed_inside_step", block.due.step)
            self.law.close(produced=False)

    def before(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        """Take the moment before an optimizer's step; return its arguments when they have to be replaced."""
        if not self.owners.takes(optimizer):
            return None
        block = self._block
        open_step = None if block is None else block.boundaries.get(id(optimizer))
        if open_step is not None and not open_step.complete and is_inner_step(optimizer):
            open_step.nested = True
            return None
        if block is None or block.implicit:
            block = self._block_at_boundary(optimizer)
            if block is None:
                return None
        known = block.boundaries.get(id(optimizer))
        if known is not None and known.complete:
            block.report("boundary_repeated", self.owners.labels()[id(optimizer)], "")
            return None
        boundary = OptimizerBoundary(optimizer, found_infinities(optimizer))
        block.boundaries[id(optimizer)] = boundary
        if not block.due.scalars:
            if block.view.surely_unscaled(optimizer):
                boundary.basis = Basis(self._gradient_parameters.get(id(optimizer), []))
            return None
        return self._measure_before(block, boundary, args, kwargs)

    def after(self, optimizer: Optimizer) -> None:
        """Take the moment after an optimizer's step."""
        block = self._block
        boundary = None if block is None else block.boundaries.get(id(optimizer))
        if block is None or boundary is None or boundary.complete:
            return
        if boundary.nested and is_inner_step(optimizer):
            return
        boundary.complete = True
        if boundary.sampled is not None:
            try:
                boundary.sampled.after()
            except Exception as error:
                block.report("collection_failed", f"{type(error).__name__}: {error}", "")
        if block.implicit and self._is_complete(block):
            self.flush()

    def forward_entered(self) -> None:
        """Schedule a forward under ``step=``: its activations wait for the boundary. Clause: STEP-6."""
        if self._source is None or (self._block is not None and not self._block.implicit):
            return
        try:
            step = require_step(self._source())
        except Refusal:
            return  # The boundary asks again, and refuses there rather than inside a forward.
        if self._block is not None:
            if self._block.due.step == step:
                return  # Further forwards of a step with several optimizers go into its record.
            self.flush()
        if self._pending is not None and self._pending_step == step:
            return
        self._drop_pending()
        self._pending_step = step
        due = self.law.due(step)
        if due.scalars:
            self._pending = self._record(due, None)
            self.observer.record = self._pending

    def look_at_scaler(self) -> None:
        """Look at the scaler of the open step before it updates again, which erases what it did. Clause: AMP-8."""
        if self._block is not None:
            with unseen():
                self._block.view.look()

    def _begin(self, step: int, view: ScalerView, *, implicit: bool, new_segment: bool = False) -> Block:
        segment = self.law.segment
        due = self.law.open(step, new_segment=new_segment)
        try:
            self._drain.announce(due.step, segment=self.law.segment if self.law.segment != segment else None)
        except BaseException:  # Ctrl-C inside a sink, say: the step did not begin.
            self.law.close(produced=False)
            raise
        block = Block(due, view, implicit)
        if implicit:
            block.forward, self._pending, self._pending_step = self._pending, None, None
        elif due.scalars and self.watched.module_signals:
            self._drop_pending()
            block.forward = self._record(due, view)
        self.observer.record = block.forward
        self._block = block
        return block

    def _record(self, due: Due, view: ScalerView | None) -> ForwardRecord:
        with unseen():
            scale = None if view is None else view.gradient_scale()
        return ForwardRecord(due, self.watched.descriptor, leaves=frozenset(self.watched.output_leaves), scale=scale)

    def _take_block(self) -> Block | None:
        block, self._block = self._block, None
        self.observer.record = None
        if block is not None and block.forward is not None:
            block.forward.close()
        return block

    def _drop_pending(self) -> None:
        if self._pending is not None:
            self._pending.close()
            if self._pending.seen:
                self._skips.add("forward_outside_step", self._pending_step)
        self._pending = self._pending_step = self.observer.record = None

    def _block_at_boundary(self, optimizer: Optimizer) -> Block | None:
        """Return the block that this boundary belongs to, opened by ``step=`` when it has to be. Clause: STEP-1."""
        if self._source is None:
            raise Refusal(
                "watch_step_source_missing",
                "An optimizer stepped, and nothing says which step it was.",
                remedy="Wrap the step in `with watch.step(n):`, give step= at attach, or use a framework callback.",
                optimizer=type(optimizer).__name__,
            )
        step = require_step(self._source())
        block = self._block
        if block is not None:
            known = block.boundaries.get(id(optimizer))
            if block.due.step == step and (known is None or not known.complete):
                return block
            self.flush()
        if self._pending_step is not None and self._pending_step != step:
            entered = self._pending_step
            self._drop_pending()
            raise Refusal(
                "watch_step_conflict",
                "step= gave one value at the forward and another one at the optimizer boundary.",
                remedy="Change the step after optimizer.step(), not between the forward and it.",
                forward_step=entered,
                boundary_step=step,
            )
        if (
            step == self.law.last
            and self._settled
            and not any(other is optimizer for other in self._drain.stepped_last)
        ):
            self._skips.add("optimizer_discovered_late", step, type(optimizer).__name__)
            return None
        return self._begin(step, ScalerView(None, due=False), implicit=True)

    def _measure_before(
        self, block: Block, boundary: OptimizerBoundary, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Arguments | None:
        try:
            boundary.fact = block.view.fact(boundary.optimizer, kwargs)
            boundary.owned = owned_ids(boundary.optimizer)
            sites = self._owned_sites(block, boundary)
            self._gradient_parameters[id(boundary.optimizer)] = [parameter for _, parameter in sites]
            boundary.sampled = SampledBoundary(
                self.watched.boundary_signals,
                sites,
                boundary.fact,
                self.watched.descriptor if block.due.histograms else None,
                block.report,
            )
            return boundary.sampled.before(boundary.optimizer, args, kwargs)
        except Exception as error:
            # A guest: whatever went wrong here is ours, and the caller's step goes on without it.
            block.report("collection_failed", f"{type(error).__name__}: {error}", "")
            boundary.sampled = None
            return None

    def _owned_sites(self, block: Block, boundary: OptimizerBoundary) -> list[tuple[ParameterSite, Any]]:
        if not self.watched.boundary_signals:
            return []
        first = len(block.boundaries) == 1
        owned = []
        for site, parameter, skip in live_sites(self.watched.parameters, self.watched.model):
            if skip is not None and first:
                block.report(skip, "", site.leaf)
            if parameter is not None and id(parameter) in boundary.owned:
                owned.append((site, parameter))
        return owned

    def _is_complete(self, block: Block) -> bool:
        owners = self.owners.all()
        if any(id(owner) not in block.boundaries or not block.boundaries[id(owner)].complete for owner in owners):
            return False
        if not self.owners.discovers or self._settled:
            return True
        # Optimizers are still being met: wait for a further one while a trainable parameter has none.
        owned = {key for owner in owners for key in owned_ids(owner)}
        live = live_sites(self.watched.parameters, self.watched.model)
        return all(
            id(parameter) in owned for _, parameter, _ in live if parameter is not None and parameter.requires_grad
        )


def _observer_of(watched: Watched) -> ModuleObserver:
    if watched.choice is None:
        return ModuleObserver(watched.module_signals)
    return OperationObserver(unwrapped(watched.model), watched.calls, watched.choice)
