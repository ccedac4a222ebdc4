"""What is refused at attach, and why (ATTACH-2..4, ATTACH-8, PROT-11)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from ..protocol.grid import GridDescriptor
from ..protocol.ledger import Ledger, LedgerRow
from ..protocol.refusals import Refusal
from ..statistics.layout import DTYPES
from .registry import is_held
from .settings import WatchSettings, refuse_setting
from .sites import ModuleSite, ParameterSite, current_parameters
from .wrappers import clean_name, unwrapped

SHOWN = 8
"""Names that a refusal lists."""


def require_descriptor(descriptor: object, settings: WatchSettings | None) -> GridDescriptor | None:
    """Return the caller's grid, or None when the first sink that offers one may set it. Clause: ATTACH-4."""
    if descriptor is not None and not isinstance(descriptor, GridDescriptor):
        refuse_setting("descriptor", descriptor, "a GridDescriptor")
    if descriptor is not None and settings is not None and settings.descriptor != descriptor:
        refuse_setting("descriptor", descriptor, "the one in settings=, or left out")
    return settings.descriptor if settings is not None else descriptor


def offered_descriptor(ledger: Ledger) -> GridDescriptor | None:
    """Return the grid of the first sink that offers one. Clause: ATTACH-4, PROT-7."""
    for row in ledger.rows:
        offer = getattr(row.sink, "default_histogram_descriptor", None)
        if callable(offer):
            grid = offer()
            if isinstance(grid, GridDescriptor):
                return grid
            row.notes.append(f"default_histogram_descriptor() gave a {type(grid).__name__}; the default grid is used")
    return None


def require_open_sinks(ledger: Ledger) -> None:
    """Refuse a closed sink, or one of another process: asked by ``flush()``, which a usable sink may always do.

    Raises ``tracker_sink_closed`` or ``tracker_sink_forked``. Clause: PROT-11.
    """
    for row in ledger.rows:
        try:
            row.sink.flush()  # type: ignore[attr-defined]
        except Refusal as refusal:
            if refusal.code in ("tracker_sink_closed", "tracker_sink_forked"):
                raise
        except Exception:
            continue  # It latches when the first point fails, and then the report says so.


def held_step(ledger: Ledger) -> int | None:
    """Return the largest step that resumed stores hold; a sink that cannot tell gets a note. Clause: PROT-11, STEP-2.

    A sink that another session holds too is not asked: its rows are that session's.
    """
    steps = [step for row in ledger.rows if (step := _held_by(row)) is not None]
    return max(steps, default=None)


def _held_by(row: LedgerRow) -> int | None:
    if is_held(row.sink):
        return None
    ask = getattr(row.sink, "last_step", None)
    if not callable(ask):
        row.notes.append("no last_step(): a step that a resumed store already holds is not detectable")
        return None
    try:
        step = ask()
    except Exception as error:
        row.notes.append(f"last_step() raised {type(error).__name__}: steps of a resumed store are not detectable")
        return None
    return step if type(step) is int else None


def preflight_histograms(ledger: Ledger, descriptor: GridDescriptor) -> None:
    """Let every sink judge the grid. Clause: ATTACH-4."""
    for row in ledger.rows:
        judge = getattr(row.sink, "preflight_histograms", None)
        if callable(judge):
            judge(descriptor)


def preflight_tags(ledger: Ledger, tags: Sequence[str]) -> None:
    """Let every sink judge every tag that the session can emit. Clause: PROT-7, TAG-3."""
    for row in ledger.rows:
        judge = getattr(row.sink, "preflight_tags", None)
        if callable(judge):
            judge(tags)


def require_no_foreign_watcher(model: nn.Module, namespace: str | None) -> None:
    """Refuse ``tracker_namespace_collision`` for hooks of wandb.watch without a ``namespace=``. Clause: ATTACH-2."""
    if namespace is not None:
        return
    for module in model.modules():
        if getattr(module, "_wandb_hook_names", None):
            raise Refusal(
                "tracker_namespace_collision",
                "wandb.watch is on this model and writes series of its own.",
                remedy="Call wandb.unwatch(model) first, or give namespace= to keep both.",
                watcher="wandb.watch",
            )


def require_whole(model: nn.Module, sites: Iterable[ParameterSite]) -> None:
    """Refuse ``watch_sharded_unsupported`` for parameters of which each process holds a part. Clause: ATTACH-8."""
    current = current_parameters(model)
    sharded = [site.leaf for site in sites if _is_sharded(current[site.path])]
    wrappers = sorted({type(module).__name__ for module in model.modules() if _is_fsdp(module)})
    if sharded or wrappers:
        raise Refusal(
            "watch_sharded_unsupported",
            "Parameters are sharded over processes, and statistics of a part would be wrong.",
            remedy="Watch a model that is not sharded (DistributedDataParallel is not), or leave these out by select=.",
            sites=sharded[:SHOWN],
            wrappers=wrappers,
        )


