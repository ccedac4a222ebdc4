"""What a session will do and cost, told before the first step (TIER, XFER-1, ATTACH-5)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..protocol.grid import GridDescriptor
from ..protocol.tags import STATISTICS
from ..statistics.packing import columns_of
from .op_grain.sites import OperationSite
from .settings import MODULE_SIGNALS
from .sites import ModuleSite, ParameterSite

_ITEM_SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}

LEVERS = "every= is the lever on time: a step that is not sampled costs microseconds, whatever is watched"


@dataclass(frozen=True, slots=True)
class FamilyPlan:
    """What one signal costs on a sampled step.

    Attributes:
        signal: The signal.
        tier: ``P``, ``M`` or ``O``.
        sites: Tensors that it reads.
        elements: Elements that it reads; None where shapes are known only at run time.
        bytes_per_step: Bytes that leave the device on a step with histograms, if any are asked for.
    """

    signal: str
    tier: str
    sites: int
    elements: int | None
    bytes_per_step: int


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What a session will do and cost. Experimental.

    Attributes:
        families: One row a signal.
        matched_sites: Distinct watched parameters and outputs of modules or operations.
        elements_per_step: Elements read on a sampled step, as far as they are known at attach.
        bytes_per_step: Bytes that leave the device on a sampled step, scalars only.
        bytes_per_histogram_step: The same on a step with histograms; equal without histograms.
        peak_bytes: Memory that a sampled step needs beside fixed scratch: the copy of the parameters for updates, which
            an optimizer's hooks leave no way around.
        every: Cadence of scalars.
        hist_every: Cadence of histograms, or None.
        descriptor: The grid, or None without histograms.
        aliases: Tied names by leaf.
        frozen: Leaves that did not require gradients at attach.
        lazy: Leaves that had no values at attach.
        budgets: The budgets that were set.
        notes: What else there is to know.
        op_grain_overhead_median_x: At op grain, what a few pairs on this machine gave for the first forward of a
            sampled step, as a multiple of the plain forward; else None.

    Clause: XFER-1, TAG-6, ATTACH-5, TIER-2.
    """

    families: tuple[FamilyPlan, ...]
    matched_sites: int
    elements_per_step: int
    bytes_per_step: int
    bytes_per_histogram_step: int
    peak_bytes: int
    every: int
    hist_every: int | None
    descriptor: GridDescriptor | None
    aliases: Mapping[str, tuple[str, ...]]
    frozen: tuple[str, ...]
    lazy: tuple[str, ...]
    budgets: Mapping[str, int]
    notes: tuple[str, ...]
    op_grain_overhead_median_x: float | None = None

    def as_dict(self) -> dict[str, object]:
        """The plan as standard JSON values."""
        return {
            "families": [
                {
                    "signal": family.signal,
                    "tier": family.tier,
                    "sites": family.sites,
                    "elements": family.elements,
                    "bytes_per_step": family.bytes_per_step,
                }
                for family in self.families
            ],
            "matched_sites": self.matched_sites,
            "elements_per_step": self.elements_per_step,
            "bytes_per_step": self.bytes_per_step,
            "bytes_per_histogram_step": self.bytes_per_histogram_step,
            "peak_bytes": self.peak_bytes,
            "every": self.every,
            "hist_every": self.hist_every,
            "descriptor": None if self.descriptor is None else self.descriptor.as_dict(),
            "aliases": {leaf: list(names) for leaf, names in self.aliases.items()},
            "frozen": list(self.frozen),
            "lazy": list(self.lazy),
            "budgets": dict(self.budgets),
            "notes": list(self.notes),
            "op_grain_overhead_median_x": self.op_grain_overhead_median_x,
        }

    def format(self) -> str:
        """The plan as text for people."""
        lines = [f"{'signal':<17}{'tier':<6}{'sites':>7}{'elements':>14}{'bytes/step':>12}"]
        for family in self.families:
            elements = "at run time" if family.elements is None else f"{family.elements:,}"
            lines.append(
                f"{family.signal:<17}{family.tier:<6}{family.sites:>7}{elements:>14}{family.bytes_per_step:>12,}"
            )
        histograms = "no histograms" if self.hist_every is None else f"histograms every {self.hist_every} steps"
        lines.append(f"scalars every {self.every} steps, {histograms}; the first step has both")
        lines.append(
            f"leaves the device: {self.bytes_per_step:,} bytes a sampled step, "
            f"{self.bytes_per_histogram_step:,} with histograms; peak memory {self.peak_bytes:,} bytes"
        )
        lines += [f"{leaf} is also {', '.join(names)}: one series" for leaf, names in self.aliases.items()]
        if self.frozen:
            lines.append(f"frozen at attach: {len(self.frozen)} parameters")
        if self.lazy:
            lines.append(f"created lazily, not counted yet: {', '.join(self.lazy)}")
        lines += [f"budget {name}: {limit:,}" for name, limit in self.budgets.items()]
        return "\n".join([*lines, *self.notes])

    def __str__(self) -> str:
        return self.format()


