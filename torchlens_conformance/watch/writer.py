"""The rows of one sampled step (CLOSE-1, AMP-1, AMP-3, STEP-10)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..statistics import TensorStatistics
from .block import Block, OptimizerBoundary
from .boundary import owned_ids, parameter_requests, take_ratios
from .emission import Emitter
from .measure import Measurements, Results, fetch
from .owners import Owners, label_all
from .sites import ParameterSite, live_sites
from .watched import Watched

if TYPE_CHECKING:
    import torch


class BlockWriter:
    """Emits run-health rows, then data rows in the order of signals and sites.

    Args:
        watched: What is watched.
        emitter: Takes the rows.

    Attributes:
        unscaled: Sampled boundaries by what was known about their scale.
    """

    def __init__(self, watched: Watched, emitter: Emitter) -> None:
        self._watched = watched
        self._emitter = emitter
        self.unscaled: Counter[str] = Counter()

    def write(
        self,
        block: Block,
        owners: Owners,
        *,
        accepted: list[OptimizerBoundary],
        left_out: list[OptimizerBoundary],
        outputs: bool,
    ) -> int:
        """Emit the rows of a block; return how many data points they are.

        Args:
            block: The block.
            owners: The optimizers of the session.
            accepted: Boundaries whose update was accepted.
            left_out: Boundaries whose update a fused optimizer left out; they have a scale and no data.
            outputs: Whether outputs of modules have rows though no boundary was accepted.
        """
        step = block.due.step
        self._emitter.run("last_step", step, step)
        results: Results = {}
        ratios: dict[str, float] = {}
        if accepted or outputs:
            results = self._results(block, owners, accepted)
            ratios = take_ratios(results)
        self._write_scale(block, [*accepted, *left_out], results)
        evaluations = [boundary.sampled.evaluations for boundary in accepted if boundary.sampled is not None]
        if any(count is not None for count in evaluations):
            self._emitter.run("closure_evaluations", step, sum(count or 0 for count in evaluations))
        return self.write_results(step, results, ratios, {} if block.forward is None else block.forward.calls)

    def write_results(
        self,
        step: int,
        results: Mapping[tuple[str, str], TensorStatistics],
        ratios: Mapping[str, float],
        calls: Mapping[tuple[str, str], int],
    ) -> int:
        """Emit data rows; return how many points they are."""
        before = self._emitter.computed["data_points"]
        for family, leaves in self._watched.families.items():
            for leaf in leaves:
                found = results.get((family, leaf))
                if found is not None:
                    extra: dict[str, float] = {}
                    if family == "updates" and leaf in ratios:
                        extra["ratio"] = ratios[leaf]
                    if (family, leaf) in calls:
                        extra["calls"] = calls[family, leaf]
                    self._emitter.site(family, leaf, step, found, extra)
        produced = self._emitter.computed["data_points"] - before
        self._emitter.event("sampled", step, {"data_points": produced})
        return produced

    def _results(self, block: Block, owners: Owners, accepted: list[OptimizerBoundary]) -> Results:
        """Fetch everything that the block started. Clause: XFER-1."""
        parts = [boundary.sampled.measurements for boundary in accepted if boundary.sampled is not None]
        if accepted and self._watched.boundary_signals:
            parts.append(self._without_optimizer(block, owners))
        if block.forward is not None:
            parts.append(block.forward.measurements)
        results: Results = {}
        for found in fetch(parts):
            results.update(found)
        return results

    def _without_optimizer(self, block: Block, owners: Owners) -> Measurements:
        """Start to measure parameters that no optimizer updates; a gradient of theirs is at nobody's boundary."""
        owned = {key for optimizer in owners.all() for key in owned_ids(optimizer)}
        rest: list[tuple[ParameterSite, torch.Tensor]] = []
        for site, parameter, _ in live_sites(self._watched.parameters, self._watched.model):
            if parameter is not None and id(parameter) not in owned:
                rest.append((site, parameter))
                if "gradients" in self._watched.signals and parameter.grad is not None:
                    block.report("gradient_without_optimizer", "", site.leaf)
        measurements = Measurements(block.report)
        if "parameters" in self._watched.signals and rest:
            descriptor = self._watched.descriptor if block.due.histograms else None
            measurements.add(parameter_requests(rest, descriptor))
        return measurements

    def _write_scale(self, block: Block, boundaries: list[OptimizerBoundary], results: Results) -> None:
        """Emit the scale, what was known about it, and whether numbers were derived. Clause: AMP-1..5."""
        step = block.due.step
        facts = {id(boundary.optimizer): boundary.fact for boundary in boundaries if boundary.fact is not None}
        scales = [fact.scale for fact in facts.values() if fact.scale is not None]
        scale = scales[0] if scales else block.view.scale_at_entry
        if scale is not None:
            self._emitter.run("amp_scale", step, scale)
        labels = label_all(boundary.optimizer for boundary in boundaries)
        words = {labels[key]: fact.unscaled for key, fact in facts.items() if fact.unscaled is not None}
        if words:
            self.unscaled.update(str(word) for word in words.values())
            told = set(words.values())
            self._emitter.meta("amp_unscaled", step, str(told.pop()) if len(told) == 1 else json.dumps(words))
        for fact in facts.values():
            if not fact.usable:
                block.report("amp_scale_not_power_of_two", repr(fact.scale), "")
        families = {family for family, _ in results}
        in_gradients = "gradients" in families and any(fact.derived for fact in facts.values())
        in_outputs = "activation_grads" in families and (block.view.gradient_scale() or 1.0) != 1.0
        if in_gradients or in_outputs:
            self._emitter.run("amp_unscale_derived", step, 1)
