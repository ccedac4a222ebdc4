"""One watch by a plain, correct engine: what the laws ask for, written to be read and not to be fast.

The engine is the ground truth of the controls: each planted defect is it with one thing made wrong. It shares no code
with the engine that the project ships. Each method that a defect makes wrong has one duty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from ...protocol import Point, ScalarPoint, TextPoint, meta_tag, run_tag
from .adapter import Ask
from .observation import CloseFacts
from .plain_attach import Held, refusal, register, require_attachable, unregister
from .plain_modules import PlainModules
from .plain_operations import PlainOperations, require_operations
from .plain_scaler import ScalerWatch
from .plain_sinks import PlainSinks
from .plain_statistics import GRID, Naming, histogram_point, scalar_points
from .plain_surroundings import DISABLE, disabled_by, unwrapped

if TYPE_CHECKING:
    import torch


def refuse(code: str, message: str, **fields: object) -> NoReturn:
    """Refuse with a code. Clause: PROT-9."""
    raise refusal(code, message, **fields)


class PlainSession(PlainSinks):
    """One watch of one model by the plain engine.

    Args:
        model: The model.
        sinks: Where points go.
        ask: What to watch.

    Raises the refusals of ATTACH before any hook is set or any point is sent.
    """

    def __init__(self, model: torch.nn.Module, sinks: Iterable[Any], ask: Ask) -> None:
        super().__init__(sinks)
        self.ask = ask
        self.disabled_by = self.why_disabled(model)
        self.optimizers = tuple(ask.optimizer) if isinstance(ask.optimizer, (list, tuple)) else (ask.optimizer,)
        self.model = model
        self.naming = Naming(ask.name, ask.namespace)
        self.consent(ask)
        self.sites = require_attachable(model, self.sinks, ask, self.optimizers)
        register(model, self.ask)
        self.skips: list[tuple[str, int | None]] = []
        self.sampled: list[int] = []
        self.open: int | None = None
        self.first: int | None = None
        self.last: int | None = None
        self.boundaries: list[Held] = []
        self.scaler = ScalerWatch(None)
        self.report: CloseFacts | None = None
        self.hooks: list[Any] = []
        self.modules = self.observer(() if self.disabled_by else ask.signals)
        if not self.disabled_by:
            self.hooks = [hook for optimizer in self.optimizers for hook in self.install(optimizer)]
            self.hooks += self.modules.hooks

    operations = PlainOperations
    """What looks at single operations."""

    def consent(self, ask: Ask) -> None:
        """Refuse what op grain does not take. Clause: TIER-2."""
        require_operations(ask)

    def why_disabled(self, model: torch.nn.Module) -> str:
        """Return what turns the session off, or nothing. Clause: ENV-1."""
        return disabled_by(model)

    def observer(self, signals: Sequence[str]) -> PlainModules:
        """Return what sees the outputs of modules. Clause: TIER-1."""
        if self.ask.grain == "op" and signals:
            return self.operations(unwrapped(self.model), self.ask, lambda name: self.skips.append((name, self.open)))
        return PlainModules(unwrapped(self.model), signals, self.ask.select, lambda: self.scaler.backward_factor())

    # Steps ------------------------------------------------------------------------------------------------------------

    @contextmanager
    def step(self, n: Any, *, scaler: Any = None, new_segment: bool = False) -> Iterator[None]:
        """Return the scope of one step. Clause: STEP-1..3, STEP-7."""
        self.enter(n, scaler, new_segment)
        try:
            yield
        except BaseException:
            self.leave_raising()
            raise
        self.leave()

    def enter(self, n: Any, scaler: Any, new_segment: bool) -> None:
        """Open a block at ``n``, or refuse and leave the session usable."""
        if self.report is not None:
            refuse("watch_session_closed", "The session is closed.")
        if type(n) is not int or not 0 <= n < 2**63:
            refuse("watch_step_invalid", "A step is an integer from 0.", step=repr(n))
        if self.open is not None:
            refuse("watch_step_conflict", "Step scopes never nest.", step=n)
        last = self.held_step() if self.last is None else self.last
        if last is not None and n <= last and not new_segment:
            refuse("watch_step_regression", "Steps increase.", step=n, last=last)
        self.scaler = ScalerWatch(scaler)
        self.scaler.require_power_of_two()
        self.open = self.last = n
        self.boundaries = []
        if self.ask.step is None:
            self.modules.clear()
        self.modules.begin(due=self.due(n))
        if self.first is None:
            self.first = n
            self.heartbeat(n)

    def leave(self) -> None:
        """Close the block: its rows, or the reason why there are none."""
        step, self.open = self.open, None
        if step is None or self.disabled_by:
            return
        stepped = [held for held in self.boundaries if not held.skipped]
        if not self.boundaries and not self.scaler.skipped() and not self.ask.allow_missing_phases:
            self.run_row("last_step", step, step)
            refuse("watch_phase_missing", "No optimizer stepped in the scope.", step=step)
        if not stepped:
            self.skips.append(("amp_skipped" if self.scaler.skipped() else "phase_missing", step))
        elif len(stepped) < len(self.optimizers):
            self.skips.append((self.why_missing(stepped), step))
        if stepped and self.due(step):
            self.sampled.append(step)
            self.emit_block(self.row_step(step), stepped)
        if self.scaler.scale is not None:
            self.run_row("amp_scale", step, self.recorded_scale())
        self.run_row("last_step", step, step)
        self.modules.clear()

    def why_missing(self, stepped: Sequence[Held]) -> str:
        """Return why not all optimizers stepped: each has a stage of its own in the scaler. Clause: AMP-6."""
        missing = [one for one in self.optimizers if all(one is not held.optimizer for held in stepped)]
        return "amp_skipped" if any(map(self.scaler.left_out, missing)) else "optimizer_not_stepped"

    def leave_raising(self) -> None:
        """Close the block while the loop's own exception unwinds; nothing masks it. Clause: TAG-4."""
        self.skips.append(("exception", self.open))
        self.open = None

    def due(self, step: int) -> bool:
        """Say whether a step is sampled: the first eligible one, then by the caller's axis. Clause: STEP-4."""
        return not self.sampled or step % self.ask.every == 0 or self.histogram_due(step)

    def histogram_due(self, step: int) -> bool:
        """Say whether a step has histograms. Clause: STEP-5."""
        return self.ask.hist_every is not None and (not self.sampled or step % self.ask.hist_every == 0)

    def row_step(self, step: int) -> int:
        """Return the step that the rows carry: the caller's. Clause: STEP-1."""
        return step

    # The boundary -----------------------------------------------------------------------------------------------------

    def install(self, optimizer: Any) -> list[Any]:
        """Set the two hooks of one optimizer."""
        return [
            optimizer.register_step_pre_hook(self.before_step),
            optimizer.register_step_post_hook(self.after_step),
        ]

    def before_step(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Read what is there before the optimizer steps. Clause: AMP-1, STEP-10."""
        if self.open is None:
            if self.ask.step is None:
                refuse("watch_step_source_missing", "Use watch.step(n), step= or a framework callback.")
            self.enter(self.ask.step(), None, False)
        if self.is_repeated(optimizer):
            self.skips.append(("boundary_repeated", self.open))
            return None
        held = Held(optimizer, self.scaler.factor(optimizer), self.scaler.overflowed(optimizer))
        self.boundaries.append(held)
        held.parameters = {leaf: p.detach().double().clone() for leaf, p in self.sites_of(optimizer).items()}
        closure = next((value for value in (*args[1:], *kwargs.values()) if callable(value)), None)
        if closure is None:
            self.take_gradients(held)
            return None

        def counted(*arguments: Any) -> Any:
            loss = closure(*arguments)
            held.evaluations += 1
            if held.evaluations == 1:
                self.take_gradients(held)
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": counted}
        return (args[0], counted), kwargs

    def is_repeated(self, optimizer: Any) -> bool:
        """Say whether it stepped in this scope already: a series has one point a step, of the first boundary."""
        return any(held.optimizer is optimizer for held in self.boundaries)

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Measure what the step did. Clause: STAT-4."""
        held = self.boundaries[-1]
        if not held.updates:
            for leaf, parameter in self.sites_of(optimizer).items():
                held.updates[leaf] = self.update(held, leaf, parameter, optimizer)
        if self.ask.step is not None:
            self.leave()

    def sites_of(self, optimizer: Any) -> Mapping[str, torch.Tensor]:
        """Return the watched parameters of one optimizer. Clause: STEP-11."""
        mine = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        return {leaf: parameter for leaf, parameter in self.sites.items() if id(parameter) in mine}

    def take_gradients(self, held: Held) -> None:
        """Copy the gradients, in float64, without the scale; one that is None has no row. Clause: AMP-3, ATTACH-8."""
        for leaf, parameter in self.sites_of(held.optimizer).items():
            if parameter.grad is None:
                self.skips.append(("gradient_none", self.open))
            else:
                held.gradients[leaf] = self.unscaled(parameter.grad.detach().double().flatten(), held)

    def unscaled(self, gradient: torch.Tensor, held: Held) -> torch.Tensor:
        """Return the gradient without its scale."""
        return gradient / (held.factor or 1.0)

    def update(self, held: Held, leaf: str, parameter: torch.Tensor, optimizer: Any) -> torch.Tensor:
        """Return after minus before. Clause: STAT-4."""
        return parameter.detach().double() - held.parameters[leaf]

    # Rows -------------------------------------------------------------------------------------------------------------

    def heartbeat(self, step: int) -> None:
        """Send heartbeat and manifest, before any data. Clause: STEP-8."""
        if self.disabled_by:
            return
        self.run_row("attached", step, 1)
        self.emit(TextPoint(meta_tag("manifest", **self.naming.parts), step, f"sites: {', '.join(self.sites)}"))
        if self.modules.ratio is not None:
            self.tell_cost(step, self.modules.ratio)

    def tell_cost(self, step: int, ratio: float) -> None:
        """Send what observing operations costs. Clause: TIER-2."""
        self.run_row("op_grain_overhead_median_x", step, ratio)
        self.emit(TextPoint(meta_tag("op_grain_calibration", **self.naming.parts), step, f"{ratio} times the forward"))

    def run_row(self, key: str, step: int, value: float | None) -> None:
        """Send one run-health row."""
        if value is not None:
            self.emit(ScalarPoint(run_tag(key, **self.naming.parts), step, value))

    def emit_block(self, step: int, boundaries: list[Held]) -> None:
        """Send the data rows of one step."""
        for held in boundaries:
            streams = {"gradients": held.gradients, "parameters": held.parameters, "updates": held.updates}
            for family, values in streams.items():
                if family in self.ask.signals:
                    for leaf, tensor in values.items():
                        self.emit_site(family, leaf, tensor.flatten(), step)
            for leaf, update in held.updates.items() if "updates" in self.ask.signals else ():
                norm = held.parameters[leaf].norm().item()
                if norm:
                    self.emit(
                        ScalarPoint(self.naming.scalar("updates", "ratio", leaf), step, update.norm().item() / norm),
                        data=True,
                    )
            if held.evaluations:
                self.run_row("closure_evaluations", step, held.evaluations)
        for (family, leaf), outputs in self.modules.merged().items():
            self.emit_site(family, leaf, outputs, step)
        if self.modules.derived or any(held.factor is not None for held in boundaries):
            self.run_row("amp_unscale_derived", step, 1)

    def emit_site(self, family: str, leaf: str, values: torch.Tensor, step: int) -> None:
        """Send the rows of one site."""
        for point in self.scalars(family, leaf, values, step):
            self.emit(point, data=True)
        if self.ask.hist_every is not None and (len(self.sampled) == 1 or step % self.ask.hist_every == 0):
            self.emit(self.histogram(family, leaf, values, step), data=True)

    def scalars(self, family: str, leaf: str, values: torch.Tensor, step: int) -> list[ScalarPoint]:
        """Return the scalar points of one site. Clause: STAT-1."""
        return scalar_points(family, leaf, values, step, self.naming)

    def histogram(self, family: str, leaf: str, values: torch.Tensor, step: int) -> Point:
        """Return the histogram of one site. Clause: GRID-2."""
        return histogram_point(family, leaf, values, step, self.naming)

    def recorded_scale(self) -> float | None:
        """Return the scale that the step used. Clause: AMP-1."""
        return self.scaler.scale

    # The end ----------------------------------------------------------------------------------------------------------

    def close(self) -> CloseFacts:
        """Take the hooks away, force the final sample, close the sinks, and report. Clause: CLOSE-1..4."""
        if self.report is not None:
            return self.report
        self.remove_hooks()
        unregister(self.model, self.ask)
        if self.first is None:
            self.heartbeat(0)
        self.tell_disabled()
        forced = self.force_final_sample()
        self.close_sinks()
        self.report = self.facts(forced)
        explained = {step for _, step in self.skips}
        if self.last is not None and not any(self.data) and self.last not in explained and not self.disabled_by:
            refuse("watch_close_empty", "The run saw steps, and no data point arrived.")
        return self.report

    def tell_disabled(self) -> None:
        """Send the row that says that the environment turned the session off. Clause: ENV-1."""
        if self.disabled_by.startswith(DISABLE):
            self.run_row("disabled", self.last or 0, 1)

    def remove_hooks(self) -> None:
        """Take every hook away. Clause: CLOSE-3."""
        for hook in self.hooks:
            hook.remove()

    def force_final_sample(self) -> bool:
        """Send the parameters at the last seen step when it was not sampled. Clause: STEP-4."""
        if (
            self.last is None
            or self.last in self.sampled
            or not self.boundaries
            or "parameters" not in self.ask.signals
        ):
            return False
        self.emit_final_sample(self.last)
        return True

    def emit_final_sample(self, step: int) -> None:
        """Send the parameters as they are now."""
        for leaf, parameter in self.sites.items():
            for point in self.scalars("parameters", leaf, parameter.detach().double().flatten(), step):
                self.emit(point, data=True)

    def facts(self, forced: bool) -> CloseFacts:
        """Return the close report."""
        return CloseFacts(
            len(self.sampled),
            self.first,
            self.last,
            forced,
            self.sink_facts(),
            tuple(self.skips),
            "plain",
            self.disabled_by,
        )

    def planned_bytes(self) -> int | None:
        """Return the bytes of one sampled step: ten statistics and one histogram a site. Clause: XFER-1."""
        return 8 * len(self.sites) * len(self.ask.signals) * (10 + GRID.bucket_count)