def make_plan(
    *,
    signals: tuple[str, ...],
    parameters: list[ParameterSite],
    modules: list[ModuleSite],
    output_leaves: int,
    every: int,
    hist_every: int | None,
    descriptor: GridDescriptor,
    budgets: Mapping[str, int],
    notes: tuple[str, ...],
    operations: Sequence[OperationSite] = (),
) -> PlanReport:
    """Return the plan of a session. Bytes and peak do not depend on the device; on a CPU nothing leaves it.

    Outputs of modules are counted as one call of each, and not as float64, which sends ten numbers more. Those of
    operations are counted as they were in discovery.
    """
    elements = sum(site.elements for site in parameters)
    grid = None if hist_every is None else descriptor
    families = []
    scalars = 0
    for signal in signals:
        by_module = signal in MODULE_SIGNALS
        dtypes = ["float32"] * output_leaves if by_module else [site.dtype for site in parameters]
        if operations:
            dtypes = [facts.dtype for site in operations for _, facts in site.outputs for _ in range(site.series)]
        # The norm of the parameter before the step is one more read, without a histogram.
        reads = 2 if signal == "updates" else 1
        without = sum(columns_of(dtype, None).bytes for dtype in dtypes)
        with_grid = sum(columns_of(dtype, grid).bytes for dtype in dtypes) + (reads - 1) * without
        scalars += reads * without
        read = None if by_module else elements * reads
        if operations:
            read = sum(site.elements for site in operations)
        tier = "O" if operations else "M" if by_module else "P"
        families.append(FamilyPlan(signal, tier, len(dtypes), read, with_grid))
    return PlanReport(
        tuple(families),
        (len(parameters) if not MODULE_SIGNALS.issuperset(signals) else 0) + output_leaves,
        sum(family.elements or 0 for family in families),
        scalars,
        sum(family.bytes_per_step for family in families),
        sum(site.elements * _ITEM_SIZES.get(site.dtype, 8) for site in parameters) if "updates" in signals else 0,
        every,
        hist_every,
        None if hist_every is None else descriptor,
        {site.leaf: tuple(leaf for leaf, _ in site.aliases) for site in parameters if site.aliases},
        tuple(site.leaf for site in parameters if not site.trainable),
        tuple(site.leaf for site in parameters if site.lazy),
        dict(budgets),
        (LEVERS, *notes),
    )


def manifest_text(
    plan: PlanReport,
    *,
    run: Mapping[str, object],
    parameters: list[ParameterSite],
    modules: list[ModuleSite],
    outputs: Mapping[str, list[str]],
    operations: Sequence[OperationSite] = (),
) -> str:
    """Return the manifest as JSON: the run, the plan, and every site with its raw path. Clause: TAG-6, STEP-8."""
    return json.dumps(
        {
            "format": "torchlens.watch.manifest.v1",
            "run": dict(run),
            "statistics": {"scalars": list(STATISTICS), "std": "population", "reduced_in": "float64, finite values"},
            "plan": plan.as_dict(),
            "parameters": [
                {
                    "leaf": site.leaf,
                    "path": site.path,
                    "aliases": [path for _, path in site.aliases],
                    "shape": list(site.shape),
                    "dtype": site.dtype,
                    "trainable": site.trainable,
                    "lazy": site.lazy,
                }
                for site in parameters
            ],
            "modules": [
                {"leaf": site.leaf, "path": site.path, "outputs": outputs.get(site.leaf, [])} for site in modules
            ],
            "operations": [
                {
                    "label": site.label,
                    "function": site.function,
                    "module": site.module,
                    "outputs": [
                        {"leaf": leaf, "shape": list(facts.shape), "dtype": facts.dtype} for leaf, facts in site.outputs
                    ],
                    "facets": [] if site.split is None else list(site.split.names),
                }
                for site in operations
            ],
        }
    )
