"""One optimizer's boundary on a sampled step: gradients before, parameters and updates after (STAT-4, STEP-10)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer as TorchOptimizer

from ..protocol.grid import GridDescriptor
from .amp import ScaleFact
from .measure import Measurements, Report, Request, Results
from .sites import ParameterSite

if TYPE_CHECKING:
    from torch.optim import Optimizer

BEFORE = "before"
"""Family of the parameters before the step; their norm is needed for the ratio, and they have no rows."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of ``optimizer.step``."""


class SampledBoundary:
    """Measures what one optimizer does in one step.

    Before the step the watched parameters are copied when updates are watched; after it the copies are turned into
    differences in place. So the peak is one copy of the watched parameters, freed with the block.

    Args:
        signals: The boundary signals that are watched.
        sites: The optimizer's own sites with their parameters.
        fact: What is known about the loss scale.
        descriptor: The grid when histograms are due, else None.
        report: Takes skips.

    Attributes:
        measurements: What was started; fetched when the step is over.
        evaluations: How often the closure was called; None without a closure.

    Clause: STAT-4, STAT-5, STEP-10, AMP-3.
    """

    def __init__(
        self,
        signals: tuple[str, ...],
        sites: list[tuple[ParameterSite, torch.Tensor]],
        fact: ScaleFact,
        descriptor: GridDescriptor | None,
        report: Report,
    ) -> None:
        self._signals = signals
        self._sites = sites
        self._fact = fact
        self._descriptor = descriptor
        self._report = report
        self._copies: list[torch.Tensor] = []
        self.measurements = Measurements(report)
        self.evaluations: int | None = None

    @torch.no_grad()
    def before(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        """Measure what is there before the step; return the arguments of ``step`` when they have to be replaced."""
        del optimizer
        if "updates" in self._signals:
            self._copies = [parameter.detach().clone() for _, parameter in self._sites]
        replaced = self._with_watched_closure(args, kwargs)
        self._measure_before(gradients=replaced is None)
        return replaced

    @torch.no_grad()
    def after(self) -> None:
        """Measure what is there after the step."""
        requests: list[Request] = []
        for index, copy in enumerate(self._copies):
            site, parameter = self._sites[index]
            torch.sub(parameter.detach(), copy, out=copy)
            requests.append(Request("updates", site.leaf, copy, self._descriptor))
        if "parameters" in self._signals:
            requests += parameter_requests(self._sites, self._descriptor)
        self.measurements.add(requests)
        self._copies = []
        if self.evaluations == 0 and "gradients" in self._signals:
            for site, _ in self._sites:
                self._report("closure_not_called", "", site.leaf)

    def _measure_before(self, *, gradients: bool) -> None:
        requests = [Request(BEFORE, site.leaf, copy) for (site, _), copy in zip(self._sites, self._copies)]
        if gradients and "gradients" in self._signals:
            requests += self._gradient_requests()
        self.measurements.add(requests)

    def _gradient_requests(self) -> list[Request]:
        requests = []
        for site, parameter in self._sites:
            gradient = parameter.grad
            if gradient is not None:
                requests.append(Request("gradients", site.leaf, gradient, self._descriptor, self._fact.exponent))
            elif parameter.requires_grad:
                self._report("gradient_none", "", site.leaf)
        return requests

    def _with_watched_closure(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        """Return the arguments with a closure that reports its first evaluation, or None without a closure.

        The first positional argument is the optimizer itself. Before the closure ran, gradients are those of an earlier
        evaluation, which are stale. Clause: STEP-10.
        """
        if len(args) > 1 and callable(args[1]):
            self.evaluations = 0
            return (args[0], self._watched(args[1]), *args[2:]), kwargs
        if callable(kwargs.get("closure")):
            self.evaluations = 0
            return args, {**kwargs, "closure": self._watched(kwargs["closure"])}
        return None

    def _watched(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def evaluate() -> Any:
            loss = closure()
            self.evaluations = (self.evaluations or 0) + 1
            if self.evaluations == 1 and "gradients" in self._signals:
                with torch.no_grad():
                    self.measurements.add(self._gradient_requests())
            return loss

        return evaluate


def take_ratios(results: Results) -> dict[str, float]:
    """Take the parameters before the step out of ``results``; return update over parameter, by leaf, as norms.

    A leaf is left out where the norm of the parameter is zero. Clause: STAT-5.
    """
    ratios = {}
    for family, leaf in list(results):
        if family == BEFORE:
            before = results.pop((family, leaf)).norm
            update = results.get(("updates", leaf))
            if before and update is not None and update.norm is not None:
                ratios[leaf] = update.norm / before
    return ratios


def parameter_requests(
    sites: list[tuple[ParameterSite, torch.Tensor]], descriptor: GridDescriptor | None
) -> list[Request]:
    """Return the requests for the values of parameters."""
    return [Request("parameters", site.leaf, parameter.detach(), descriptor) for site, parameter in sites]


def is_inner_step(optimizer: Optimizer) -> bool:
    """Return whether the step whose hook runs was called by another step of the same optimizer.

    torch wraps the ``step`` of every class that was instantiated, so an optimizer that calls the ``step`` of its base
    class fires its hooks twice. The boundary is that of the step the caller called. Clause: STAT-4, STEP-11.
    """
    frame: FrameType | None = sys._getframe(1)
    steps = 0
    while frame is not None and steps < 2:
        code_is_torch = frame.f_globals.get("__name__") == TorchOptimizer.__module__
        if code_is_torch and frame.f_code.co_name == "wrapper" and frame.f_locals.get("self") is optimizer:
            steps += 1
        frame = frame.f_back
    return steps > 1


def owned_ids(optimizer: Optimizer) -> set[int]:
    """Return the ids of the parameters that ``optimizer`` updates now."""
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def holds_any(optimizer: Optimizer, parameters: Mapping[int, object]) -> bool:
    """Return whether ``optimizer`` updates one of ``parameters``, which are given by id."""
    return any(id(parameter) in parameters for group in optimizer.param_groups for parameter in group["params"])
