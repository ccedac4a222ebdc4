"""``watch()``: everything is checked before anything is installed or emitted (ATTACH-1..9)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from torch import nn

from ..protocol.grid import GridDescriptor
from ..protocol.ledger import Ledger
from ..protocol.refusals import Refusal, short_repr
from . import checks
from .assemble import Request, assemble
from .emission import EventStream
from .op_grain.selection import (
    FunctionSelector,
    HeadSplit,
    OperationChoice,
    refuse_selector,
    require_facets,
    without_functions,
)
from .session import WatchSession
from .settings import (
    WatchSettings,
    refuse_setting,
    require_budgets,
    require_grain,
    require_module_inputs,
    require_op_signals,
    require_period,
    require_signals,
)
from .sites import require_selectors

if TYPE_CHECKING:
    from torch.optim import Optimizer

DISABLE_VARIABLE = "TORCHLENS_WATCH_DISABLE"
"""Set to 1, it turns collection off; no variable turns anything on (ENV-1)."""


def watch(
    model: nn.Module,
    to: object,
    *,
    signals: Iterable[str] = ("gradients",),
    optimizer: Optimizer | Iterable[Optimizer] | None = None,
    select: str | FunctionSelector | Iterable[str | FunctionSelector] | None = None,
    every: int = 50,
    hist_every: int | None = None,
    step: Callable[[], object] | None = None,
    name: str | None = None,
    namespace: str | None = None,
    inputs: object = None,
    example_input: object = None,
    grain: str = "module",
    allow_forward_wrap: bool = False,
    facets: Mapping[str, HeadSplit] | Mapping[FunctionSelector, HeadSplit] | None = None,
    descriptor: GridDescriptor | None = None,
    settings: WatchSettings | None = None,
    max_sites: int | None = None,
    max_bytes_per_step: int | None = None,
    max_elements_per_step: int | None = None,
    budgets: Mapping[str, int] | None = None,
    allow_missing_phases: bool = False,
    close_sinks: bool = True,
    event_stream: EventStream | None = None,
) -> WatchSession:
    """Watch the training of a model and emit what is seen, on the caller's own step axis. Experimental.

    Nothing of the training changes: gradients, random states, module modes, buffers, optimizer state and the caller's
    exceptions are those of an unwatched run, bit for bit, and after ``close()`` no hook is left.

    Args:
        model: The model, wrapped (DistributedDataParallel, torch.compile) or not; names are those of the inner model.
        to: One sink, or several.
        signals: Out of ``gradients``, ``parameters``, ``updates`` (read at the optimizer boundary), ``activations``,
            ``activation_grads`` (read at outputs of modules; need ``select=`` and ``inputs=``). Parameters are those
            after the step, gradients those that the step used, updates after minus before.
        optimizer: The optimizer or optimizers; left out, every optimizer that updates a watched parameter.
        select: Prefixes of parameter and module names, by whole components; left out, all parameters. At op grain
            also :func:`~torchlens_conformance.trackers.func`; a prefix stands for the operations of a module.
        every: Steps that it divides are sampled; the first eligible and the last one always are.
        hist_every: The same for histograms; None for none.
        step: For a loop without step scopes: returns the present step, called at every boundary.
        name: One component that tells this session's series apart.
        namespace: One component in front of every tag.
        inputs: An example of the model's inputs for one discovery forward: a tensor, a tuple, a mapping of keywords.
        example_input: The same as ``inputs``.
        grain: ``module``, or ``op`` for single operations inside the forward: activations alone, of the first forward
            of a sampled step, under labels ``<function>_<k>_<n>`` of one discovery forward.
        allow_forward_wrap: Consent to op grain, whose observer stands in the place of ``model.forward`` while a sampled
            step runs. A few more forwards at attach measure what it costs, which one warning and the plan tell.
        facets: At op grain, labels or functions by which outputs are split, each part with a series of its own; see
            :func:`~torchlens_conformance.trackers.split_heads`.
        descriptor: The grid of the histograms; left out together with ``settings``, the first sink that offers one.
        settings: See :class:`WatchSettings`.
        max_sites: Most watched parameters and module outputs.
        max_bytes_per_step: Most bytes that leave the device on one step.
        max_elements_per_step: Most elements read on one step.
        budgets: The three budgets as one mapping.
        allow_missing_phases: Whether a step without its optimizer boundary is a named skip in place of a refusal.
        close_sinks: Whether the last session that holds a sink closes it.
        event_stream: Called with an :class:`~torchlens_conformance.protocol.EventPoint` for every event of the engine
            (attached, segment, sampled, closed); when it raises, it is given up and the report says so.

    Raises, with nothing left behind: ``watch_model_invalid``, ``watch_signals_invalid``, ``watch_selector_invalid``,
    ``watch_selector_matched_no_sites``, ``watch_settings_invalid``, ``watch_budget_invalid``,
    ``watch_budget_exceeded``, ``watch_optimizer_invalid``, ``watch_sparse_grad_unsupported``,
    ``watch_sharded_unsupported``, ``watch_dtype_unsupported``, ``watch_compiled_unsupported``,
    ``watch_tier_inputs_missing``, ``watch_tier_unavailable``, ``watch_forward_wrap_consent_required``,
    ``watch_facet_shape_invalid``,
    ``watch_discovery_failed``, ``tracker_namespace_collision``, ``tracker_name_invalid``, ``tracker_tag_unsafe``,
    ``tracker_sink_invalid``, ``tracker_sink_duplicate``, ``tracker_sink_closed``,
    ``tracker_sink_capability_missing``, and what a sink's own preflight raises.

    Clause: STEP-1, ATTACH-1..9, TAG-2, TAG-3, TAG-6, TIER-1, TIER-2, TIER-3, ENV-1.
    """
    if not isinstance(model, nn.Module):
        raise Refusal(
            "watch_model_invalid",
            "The model is no torch.nn.Module.",
            remedy="Give the module itself: watch(model, to=sink).",
            model=short_repr(model),
        )
    by_operation = require_grain(grain, allow_forward_wrap=allow_forward_wrap)
    example = _one_example(inputs, example_input)
    words = require_signals(signals)
    if by_operation:
        require_op_signals(words)
    require_module_inputs(words, select=select, inputs=example)
    prefixes, choice = _what_is_chosen(select, facets, by_operation=by_operation)
    if step is not None and not callable(step):
        refuse_setting("step", step, "a callable without arguments")
    if event_stream is not None and not callable(event_stream):
        refuse_setting("event_stream", event_stream, "a callable that takes an event")
    if settings is not None and not isinstance(settings, WatchSettings):
        refuse_setting("settings", settings, "a WatchSettings")
    limits = {
        "max_sites": max_sites,
        "max_bytes_per_step": max_bytes_per_step,
        "max_elements_per_step": max_elements_per_step,
    }
    request = Request(
        model=model,
        ledger=Ledger(to if isinstance(to, (list, tuple, set, frozenset)) else (to,)),
        signals=words,
        optimizer=optimizer,
        selectors=require_selectors(prefixes),
        choice=choice,
        every=_required_period("every", every),
        hist_every=require_period("hist_every", hist_every, optional=True),
        source=step,
        name=name,
        namespace=namespace,
        inputs=example,
        descriptor=checks.require_descriptor(descriptor, settings),
        settings=settings or WatchSettings(),
        budgets=require_budgets(limits, budgets),
        allow_missing_phases=bool(allow_missing_phases),
        close_sinks=bool(close_sinks),
        events=event_stream,
        disabled_by=f"{DISABLE_VARIABLE}=1" if os.environ.get(DISABLE_VARIABLE) == "1" else None,
    )
    return WatchSession(assemble(request))


def _what_is_chosen(select: object, facets: object, *, by_operation: bool) -> tuple[object, OperationChoice | None]:
    """Return the prefixes of ``select=``, and what is chosen among operations; None at module grain."""
    prefixes, functions = without_functions(select)
    if by_operation:
        return prefixes, OperationChoice(functions, require_facets(facets))
    if functions:
        refuse_selector(select, 'func() selects operations: give grain="op" and allow_forward_wrap=True with it.')
    if facets is not None:
        refuse_setting("facets", facets, 'left out unless grain="op"')
    return prefixes, None


def _required_period(name: str, value: object) -> int:
    period = require_period(name, value)
    assert period is not None
    return period


def _one_example(inputs: object, example_input: object) -> object:
    if inputs is not None and example_input is not None:
        refuse_setting("example_input", example_input, "left out when inputs= is given")
    return example_input if inputs is None else inputs
