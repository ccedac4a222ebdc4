"""Puts a session together: sites, checks, discovery, plan, then registration and hooks (ATTACH-5, ATTACH-6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from ..protocol.grid import DEFAULT_DESCRIPTOR, GridDescriptor
from ..protocol.ledger import Ledger
from ..protocol.tags import require_component
from . import checks
from .discovery import discover
from .drain import Drain
from .emission import Emitter, EventStream
from .engine import Engine
from .hooks import HookSet, install
from .op_grain.attaching import NOTES, calibrate_watched, watched_operations
from .op_grain.selection import OperationChoice
from .owners import Owners, require_optimizers
from .plan import PlanReport, make_plan, manifest_text
from .registry import Key, Registration, require_free, shares_names
from .rows import TagBook
from .schedule import StepLaw
from .session import Parts
from .settings import BOUNDARY_SIGNALS, MODULE_SIGNALS, WatchSettings, require_within
from .sites import ModuleSite, module_sites, parameter_sites, select_sites
from .skips import Skips
from .watched import Watched
from .wrappers import is_data_parallel, unwrapped


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The keywords of ``watch()``, each checked by itself."""

    model: nn.Module
    ledger: Ledger
    signals: tuple[str, ...]
    optimizer: object
    selectors: tuple[str, ...] | None
    choice: OperationChoice | None
    every: int
    hist_every: int | None
    source: Callable[[], object] | None
    name: str | None
    namespace: str | None
    inputs: object
    descriptor: GridDescriptor | None
    settings: WatchSettings
    budgets: dict[str, int]
    allow_missing_phases: bool
    close_sinks: bool
    events: EventStream | None
    disabled_by: str | None


def assemble(request: Request) -> Parts:
    """Return the parts of a session; nothing is left behind when something is refused. Clause: ATTACH-6."""
    for what, value in (("name", request.name), ("namespace", request.namespace)):
        if value is not None:
            require_component(value, what=what)
    ledger = request.ledger
    ledger.require(("scalar",) if request.hist_every is None else ("scalar", "raw_histogram"))
    checks.require_open_sinks(ledger)
    root = unwrapped(request.model)
    require_free(root, (request.namespace, request.name))
    rank = _silent_rank(request.model)
    disabled_by = request.disabled_by or (None if rank is None else f"rank {rank}: rank 0 emits")
    watched = _resolve(request, collects=request.disabled_by is None)
    histograms = request.hist_every is not None
    tags = _tag_book(request, watched)
    checks.preflight_tags(ledger, tags.require_safe())
    if histograms:
        checks.preflight_histograms(ledger, watched.descriptor)
    plan = _plan(request, watched)
    if request.disabled_by is None:
        require_within(request.budgets, _costs(plan))
    calibration = None if disabled_by else calibrate_watched(watched, request.inputs, histograms=histograms)
    if calibration is not None:
        plan = replace(plan, notes=(*plan.notes, calibration.sentence()), op_grain_overhead_median_x=calibration.ratio)
        calibration.warn()
    _add_notes(ledger, (request.namespace, request.name))
    law = StepLaw(every=request.every, hist_every=request.hist_every, last_step=checks.held_step(ledger))
    law.segment = request.settings.segment_id
    emitter = Emitter(ledger, tags, events=request.events)
    skips = Skips(retention=request.settings.retention)
    manifest = _manifest(request, watched, plan)
    drain = Drain(
        watched,
        law=law,
        emitter=emitter,
        skips=skips,
        manifest=manifest,
        retention=request.settings.retention,
        calibration=calibration,
    )
    engine = None if disabled_by else _engine(request, watched, law=law, drain=drain, skips=skips)
    registration = Registration(root, (request.namespace, request.name), [row.sink for row in ledger.rows])
    hooks = HookSet()
    if engine is not None:
        try:
            needs_boundary = bool(watched.boundary_signals) or request.source is not None
            entry = request.source is not None and bool(watched.module_signals)
            install(engine, hooks, boundaries=needs_boundary, entry=entry)
        except BaseException:
            hooks.remove()
            registration.release()
            raise
    return Parts(
        watched=watched,
        settings=request.settings,
        plan=plan,
        law=law,
        skips=skips,
        tags=tags,
        ledger=ledger,
        emitter=emitter,
        drain=drain,
        engine=engine,
        hooks=hooks,
        registration=registration,
        close_sinks=request.close_sinks,
        disabled_by=disabled_by,
        silent=rank is not None,
        notes=[] if rank is None else [f"this is rank {rank} of a DistributedDataParallel run; rank 0 emits"],
    )