def _is_sharded(parameter: torch.Tensor) -> bool:
    kinds = {kind.__name__ for kind in type(parameter).__mro__ if kind.__module__.startswith("torch.")}
    return bool(kinds & {"DTensor", "FlatParameter", "ShardedTensor"}) or getattr(parameter, "_is_flat_param", False)


def _is_fsdp(module: nn.Module) -> bool:
    return any(kind.__name__ == "FullyShardedDataParallel" for kind in type(module).__mro__)


def require_supported_dtypes(sites: Iterable[ParameterSite]) -> None:
    """Refuse ``watch_dtype_unsupported`` for complex, integer and 8-bit parameters, by name."""
    known = {str(dtype).removeprefix("torch.") for dtype in DTYPES}
    bad = {site.leaf: site.dtype for site in sites if site.dtype not in known}
    if bad:
        raise Refusal(
            "watch_dtype_unsupported",
            "Statistics are defined for float64, float32, float16 and bfloat16 only.",
            remedy="Leave these parameters out by select=.",
            sites=dict(list(bad.items())[:SHOWN]),
            count=len(bad),
        )


def require_dense_gradients(model: nn.Module, sites: Iterable[ParameterSite]) -> None:
    """Refuse ``watch_sparse_grad_unsupported`` for parameters of modules with ``sparse=True``. Clause: ATTACH-3."""
    watched = {path for site in sites for path in (site.path, *(path for _, path in site.aliases))}
    sparse = [
        clean_name(model, prefix) or type(module).__name__
        for prefix, module in model.named_modules()
        if getattr(module, "sparse", False) is True
        and any((f"{prefix}.{own}" if prefix else own) in watched for own, _ in module.named_parameters(recurse=False))
    ]
    if sparse:
        raise Refusal(
            "watch_sparse_grad_unsupported",
            "The gradients of modules with sparse=True have no statistics.",
            remedy="Leave these modules out by select=, watch parameters or updates, or use sparse=False.",
            modules=sparse[:SHOWN],
        )


def require_eager(model: nn.Module, modules: Iterable[ModuleSite]) -> None:
    """Refuse ``watch_compiled_unsupported``: hooks inside a compiled graph break it or stay silent. Clause: TIER-1."""
    compiled = [prefix for prefix, module in model.named_modules() if _is_compiled(module)]
    inside = [
        site.leaf for site in modules if any(not top or f"{site.path}.".startswith(f"{top}.") for top in compiled)
    ]
    if inside:
        raise Refusal(
            "watch_compiled_unsupported",
            "Outputs of modules inside a compiled graph cannot be watched without breaking the graph.",
            remedy="Watch gradients, parameters and updates, which need no hook on modules, or do not compile.",
            modules=inside[:SHOWN],
        )


def require_open_forward(model: nn.Module) -> None:
    """Refuse ``watch_compiled_unsupported`` at op grain, where every call has to be seen. Clause: TIER-3.

    A recording would make compiled code compile anew, and scripted code calls nothing that can be seen. Also refuses
    ``watch_tier_unavailable`` for DataParallel, which copies the model for every forward, and what stands in the
    forward's place.
    """
    if isinstance(model, nn.DataParallel):
        raise Refusal(
            "watch_tier_unavailable",
            "DataParallel runs copies of the model, whose operations cannot be watched.",
            remedy="Use DistributedDataParallel, or watch outputs of modules.",
            wrapper="DataParallel",
        )
    closed = [
        clean_name(model, path) or type(module).__name__
        for path, module in model.named_modules()
        if _is_compiled(module)
    ]
    if isinstance(unwrapped(model), torch.jit.ScriptModule):
        closed.append(type(unwrapped(model)).__name__)
    if closed:
        raise compiled_unsupported(closed)


def compiled_unsupported(modules: Sequence[str]) -> Refusal:
    """Return the refusal for compiled or scripted code at op grain. Clause: TIER-3."""
    return Refusal(
        "watch_compiled_unsupported",
        "Operations inside compiled or scripted code cannot be watched one by one.",
        remedy="Watch the model before it is compiled, or watch gradients, parameters and updates of this one.",
        modules=list(modules[:SHOWN]),
    )


def _is_compiled(module: nn.Module) -> bool:
    return type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None