def _resolve(request: Request, *, collects: bool) -> Watched:
    """Return what is watched, after every check of the model; a disabled session watches nothing."""
    model, signals = request.model, request.signals
    descriptor = request.descriptor or checks.offered_descriptor(request.ledger) or DEFAULT_DESCRIPTOR
    if not collects:
        return Watched(model, signals, [], [], {}, descriptor, request.allow_missing_phases)
    if request.choice is not None:
        checks.require_no_foreign_watcher(model, request.namespace)
        checks.require_whole(model, [])
        checks.require_open_forward(model)
        missing = request.allow_missing_phases
        return watched_operations(
            model, request.inputs, request.selectors, request.choice, descriptor, allow_missing_phases=missing
        )
    needs_parameters = bool(BOUNDARY_SIGNALS.intersection(signals))
    needs_modules = bool(MODULE_SIGNALS.intersection(signals))
    parameters, modules = select_sites(
        request.selectors,
        parameter_sites(model) if needs_parameters else None,
        module_sites(model) if needs_modules else None,
    )
    checks.require_no_foreign_watcher(model, request.namespace)
    checks.require_whole(model, parameters)
    checks.require_supported_dtypes(parameters)
    if "gradients" in signals:
        checks.require_dense_gradients(model, parameters)
    outputs: dict[str, list[str]] = {}
    if needs_modules:
        checks.require_eager(model, modules)
        pairs = [(site, model.get_submodule(site.path)) for site in modules]
        outputs = discover(unwrapped(model), pairs, request.inputs)
        modules = [site for site in modules if not _never_runs(model, site)]
    return Watched(model, signals, parameters, modules, outputs, descriptor, request.allow_missing_phases)


def _never_runs(model: nn.Module, site: ModuleSite) -> bool:
    return isinstance(model.get_submodule(site.path), (nn.ModuleList, nn.ModuleDict))


def _tag_book(request: Request, watched: Watched) -> TagBook:
    tags = TagBook(name=request.name, namespace=request.namespace)
    for family, leaves in watched.families.items():
        for leaf in leaves:
            tags.site(family, leaf)
    return tags


def _plan(request: Request, watched: Watched) -> PlanReport:
    notes: list[str] = []
    if watched.choice is not None:
        notes += NOTES
    elif watched.module_signals:
        notes.append(
            "tier M: ordinary forward hooks, about 1.1x of the forward on sampled steps; one discovery forward"
        )
        notes.append("tier M: elements are known at run time, and bytes are those of one call of each module")
        silent = [site.leaf for site in watched.modules if site.leaf not in watched.outputs]
        if silent:
            notes.append(f"did not run in the discovery forward: {', '.join(silent)}")
    return make_plan(
        signals=watched.signals,
        parameters=watched.parameters,
        modules=watched.modules,
        output_leaves=len(watched.output_leaves),
        every=request.every,
        hist_every=request.hist_every,
        descriptor=watched.descriptor,
        budgets=request.budgets,
        notes=tuple(notes),
        operations=watched.operations,
    )


def _costs(plan: PlanReport) -> dict[str, int]:
    return {
        "max_sites": plan.matched_sites,
        "max_bytes_per_step": plan.bytes_per_histogram_step,
        "max_elements_per_step": plan.elements_per_step,
    }


def _manifest(request: Request, watched: Watched, plan: PlanReport) -> str:
    from .. import __version__

    run = {
        "run_id": request.settings.run_id,
        "segment": request.settings.segment_id,
        "signals": list(watched.signals),
        "name": request.name,
        "namespace": request.namespace,
        "model": type(unwrapped(request.model)).__name__,
        "wrapped_in": type(request.model).__name__ if unwrapped(request.model) is not request.model else None,
        "sinks": [row.name for row in request.ledger.rows],
        "step_source": "callable" if request.source is not None else "scope",
        "torch": torch.__version__,
        "torchlens_conformance": __version__,
    }
    return manifest_text(
        plan,
        run=run,
        parameters=watched.parameters,
        modules=watched.modules,
        outputs=watched.outputs,
        operations=watched.operations,
    )


def _add_notes(ledger: Ledger, key: Key) -> None:
    for row in ledger.rows:
        if shares_names(row.sink, key):
            row.notes.append("another open session writes here under the same names: give one of them a name=")
        if "text_manifest" not in row.capabilities:
            row.notes.append("carries no texts: the manifest is not in it")


def _engine(request: Request, watched: Watched, *, law: StepLaw, drain: Drain, skips: Skips) -> Engine:
    def parameters() -> dict[int, object]:
        live = dict(watched.model.named_parameters(remove_duplicate=False))
        if not watched.parameters:  # Activations alone: any optimizer of the model marks the step.
            return {id(parameter): parameter for parameter in live.values()}
        return {id(live[site.path]): live[site.path] for site in watched.parameters if site.path in live}

    owners = Owners(require_optimizers(request.optimizer), parameters)
    return Engine(watched, law=law, owners=owners, drain=drain, skips=skips, source=request.source)


def _silent_rank(model: nn.Module) -> int | None:
    """Return this process's rank when the model is data-parallel and another process emits, else None."""
    if not is_data_parallel(model) or not torch.distributed.is_initialized():
        return None
    rank = torch.distributed.get_rank()
    return rank or None
